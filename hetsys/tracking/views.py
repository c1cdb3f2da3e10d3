"""`hetsys ls` and `hetsys show`: what is stored, for a reader at a terminal; and which stored run a part of its path means."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hetsys.core.errors import EngineError
from hetsys.tracking.stored import StoredRun, find_runs

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_ROWS_IN_FULL = 40
_PLAN_LINES = 40
_PARKED_LINES = 10
_PIPE_WIDTH = 160
_FRAME_DIGITS = 6
_KEY_FIGURES = {"scheduling": ("throughput_normalized", "jct_mean_s", "jain_index")}
_STYLES = {"finished": "green", "failed": "red", "unreadable": "red", "unfinished": "yellow", "planned": "cyan"}


def ls_main(pattern: str | None, results: Path) -> int:
    """Print the stored runs by experiment, frame and system, newest last in each; where there are many, a line for each of those
    (and each source). Returns the exit code (2: nothing matches)."""
    console = _console()
    runs = find_runs(results, pattern) if results.is_dir() else []
    if not runs:
        if pattern:
            console.print(f"no run in {results} matches {pattern!r}", markup=False)
            return 2
        console.print(f"no runs in {results} yet; `hetsys run` makes some", markup=False)
        return 0
    runs = sorted(runs, key=lambda run: (_place(run), _when(run)))
    console.print(_groups(runs) if len(runs) > _ROWS_IN_FULL else _singles(runs))
    if len(runs) > _ROWS_IN_FULL:
        console.print(f"{len(runs)} runs, means of the finished ones; `hetsys ls FILTER` lists them singly", markup=False)
    return 0


def show_main(run: str, results: Path) -> int:
    """Print one run's summary, plan and environment. `run` is a folder, or a part of one stored run's path.

    Returns the exit code: 1 where a file of it is damaged, 2 where none or several runs match (they are listed).
    """
    console = _console()
    found = one_run(run, results, console)
    return 2 if found is None else _show(found, console)


def one_run(run: str, results: Path, console: Console) -> StoredRun | None:
    """The stored run that `run` means: a folder, or enough of the path of one below `results`, given with or without `results` itself.

    None where none or several match; `console` then says so and lists them.
    """
    found = _candidates(run, results)
    if len(found) == 1:
        return found[0]
    console.print(f"{len(found) or 'no'} runs in {results} match {run!r}" + (", which one?" if found else ""), markup=False)
    for candidate in found[:_ROWS_IN_FULL]:
        console.print(f"  {_relative(candidate.path, results)}", markup=False)
    if len(found) > _ROWS_IN_FULL:
        console.print(f"  ... and {len(found) - _ROWS_IN_FULL} more", markup=False)
    return None


def _candidates(run: str, results: Path) -> list[StoredRun]:
    if Path(run).is_dir() and (inside := find_runs(Path(run))):
        return inside
    whole, root = Path(run).absolute(), results.absolute()
    part = whole.relative_to(root).as_posix() if root in whole.parents else run
    found = find_runs(results, part) if results.is_dir() else []
    exact = [candidate for candidate in found if candidate.path.name == Path(run).name]
    return exact if len(exact) == 1 else found


def _show(run: StoredRun, console: Console) -> int:
    style = _STYLES.get(run.status, "")
    console.print(f"{run.label}, seed {run.seed} of {run.experiment}: {run.status}", markup=False, style=style)
    console.print(str(run.path), markup=False, soft_wrap=True)
    if run.error:
        console.print(run.error, markup=False, style="red")
    damaged = 0
    sections: dict[str, Callable[[str, Any, Console], None]] = {
        "summary": _print_pairs, "parked": _print_parked, "plan": _print_plan, "env": _print_pairs
    }  # fmt: skip
    for name, show in sections.items():
        try:
            content = run.parked_rows() if name == "parked" else getattr(run, name)
        except EngineError as error:
            console.print(str(error), markup=False, style="red", soft_wrap=True)
            damaged = 1
            continue
        if content:
            show("environment" if name == "env" else name, content, console)
    return damaged


def _print_parked(title: str, rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    console.print(f"\n{title}: {len(rows)}")
    for row in rows[:_PARKED_LINES]:
        job = f", job {row['job']}" if row["job"] else ""
        console.print(f"  tenant {row['tenant']}{job}: {row['reason']}", markup=False, highlight=False, soft_wrap=True)
    if len(rows) > _PARKED_LINES:
        console.print(f"  ... and {len(rows) - _PARKED_LINES} more in records.jsonl")


def _print_plan(title: str, plan: Mapping[str, Any], console: Console) -> None:
    lines = json.dumps(plan, indent=1).splitlines()
    console.print(f"\n{title}")
    console.print("\n".join(lines[:_PLAN_LINES]), markup=False, highlight=False)
    if len(lines) > _PLAN_LINES:
        console.print(f"... {len(lines) - _PLAN_LINES} more lines in plan.json", markup=False)


def _singles(runs: Sequence[StoredRun]) -> Table:
    names = _figure_names(runs)
    table = _table("experiment", "frame", "system", ">seed", "status", "source", *(f">{name}" for name in names), "commit", ">age")
    for run in runs:
        figures = (_number(_figure(run, name)) for name in names)
        seed = run.path.name if run.seed is None else str(run.seed)
        table.add_row(
            run.experiment, _frame(run), run.system, seed, _status(run.status), run.source, *figures, _commit([run]),
            _age(_when(run)),
        )
    return table


def _groups(runs: Sequence[StoredRun]) -> Table:
    names = _figure_names(runs)
    table = _table("experiment", "frame", "system", ">runs", "status", "source", *(f">{name}" for name in names), "commit", ">age")
    groups: dict[tuple[str, str, str, str], list[StoredRun]] = {}
    for run in runs:
        groups.setdefault(_place(run), []).append(run)
    for (experiment, _, system, source), group in groups.items():
        counts = {status: sum(run.status == status for run in group) for status in _STYLES}
        status = ", ".join(f"{count} {_status(name)}" for name, count in counts.items() if count)
        figures = (_number(_mean(_figure(run, name) for run in group)) for name in names)
        age = _age(_when(group[-1]))
        table.add_row(experiment, _frame(group[0]), system, str(len(group)), status, source, *figures, _commit(group), age)
    return table


def _place(run: StoredRun) -> tuple[str, str, str, str]:
    """What runs share whose means are one line: experiment, frame, system and source."""
    return run.experiment, run.frame_hash, run.system, run.source


def _frame(run: StoredRun) -> str:
    return run.frame_hash[:_FRAME_DIGITS]


def _print_pairs(title: str, content: Mapping[str, Any], console: Console) -> None:
    from rich.markup import escape

    table = _table(title, ">value" if title == "summary" else "value")
    for name, value in content.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{key}={item}" for key, item in value.items())
        elif isinstance(value, list):
            value = ", ".join(map(str, value))
        table.add_row(escape(name), escape(_number(value) if isinstance(value, float) else str(value)))
    console.print(table)


def _table(*columns: str) -> Table:
    """A table of named columns; a leading `>` aligns to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    return table


