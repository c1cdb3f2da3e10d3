"""A hand-written tenant file, YAML or CSV: who shares the cluster, with which jobs and speeds. For people's own clusters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hetsys.core.cluster import Cluster
from hetsys.core.costs import PROVENANCES, worst
from hetsys.core.errors import ConfigError, check_choice, did_you_mean
from hetsys.core.paths import shipped
from hetsys.core.scheduling.trace import Job, JobTrace, Tenant
from hetsys.workloads.base import Rounds
from hetsys.workloads.tables import as_integer, as_number, check_keys, read_csv, read_file
from hetsys.workloads.throughputs import TABLE, program_of, read_throughputs

TENANT_KEYS = ("name", "weight", "leaves_s", "jobs")
JOB_KEYS = ("name", "job_type", "gang", "num_steps", "arrival_s", "count", "program", "steps_per_s", "spread_steps_per_s")
SPEED_KEYS = ("steps_per_s", "spread_steps_per_s")


@dataclass(frozen=True)
class Entry:
    """A tenant as written: `values` and each of `jobs` are paired with how messages name their place."""

    where: str
    values: Mapping[str, Any]
    jobs: tuple[tuple[str, Mapping[str, Any]], ...]


@dataclass(frozen=True, kw_only=True)
class TenantsFile(Rounds):
    """The tenants and jobs of the file at `path` (`.yaml`, `.yml` or `.csv`; relative paths start at the current folder).

    A job gives its speeds (steps/s of the whole gang, by kind of device), or names a job type of the published Gavel table. A
    kind without a speed cannot run the job. Tenants without jobs, jobs without any speed above 0 and gangs that fit no kind stay
    in the trace, for admission to park with a reason. `program` (FAMILY/SIZE) names what trains when the job is executed; job types of
    the table have one. `provenance` says where the file's own speeds come from (measured,
    published, derived). `sha256` is filled in by `resolve`, so that a run is tied to the content of the file, not only its name.
    """

    path: str
    provenance: str = "derived"
    sha256: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("workload.provenance", self.provenance, PROVENANCES)
        if Path(self.path).suffix.lower() not in (".yaml", ".yml", ".csv"):
            raise ConfigError("workload.path", self.path, "must end in .yaml, .yml or .csv")

    @property
    def seeded(self) -> bool:
        """Only device failures are drawn."""
        return self.failures_per_device_day > 0

    def resolve(self) -> TenantsFile:
        """The same workload with the hash of the file filled in. Raises ConfigError if the file cannot be read."""
        return self if self.sha256 else replace(self, sha256=read_file(self._file, "workload.path")[1])

    def sample(self, seed: int, cluster: Cluster) -> JobTrace:
        """The trace in the file; `seed` only matters for device failures. Raises ConfigError that names file, place and key."""
        text, digest = read_file(self._file, "workload.path")
        if self.sha256 not in (None, digest):
            remedy = f"the file has changed: this run belongs to the one with SHA-256 {self.sha256}, now it is {digest}"
            raise ConfigError("workload.path", self.path, remedy)
        entries = _csv_entries(self._file) if self._file.suffix.lower() == ".csv" else _yaml_entries(self._file, text)
        if not entries:
            raise ConfigError("workload.path", self.path, "has no tenants; see the README for the format")
        tenants = [_tenant(entry) for entry in entries]
        _refuse_repeats([(f"{entry.where}: name", tenant.name) for entry, tenant in zip(entries, tenants, strict=True)], "tenant")
        placed = [job for entry, tenant in zip(entries, tenants, strict=True) for job in _jobs(entry, tenant.name, cluster)]
        _refuse_repeats([(f"{where}: name", job.name) for where, job, _ in placed], "job")
        uses_table = any(published for _, _, published in placed)
        provenance = worst([self.provenance, "published"]) if uses_table else self.provenance
        data = {self.path: digest} | ({TABLE: read_throughputs().sha256} if uses_table else {})
        return self._trace(tenants, (job for _, job, _ in placed), self._failures(seed, cluster), provenance, data)

    @property
    def _file(self) -> Path:
        return Path(self.path).expanduser()


def _yaml_entries(path: Path, text: str) -> list[Entry]:
    import yaml

    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "cannot be parsed"
        raise ConfigError("workload.path", f"{path}{line}", f"is not valid YAML: {problem}") from None
    if content is None:
        raise ConfigError("workload.path", str(path), "is empty; begin it with `tenants:` (see the README for the format)")
    top = _mapping(str(path), content, ("tenants",))
    return [_yaml_entry(f"{path}: tenants[{i}]", item) for i, item in enumerate(_list(f"{path}: tenants", top.get("tenants")))]


def _yaml_entry(where: str, item: object) -> Entry:
    values = _mapping(where, item, TENANT_KEYS)
    where = f"{where} {values['name']!r}" if "name" in values else where
    jobs = _list(f"{where}: jobs", values.get("jobs"))
    placed = [(f"{where}, jobs[{k}]", job) for k, job in enumerate(jobs)]
    return Entry(where, values, tuple((place, _mapping(place, job, JOB_KEYS)) for place, job in placed))


def _mapping(where: str, item: object, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise ConfigError(where, item, f"must be a mapping with the keys {', '.join(known)}")
    check_keys(where, (str(key) for key in item), known)
    return {str(key): value for key, value in item.items() if value is not None}


def _list(where: str, item: object) -> list[object]:
    if item is None:
        return []
    if not isinstance(item, list):
        raise ConfigError(where, item, "must be a list")
    return item


def _csv_entries(path: Path) -> list[Entry]:
    """One row a job; rows of a tenant may stand anywhere. A row without job columns declares a tenant without jobs."""
    rows, _ = read_csv(path, "workload.path", ["tenant"])
    values: dict[str, dict[str, str]] = {}
    places: dict[str, str] = {}
    jobs: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for row in rows:
        where = f"{path}:{row.line}"
        job = _csv_job(where, row.cells)
        name = row.cells["tenant"]
        places.setdefault(name, where)
        own = values.setdefault(name, {"name": name} if name else {})
        for key in ("weight", "leaves_s"):
            given = job.pop(key, None)
            if given is not None and own.setdefault(key, given) != given:
                raise ConfigError(f"{where}: {key}", given, f"tenant {name!r} has {key} {own[key]} at {places[name]}; keep one")
        jobs.setdefault(name, []).extend([(where, job)] if job else [])
    return [Entry(places[name], values[name], tuple(jobs[name])) for name in values]


def _csv_job(where: str, cells: Mapping[str, str]) -> dict[str, Any]:
    """The filled cells of a row under the keys of the YAML form: `job` is its name, `steps_per_s.k80` the speed on kind k80."""
    plain = {"job": "name"} | {key: key for key in ("weight", "leaves_s", *JOB_KEYS) if key not in ("name", *SPEED_KEYS)}
    job: dict[str, Any] = {}
    for column, cell in cells.items():
        group, _, kind = column.partition(".")
        if group in SPEED_KEYS and kind:
            if cell:
                job.setdefault(group, {})[kind] = cell
        elif column != "tenant":
            check_keys(where, [column], ["tenant", *plain, *(f"{key}.KIND" for key in SPEED_KEYS)])
            if cell:
                job[plain[column]] = cell
    return job


def _tenant(entry: Entry) -> Tenant:
    name = _name(entry.where, entry.values, "name")
    leaves = entry.values.get("leaves_s")
    return Tenant(
        name,
        weight=as_number(f"{entry.where}: weight", entry.values.get("weight", 1.0)),
        leaves_s=None if leaves is None else as_number(f"{entry.where}: leaves_s", leaves),
    )


def _name(where: str, values: Mapping[str, Any], key: str) -> str:
    if not str(values.get(key, "")).strip():
        raise ConfigError(f"{where}: {key}", values.get(key), f"must be given, a {key.replace('_', ' ')} as text")
    return str(values[key])


def _jobs(entry: Entry, tenant: str, cluster: Cluster) -> Iterator[tuple[str, Job, bool]]:
    """(place, job, whether its speeds are the published ones) for each job of a tenant, `count` copies each."""
    made = 0
    for where, values in entry.jobs:
        job_type = _name(where, values, "job_type")
        gang = as_integer(f"{where}: gang", values.get("gang", 1), at_least=1)
        num_steps = as_integer(f"{where}: num_steps", _given(where, values, "num_steps"), at_least=1)
        arrival_s = as_number(f"{where}: arrival_s", values.get("arrival_s", 0.0))
        count = as_integer(f"{where}: count", values.get("count", 1), at_least=1)
        speeds = _job_speeds(where, values, job_type, gang, cluster)
        program = _program(where, values, job_type)
        for k in range(count):
            name = str(values["name"]) + (f"-{k}" if count > 1 else "") if "name" in values else f"{tenant}-{made}"
            yield where, Job(name, tenant, job_type, gang, num_steps, arrival_s, *speeds[:2], program=program), speeds[2]
            made += 1


def _program(where: str, values: Mapping[str, Any], job_type: str) -> str:
    program = str(values.get("program", program_of(job_type)))
    if program and not re.fullmatch(r"\w+/\w+", program):
        raise ConfigError(f"{where}: program", program, "must be FAMILY/SIZE, like conv/tiny")
    return program


def _given(where: str, values: Mapping[str, Any], key: str) -> object:
    if key not in values:
        raise ConfigError(f"{where}: {key}", None, "must be given")
    return values[key]


def _job_speeds(
    where: str, values: Mapping[str, Any], job_type: str, gang: int, cluster: Cluster
) -> tuple[Mapping[str, float], Mapping[str, float], bool]:
    own, spread = (_speeds(f"{where}: {key}", values.get(key), cluster) for key in SPEED_KEYS)
    if own is not None:
        return own, spread or {}, False
    if spread is not None:
        raise ConfigError(f"{where}: spread_steps_per_s", spread, "needs steps_per_s too")
    table = read_throughputs()
    if job_type not in table.job_types:
        near = did_you_mean(job_type, table.job_types)
        remedy = f"has no steps_per_s and is no job type of the published table; {near}"
        raise ConfigError(f"{where}: job_type", job_type, remedy)
    speeds = table.rows.get((job_type, gang))
    if speeds is None:
        measured = ", ".join(map(str, table.gangs(job_type)))
        remedy = f"{job_type} was published for gangs of {measured}; choose one, or give steps_per_s"
        raise ConfigError(f"{where}: gang", gang, remedy)
    return speeds.steps_per_s, speeds.spread_steps_per_s, True


def _speeds(where: str, item: object, cluster: Cluster) -> dict[str, float] | None:
    """Steps/s by kind of the cluster; None where the key is absent. A file may serve several clusters: speeds of other known kinds
    are left out. Raises ConfigError for what is no kind at all."""
    if item is None:
        return None
    if not isinstance(item, dict):
        raise ConfigError(where, item, "must map kinds of device to steps per second")
    known = {*cluster.sheets, *(sheet.stem for sheet in (shipped("conf") / "cluster/device").glob("*.yaml"))}
    for kind in item:
        if kind not in known:
            raise ConfigError(where, kind, f"is no kind of device; {did_you_mean(str(kind), known)}")
    speeds = {str(kind): as_number(f"{where}.{kind}", speed) for kind, speed in item.items()}
    return {kind: speed for kind, speed in speeds.items() if kind in cluster.kinds}


def _refuse_repeats(named: list[tuple[str, str]], what: str) -> None:
    first: dict[str, str] = {}
    for where, name in named:
        if name in first:
            raise ConfigError(where, name, f"another {what} has this name, at {first[name].rpartition(': ')[0]}; names must differ")
        first[name] = where
