"""What a scheduling policy is given at the start of a round: the live jobs, as the scheduler knows them, and what is up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class JobView:
    """A live job. `steps_per_s` has one entry a kind, in the order of `ClusterView.kinds`: the gang's speed, 0 where it cannot run.

    `rounds_held`: the rounds in which it has held devices so far.
    """

    name: str
    tenant: str
    job_type: str
    gang: int
    steps_per_s: tuple[float, ...]
    steps_left: int
    arrival_s: float
    rounds_held: int = 0


@dataclass(frozen=True)
class TenantView:
    """A tenant with at least one live job; jobs in order of arrival."""

    name: str
    weight: float
    jobs: tuple[JobView, ...]


@dataclass(frozen=True)
class ClusterView:
    """A snapshot. `capacity[j]` counts the devices of `kinds[j]` that are up; kinds run from slow to fast."""

    now_s: float
    round_s: float
    kinds: tuple[str, ...]
    capacity: tuple[int, ...]
    tenants: tuple[TenantView, ...]

    @cached_property
    def jobs(self) -> tuple[JobView, ...]:
        return tuple(job for tenant in self.tenants for job in tenant.jobs)
