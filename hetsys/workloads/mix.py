"""A seeded generator of the job mix that Gavel (OSDI 2020) published, divided among tenants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from hetsys.core.cluster import Cluster
from hetsys.core.errors import ConfigError
from hetsys.core.scheduling.trace import Job, JobTrace, Tenant
from hetsys.workloads.base import Rounds
from hetsys.workloads.streams import stream
from hetsys.workloads.tables import as_integer, as_number
from hetsys.workloads.throughputs import REFERENCE_KIND, TABLE, Throughputs, check_kinds, program_of, read_throughputs

GANG_SHARES = {1: 0.70, 2: 0.10, 4: 0.15, 8: 0.05}
SHORT_SHARE = 0.80
SHORT_LOG10_MINUTES = (1.5, 3.0)
LONG_LOG10_MINUTES = (3.0, 4.0)


@dataclass(frozen=True, kw_only=True)
class GavelMix(Rounds):
    """`tenants` tenants with `jobs_per_tenant` jobs each, of `job_types_per_tenant` job types.
    One type a tenant is our choice, after what we understand of OEF's model; not verified.

    Published (Gavel's generator): gangs of 1, 2, 4, 8 devices with 70, 10, 15, 5 %; lengths of 10^U(1.5, 3) minutes for 80 % of
    the jobs and 10^U(3, 4) for 20 %, times `duration_scale`; a job has as many steps as its gang makes in that time on V100s.
    Our choice: types are drawn uniformly for each tenant. Not every type was measured with every gang, so a gang's share is scaled
    up for the types that have it and the published shares hold over all jobs. A gang above `max_gang`, or one that no kind of the
    cluster can run, counts as the next smaller one.

    All jobs arrive at 0, or as a Poisson process of `arrivals_per_hour` over all tenants together. `weights`: one a tenant, in
    order (None: equal). `leave_fraction` of the tenants, drawn at random, leave at `leaves_after_s`.

    The scheduler is told each speed with an error of its own for every job type, gang and kind: lognormal around the truth (mean 1),
    with the relative standard deviation `profile_error`.
    """

    tenants: int = 12
    jobs_per_tenant: int = 5
    job_types_per_tenant: int = 1
    max_gang: int = 8
    duration_scale: float = 1.0
    arrivals_per_hour: float | None = None
    weights: Sequence[float] | None = None
    leave_fraction: float = 0.0
    leaves_after_s: float = 86_400.0
    profile_error: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("tenants", "jobs_per_tenant", "job_types_per_tenant", "max_gang"):
            as_integer(f"workload.{name}", getattr(self, name), at_least=1)
        as_number("workload.duration_scale", self.duration_scale, at_least=1e-6)
        as_number("workload.leaves_after_s", self.leaves_after_s)
        as_number("workload.profile_error", self.profile_error)
        if as_number("workload.leave_fraction", self.leave_fraction) > 1:
            raise ConfigError("workload.leave_fraction", self.leave_fraction, "must be from 0 to 1")
        if self.arrivals_per_hour is not None:
            as_number("workload.arrivals_per_hour", self.arrivals_per_hour, at_least=1e-6)
        if self.weights is not None:
            object.__setattr__(self, "weights", tuple(self.weights))
            self._check_weights(self.weights)

    def _check_weights(self, weights: Sequence[float]) -> None:
        if len(weights) != self.tenants:
            remedy = f"has {len(weights)} entries for {self.tenants} tenants; give one each"
            raise ConfigError("workload.weights", list(weights), remedy)
        for i, weight in enumerate(weights):
            as_number(f"workload.weights[{i}]", weight)

    def sample(self, seed: int, cluster: Cluster) -> JobTrace:
        """The trace of `seed`. Types, gangs, lengths, arrivals, departures and failures have streams of their own."""
        check_kinds(cluster)
        table = read_throughputs()
        if self.job_types_per_tenant > len(table.job_types):
            remedy = f"the throughput table has {len(table.job_types)} job types; ask for at most that many"
            raise ConfigError("workload.job_types_per_tenant", self.job_types_per_tenant, remedy)
        chance = gang_chances(table, cluster, self.max_gang)
        types, gangs, lengths = (stream(seed, f"mix/{name}") for name in ("types", "gangs", "lengths"))
        arrivals_s = iter(self._arrivals_s(seed))
        jobs: list[Job] = []
        for name in self._names():
            own = types.choice(len(table.job_types), size=self.job_types_per_tenant, replace=False)
            for k in range(self.jobs_per_tenant):
                job_type = table.job_types[own[types.integers(self.job_types_per_tenant)]]
                gang = int(gangs.choice(list(GANG_SHARES), p=chance[job_type]))
                speeds = table.rows[job_type, gang]
                num_steps = max(1, round(60.0 * self._minutes(lengths) * speeds.steps_per_s[REFERENCE_KIND]))
                known = self._told(seed, job_type, gang, speeds.steps_per_s)
                jobs.append(
                    Job(
                        f"{name}-job-{k}", name, job_type, gang, num_steps, next(arrivals_s), speeds.steps_per_s,
                        speeds.spread_steps_per_s, known, program_of(job_type),
                    )
                )  # fmt: skip
        return self._trace(self._tenants(seed), jobs, self._failures(seed, cluster), "published", {TABLE: table.sha256})

    def _told(self, seed: int, job_type: str, gang: int, truth: Mapping[str, float]) -> dict[str, float] | None:
        """What the scheduler is told of the speeds `truth`; None where that is the truth itself."""
        if not self.profile_error:
            return None
        sigma = sqrt(log(1.0 + self.profile_error**2))
        errors = stream(seed, f"mix/profile/{job_type}/{gang}").normal(-(sigma**2) / 2.0, sigma, size=len(truth))
        return {kind: float(speed * np.exp(error)) for (kind, speed), error in zip(truth.items(), errors, strict=True)}

    def _names(self) -> list[str]:
        return [f"tenant-{i:02d}" for i in range(self.tenants)]

    def _minutes(self, rng: np.random.Generator) -> float:
        is_short, where = rng.random(2)
        low, high = SHORT_LOG10_MINUTES if is_short < SHORT_SHARE else LONG_LOG10_MINUTES
        return float(self.duration_scale * 10 ** (low + (high - low) * where))

    def _arrivals_s(self, seed: int) -> list[float]:
        """One time a job, in the order in which jobs are made: zeros, or Poisson times dealt out at random."""
        num_jobs = self.tenants * self.jobs_per_tenant
        if self.arrivals_per_hour is None:
            return [0.0] * num_jobs
        rng = stream(seed, "mix/arrivals")
        times = np.cumsum(rng.exponential(3600.0 / self.arrivals_per_hour, size=num_jobs))
        return [float(time) for time in rng.permutation(times)]

    def _tenants(self, seed: int) -> list[Tenant]:
        order = stream(seed, "mix/departures").permutation(self.tenants)
        leavers = set(order[: round(self.leave_fraction * self.tenants)].tolist())
        weights = self.weights or [1.0] * self.tenants
        return [
            Tenant(name, float(weights[i]), self.leaves_after_s if i in leavers else None) for i, name in enumerate(self._names())
        ]


def gang_chances(table: Throughputs, cluster: Cluster, max_gang: int) -> dict[str, NDArray[np.float64]]:
    """For each job type, the chance of each gang of `GANG_SHARES`, such that the mean over types has the published shares.

    With N types of which N_g can run gang g, those have the chance `share_g N / N_g`, and a gang of 1 takes what is left. A gang
    above `max_gang`, or with N_g = 0, adds its share to the next smaller gang.
    """
    sizes = list(GANG_SHARES)
    can_run = np.array([[gang <= max_gang and table.fits(name, gang, cluster) for gang in sizes] for name in table.job_types])
    shares = np.array(list(GANG_SHARES.values()))
    for i in range(len(sizes) - 1, 0, -1):
        if not can_run[:, i].any():
            shares[i - 1] += shares[i]
            shares[i] = 0.0
    chances = np.where(can_run, shares * len(table.job_types) / np.maximum(can_run.sum(axis=0), 1), 0.0)
    chances[:, 0] = 1.0 - chances[:, 1:].sum(axis=1)
    return dict(zip(table.job_types, chances, strict=True))
