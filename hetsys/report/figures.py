"""`hetsys figures`: finds the figure scripts in `paper_figs/`, gives each its stored runs, and says what each claims and needs."""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from hetsys.core.errors import ConfigError, EngineError, check_choice
from hetsys.core.paths import shipped
from hetsys.report.axes import facts_of
from hetsys.report.compare import short_commit
from hetsys.tracking.stored import StoredRun, find_runs, of_frame

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Figure:
    """What a figure is, as the variable FIGURE of its file in `paper_figs/`.

    `claim`: what it is meant to show; `command` makes its results in `minutes`; `expected`: the direction, written before the first
    run; `experiment`: the preset whose results it is drawn from, or one of `also` where there are none; `domain`: any other experiment of
    it can be drawn as well, unless the figure is of its `own` presets only. `axis`: the key that the preset sweeps besides the system; it
    is drawn from the frames that differ in nothing else. `beside`: presets whose results are drawn in as well where they are there.
    """

    name: str
    title: str
    claim: str
    command: str
    minutes: float
    expected: str
    experiment: str
    domain: str = "scheduling"
    min_systems: int = 1
    also: tuple[str, ...] = ()
    own: bool = False
    axis: str = ""
    beside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Script:
    """A figure and its function `draw(runs, out)`, which writes PNG, SVG and CSV and returns their paths ([]: nothing to draw)."""

    figure: Figure
    draw: Callable[[list[StoredRun], Path], list[Path]]


def scripts() -> dict[str, Script]:
    """Every figure of `paper_figs/`, by name."""
    found = [_load(path) for path in sorted(shipped("paper_figs").glob("*.py")) if not path.name.startswith("_")]
    return {script.figure.name: script for script in found}


def main(names: Sequence[str], list_only: bool, results: Path, out: Path, frame: str | None = None) -> int:
    """Draw `names` (default: all whose results are here) from the runs under `results` into `out`; or list what there is.

    Each is drawn from the largest set of runs that may share a picture, of `frame` where it is given; a line says which, and how
    many runs were left out of it. Raises ConfigError for an unknown figure or frame, and where results are missing.
    """
    from rich.console import Console

    console = Console()
    known = scripts()
    for name in names:
        check_choice("figure", name, known)
    chosen = [known[name] for name in names] if names else list(known.values())
    sets = {script.figure.name: _set_for(script.figure, results, frame) for script in chosen}
    if list_only:
        for script in chosen:
            _describe(script.figure, sets[script.figure.name][0], console.print)
        return 0
    require_matplotlib()
    ready = [script for script in chosen if drawable(script.figure, sets[script.figure.name][0])]
    missing = [script.figure for script in chosen if script not in ready]
    if missing and (names or not ready):
        needs = "; ".join(f"{figure.name}: {figure.command}" for figure in missing)
        raise ConfigError("results", str(results), f"has no results for {', '.join(f.name for f in missing)}; make them first ({needs})")
    for line in dict.fromkeys(_taken(*sets[script.figure.name]) for script in ready):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    for script in ready:
        paths = script.draw(sets[script.figure.name][0], out)
        for line in [f"figure: {path}" for path in paths] or [f"{script.figure.name}: these results hold nothing to draw"]:
            console.print(line, soft_wrap=True, highlight=False)
    return 0


def draw_for(experiment: str, results: Path, out: Path) -> list[Path]:
    """The pictures of one experiment, at the end of `hetsys run`: every figure of its domain for which there are enough systems. A sweep
    over an axis has the figures made for that axis and no others, as those would show one of its values only.

    A picture that cannot be drawn never spoils the run: it is a warning, and the others are drawn.
    """
    pictures: list[Path] = []
    for script, runs in _wanted(experiment, results):
        try:
            require_matplotlib()
            pictures += [path for path in script.draw(runs, out) if path.suffix == ".png"]
        except (ConfigError, EngineError, OSError) as error:
            _log.warning("figure not drawn: %s: %s", script.figure.name, error)
            if isinstance(error, ConfigError) and error.key == "figures":
                break
    return pictures


def _wanted(experiment: str, results: Path) -> list[tuple[Script, list[StoredRun]]]:
    """The figures of one experiment, each with the newest runs that may share its picture."""
    one_frame = newest_runs(results / experiment)
    if not one_frame:
        return []
    preset = _preset(one_frame[0])
    found, swept = [], False
    for script in scripts().values():
        figure = script.figure
        is_own = preset in (figure.experiment, *figure.also)
        runs = newest_runs(results / experiment, figure.axis) if figure.axis and is_own else one_frame
        if (is_own or not figure.own) and drawable(figure, runs):
            found.append((script, [*runs, *_beside(figure, results)]))
            swept |= bool(figure.axis)
    return [(script, runs) for script, runs in found if script.figure.axis or not swept]


def _preset(run: StoredRun) -> str:
    """The preset that `run` was made from, whatever it was called since; else the name of its experiment."""
    return str((run.env.get("options") or {}).get("experiment") or run.experiment)


def _beside(figure: Figure, results: Path) -> list[StoredRun]:
    return [run for name in figure.beside for run in largest_set(results / name)[0]]


def require_matplotlib() -> None:
    """Raise ConfigError, naming the extra, unless pictures can be drawn."""
    if find_spec("matplotlib") is None:
        raise ConfigError("figures", "matplotlib", "is not installed; pip install 'hetsys[analysis]' brings it")


