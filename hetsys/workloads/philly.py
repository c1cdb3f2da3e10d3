"""Tenants from the virtual clusters of Microsoft's Philly trace: the jobs that Gavel published, or a generator fitted to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hetsys.core.cluster import Cluster
from hetsys.core.errors import ConfigError, check_choice
from hetsys.core.paths import data_dir, shipped
from hetsys.core.scheduling.admission import admit
from hetsys.core.scheduling.load import device_s
from hetsys.core.scheduling.trace import Job, JobTrace, Tenant
from hetsys.workloads.base import Rounds
from hetsys.workloads.streams import stream
from hetsys.workloads.tables import Row, as_integer, as_number, read_csv
from hetsys.workloads.throughputs import REFERENCE_KIND, TABLE, Throughputs, check_kinds, program_of, read_throughputs

TRACE_FILE = "cluster/gavel_philly_vc_jobs_seed0.csv.gz"
STATISTICS = "tables/gavel_philly_tenants.csv"
NUM_TENANTS = 15
QUANTILES = (0, 10, 25, 50, 75, 90, 95, 99, 100)


@dataclass(frozen=True)
class VirtualCluster:
    """All jobs of one tenant, (n,) each, in order of arrival; its clock starts at its own first job."""

    job_types: tuple[str, ...]
    num_steps: NDArray[np.int64]
    arrival_s: NDArray[np.float64]
    gang: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class PhillyTenants(Rounds):
    """The Philly trace or a window of it: `num_tenants` of its 15 virtual clusters, with at most `max_jobs` jobs together (None: all).

    `trace`: `file` reads the published jobs from the data folder, `generated` draws them from the statistics that hetsys ships,
    `auto` takes the file where it is there. Each tenant's clock in the published trace starts at its own first job, so each has a
    window of its own (our choice): `window_s` long, around one of its jobs, both drawn by the seed. Where `window_s` is None all clocks
    start together and every job is in (our choice). Of the jobs in the windows each tenant keeps one, and the other places go to jobs
    drawn uniformly (our choice; the trace is of a far larger cluster): as many as `max_jobs` allows and, where `load` is given, as bring
    the load factor of the window nearest to it (`core.scheduling.load`, over the whole window). Arrival times and steps are multiplied
    by `time_scale`, which shortens a run at equal load.

    `oversize`: what becomes of jobs whose gang was never measured (above 8, or of a type that only ran on single devices). `park`: they
    stay in the trace without speeds, for admission to park and count. `split`: they run as the largest gang below that was measured for
    their type, with all their steps, so that they take longer instead of more devices: the same device time, if speed had gone on in
    proportion to devices.
    """

    trace: str = "auto"
    num_tenants: int = 15
    window_s: float | None = 604_800.0
    max_jobs: int | None = 240
    load: float | None = None
    oversize: str = "park"
    time_scale: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("workload.trace", self.trace, ["auto", "file", "generated"])
        check_choice("workload.oversize", self.oversize, ["park", "split"])
        as_integer("workload.num_tenants", self.num_tenants, at_least=1)
        as_number("workload.time_scale", self.time_scale, at_least=1e-6)
        if self.window_s is not None:
            as_number("workload.window_s", self.window_s, at_least=1.0)
        if self.load is not None:
            as_number("workload.load", self.load, at_least=1e-3)
            if self.window_s is None:
                raise ConfigError("workload.load", self.load, "needs a window to fill; give workload.window_s, or leave load out")
        if self.max_jobs is not None:
            as_integer("workload.max_jobs", self.max_jobs, at_least=1)
            if self.max_jobs < self.num_tenants:
                raise ConfigError("workload.max_jobs", self.max_jobs, f"must be at least one job a tenant, {self.num_tenants}")

    @property
    def seeded(self) -> bool:
        """Whether seeds give different traces: not where all jobs of all published tenants are in and no device fails."""
        drawn = self.resolve().trace == "generated" or self.window_s is not None or self.max_jobs is not None
        return drawn or self.num_tenants < NUM_TENANTS or self.failures_per_device_day > 0

    def resolve(self) -> PhillyTenants:
        """The same workload with `auto` replaced by what this machine has, so that a run's hash says which trace it used."""
        if self.trace != "auto":
            return self
        return replace(self, trace="file" if _trace_is_here() else "generated")

    @property
    def notice(self) -> str:
        """Says that a generator stands in for the trace."""
        if self.resolve().trace == "file":
            return ""
        statistics = "tenants are generated from its published statistics"
        if _trace_is_here():
            return f"the Philly trace is not read (workload.trace=generated): {statistics}"
        return f"the Philly trace is not here (HETSYS_DATA): {statistics}"

    def sample(self, seed: int, cluster: Cluster) -> JobTrace:
        """The trace of `seed`. Tenants, windows, the choice of jobs, generated jobs and failures have streams of their own."""
        check_kinds(cluster)
        table = read_throughputs()
        source = self.resolve().trace
        if source == "file":
            clusters, digest = read_virtual_clusters(trace_path())
            data = {TRACE_FILE: digest}
        else:
            clusters, digest = generate_virtual_clusters(seed, table)
            data = {STATISTICS: digest}
        if self.num_tenants > len(clusters):
            remedy = f"the trace has {len(clusters)} tenants; ask for at most that many"
            raise ConfigError("workload.num_tenants", self.num_tenants, remedy)
        chosen = stream(seed, "philly/tenants").permutation(sorted(clusters))[: self.num_tenants]
        names = sorted(str(name) for name in chosen)
        jobs = self._jobs(seed, {name: clusters[name] for name in names}, table, cluster)
        provenance = "published" if source == "file" else "derived"
        return self._trace(map(Tenant, names), jobs, self._failures(seed, cluster), provenance, {TABLE: table.sha256, **data})

    def _jobs(self, seed: int, clusters: Mapping[str, VirtualCluster], table: Throughputs, cluster: Cluster) -> list[Job]:
        jobs: list[Job] = []
        for name, own in clusters.items():
            start_s, end_s = 0.0, inf
            if self.window_s is not None:
                start_s = _window_start_s(own, self.window_s, stream(seed, f"philly/window/{name}"))
                end_s = start_s + self.window_s
            inside = np.flatnonzero((own.arrival_s >= start_s) & (own.arrival_s < end_s))
            jobs += [self._job(name, int(i), own, start_s, table) for i in inside]
        order = _thinning_order(jobs, stream(seed, "philly/thinning"))
        if self.max_jobs is not None:
            order = order[: self.max_jobs]
        if self.load is not None and self.window_s is not None:
            order = order[: _jobs_for_load([jobs[i] for i in order], cluster, self.load * self.window_s * self.time_scale)]
        return [jobs[i] for i in sorted(order)]

    def _job(self, tenant: str, i: int, jobs: VirtualCluster, start_s: float, table: Throughputs) -> Job:
        job_type, gang = jobs.job_types[i], int(jobs.gang[i])
        if self.oversize == "split" and (job_type, gang) not in table.rows:
            gang = max((measured for measured in table.gangs(job_type) if measured < gang), default=gang)
        speeds = table.rows.get((job_type, gang))
        return Job(
            name=f"{tenant}-{i}",
            tenant=tenant,
            job_type=job_type,
            gang=gang,
            num_steps=max(1, round(float(jobs.num_steps[i]) * self.time_scale)),
            arrival_s=float(jobs.arrival_s[i] - start_s) * self.time_scale,
            steps_per_s=speeds.steps_per_s if speeds else {},
            spread_steps_per_s=speeds.spread_steps_per_s if speeds else {},
            program=program_of(job_type),
        )


