"""A resumable sweep: simulated runs side by side on worker processes, live runs one after the other in this process."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hetsys.core.errors import ConfigError
from hetsys.core.experiment import Experiment
from hetsys.runner.one import execute, is_done, own_launcher
from hetsys.runtime.pool import attempt as run_task
from hetsys.runtime.pool import run_tasks

if TYPE_CHECKING:
    from rich.console import Console

    from hetsys.tracking.progress import SweepProgress


@dataclass
class SweepResult:
    """What became of a sweep: folders that were run, that stood already, that failed (with one line each)."""

    finished: list[Path] = field(default_factory=list)
    skipped: list[Path] = field(default_factory=list)
    failed: list[tuple[Path, str]] = field(default_factory=list)
    interrupted: bool = False


Launch = Callable[[list[Experiment], Callable[[Experiment], str | None]], Iterable[str | None]]
"""Something else that runs experiments, such as a launcher of Hydra's: applies the function to each, gives the answers in order."""


def run_sweep(experiments: Sequence[Experiment], *, console: Console, launch: Launch | None = None) -> SweepResult:
    """Run what is not finished yet, seed by seed, the systems of a seed in shuffled order: simulated runs on as many processes as
    `workers` says or by `launch`, live runs one after the other, as each has the machine to itself.

    A run that fails leaves the others going. Ctrl-C stops the workers and keeps every finished run. Raises ConfigError where `launch`
    is given live runs.
    """
    from hetsys.tracking.progress import sweep_progress

    result = SweepResult()
    todo: list[Experiment] = []
    for experiment in shuffled_within_seeds(experiments):
        (result.skipped.append(experiment.folder) if is_done(experiment) else todo.append(experiment))
    if not todo:
        return result
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if launch is not None:
        refuse_live(todo)
        for experiment, error in zip(todo, launch(todo, attempt), strict=True):
            result.finished.append(experiment.folder) if error is None else result.failed.append((experiment.folder, error))
        return result
    labels = [f"{item.system} seed {item.seed}" for item in todo]
    try:
        with sweep_progress(len(todo), console, _title(todo)) as progress, closing(_outcomes(todo, labels, progress)) as outcomes:
            for index, error in outcomes:
                folder = todo[index].folder
                if error is None:
                    result.finished.append(folder)
                else:
                    result.failed.append((folder, error))
                progress.advance(labels[index], "failed" if error else "finished")
    except KeyboardInterrupt:
        result.interrupted = True
    return result


def attempt(experiment: Experiment) -> str | None:
    """`execute`, with its error as one line; None if it went well."""
    return run_task(0, experiment, execute).error


def _outcomes(todo: Sequence[Experiment], labels: Sequence[str], progress: SweepProgress) -> Generator[tuple[int, str | None]]:
    """(index, error) of each run as it ends. However this ends, no worker is left."""
    simulated = [index for index, experiment in enumerate(todo) if not experiment.live]
    with closing(run_tasks([todo[index] for index in simulated], execute, _workers(todo))) as results:
        for outcome in results:
            yield simulated[outcome.index], outcome.error
    live = [index for index, experiment in enumerate(todo) if experiment.live]
    if not live:
        return
    with closing(own_launcher()) as launcher:
        for index in live:
            progress.advance(labels[index], "running")
            work = partial(execute, launcher=launcher, watch=partial(progress.within, labels[index]))
            yield index, run_task(index, todo[index], work).error


def _title(todo: Sequence[Experiment]) -> str:
    simulated = sum(not experiment.live for experiment in todo)
    ways = [f"{_count(simulated, 'run')} on {_count(min(_workers(todo), simulated), 'process', 'es')}"] if simulated else []
    for source in dict.fromkeys(experiment.source for experiment in todo if experiment.live):
        live = sum(experiment.source == source for experiment in todo)
        ways.append(f"{_count(live, f'{source} run')}{', one after the other' * (live > 1)}")
    return f"{todo[0].name}: {' and '.join(ways)}"


def _count(number: int, what: str, plural: str = "s") -> str:
    return f"{number} {what}{plural * (number != 1)}"


def _workers(todo: Sequence[Experiment]) -> int:
    return todo[0].workers or os.cpu_count() or 1


def refuse_live(todo: Sequence[Experiment]) -> None:
    """Raise ConfigError if a launcher of Hydra's would get live runs: they share one warm launcher, and each has the machine to itself."""
    live = next((experiment for experiment in todo if experiment.live), None)
    if live is not None:
        remedy = f"{live.name} has {live.source} runs, which hetsys itself runs one after the other; leave hydra/launcher out"
        raise ConfigError("hydra/launcher", "", remedy)


def shuffled_within_seeds(experiments: Iterable[Experiment]) -> list[Experiment]:
    """Seed by seed as they come, the experiments of a seed in an order that depends on frame and seed only."""
    by_seed: dict[int, list[Experiment]] = {}
    for experiment in experiments:
        by_seed.setdefault(experiment.seed, []).append(experiment)
    for seed, group in by_seed.items():
        random.Random(f"{group[0].frame_hash}-{seed}").shuffle(group)
    return [experiment for group in by_seed.values() for experiment in group]