def _figure_names(runs: Iterable[StoredRun]) -> tuple[str, ...]:
    domains = {str(run.env.get("domain")) for run in runs if run.status == "finished"}
    return tuple(dict.fromkeys(name for domain in sorted(domains) for name in _KEY_FIGURES.get(domain, ())))


def _figure(run: StoredRun, name: str) -> float | None:
    value = run.summary.get(name) if run.status == "finished" else None
    return float(value) if isinstance(value, int | float) else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}" if abs(value) < 1e5 else f"{value:,.0f}"


def _status(status: str) -> str:
    return f"[{_STYLES[status]}]{status}[/]" if status in _STYLES else status


def _commit(runs: Iterable[StoredRun]) -> str:
    """The short commit, `+` where the code differed from it; `several` where the runs disagree."""
    known = {run.code_id for run in runs if run.code_id}
    if len(known) != 1:
        return "several" if known else ""
    code_id = known.pop()
    commit, changed, _ = code_id.partition("-") if not code_id.startswith("no-commit") else ("no-commit", "", "")
    return commit[:10] + ("+" if changed else "")


def _when(run: StoredRun) -> datetime:
    """When the run began, as its environment says, else when its folder was last changed."""
    said = run.env.get("start_time") if run.status != "unreadable" else None
    try:
        return datetime.fromisoformat(str(said))
    except ValueError:
        return datetime.fromtimestamp(run.path.stat().st_mtime, UTC)


def _age(when: datetime) -> str:
    seconds = max(0.0, (datetime.now(UTC) - when).total_seconds())
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _relative(path: Path, results: Path) -> str:
    root = results.resolve()
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def _console() -> Console:
    """Standard output; where it is no terminal, wide enough that a script finds each run on one line."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=_PIPE_WIDTH)
