"""What a scheduling policy decides, and what an executor is told to do and reports back.

A policy is a frozen dataclass with `allocate(view, memo) -> (Allocation, memo)`; `memo` starts as None, belongs to the policy, and
may be dropped at any time without changing an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from hetsys.core.scheduling.view import ClusterView


@dataclass(frozen=True)
class Claim:
    """An entitlement: the `jobs` (names) of one tenant share `devices[j]` devices of kind j, averaged over time, and take turns.

    Tenant-level policies write one claim a (virtual) user, job-level policies one a job.
    """

    name: str
    tenant: str
    jobs: tuple[str, ...]
    devices: tuple[float, ...]


class Binding(NamedTuple):
    """A row that binds: `claim` would envy `envied` if it got any less for its weight; `dual`: total throughput that the row costs, for
    each unit of the row (both sides in the claim's normalised throughput for its weight)."""

    claim: str
    envied: str
    dual: float


ROUNDINGS = ("credit", "deviation")


@dataclass(frozen=True)
class Allocation:
    """The plan of a round, in fractions of devices.

    `status`: "rule" (computed directly), "optimal" (a solver's answer that passed its independent check), "kept" (the solver failed:
    the last good answer, restricted to live users), "fallback" (it failed and there was none: equal split). `fill`: whether devices
    that nobody claims may run any waiting job. `prices[j]`: the shadow price of a device of kind j; `levels[claim]`: the level or
    multiplier of each claim, where the method has one; `binding`: the rows that held the answer back.

    `rounding` says how fractions become whole gangs (see `core.scheduling.rounding`): "credit" (whole-gang credits) or "deviation" (each
    user's deviation from its share is carried, in devices). `cross_kind`: whether a waiting gang that fits no single kind may run on
    devices of several, at the pace of the slowest.
    """

    claims: tuple[Claim, ...]
    status: str = "rule"
    fill: bool = True
    prices: tuple[float, ...] | None = None
    levels: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    binding: tuple[Binding, ...] = ()
    rounding: str = "credit"
    cross_kind: bool = False


class SchedulingPolicy(Protocol):
    """What `conf/system/*.yaml` builds for the scheduling domain."""

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        """Divide `view.capacity` among the jobs of `view`. Sum over claims of `devices[j]` is at most `capacity[j]`; no claim for a
        tenant of weight 0. Pure: equal arguments give equal answers, with any memo. Raises nothing for a solver's failure."""
        ...


@dataclass(frozen=True)
class Lease:
    """A gang of `devices` (names; of one `kind` unless `mix` says otherwise) held by `job` for one round, running at `steps_per_s`.

    `extended`: the job already held exactly these devices, so it does not restart. `mix[j]`: how many of the devices are of kind j where
    they are of several (empty: all of `kind`); `kind` is then the slowest of them for this job.
    """

    job: str
    kind: str
    devices: tuple[str, ...]
    steps_per_s: float
    extended: bool
    spans_nodes: bool = False
    mix: tuple[int, ...] = ()


@dataclass(frozen=True)
class RoundPlan:
    """The order for one round, `[start_ns, start_ns + length_ns)` of device time."""

    index: int
    start_ns: int
    length_ns: int
    restart_ns: int
    leases: tuple[Lease, ...]


@dataclass(frozen=True)
class LeaseOutcome:
    """What became of a lease: whole steps kept, when the job finished (None: it did not), whether the lease was cut short by a
    failure, the steps lost with it, and how long its devices were held.

    `stepping_ns`: the time in which `steps` (or, where the lease failed, `lost_steps`) were made, without start-up and without the step
    under way: `steps / stepping_ns` is the job's measured speed. `crashed`: it failed because a process of the job itself died.
    """

    job: str
    steps: int
    finish_ns: int | None
    failed: bool
    lost_steps: int
    held_ns: int
    reason: str = ""
    stepping_ns: int = 0
    crashed: bool = False


@dataclass(frozen=True)
class RoundOutcome:
    """`down` names the devices that are out of service at the end of the round."""

    end_ns: int
    leases: tuple[LeaseOutcome, ...]
    down: frozenset[str] = frozenset()


class SchedulingExecutor(Protocol):
    """Runs rounds. `sim` computes what would happen; `live` makes it happen with real training processes."""

    def down_at(self, now_ns: int) -> frozenset[str]:
        """The devices that are out of service at `now_ns`."""
        ...

    def round(self, plan: RoundPlan) -> RoundOutcome:
        """Execute one round to its end. Every lease of the plan has one outcome. Raises EngineError if the executor itself is lost."""
        ...

    def close(self) -> None:
        """Release every process and file. Safe to call twice."""
        ...
