"""From a resolved configuration to an Experiment: where configuration becomes objects, is cross-checked and hashed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf

from hetsys.config.mistakes import from_instantiate
from hetsys.config.options import read_options
from hetsys.config.settings import PARTS, Settings, describe
from hetsys.core.cluster import Cluster
from hetsys.core.errors import ConfigError, InfeasiblePlan, NotMeasured
from hetsys.core.experiment import About, Experiment
from hetsys.core.model import NoModel
from hetsys.core.scheduling.admission import admit
from hetsys.core.scheduling.trace import Job

_SHOWN_REASONS = 3
_NO_RESULT = (
    "about", "options", "name", "plan_only", "resume", "require_source", "baseline", "beside", "headline", "reference", "tracker", "launch",
)  # fmt: skip
MAX_REAL_STEPS = 5_000_000
"""An emulated run executes every step that its devices are charged; more than these, on all gang ranks together, take hours."""


@dataclass
class Builder:
    """Builds the experiments of one command; equal parts of different runs are built once and shared (they are immutable).

    `overrides`: what the user typed. `extra`: folders beside `conf/` in which options were looked for.
    """

    results: Path
    overrides: tuple[str, ...] = ()
    extra: tuple[Path, ...] = ()
    _parts: dict[str, Any] = field(default_factory=dict)
    _sampled: set[tuple[int, int, str]] = field(default_factory=set)

    def experiments(self, config: Mapping[str, Any], options: Mapping[str, str], seeds: Sequence[int]) -> list[Experiment]:
        """One experiment a seed. `config` is resolved; `options` holds the choice of each group.

        Raises ConfigError for a mistake, InfeasiblePlan where nothing would run.
        """
        _refuse_unknown(config)
        for seed in seeds:
            Settings(**{**{f.name: config[f.name] for f in dataclasses.fields(Settings)}, "seed": seed})
        parts = {part: self._part(part, config[part]) for part in PARTS}
        try:
            parts["workload"] = self._fitted(parts["workload"], parts["cluster"])
        except NotMeasured as error:
            error.option = options["cluster"]
            raise
        abouts = {part: describe(About, f"{part}.about", _words(config[part])) for part in parts}
        self._check(parts, abouts, config, options, seeds[0])
        stored = {
            **_brief(config),
            "cluster": _brief(config["cluster"]) if _is_as_written(parts["cluster"], config["cluster"]) else _node(parts["cluster"]),
            "workload": _brief(_resolved(parts["workload"], config["workload"])),
            "options": dict(sorted(options.items())),
        }
        body = _dump({key: value for key, value in stored.items() if key != "seed"})
        frame_hash = _hash({key: value for key, value in stored.items() if key not in ("system", "seed")})
        return [
            Experiment(
                name=config["name"],
                system=options["system"],
                seed=seed,
                domain=abouts["system"].domain,
                cluster=parts["cluster"],
                model=parts["model"],
                workload=parts["workload"],
                policy=parts["system"],
                backend=parts["backend"].name,
                source=parts["backend"].source(parts["cluster"]),
                charge=parts["backend"].charge,
                tracker=parts["tracker"].name,
                workers=parts["launch"].workers,
                results=self.results,
                frame_hash=frame_hash,
                run_hash=_hash({**stored, "seed": seed}),
                config_yaml=f"seed: {seed}\n{body}",
                system_about=abouts["system"],
                overrides=self.overrides,
                resume=config["resume"],
                baseline=config["baseline"],
                options=dict(options),
            )
            for seed in seeds
        ]

    def cluster(self, config: Mapping[str, Any]) -> Cluster:
        """The cluster of a resolved configuration."""
        cluster: Cluster = self._part("cluster", config["cluster"])
        return cluster

    def _part(self, part: str, node: Mapping[str, Any]) -> Any:
        """The object that `node` describes; what has to find something out is resolved, so that what it found is stored and hashed."""
        facts = _without_about(node)
        text = part + _canonical(facts)
        if text not in self._parts:
            made = _instantiate(part, facts)
            self._parts[text] = made.resolve() if hasattr(made, "resolve") else made
        return self._parts[text]

    def _fitted(self, workload: Any, cluster: Cluster) -> Any:
        """The workload with what it has to know of the cluster filled in, so that it is stored and hashed."""
        if not hasattr(workload, "for_cluster"):
            return workload
        name = f"workload {id(workload)} for {id(cluster)}"  # _parts keeps both alive
        if name not in self._parts:
            self._parts[name] = workload.for_cluster(cluster, self.results)
        return self._parts[name]

    def _check(
        self, parts: Mapping[str, Any], abouts: Mapping[str, About], config: Mapping[str, Any], options: Mapping[str, str], seed: int
    ) -> None:
        self._check_domain(abouts, options)
        source, wanted = parts["backend"].source(parts["cluster"]), config["require_source"]
        if wanted is not None and source != wanted:
            raise ConfigError("require_source", wanted, _other_source(wanted, source, options))
        if abouts["workload"].domain == "scheduling":
            self._check_scheduling(parts, options, seed)

    def _check_scheduling(self, parts: Mapping[str, Any], options: Mapping[str, str], seed: int) -> None:
        """Sample the trace of `seed` once for each workload, cluster and source: what cannot be read, admitted or executed is found
        before any run."""
        if not isinstance(parts["model"], NoModel):
            raise ConfigError("model", options["model"], "a scheduling workload brings jobs of its own; leave model out")
        source = parts["backend"].source(parts["cluster"])
        case = (id(parts["workload"]), id(parts["cluster"]), source)  # _parts keeps both alive
        if case in self._sampled:
            return
        admitted, parked = admit(parts["workload"].sample(seed, parts["cluster"]), parts["cluster"])
        if not admitted:
            raise InfeasiblePlan(_nothing_runs(options, [record.reason for record in parked]))
        if source != "simulated":
            _check_executable([item.job for item in admitted], source, options)
        self._sampled.add(case)

    def _check_domain(self, abouts: Mapping[str, About], options: Mapping[str, str]) -> None:
        for part in ("system", "workload"):
            if not abouts[part].domain:
                remedy = f"is missing in conf/{part}/{options[part]}.yaml; add `domain:` under `about:`"
                raise ConfigError(f"{part}.about.domain", "", remedy)
        domain = abouts["workload"].domain
        if abouts["system"].domain != domain:
            systems = read_options("system", self.extra)
            fit = [name for name, file in systems.items() if _words(file).get("domain") == domain]
            remedy = f"is a {abouts['system'].domain} system, but workload={options['workload']} is a {domain} workload; "
            raise ConfigError("system", options["system"], remedy + f"systems that fit: {', '.join(fit) or 'none yet'}")


def rebuild_experiment(config_yaml: str, results: Path) -> Experiment:
    """The experiment that a stored `config.yaml` describes. Raises as `Builder.experiments` does, also where the file no longer fits."""
    try:
        config = yaml.load(config_yaml, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ConfigError("config.yaml", "", "is not valid YAML; was the run's folder edited?") from error
    if not isinstance(config, dict) or not {"options", "seed", *Settings.__dataclass_fields__} <= config.keys():
        raise ConfigError("config.yaml", "", "lacks keys that hetsys writes; was it made by another version?")
    options = config.pop("options")
    return Builder(results).experiments(config, options, [config["seed"]])[0]


def check_writable(results: Path, name: str) -> None:
    """Raise ConfigError unless files can be made in the folder `name` of `results`, or in the nearest parent that exists."""
    parent = next(path for path in (results / name, results, *results.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=parent):
            return
    except OSError as error:
        remedy = f"cannot be written ({error.strerror}: {parent}); set HETSYS_RESULTS to a folder of yours"
        raise ConfigError("HETSYS_RESULTS", str(results), remedy) from error


def _check_executable(jobs: Sequence[Job], source: str, options: Mapping[str, str]) -> None:
    """Raise ConfigError unless every job has something that trains, and an emulated run can make all its steps in sensible time."""
    for job in jobs:
        if not job.program:
            remedy = (
                f"job type {job.job_type!r} has nothing that trains: add `program: FAMILY/SIZE` (like conv/tiny) to its jobs in "
                f"workload={options['workload']}, or choose backend=sim"
            )
            raise ConfigError("backend", options["backend"], remedy)
    steps = sum(job.num_steps * job.gang for job in jobs)
    if source == "emulated" and steps > MAX_REAL_STEPS:
        remedy = (
            f"would really make {steps:,} training steps a run ({len(jobs)} jobs, all ranks of their gangs), and more than "
            f"{MAX_REAL_STEPS:,} are refused; make jobs shorter (workload.duration_scale, with workload.round_s and restart_s in "
            "proportion; workload=live_mix is so), or choose backend=sim"
        )
        raise ConfigError("backend", options["backend"], remedy)


def _other_source(wanted: str, source: str, options: Mapping[str, str]) -> str:
    remedies = {
        "measured": "choose backend=torch and a cluster of this machine's devices (cluster=cpu_generations, cluster=local)",
        "emulated": "choose backend=torch and a cluster that is not this machine's",
        "simulated": "choose backend=sim",
    }
    given = f"backend={options['backend']} with cluster={options['cluster']} gives {source!r} numbers"
    return f"{given}; {remedies.get(wanted, 'no run gives such')}"


def _nothing_runs(options: Mapping[str, str], reasons: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(reasons)) or ["it has no jobs"]
    more = f"; and {len(distinct) - _SHOWN_REASONS} more reasons" if len(distinct) > _SHOWN_REASONS else ""
    return (
        f"workload={options['workload']!r}: none of its jobs can run on cluster={options['cluster']} "
        f"({'; '.join(distinct[:_SHOWN_REASONS])}{more}); change the jobs or choose another cluster"
    )


def _instantiate(part: str, node: Mapping[str, Any]) -> Any:
    config = OmegaConf.create({part: node})
    try:
        return instantiate(config, _convert_="all")[part]
    except InstantiationException as error:
        mistake = from_instantiate(error, config)
        if mistake is None:
            raise
        raise mistake from error


def _refuse_unknown(config: Mapping[str, Any]) -> None:
    known = {*PARTS, "about", *(f.name for f in dataclasses.fields(Settings))}
    for key in config:
        if key not in known:
            raise ConfigError(key, config[key], f"no such key; choices: {', '.join(sorted(known))}")


def _words(node: Mapping[str, Any]) -> Mapping[str, Any]:
    words: Mapping[str, Any] = node.get("about", {})
    return words


def _brief(value: Any) -> Any:
    """`value` without empty descriptions."""
    if isinstance(value, Mapping):
        return {key: _brief(item) for key, item in value.items() if key != "about" or item}
    return [_brief(item) for item in value] if isinstance(value, list) else value


def _resolved(workload: Any, node: Mapping[str, Any]) -> dict[str, Any]:
    """`node` with the values that the workload ended up with; nested groups stay as they are."""
    flat = [key for key, value in node.items() if hasattr(workload, key) and not _holds_group(value)]
    return {**node, **{key: _plain(getattr(workload, key)) for key in flat}}


def _is_as_written(part: Any, node: Mapping[str, Any]) -> bool:
    """Whether `part` is of the class that `node` names, and not something that it found out to be."""
    return bool(_target(part) == node["_target_"])


def _target(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _node(value: Any) -> Any:
    """The configuration from which an object of dataclasses would be built again."""
    if dataclasses.is_dataclass(value):
        return {"_target_": _target(value), **{f.name: _node(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}}
    if isinstance(value, Mapping):
        return {str(key): _node(item) for key, item in value.items()}
    return [_node(item) for item in value] if isinstance(value, list | tuple) else value


def _holds_group(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "_target_" in value or any(map(_holds_group, value.values()))
    return isinstance(value, list) and any(map(_holds_group, value))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _without_about(value: Any) -> Any:
    """`value` without the descriptions of its groups: words, which change neither an object nor a result."""
    if isinstance(value, Mapping):
        return {key: _without_about(item) for key, item in value.items() if not (key == "about" and "_target_" in value)}
    return [_without_about(item) for item in value] if isinstance(value, list) else value


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _hash(config: Mapping[str, Any]) -> str:
    """Ten hexadecimal digits of what decides the numbers of a run."""
    facts = {key: _without_about(value) for key, value in config.items() if key not in _NO_RESULT}
    return hashlib.sha256(_canonical(facts).encode()).hexdigest()[:10]


def _dump(config: Mapping[str, Any]) -> str:
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(config, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120))
