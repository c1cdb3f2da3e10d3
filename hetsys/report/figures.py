"""`hetsys figures`: finds the figure scripts in `paper_figs/`, gives each its stored runs, and says what each claims and needs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from hetsys.core.errors import ConfigError, EngineError, check_choice
from hetsys.core.paths import shipped
from hetsys.tracking.folder import StoredRun, find_runs

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Figure:
    """What a figure is, as the variable FIGURE of its file in `paper_figs/`.

    `claim`: what it is meant to show; `command` makes its results in `minutes`; `expected`: the direction, written before the first
    run; `experiment`: the preset whose results it is drawn from; `domain`: any other experiment of it can be drawn as well.
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


@dataclass(frozen=True)
class Script:
    """A figure and its function `draw(runs, out)`, which writes PNG, SVG and CSV and returns their paths ([]: nothing to draw)."""

    figure: Figure
    draw: Callable[[list[StoredRun], Path], list[Path]]


def scripts() -> dict[str, Script]:
    """Every figure of `paper_figs/`, by name."""
    found = [_load(path) for path in sorted(shipped("paper_figs").glob("*.py")) if not path.name.startswith("_")]
    return {script.figure.name: script for script in found}


def main(names: Sequence[str], list_only: bool, results: Path, out: Path) -> int:
    """Draw `names` (default: all whose results are here) from the runs under `results` into `out`; or list what there is."""
    from rich.console import Console

    console = Console()
    known = scripts()
    for name in names:
        check_choice("figure", name, known)
    chosen = [known[name] for name in names] if names else list(known.values())
    if list_only:
        for script in chosen:
            _describe(script.figure, newest_runs(results / script.figure.experiment), console.print)
        return 0
    require_matplotlib()
    ready = [script for script in chosen if drawable(script.figure, newest_runs(results / script.figure.experiment))]
    missing = [script.figure for script in chosen if script not in ready]
    if missing and (names or not ready):
        needs = "; ".join(f"{figure.name}: {figure.command}" for figure in missing)
        raise ConfigError(
            "results", str(results), f"has no results for {', '.join(f.name for f in missing)}; make them first ({needs})"
        )
    for script in ready:
        paths = script.draw(newest_runs(results / script.figure.experiment), out)
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
    if not folder.is_dir():
        return []
    finished = [run for run in find_runs(folder) if run.status == "finished"]
    if not finished:
        return []
    newest = max(finished, key=lambda run: (run.path / "summary.json").stat().st_mtime_ns)
    return [run for run in finished if _group(run) == _group(newest)]


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