def drawable(figure: Figure, runs: Sequence[StoredRun]) -> bool:
    """Whether `runs` are of the figure's domain, with enough systems among them and, where it has an axis, more than one value."""
    systems = {run.system for run in runs if run.env.get("domain") == figure.domain}
    return len(systems) >= figure.min_systems and (not figure.axis or len({run.frame_hash for run in runs}) > 1)


def newest_runs(folder: Path, axis: str = "") -> list[StoredRun]:
    """The finished runs of the newest frame (or frames, where they differ in `axis` alone), source and commit in `folder`: what may share
    a picture."""
    finished = _finished(folder)
    if not finished:
        return []
    groups = _groups(finished, axis)
    newest = groups[max(finished, key=_written_ns).path]
    return [run for run in finished if groups[run.path] == newest]


def largest_set(folder: Path, frame: str | None = None, axis: str = "") -> tuple[list[StoredRun], int]:
    """The finished runs in `folder` of the frame, source and commit with the most of them (the newest of equals), and the number of
    the others. Only of `frame`, the first digits of a hash, where it is given; raises ConfigError where no run is of it. Frames that differ
    in `axis` alone count as one."""
    finished = _finished(folder)
    chosen = of_frame(finished, frame) if frame is not None and finished else finished
    if not chosen:
        return [], 0
    groups = _groups(finished, axis)
    counts = Counter(groups[run.path] for run in chosen)
    largest = groups[max(chosen, key=lambda run: (counts[groups[run.path]], _written_ns(run))).path]
    runs = [run for run in finished if groups[run.path] == largest]
    return runs, len(finished) - len(runs)


def _set_for(figure: Figure, results: Path, frame: str | None) -> tuple[list[StoredRun], int]:
    """The largest set of the first experiment that the figure can be drawn from, and what is drawn in beside it."""
    sets = (largest_set(results / name, frame, figure.axis) for name in (figure.experiment, *figure.also))
    runs, left_out = next((found for found in sets if drawable(figure, found[0])), ([], 0))
    return [*runs, *(_beside(figure, results) if runs else [])], left_out


def _finished(folder: Path) -> list[StoredRun]:
    return [run for run in find_runs(folder) if run.status == "finished"] if folder.is_dir() else []


def _written_ns(run: StoredRun) -> int:
    return (run.path / "summary.json").stat().st_mtime_ns


def _taken(runs: Sequence[StoredRun], left_out: int) -> str:
    """`drawn from oef_mix, frame 71c1d3 (simulated, commit c0ffee): 200 runs; 2 runs of other frames, sources or commits left out`."""
    first = runs[0]
    mine = [run for run in runs if run.experiment == first.experiment]
    frames = len({run.frame_hash for run in mine})
    commit = short_commit(first.code_id or first.commit) or "unknown"
    which = f"{frames} frames" if frames > 1 else f"frame {first.frame_hash[:6]}"
    said = f"drawn from {first.experiment}, {which} ({first.source}, commit {commit}): {len(mine)} runs"
    if len(mine) < len(runs):
        said += f" and {len(runs) - len(mine)} of {', '.join(sorted({run.experiment for run in runs} - {first.experiment}))}"
    others = f"{left_out} runs" if left_out != 1 else "1 run"
    return said + (f"; {others} of other frames, sources or commits left out (--frame HASH chooses)" if left_out else "")


def _groups(runs: Sequence[StoredRun], axis: str = "") -> dict[Path, tuple[str, str, str]]:
    """By path, what a run must share with others to be in one picture: the frame, or all of it but `axis`, the source, the commit."""
    frames = {run.frame_hash: run for run in runs}
    if axis:
        facts = {frame: {key: value for key, value in facts_of(run).items() if key != axis} for frame, run in frames.items()}
        names = {frame: json.dumps(mine, sort_keys=True) for frame, mine in facts.items()}
    else:
        names = {frame: frame for frame in frames}
    return {run.path: (names[run.frame_hash], run.source, run.code_id) for run in runs}


def _describe(figure: Figure, runs: Sequence[StoredRun], show: Callable[..., None]) -> None:
    from rich.markup import escape

    here = f"yes, {len({run.system for run in runs})} systems x {len({run.seed for run in runs})} seeds" if runs else "no"
    show(f"[bold]{figure.name}[/bold]  {escape(figure.title)}", highlight=False)
    for key, value in (
        ("claim", figure.claim),
        ("command", f"{figure.command}   ({figure.minutes:g} minutes)"),
        ("expected", figure.expected),
        ("results here", here),
    ):
        show(f"  {key + ':':13} {escape(value)}", highlight=False, soft_wrap=True)


def _load(path: Path) -> Script:
    """The figure of one file. Raises ConfigError where the file has no FIGURE or draw, or the name differs."""
    spec = spec_from_file_location(f"paper_figs.{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module: ModuleType = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    figure, draw = getattr(module, "FIGURE", None), getattr(module, "draw", None)
    if not isinstance(figure, Figure) or not callable(draw) or figure.name != path.stem:
        raise ConfigError("paper_figs", path.name, f"must hold FIGURE = Figure(name={path.stem!r}, ...) and draw(runs, out)")
    return Script(figure, draw)
