"""The published training speeds of Gavel (OSDI 2020): steps/s by job type, gang and kind of GPU, as measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from hetsys.core.cluster import Cluster
from hetsys.core.errors import ConfigError
from hetsys.core.paths import shipped
from hetsys.workloads.tables import Row, read_csv

KINDS = ("k80", "p100", "v100")
REFERENCE_KIND = "v100"
TABLE = "tables/gavel_throughputs.csv"

PROGRAMS = {
    "ResNet-18": "conv/tiny",
    "ResNet-50": "conv/tiny",
    "CycleGAN": "conv/tiny",
    "LM": "lstm/tiny",
    "Transformer": "transformer/tiny",
    "Recommendation": "recommendation/tiny",
    "A3C": "actor_critic/tiny",
}
"""What trains when a job of a published type is executed: a small model of the same kind. The published speeds are what it is charged."""


@dataclass(frozen=True)
class Speeds:
    """Steps/s of a whole gang by kind: packed on few hosts, and spread over hosts. Kinds that were not measured are absent; 0 means
    that the job does not run there."""

    steps_per_s: Mapping[str, float]
    spread_steps_per_s: Mapping[str, float]


@dataclass(frozen=True)
class Throughputs:
    """The table: `rows[job_type, gang]`, in the order of the file; `sha256` of the file."""

    rows: Mapping[tuple[str, int], Speeds]
    sha256: str

    @cached_property
    def job_types(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(job_type for job_type, _ in self.rows))

    def gangs(self, job_type: str) -> tuple[int, ...]:
        """The gang sizes that were measured for a job type, ascending."""
        return tuple(sorted(gang for name, gang in self.rows if name == job_type))

    def fits(self, job_type: str, gang: int, cluster: Cluster) -> bool:
        """Whether some kind of the cluster has a speed above 0 for this gang, and that many devices."""
        speeds = self.rows.get((job_type, gang))
        counts = cluster.num_devices_by_kind
        return speeds is not None and any(speeds.steps_per_s.get(kind, 0.0) > 0 and n >= gang for kind, n in counts.items())


def read_throughputs(path: Path | None = None) -> Throughputs:
    """The table at `path`, by default the one that hetsys ships. Raises ConfigError with file, line and column."""
    return _read(path or shipped("conf") / TABLE)


@lru_cache(maxsize=4)
def _read(path: Path) -> Throughputs:
    lines, digest = read_csv(path, "throughput table", ["job_type", "gang", *KINDS, *(f"{kind}_spread" for kind in KINDS)])
    rows: dict[tuple[str, int], Speeds] = {}
    for row in lines:
        key = (row.cells["job_type"], row.integer("gang", at_least=1))
        if key in rows:
            raise ConfigError(row.key("job_type"), key[0], f"has a second row for gang {key[1]}; keep one")
        rows[key] = Speeds(_speeds(row, ""), _speeds(row, "_spread"))
        if not any(rows[key].steps_per_s.values()):
            raise ConfigError(row.key("job_type"), key[0], f"gang {key[1]} has no speed above 0 on any of {', '.join(KINDS)}")
    if not rows:
        raise ConfigError("throughput table", str(path), "has no rows")
    return Throughputs(rows, digest)


def _speeds(row: Row, suffix: str) -> dict[str, float]:
    return {kind: row.number(f"{kind}{suffix}") for kind in KINDS if row.cells[f"{kind}{suffix}"]}


def program_of(job_type: str) -> str:
    """The program of a published job type, "LM" of "LM (batch size 10)"; empty for a type that was not published."""
    return PROGRAMS.get(job_type.partition(" (")[0], "")


def check_kinds(cluster: Cluster) -> None:
    """Raise ConfigError if the cluster has a kind of device that the published table does not cover."""
    for kind in cluster.kinds:
        if kind not in KINDS:
            remedy = f"no published training speed for this kind; the table covers {', '.join(KINDS)}. Choose a cluster of those, or "
            raise ConfigError("cluster.nodes.kind", kind, remedy + "workload=tenants_file with your own speeds")
