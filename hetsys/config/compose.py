"""From the words of a command to the experiments of a sweep: composed by Hydra, all of them built before the first one starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from hydra import initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from hetsys.config.arguments import Arguments, parse_arguments
from hetsys.config.build import Builder, check_writable
from hetsys.config.mistakes import COMPOSITION_ERRORS, as_config_error
from hetsys.config.options import read_options
from hetsys.config.settings import PARTS, PresetAbout, describe
from hetsys.core.cluster import Cluster
from hetsys.core.errors import ConfigError, check_choice
from hetsys.core.experiment import Experiment
from hetsys.core.paths import results_dir, shipped

T = TypeVar("T")
_SEED = re.compile(r"seed=(\d+)")
_SYSTEM = re.compile(r"system=([A-Za-z_]\w*)")


@dataclass(frozen=True)
class Sweep:
    """The experiments of one preset or command, in sweep order, and what it says about all of them.

    `remarks`: sentences about the sweep itself; `notices`: those that belong beside its numbers. `beside`: presets that it wants to run
    first. `launcher`: the option of `hydra/launcher`; "basic" means that hetsys itself runs the sweep. `argv`: the command's words.
    """

    experiments: list[Experiment]
    remarks: tuple[str, ...]
    notices: tuple[str, ...]
    name: str
    plan_only: bool
    baseline: str | None
    beside: tuple[str, ...]
    launcher: str
    argv: tuple[str, ...]


def compose_experiments(argv: Sequence[str]) -> Sweep:
    """The sweep that `hetsys run ARGV` means. Nothing has started or been written when this returns.

    Raises ConfigError for the first mistake (where several jobs of the sweep are wrong, it says how many more), and InfeasiblePlan
    where nothing would run.
    """
    arguments = parse_arguments(argv)
    results = results_dir()
    with _loader() as loader:
        first = _compose_first(loader, arguments)
        _check_baseline(first, arguments)
        describe(PresetAbout, "about", _resolve(first.about, arguments.overrides))
        jobs = _jobs(loader, first, arguments)
        builder = Builder(results, arguments.overrides, arguments.extra)
        built = _build_all(loader, builder, jobs, arguments)
    experiments, repeated = _without_repeats(built)
    check_writable(results, first.name)
    return Sweep(
        experiments=experiments,
        remarks=tuple(dict.fromkeys(repeated)),
        notices=tuple(dict.fromkeys(filter(None, map(_notice, experiments)))),
        name=first.name,
        plan_only=first.plan_only,
        baseline=first.baseline,
        beside=tuple(first.beside),
        launcher=str(first.hydra.runtime.choices["hydra/launcher"]),
        argv=tuple(argv),
    )


def _without_repeats(built: Sequence[Experiment]) -> tuple[list[Experiment], list[str]]:
    """Each run once, and where the workload is the same for every seed only the first seed; a sentence for each such workload."""
    kept: dict[object, Experiment] = {}
    said: list[str] = []
    for experiment in built:
        seeded = getattr(experiment.workload, "seeded", True)
        facts = experiment.config_yaml.partition("\n")[2]  # all but the first line, the seed
        first = kept.setdefault(experiment.folder if seeded else (experiment.system, facts), experiment)
        if first.seed != experiment.seed:
            said.append(f"workload {experiment.options['workload']} is the same for every seed: one run a system")
    return list(kept.values()), said


def _notice(experiment: Experiment) -> str:
    return str(getattr(experiment.workload, "notice", ""))


def compose_cluster(option: str) -> Cluster:
    """The cluster `option` of conf/cluster, without an experiment around it. Raises ConfigError."""
    words = ["~experiment", f"cluster={option}"]
    arguments = parse_arguments(words)
    with _loader() as loader:
        config, _ = _compose_job(loader, arguments, words)
        return Builder(results_dir()).cluster(_resolve(config, words))


def check_composes(argv: Sequence[str]) -> None:
    """Raise ConfigError if Hydra cannot compose ARGV: asked before Hydra itself is told to print something."""
    arguments = parse_arguments(argv)
    with _loader() as loader:
        _compose_first(loader, arguments)


def launch_with_hydra(sweep: Sweep, function: Callable[[Experiment], T]) -> list[T]:
    """`function` of every experiment, in sweep order, run by the chosen `hydra/launcher` (joblib, submitit) instead of by hetsys.

    `function` must be picklable; an exception of it is raised when all jobs are done. A launcher composes each job once more, so
    it gets an empty configuration: the experiments are built already.
    """
    arguments = parse_arguments(sweep.argv)
    sweep_dir = sweep.experiments[0].results / sweep.name
    quiet = ["hydra/job_logging=none", "hydra/hydra_logging=none", "hydra.output_subdir=null"]
    with _loader() as loader:
        chosen = _compose_first(loader, arguments)
        empty = loader.load_configuration(
            None, [*quiet, f"hydra.sweep.dir='{sweep_dir}'", "hydra.sweep.subdir=."], run_mode=RunMode.MULTIRUN
        )
        empty.hydra.launcher = chosen.hydra.launcher
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=HydraContext(config_loader=loader, callbacks=Callbacks()),
            task_function=partial(_run_numbered, sweep.experiments, function),
            config=empty,
        )
        returned = launcher.launch([[] for _ in sweep.experiments], initial_job_idx=0)
    return [job.return_value for job in returned]


def _run_numbered(experiments: Sequence[Experiment], function: Callable[[Experiment], T], config: DictConfig) -> T:
    """The task that a launcher runs: the experiment of its job number, built beforehand; what it composed is not needed."""
    return function(experiments[HydraConfig.get().job.num])


@contextmanager
def _loader() -> Iterator[ConfigLoader]:
    with initialize_config_dir(str(shipped("conf")), version_base="1.3", job_name="hetsys"):
        yield GlobalHydra.instance().config_loader()


def _compose(loader: ConfigLoader, arguments: Arguments, overrides: Iterable[str], mode: RunMode) -> DictConfig:
    words = list(overrides)
    try:
        return loader.load_configuration(
            arguments.config_name, [*arguments.implied, *words], run_mode=mode, validate_sweep_overrides=mode is RunMode.RUN
        )
    except COMPOSITION_ERRORS as error:
        raise as_config_error(error, words, arguments.extra) from error


def _compose_first(loader: ConfigLoader, arguments: Arguments) -> DictConfig:
    """What all runs share. Hydra leaves out what is swept; where a key exists in a swept option only, the first of them counts."""
    try:
        return _compose(loader, arguments, arguments.overrides, RunMode.MULTIRUN)
    except ConfigError:
        parsed = _parse(loader, arguments.overrides, arguments)
        swept = [word for word in parsed if word.is_discrete_sweep()]
        if not swept:
            raise
        firsts = [f"{word.get_key_element()}={next(word.sweep_string_iterator())}" for word in swept]
        words = [str(word.input_line) for word in parsed if not word.is_sweep_override()]
        return _compose(loader, arguments, [*words, *firsts], RunMode.MULTIRUN)


def _parse(loader: ConfigLoader, words: Sequence[str], arguments: Arguments) -> list[Override]:
    try:
        return OverridesParser.create(config_loader=loader).parse_overrides(list(words))
    except COMPOSITION_ERRORS as error:
        raise as_config_error(error, arguments.overrides) from error


def _jobs(loader: ConfigLoader, first: DictConfig, arguments: Arguments) -> list[list[str]]:
    """The overrides of each run. What the user types takes the place of the preset's sweep over the same key."""
    if first.hydra.mode is not RunMode.MULTIRUN:
        return [list(arguments.overrides)]
    if first.hydra.runtime.choices["hydra/sweeper"] != "basic":
        raise ConfigError("hydra/sweeper", first.hydra.runtime.choices["hydra/sweeper"], "only basic can be checked beforehand")
    sweeper = first.hydra.sweeper
    if not isinstance(sweeper, DictConfig):
        raise ConfigError("hydra.sweeper", sweeper, "is no place for a value; what is swept is written KEY=VALUE,VALUE")
    preset = [f"{key}={value}" for key, value in (sweeper.params or {}).items()]
    parsed = _parse(loader, [*preset, *arguments.overrides], arguments)
    for override in parsed:
        if override.key_or_group == "experiment" and override.is_sweep_override():
            presets = str(override.input_line).partition("=")[2]
            raise ConfigError("experiment", presets, "holds a sweep of its own; run one preset a command")
    try:
        return BasicSweeper.split_arguments(parsed, None)[0]
    except COMPOSITION_ERRORS as error:
        raise as_config_error(error, arguments.overrides) from error