def _window_start_s(jobs: VirtualCluster, window_s: float, rng: np.random.Generator) -> float:
    """A window that holds a uniformly drawn job at a uniformly drawn place: what a job of this tenant sees around it."""
    around = jobs.arrival_s[rng.integers(len(jobs.arrival_s))]
    return float(around - window_s * rng.random())


def _thinning_order(jobs: Sequence[Job], rng: np.random.Generator) -> list[int]:
    """In which order `jobs` are kept where not all can be: one of each tenant, then the others, all drawn uniformly."""
    order = rng.permutation(len(jobs)).tolist()
    first_of = {jobs[i].tenant: i for i in reversed(order)}
    kept = list(first_of.values())
    return kept + [i for i in order if first_of[jobs[i].tenant] != i]


def _jobs_for_load(jobs: Sequence[Job], cluster: Cluster, time_s: float) -> int:
    """How many of `jobs`, from the first, need nearest to `time_s` of all devices; at least one of each tenant, who come first."""
    counts = list(cluster.num_devices_by_kind.values())
    admitted, _ = admit(JobTrace(tuple(Tenant(name) for name in {job.tenant for job in jobs}), tuple(jobs)), cluster)
    need_s = {item.job.name: device_s(item, counts) for item in admitted}
    needed_s = np.cumsum([need_s.get(job.name, 0.0) for job in jobs])
    nearest = int(np.argmin(np.abs(needed_s - time_s * sum(counts)))) + 1
    return max(nearest, len({job.tenant for job in jobs}))


