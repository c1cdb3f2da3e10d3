"""`hetsys figures`: finds the figure scripts in `paper_figs/`, gives each its stored runs, and says what each claims and needs."""

from __future__ import annotations

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
from hetsys.report.compare import short_commit
from hetsys.tracking.stored import StoredRun, find_runs, of_frame

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Figure:
    """What a figure is, as the variable FIGURE of its file in `paper_figs/`.

    `claim`: what it is meant to show; `command` makes its results in `minutes`; `expected`: the direction, written before the first
    run; `experiment`: the preset whose results it is drawn from, or one of `also` where there are none; `domain`: any other experiment of
    it can be drawn as well.
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
        raise ConfigError(
            "results", str(results), f"has no results for {', '.join(f.name for f in missing)}; make them first ({needs})"
        )
    for line in dict.fromkeys(_taken(*sets[script.figure.name]) for script in ready):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    for script in ready:
        paths = script.draw(sets[script.figure.name][0], out)
        for line in [f"figure: {path}" for path in paths] or [f"{script.figure.name}: these results hold nothing to draw"]:
            console.print(line, soft_wrap=True, highlight=False)
    return 0


def draw_for(experiment: str, results: Path, out: Path) -> list[Path]:
    """The pictures of one experiment, at the end of `hetsys run`: every figure of its domain for which there are enough systems.

    A picture that cannot be drawn never spoils the run: it is a warning, and the others are drawn.
    """
    runs = newest_runs(results / experiment)
    wanted = [script for script in scripts().values() if drawable(script.figure, runs)]
    pictures: list[Path] = []
    for script in wanted:
        try:
            require_matplotlib()
            pictures += [path for path in script.draw(runs, out) if path.suffix == ".png"]
        except (ConfigError, EngineError, OSError) as error:
            _log.warning("figure not drawn: %s: %s", script.figure.name, error)
            if isinstance(error, ConfigError) and error.key == "figures":
                break
    return pictures


def require_matplotlib() -> None:
    """Raise ConfigError, naming the extra, unless pictures can be drawn."""
    if find_spec("matplotlib") is None:
        raise ConfigError("figures", "matplotlib", "is not installed; pip install 'hetsys[analysis]' brings it")


def drawable(figure: Figure, runs: Sequence[StoredRun]) -> bool:
    """Whether `runs` are of the figure's domain, with enough systems among them."""
    return len({run.system for run in runs if run.env.get("domain") == figure.domain}) >= figure.min_systems


def newest_runs(folder: Path) -> list[StoredRun]:
    """The finished runs of the newest frame, source and commit in `folder`: what may share a picture."""
    finished = _finished(folder)
    if not finished:
        return []
    newest = max(finished, key=_written_ns)
    return [run for run in finished if _group(run) == _group(newest)]


def largest_set(folder: Path, frame: str | None = None) -> tuple[list[StoredRun], int]:
    """The finished runs in `folder` of the frame, source and commit with the most of them (the newest of equals), and the number of
    the others. Only of `frame`, the first digits of a hash, where it is given; raises ConfigError where no run is of it."""
    finished = _finished(folder)
    chosen = of_frame(finished, frame) if frame is not None and finished else finished
    if not chosen:
        return [], 0
    counts = Counter(map(_group, chosen))
    largest = _group(max(chosen, key=lambda run: (counts[_group(run)], _written_ns(run))))
    runs = [run for run in chosen if _group(run) == largest]
    return runs, len(finished) - len(runs)


def _set_for(figure: Figure, results: Path, frame: str | None) -> tuple[list[StoredRun], int]:
    """The largest set of the first experiment that the figure can be drawn from."""
    sets = (largest_set(results / name, frame) for name in (figure.experiment, *figure.also))
    return next((found for found in sets if drawable(figure, found[0])), ([], 0))


def _finished(folder: Path) -> list[StoredRun]:
    return [run for run in find_runs(folder) if run.status == "finished"] if folder.is_dir() else []


def _written_ns(run: StoredRun) -> int:
    return (run.path / "summary.json").stat().st_mtime_ns


def _taken(runs: Sequence[StoredRun], left_out: int) -> str:
    """`drawn from oef_mix, frame 71c1d3 (simulated, commit c0ffee): 200 runs; 2 runs of other frames, sources or commits left out`."""
    first = runs[0]
    commit = short_commit(first.code_id or first.commit) or "unknown"
    said = f"drawn from {first.experiment}, frame {first.frame_hash[:6]} ({first.source}, commit {commit}): {len(runs)} runs"
    others = f"{left_out} runs" if left_out != 1 else "1 run"
    return said + (f"; {others} of other frames, sources or commits left out (--frame HASH chooses)" if left_out else "")


def _group(run: StoredRun) -> tuple[str, str, str]:
    return run.frame_hash, run.source, run.code_id


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
