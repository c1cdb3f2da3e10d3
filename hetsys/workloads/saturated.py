"""Tenants that always have work, with speeds that are drawn or given: what a policy makes of its programs, apart from arrivals and ends.

Here tenants may also misreport, so that what a lie brings can be measured against the same seed's truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, log, sqrt

import numpy as np
from numpy.typing import NDArray

from hetsys.core.cluster import Cluster
from hetsys.core.errors import ConfigError, check_choice
from hetsys.core.scheduling.trace import Job, JobTrace, Tenant
from hetsys.workloads.base import Rounds
from hetsys.workloads.streams import stream
from hetsys.workloads.tables import as_integer, as_number

Array = NDArray[np.float64]

ORDERS = ("ratio_ordered", "monotone", "any")
LIES = ("none", "over", "under", "entry_over", "entry_under", "pair_over", "pair_under", "slowest_over", "slowest_none")
UNIT_STEPS_PER_S = 10.0
"""Steps/s of one device at speed 1: enough steps a round that whole steps hide nothing."""
MOST_SPREAD = 1000.0


@dataclass(frozen=True, kw_only=True)
class Saturated(Rounds):
    """`tenants` tenants with `job_types_per_tenant` job types each and, of every type, as many jobs as fill the whole cluster; none of
    them ends within `max_rounds`. `gangs` and `weights` are dealt out in turn, to job types and to tenants.

    A device of the slowest kind is the unit; speeds lie between 1 and `spread`, kinds are those of the cluster by position. `order`:
    "ratio_ordered" (a tenant that gains more from one kind to the next does so at every step), "monotone" (speeds rise with the kind) or
    "any". A type cannot use a kind with the chance `zeros`, but always some kind. `speeds` gives them instead, a row a job type in turn.

    `profile_error`: relative standard deviation of what the scheduler is told, lognormal for every type and kind. `lie`: tenant-00
    multiplies (over) or divides (under) what it reports by `lie_factor`, on every kind but its slowest, or on its fastest alone (entry_*);
    in pair_* tenant-01 does so too. In units of its slowest kind, slowest_over is the same report as under, told by multiplying the slowest
    alone; slowest_none says that it does not run there at all, if there is another. Whatever the lie, the same seed has the same tenants,
    jobs and true speeds; tenant-00 is watched.
    """

    tenants: int = 12
    job_types_per_tenant: int = 1
    order: str = "monotone"
    spread: float = 4.0
    zeros: float = 0.0
    speeds: Sequence[Sequence[float]] | None = None
    gangs: Sequence[int] = (1,)
    weights: Sequence[float] = (1.0,)
    profile_error: float = 0.0
    lie: str = "none"
    lie_factor: float = 1.5
    max_rounds: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("tenants", "job_types_per_tenant"):
            as_integer(f"workload.{name}", getattr(self, name), at_least=1)
        check_choice("workload.order", self.order, ORDERS)
        check_choice("workload.lie", self.lie, LIES)
        if not 1 <= as_number("workload.spread", self.spread) <= MOST_SPREAD:
            raise ConfigError("workload.spread", self.spread, f"must be from 1 to {MOST_SPREAD:g}")
        if not as_number("workload.zeros", self.zeros) <= 1:
            raise ConfigError("workload.zeros", self.zeros, "must be from 0 to 1")
        as_number("workload.profile_error", self.profile_error)
        as_number("workload.lie_factor", self.lie_factor, at_least=1e-3)
        if self.lie.startswith("pair") and self.tenants < 2:
            raise ConfigError("workload.lie", self.lie, "takes two tenants; raise workload.tenants")
        for name in ("gangs", "weights"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
            if not getattr(self, name):
                raise ConfigError(f"workload.{name}", [], "must have at least one entry")
        for i, gang in enumerate(self.gangs):
            as_integer(f"workload.gangs[{i}]", gang, at_least=1)
        for i, weight in enumerate(self.weights):
            as_number(f"workload.weights[{i}]", weight)
        if self.speeds is not None:
            object.__setattr__(self, "speeds", tuple(tuple(row) for row in self.speeds))
            self._check_speeds(self.speeds)

    @property
    def seeded(self) -> bool:
        return self.speeds is None or self.profile_error > 0 or self.failures_per_device_day > 0

    @property
    def notice(self) -> str:
        return "Speeds of workload=saturated are drawn or written by hand, not measured on any device."

    def _check_speeds(self, rows: Sequence[Sequence[float]]) -> None:
        if not rows:
            raise ConfigError("workload.speeds", [], "must have at least one row, or be null for drawn ones")
        for i, row in enumerate(rows):
            for j, speed in enumerate(row):
                if as_number(f"workload.speeds[{i}][{j}]", speed) > MOST_SPREAD:
                    raise ConfigError(f"workload.speeds[{i}][{j}]", speed, f"must be {MOST_SPREAD:g} or less")
            if not any(row):
                raise ConfigError(f"workload.speeds[{i}]", list(row), "has no speed above 0, so its jobs could run nowhere")

    def sample(self, seed: int, cluster: Cluster) -> JobTrace:
        """The trace of `seed`. Speeds, unsupported kinds, errors and failures have streams of their own."""
        drawn, missing = stream(seed, "saturated/speeds"), stream(seed, "saturated/zeros")
        jobs: list[Job] = []
        for tenant in range(self.tenants):
            for kind_of_job in range(self.job_types_per_tenant):
                row = tenant * self.job_types_per_tenant + kind_of_job
                speeds = self._speeds(row, len(cluster.kinds), drawn, missing)
                jobs += self._jobs(seed, cluster, tenant, f"type-{tenant:02d}-{kind_of_job}", self.gangs[row % len(self.gangs)], speeds)
        tenants = [Tenant(_name(i), float(self.weights[i % len(self.weights)])) for i in range(self.tenants)]
        return replace(self._trace(tenants, jobs, self._failures(seed, cluster), "derived", {}), watched=(_name(0),))

    def _speeds(self, row: int, num_kinds: int, drawn: np.random.Generator, missing: np.random.Generator) -> Array:
        """(k,) true speeds of one device for a job type."""
        if self.speeds is not None:
            given = np.asarray(self.speeds[row % len(self.speeds)], dtype=float)
            if given.size != num_kinds:
                remedy = f"has {given.size} entries, and the cluster has {num_kinds} kinds; give one each, slow to fast"
                raise ConfigError(f"workload.speeds[{row % len(self.speeds)}]", given.tolist(), remedy)
            return given
        speeds = self.spread ** _exponents(self.order, num_kinds, drawn)
        absent, kept = missing.random(num_kinds) < self.zeros, missing.integers(num_kinds)
        absent[kept] = False
        return np.where(absent, 0.0, speeds)

    def _jobs(self, seed: int, cluster: Cluster, tenant: int, job_type: str, gang: int, speeds: Array) -> list[Job]:
        """As many jobs of one type as fill the cluster, each with more steps than its gang can make in all rounds."""
        truth = speeds * UNIT_STEPS_PER_S * gang
        told = self._told(seed, tenant, job_type, truth)
        num_steps = ceil(self.max_rounds * self.round_s * truth.max()) + 1
        true_speeds = dict(zip(cluster.kinds, truth.tolist(), strict=True))
        known = None if told is None else dict(zip(cluster.kinds, told.tolist(), strict=True))
        name = _name(tenant)
        return [
            Job(f"{name}/{job_type}-{i:03d}", name, job_type, gang, num_steps, 0.0, true_speeds, known_steps_per_s=known)
            for i in range(ceil(len(cluster.devices) / gang))
        ]

    def _told(self, seed: int, tenant: int, job_type: str, truth: Array) -> Array | None:
        """(k,) what the scheduler is told of the speeds `truth`; None where that is the truth itself."""
        lies = self.lie != "none" and (tenant == 0 or (tenant == 1 and self.lie.startswith("pair")))
        if not (lies or self.profile_error):
            return None
        sigma = sqrt(log(1.0 + self.profile_error**2))
        told = truth * np.exp(stream(seed, f"saturated/profile/{job_type}").normal(-(sigma**2) / 2.0, sigma, truth.size))
        return told * self._factors(truth) if lies else told

    def _factors(self, truth: Array) -> Array:
        """(k,) by what a liar multiplies its speeds: kinds other than the slowest that it supports, or that one alone."""
        factor = self.lie_factor if self.lie.endswith("over") else 1.0 / self.lie_factor
        unit = int(np.argmax(truth > 0))
        others = np.arange(truth.size) != unit
        if self.lie.startswith("slowest"):
            alone = not (truth[others] > 0).any()
            return np.where(others | alone, 1.0, 0.0 if self.lie.endswith("none") else factor)
        if self.lie.startswith("entry"):
            others &= np.arange(truth.size) == int(np.argmax(np.where(others, truth, -1.0)))
        return np.where(others, factor, 1.0)


def _exponents(order: str, num_kinds: int, rng: np.random.Generator) -> Array:
    """(k,) logarithms of speeds to the base of the spread, in [0, 1]. All orders take equally many numbers from `rng`."""
    reach, inner, free = rng.random(), np.sort(rng.random(max(num_kinds - 2, 0))), rng.random(num_kinds)
    if order == "any":
        return free
    if order == "ratio_ordered":
        return reach * np.linspace(0.0, 1.0, num_kinds)
    return reach * np.array([0.0, *inner, 1.0][:num_kinds])


def _name(tenant: int) -> str:
    return f"tenant-{tenant:02d}"
