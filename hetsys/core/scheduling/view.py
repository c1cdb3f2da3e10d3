"""What a scheduling policy is given at the start of a round: the live jobs, as the scheduler knows them, and what is up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class JobView:
    """A live job. `steps_per_s` has one entry a kind, in the order of `ClusterView.kinds`: the gang's speed, 0 where it cannot run.

    `rounds_held`: the rounds in which it has held devices so far; `restarts`: how often it started on devices that it did not hold, after
    its first start; `held_kind`: the index of the kind that it held in the last round, -1 where it held none. `measured_steps_per_s[j]`:
    the gang's speed as its leases on kind j showed it, 0 where there was none (empty: nothing measured at all); `steps_per_s` is what the
    scheduler was told, or the same where the workload says that speeds are learnt. `isolated_s`: how long the steps made so far would have
    taken on an equal part of the cluster, with as many jobs live as there were (Gavel's cumulative isolated time).
    `spread_steps_per_s[j]`: the speed on kind j where the gang spans hosts, as the scheduler was told (empty: as `steps_per_s`).
    """

    name: str
    tenant: str
    job_type: str
    gang: int
    steps_per_s: tuple[float, ...]
    steps_left: int
    arrival_s: float
    rounds_held: int = 0
    restarts: int = 0
    held_kind: int = -1
    measured_steps_per_s: tuple[float, ...] = ()
    isolated_s: float = 0.0
    spread_steps_per_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class TenantView:
    """A tenant with at least one live job; jobs in order of arrival."""

    name: str
    weight: float
    jobs: tuple[JobView, ...]


@dataclass(frozen=True)
class ClusterView:
    """A snapshot. `capacity[j]` counts the devices of `kinds[j]` that are up; kinds run from slow to fast. `restart_s`: what a start on
    devices that were not held costs."""

    now_s: float
    round_s: float
    kinds: tuple[str, ...]
    capacity: tuple[int, ...]
    tenants: tuple[TenantView, ...]
    restart_s: float = 0.0

    @cached_property
    def jobs(self) -> tuple[JobView, ...]:
        return tuple(job for tenant in self.tenants for job in tenant.jobs)