def _trace_is_here() -> bool:
    folder = data_dir()
    return folder is not None and (folder / TRACE_FILE).is_file()


def trace_path() -> Path:
    """The published trace in the data folder. Raises ConfigError that says how to get it."""
    folder = data_dir()
    if folder is None:
        remedy = f"is not set, but workload.trace=file reads {TRACE_FILE} there; set it, or choose workload.trace=generated"
        raise ConfigError("HETSYS_DATA", "", remedy)
    return folder / TRACE_FILE


def read_virtual_clusters(path: Path) -> tuple[Mapping[str, VirtualCluster], str]:
    """(tenants by name, SHA-256) of a job trace with columns vc, job_type, total_steps, arrival_s, scale_factor.

    Raises ConfigError with file, line and column.
    """
    try:
        stamp = path.stat().st_mtime_ns
    except OSError:
        stamp = 0
    return _read_virtual_clusters(path, stamp)


@lru_cache(maxsize=2)
def _read_virtual_clusters(path: Path, stamp: int) -> tuple[Mapping[str, VirtualCluster], str]:
    rows, digest = read_csv(path, "job trace", ["vc", "job_type", "total_steps", "arrival_s", "scale_factor"])
    if not rows:
        raise ConfigError("job trace", str(path), "has no jobs")
    by_tenant: dict[str, list[Row]] = {}
    for row in rows:
        by_tenant.setdefault(row.cells["vc"], []).append(row)
    return {name: _virtual_cluster(own) for name, own in by_tenant.items()}, digest


def _virtual_cluster(rows: list[Row]) -> VirtualCluster:
    arrival_s = np.array([row.number("arrival_s") for row in rows])
    order = np.argsort(arrival_s, kind="stable")
    return VirtualCluster(
        job_types=tuple(rows[i].cells["job_type"] for i in order),
        num_steps=np.array([rows[i].integer("total_steps", at_least=1) for i in order]),
        arrival_s=arrival_s[order],
        gang=np.array([rows[i].integer("scale_factor", at_least=1) for i in order]),
    )


def generate_virtual_clusters(seed: int, table: Throughputs) -> tuple[dict[str, VirtualCluster], str]:
    """(tenants by name, SHA-256 of the statistics): as many jobs a tenant as published, drawn from its published statistics.

    Gaps between arrivals and lengths follow the published quantiles, with straight lines between them on a logarithmic scale;
    gaps are then stretched to the published span. Gangs follow the published counts, job types are uniform. Not kept: how gaps
    follow each other, and what type, gang and length have to do with one another.
    """
    required = ["tenant", "jobs", "span_s", *(f"gap_{q}_s" for q in QUANTILES), *(f"minutes_{q}" for q in QUANTILES)]
    rows, digest = read_csv(shipped("conf") / STATISTICS, "tenant statistics", required)
    made = {}
    for row in rows:
        name = row.cells["tenant"]
        made[name] = _generate(row, table, stream(seed, f"philly/generate/{name}"))
    return made, digest


def _generate(row: Row, table: Throughputs, rng: np.random.Generator) -> VirtualCluster:
    num_jobs = row.integer("jobs", at_least=1)
    sizes = [int(column.removeprefix("gang_")) for column in row.cells if column.startswith("gang_")]
    counts = np.array([row.number(f"gang_{size}") for size in sizes])
    types = rng.integers(len(table.job_types), size=num_jobs)
    gang = rng.choice(np.array(sizes), size=num_jobs, p=counts / counts.sum())
    gaps = _draw(rng, [row.number(f"gap_{q}_s") for q in QUANTILES], num_jobs - 1)
    minutes = _draw(rng, [row.number(f"minutes_{q}") for q in QUANTILES], num_jobs)
    arrival_s = np.concatenate([[0.0], np.cumsum(gaps)])
    speed = np.array([table.rows[name, 1].steps_per_s[REFERENCE_KIND] for name in table.job_types])
    return VirtualCluster(
        job_types=tuple(table.job_types[i] for i in types),
        num_steps=np.maximum(1, np.rint(60.0 * minutes * speed[types])).astype(np.int64),
        arrival_s=arrival_s * (row.number("span_s") / max(arrival_s[-1], 1.0)),
        gang=gang,
    )


def _draw(rng: np.random.Generator, quantiles: list[float], size: int) -> NDArray[np.float64]:
    """(size,) samples of the distribution with these `QUANTILES`, linear between them in log(1 + x)."""
    places = rng.random(size)
    return np.asarray(np.expm1(np.interp(places, np.array(QUANTILES) / 100.0, np.log1p(quantiles))))