def _build_all(loader: ConfigLoader, builder: Builder, jobs: Sequence[Sequence[str]], arguments: Arguments) -> list[Experiment]:
    """Composing costs some 100 ms: runs that differ in a plain seed are composed once, those that differ in the system together."""
    alike: dict[tuple[str, ...], dict[str, list[tuple[int, int | None]]]] = {}
    for index, job in enumerate(jobs):
        seeds = [int(found[1]) for word in job if (found := _SEED.fullmatch(word))]
        systems = [found[1] for word in job if (found := _SYSTEM.fullmatch(word))]
        words = tuple(word for word in job if not (_SEED.fullmatch(word) or _SYSTEM.fullmatch(word)))
        members = alike.setdefault(words, {}).setdefault(systems[-1] if systems else "", [])
        members.append((index, seeds[-1] if seeds else None))
    built: dict[int, Experiment] = {}
    mistakes: dict[str, ConfigError] = {}
    for words, by_system in alike.items():
        composers = _composers(loader, arguments, words, list(by_system))
        for (system, members), compose in zip(by_system.items(), composers, strict=True):
            try:
                experiments = _build(builder, *compose(), [seed for _, seed in members], _words(words, system))
                built |= dict(zip([index for index, _ in members], experiments, strict=True))
            except ConfigError as mistake:
                mistakes.setdefault(str(mistake), mistake)
    if mistakes:
        raise _first_of(list(mistakes.values()))
    return [built[index] for index in sorted(built)]


