"""What a scheduling workload is: tenants, their training jobs, and the device failures of one seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Job:
    """One training job. `steps_per_s[kind]` is the speed of the *whole gang* on that kind; 0 or absent: cannot run there.

    `spread_steps_per_s` holds the speeds of a gang that spans hosts ("unconsolidated"); an absent kind runs at the plain speed.
    `known_steps_per_s`: what the scheduler is told of `steps_per_s` beforehand (None: exactly that). `program`: what really trains when
    the job is executed, a family of `hetsys.models.jobs` and a size ("conv/tiny"); empty: it can only be simulated.
    """

    name: str
    tenant: str
    job_type: str
    gang: int
    num_steps: int
    arrival_s: float
    steps_per_s: Mapping[str, float]
    spread_steps_per_s: Mapping[str, float] = field(default_factory=dict)
    known_steps_per_s: Mapping[str, float] | None = None
    program: str = ""


@dataclass(frozen=True)
class Tenant:
    """A party entitled to a share in proportion to `weight`; weight 0 owns nothing and may only use idle devices.

    At `leaves_s` its unfinished jobs are withdrawn.
    """

    name: str
    weight: float = 1.0
    leaves_s: float | None = None


@dataclass(frozen=True)
class DeviceFailure:
    """Device `device` is lost from `at_s` until `at_s + down_s`; what runs on it falls back to its last checkpoint."""

    device: str
    at_s: float
    down_s: float


@dataclass(frozen=True)
class JobTrace:
    """Everything that happens to a cluster in one run, the same for every system of a seed.

    `round_s` is the length of a lease, `restart_s` the time a job loses when it starts on devices that it did not hold.
    `learns`: speeds measured in leases replace what the scheduler was told. A job whose own processes die `max_crashes` times in a row
    without progress is parked. `provenance` is the worst of its inputs (`measured`, `published`, `derived`); `data_sha256` maps each
    file read to its hash. `watched`: the tenants that a study looks at (those that misreport, for example); their throughput is reported
    apart.
    """

    tenants: tuple[Tenant, ...]
    jobs: tuple[Job, ...]
    failures: tuple[DeviceFailure, ...] = ()
    round_s: float = 360.0
    restart_s: float = 20.0
    max_rounds: int = 100_000
    provenance: str = "published"
    data_sha256: Mapping[str, str] = field(default_factory=dict)
    learns: bool = False
    max_crashes: int = 3
    watched: tuple[str, ...] = ()
