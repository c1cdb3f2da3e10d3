"""Training jobs for this machine's own devices: families whose speed-ups really differ, as long as was measured that they take here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from hetsys.core import calibration as files
from hetsys.core.cluster import Cluster
from hetsys.core.errors import ConfigError, NotMeasured, did_you_mean
from hetsys.core.paths import results_dir, shipped
from hetsys.core.scheduling.trace import Job, JobTrace, Tenant
from hetsys.workloads.base import Rounds
from hetsys.workloads.streams import stream
from hetsys.workloads.tables import as_integer, as_number, read_csv

TABLE = "tables/cpu_job_speeds.csv"
SHIPPED = "shipped"
_ROUND_OVER_RESTART = 4.0
_AUTO, _GIVEN = "auto", "given"
_NAMES = {
    "conv": "Convolutional network",
    "lstm": "LSTM",
    "transformer": "Transformer",
    "recommendation": "Recommendation",
    "small_lm": "Small language model",
    "actor_critic": "Actor-critic",
}


@dataclass(frozen=True, kw_only=True)
class NativeMix(Rounds):
    """`tenants` tenants with `jobs_per_tenant` jobs of one device each, all at once. A tenant trains one family, in turn those of
    `families`, at `size`. A job has as many steps as the fastest kind of the cluster makes in U(shortest_s, longest_s) seconds.

    `calibration`: "auto" takes what `hetsys profile` measured of the cluster on this machine, else the shipped table; "shipped" that table;
    or the path of a calibration's file. `for_cluster` fills in `steps_per_s` (program -> kind -> steps/s), `calibration_hash` and, where it
    is None, `restart_s` (then a round lasts at least four restarts, which take seconds on GPUs). The scheduler is told these speeds and
    corrects them by what it sees.
    """

    restart_s: float | None = None  # type: ignore[assignment]
    round_s: float = 2.0
    max_rounds: int = 500
    tenants: int = 3
    jobs_per_tenant: int = 2
    families: Sequence[str] = ("conv", "lstm", "recommendation")
    size: str = "full"
    shortest_s: float = 3.0
    longest_s: float = 7.0
    calibration: str = _AUTO
    calibration_hash: str = ""
    steps_per_s: Mapping[str, Mapping[str, float]] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("tenants", "jobs_per_tenant"):
            as_integer(f"workload.{name}", getattr(self, name), at_least=1)
        as_number("workload.shortest_s", self.shortest_s, at_least=1e-3)
        as_number("workload.longest_s", self.longest_s, at_least=self.shortest_s)
        object.__setattr__(self, "families", tuple(self.families))
        if not self.families:
            raise ConfigError("workload.families", [], f"is empty; choices: {', '.join(_NAMES)}")
        for family in self.families:
            if family not in _NAMES:
                raise ConfigError("workload.families", family, did_you_mean(family, _NAMES))

    def for_cluster(self, cluster: Cluster, results: Path | None = None) -> NativeMix:
        """The same workload with the speeds of `cluster` filled in, so that a run's hash says which numbers it used. `results`: the folder
        whose calibrations count. Raises ConfigError where a speed is missing."""
        if self.steps_per_s is not None:
            if self.restart_s is None:
                raise ConfigError("workload.restart_s", None, "give it as well where workload.steps_per_s is given")
            given = {program: self._given(program, cluster) for program in map(self._program, self.families)}
            return replace(self, steps_per_s=given, calibration=_GIVEN if self.calibration == _AUTO else self.calibration)
        name, digest, speeds, restart_s = self._measured(cluster, results or results_dir())
        filled = {program: self._of_kinds(program, speeds, cluster) for program in dict.fromkeys(map(self._program, self.families))}
        if self.restart_s is None:
            longer = max(self.round_s, _ROUND_OVER_RESTART * restart_s)
            return replace(
                self, calibration=name, calibration_hash=digest, steps_per_s=filled, restart_s=restart_s, round_s=round(longer, 3)
            )
        restart_s = self.restart_s
        return replace(self, calibration=name, calibration_hash=digest, steps_per_s=filled, restart_s=restart_s)

    def _measured(self, cluster: Cluster, results: Path) -> tuple[str, str, Mapping[str, Mapping[str, float]], float]:
        """(name, hash, speeds, restart in seconds) of the calibration that counts."""
        found = None
        if self.calibration == _AUTO:
            found = files.find(cluster, results)
        elif self.calibration != SHIPPED:
            found = files.read(Path(self.calibration).expanduser())
        if found is None:
            return (SHIPPED, *read_shipped(cluster))
        speeds = {program: found.steps_per_s(program) for program in {row.program for row in found.jobs}}
        name = files.file_of(found.cluster, results).stem if self.calibration == _AUTO else Path(self.calibration).stem
        return name, found.hash, speeds, fmean([found.restart_s[kind] for kind in cluster.kinds if kind in found.restart_s] or [0.0])

    def _program(self, family: str) -> str:
        return f"{family}/{self.size}"

    def _given(self, program: str, cluster: Cluster) -> dict[str, float]:
        assert self.steps_per_s is not None
        speeds = self.steps_per_s.get(program, {})
        for kind in cluster.kinds:
            as_number(f"workload.steps_per_s.{program}.{kind}", speeds.get(kind), at_least=1e-6)
        return {kind: float(speeds[kind]) for kind in cluster.kinds}

    def _of_kinds(self, program: str, speeds: Mapping[str, Mapping[str, float]], cluster: Cluster) -> dict[str, float]:
        remedy = f"no training speed of {program} is known for this kind; measure it: hetsys profile, with the cluster's name"
        for kind in cluster.kinds:
            if speeds.get(program, {}).get(kind, 0.0) <= 0:
                raise NotMeasured("cluster.nodes.kind", kind, remedy)
        return {kind: float(speeds[program][kind]) for kind in cluster.kinds}

    @property
    def notice(self) -> str:
        """Says that the speeds are of another machine."""
        if self.calibration != SHIPPED:
            return ""
        return (
            "training speeds come from the shipped table, measured on another machine; `hetsys profile CLUSTER` measures this one "
            "(a native run corrects them as it goes)"
        )

    def sample(self, seed: int, cluster: Cluster) -> JobTrace:
        """The trace of `seed`: the jobs' lengths and the devices' failures have streams of their own."""
        here = self.for_cluster(cluster)
        assert here.steps_per_s is not None
        lengths = stream(seed, "native_mix/lengths")
        tenants = [Tenant(f"tenant-{i:02d}") for i in range(self.tenants)]
        jobs: list[Job] = []
        for i, tenant in enumerate(tenants):
            family = self.families[i % len(self.families)]
            speeds = here.steps_per_s[self._program(family)]
            for k in range(self.jobs_per_tenant):
                seconds = float(lengths.uniform(self.shortest_s, self.longest_s))
                num_steps = max(1, round(seconds * max(speeds.values())))
                name = f"{_NAMES[family]} ({self.size})"
                jobs.append(Job(f"{tenant.name}-job-{k}", tenant.name, name, 1, num_steps, 0.0, speeds, program=self._program(family)))
        provenance = "derived" if here.calibration == _GIVEN else "measured"
        data = {here.calibration: here.calibration_hash} if here.calibration_hash else {}
        return replace(here._trace(tenants, jobs, self._failures(seed, cluster), provenance, data), learns=True)


def read_shipped(cluster: Cluster) -> tuple[str, dict[str, dict[str, float]], float]:
    """(SHA-256, speeds by program and kind, mean restart in seconds over the kinds of `cluster`) of the table that hetsys ships."""
    rows, digest = read_csv(shipped("conf") / TABLE, "table of job speeds", ("program", "kind", "steps_per_s", "restart_s"))
    speeds: dict[str, dict[str, float]] = {}
    restarts: dict[str, float] = {}
    for row in rows:
        speeds.setdefault(row.cells["program"], {})[row.cells["kind"]] = row.number("steps_per_s")
        restarts[row.cells["kind"]] = row.number("restart_s")
    return digest, speeds, fmean([restarts[kind] for kind in cluster.kinds if kind in restarts] or [0.0])