def _composers(
    loader: ConfigLoader, arguments: Arguments, words: Sequence[str], systems: Sequence[str]
) -> list[Callable[[], tuple[DictConfig, dict[str, str]]]]:
    """For each system a function that returns its configuration, without Hydra's part, and the choice of each group."""
    together = _compose_together(loader, arguments, words, systems) if len(systems) > 1 and all(systems) else None
    if together is not None:
        config, choices = together
        nodes = dict(config.system.items())
        return [partial(_with_system, config, choices, system, nodes[system]) for system in systems]
    return [partial(_compose_job, loader, arguments, _words(words, system)) for system in systems]


def _compose_together(
    loader: ConfigLoader, arguments: Arguments, words: Sequence[str], systems: Sequence[str]
) -> tuple[DictConfig, dict[str, str]] | None:
    """One composition with every system, each at `system.<option>` instead of `system`.

    None where that may say something else than one composition a system: when a word, a preset or another option reaches into
    `system`, or when Hydra refuses (then composing one by one finds the mistake).
    """
    if any(re.match(r"[+~]*system[.@]", word) for word in words):
        return None
    try:
        together = [f"+system@system.{system}={system}" for system in systems]
        config, choices = _compose_job(loader, arguments, ["~system", *together, *words])
    except ConfigError:
        return None
    return (config, choices) if set(config.system) == set(systems) else None


def _with_system(config: DictConfig, choices: dict[str, str], system: str, node: DictConfig) -> tuple[DictConfig, dict[str, str]]:
    config.system = node
    return config, {**choices, "system": system}


def _words(words: Sequence[str], system: str) -> list[str]:
    return [*words, f"system={system}"] if system else list(words)


def _compose_job(loader: ConfigLoader, arguments: Arguments, words: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
    config = _compose(loader, arguments, words, RunMode.RUN)
    with open_dict(config):
        choices = {group: choice for group, choice in config.pop("hydra").runtime.choices.items() if choice is not None}
    return config, {group: str(choices[group]) for group in (*PARTS, "experiment") if group in choices}


def _build(
    builder: Builder, config: DictConfig, options: dict[str, str], chosen: Sequence[int | None], words: Sequence[str]
) -> list[Experiment]:
    """One experiment for each seed of `chosen`; None takes the configured seed."""
    seeds = [config.seed if seed is None else seed for seed in chosen]
    if "${" not in str(OmegaConf.to_container(config, resolve=False)):
        return builder.experiments(_resolve(config, words), options, seeds)
    experiments: list[Experiment] = []
    for seed in seeds:
        config.seed = seed
        experiments += builder.experiments(_resolve(config, words), options, [seed])
    return experiments


def _check_baseline(config: DictConfig, arguments: Arguments) -> None:
    if config.baseline is not None:
        check_choice("baseline", config.baseline, read_options("system", arguments.extra))


def _resolve(config: DictConfig, words: Sequence[str]) -> dict[str, Any]:
    try:
        resolved = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except COMPOSITION_ERRORS as error:
        raise as_config_error(error, words) from error
    return {str(key): value for key, value in resolved.items()}  # type: ignore[union-attr]


def _first_of(mistakes: Sequence[ConfigError]) -> ConfigError:
    first, more = mistakes[0], len(mistakes) - 1
    return ConfigError(first.key, first.value, f"{first.remedy} (and {more} more)") if more else first
