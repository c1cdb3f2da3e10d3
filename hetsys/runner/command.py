"""`hetsys run`: compose everything, measure the devices that a native run needs to know, check, run sweep by sweep, print the tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hetsys.core.errors import ConfigError, NotMeasured
from hetsys.core.experiment import Experiment
from hetsys.core.paths import results_dir
from hetsys.runner.machine import check_machine
from hetsys.runner.plans import plan_sweep
from hetsys.runner.sweep import SweepResult, refuse_live, run_sweep

if TYPE_CHECKING:
    from rich.console import Console

    from hetsys.config import Sweep

OK, FAILED = 0, 1
_REASONS = 10
_HEADINGS = {
    "measured": "Measured: real training jobs on this machine's own devices, on the wall clock",
    "emulated": "Emulated: real training jobs, charged the time of devices that this machine does not have",
    "simulated": "Simulated: the same policies and the same loop, times only",
}


def run_command(argv: Sequence[str], console: Console) -> int:
    """All that `hetsys run ARGV` does. Returns 0, or 1 where a run failed. Raises ConfigError before anything is run, and
    KeyboardInterrupt once what was finished is shown."""
    from hetsys.config import compose_command

    try:
        sweeps = compose_command(argv)
    except NotMeasured as missing:
        _measure(missing, console)
        sweeps = compose_command(argv)
    if sweeps[-1].plan_only:
        _say([*sweeps[-1].remarks, *sweeps[-1].notices], console)
        plan_sweep(sweeps[-1].experiments, console)
        return OK
    sweeps = _runnable(sweeps)
    if _calibrate(sweeps, console):
        sweeps = _runnable(compose_command(argv))
    for sweep in sweeps:
        _say([*sweep.remarks, *sweep.notices], console)
    ended: list[tuple[Sweep, SweepResult]] = []
    for sweep in sweeps:
        ended.append((sweep, _run(sweep, console, f"{sweep.name}: " if len(sweeps) > 1 else "")))
        if ended[-1][1].interrupted:
            break
    _show(ended, console)
    if any(result.interrupted for _, result in ended):
        raise KeyboardInterrupt
    return FAILED if any(result.failed for _, result in ended) else OK


def _runnable(sweeps: Sequence[Sweep]) -> list[Sweep]:
    """The sweeps that this machine can carry out. Raises ConfigError where the last one, which was asked for, is not among them; a line
    says what else was left out."""
    for sweep in sweeps:
        if sweep.launcher != "basic":
            refuse_live(sweep.experiments)
    *beside, main = sweeps
    check_machine(main.experiments)
    able, lines = [], []
    for sweep in beside:
        try:
            check_machine(sweep.experiments)
        except ConfigError as mistake:
            lines.append(f"left out, as this machine cannot run it: experiment={sweep.name}: {mistake}")
        else:
            able.append(sweep)
    return [*able, replace(main, remarks=(*main.remarks, *lines))]


def _calibrate(sweeps: Sequence[Sweep], console: Console) -> bool:
    """Measure this machine's devices where measured runs would take their speeds from the shipped table, unless a word asks for that.
    Whether anything was measured."""
    from hetsys.profile import calibrate

    clusters: dict[str, Experiment] = {}
    for experiment in (experiment for sweep in sweeps for experiment in sweep.experiments):
        asked = any(word.startswith("workload.calibration=") for word in experiment.overrides)
        if experiment.source == "measured" and getattr(experiment.workload, "calibration", "") == "shipped" and not asked:
            clusters.setdefault(experiment.options["cluster"], experiment)
    for option, experiment in clusters.items():
        calibrate(experiment.cluster, option, experiment.results, console)
    return bool(clusters)


def _measure(missing: NotMeasured, console: Console) -> None:
    """Measure the native cluster of which nothing is known; `missing` itself where that is no such cluster of this machine."""
    from hetsys.config import compose_cluster
    from hetsys.profile import calibrate
    from hetsys.runtime.devices import check_busy

    if not missing.option:
        raise missing
    cluster = compose_cluster(missing.option)
    if not cluster.native:
        raise missing
    check_busy(cluster)
    calibrate(cluster, missing.option, results_dir(), console)


def _run(sweep: Sweep, console: Console, prefix: str) -> SweepResult:
    from hetsys.config import launch_with_hydra

    def launch(todo: list[Experiment], function: Callable[[Experiment], str | None]) -> list[str | None]:
        return launch_with_hydra(replace(sweep, experiments=todo), function)

    result = run_sweep(sweep.experiments, console=console, launch=None if sweep.launcher == "basic" else launch)
    for line in _failures(result.failed):
        print(f"hetsys: failed: {line}", file=sys.stderr)
    if result.skipped and not result.interrupted:
        _say([prefix + _skipped(result, sweep.experiments[0].resume)], console)
    return result


def _show(ended: Sequence[tuple[Sweep, SweepResult]], console: Console) -> None:
    """A table for each sweep that has runs, with the source of its numbers; then where results and figures lie."""
    from hetsys.report.agreement import agreement_line
    from hetsys.report.compare import closing_table

    shown = [(sweep, [*result.finished, *result.skipped], result) for sweep, result in ended if result.finished or result.skipped]
    sources = [sweep.experiments[0].source for sweep, _, _ in shown]
    simulated = [path for (_, done, _), source in zip(shown, sources, strict=True) if source == "simulated" for path in done]
    for (sweep, done, _), source in zip(shown, sources, strict=True):
        if len(shown) > 1:
            console.print(f"\n{_HEADINGS[source]}", soft_wrap=True, markup=False, highlight=False)
        closing_table(done, sweep.baseline, console, sweep.experiments[0].resume == "any")
        if source == "emulated" and simulated:
            _say([line for line in (agreement_line(done, simulated),) if line], console)
        _say(sweep.notices, console)
    if len(shown) > 1:
        console.print()
    for sweep, _, _ in shown:
        console.print(f"results: {shown_path(sweep.experiments[0].results / sweep.name)}", soft_wrap=True)
    for sweep, _, result in shown:
        if not result.interrupted:
            _draw(sweep.name, sweep.experiments[0].results, console)


def _say(lines: Sequence[str], console: Console) -> None:
    for line in lines:
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _failures(failed: Sequence[tuple[Path, str]]) -> list[str]:
    """One line for each reason, the most frequent first; reasons that differ only in the run's own folder are one."""
    groups: dict[str, list[tuple[Path, str]]] = {}
    for path, reason in failed:
        groups.setdefault(reason.replace(str(path), ""), []).append((path, " ".join(reason.split())))
    ranked = sorted(groups.values(), key=len, reverse=True)
    lines = []
    for group in ranked[:_REASONS]:
        path, reason = group[0]
        shown = shown_path(path)
        lines.append(f"{shown}: {reason}" if len(group) == 1 else f"{len(group)} runs, for example {shown}: {reason}")
    others = sum(map(len, ranked[_REASONS:]))
    return lines + ([f"{others} more runs, for other reasons; `hetsys show RUN` says why"] if others else [])


def _skipped(result: SweepResult, resume: str) -> str:
    total = len(result.finished) + len(result.skipped) + len(result.failed)
    stood = "stood finished at this commit" if resume == "commit" else "stood finished"
    if len(result.skipped) == total:
        return f"{f'all {total} runs' if total > 1 else 'the one run'} {stood}; nothing was run"
    return f"{len(result.skipped)} of {total} runs {stood} and were left alone"


def _draw(name: str, results: Path, console: Console) -> None:
    """The figures of the experiment; none of them is worth failing for when every run is done."""
    from hetsys.report.figures import draw_for

    try:
        for path in draw_for(name, results, results / "figures"):
            console.print(f"figure: {shown_path(path)}", soft_wrap=True)
    except OSError as error:
        print(f"hetsys: figure not drawn: {error}", file=sys.stderr)


def shown_path(path: Path) -> Path:
    """`path` as people type it: from the current folder where it lies below that."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
