"""`hetsys compare`: systems of one frame against a baseline, seed by seed. Refuses what must not share a table."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsys.core.costs import PROVENANCES, worst
from hetsys.core.errors import ConfigError, EngineError, check_choice, did_you_mean
from hetsys.metrics.catalog import HEADLINE, Metric, metric
from hetsys.metrics.statistics import MARGIN, MIN_SEEDS, Effect, choose_scale, holm, paired_effect, verdict
from hetsys.report.axes import FRAME_PARTS, find_axis
from hetsys.report.caveats import caveats, fidelity, why_invalid
from hetsys.tracking.stored import StoredRun, find_runs, of_frame

if TYPE_CHECKING:
    from rich.console import Console

    from hetsys.report.grid import Grid

AGAIN = " (again)"
_FRAME_DIGITS = 6
_FRAMES_SHOWN = 5


@dataclass(frozen=True)
class Row:
    """One finished run: what a comparison needs of it."""

    system: str
    label: str
    seed: int
    summary: Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """One system's `metric`: `mean` over its seeds; the paired effect against the baseline, Holm-corrected p, verdict. The effect
    is None for the baseline itself, and where no seed has the number on both sides."""

    system: str
    metric: str
    n: int
    mean: float | None
    effect: Effect | None = None
    p_holm: float | None = None
    verdict: str = ""


@dataclass(frozen=True)
class Frame:
    """What all runs of a comparison have in common, what was left out of it (`why_invalid`: which runs made seeds invalid, and why)
    and what the reader must know beside the figures (`caveats`, one line each). `commits` counts the runs of each commit where there
    are several, which was asked for; `commit` is "several" then. `fidelity`: how well measured runs were predicted."""

    experiment: str
    source: str
    frame_hash: str
    commit: str
    provenance: str = ""
    invalid_seeds: tuple[int, ...] = ()
    why_invalid: str = ""
    unfinished: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    commits: Mapping[str, int] = field(default_factory=dict)
    fidelity: str = ""


@dataclass(frozen=True)
class Comparison:
    """Plain data. `cells[system][metric]`; `labels` in the order of printing, the baseline (if any) first."""

    frame: Frame
    baseline: str | None
    labels: Mapping[str, str]
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    cells: Mapping[str, Mapping[str, Cell]]


def compare(
    runs: Sequence[StoredRun], baseline: str | None = None, metrics: Sequence[str] | None = None, *, any_commit: bool = False
) -> Comparison:
    """Compare the finished ones of `runs` by `metrics` (default: the headline ones).

    A seed with an invalid run counts for no system. Without `baseline` there are means and no effects. Raises ConfigError where
    there is nothing to compare, for an unknown system or metric, and for runs of several frames, sources or (unless `any_commit`)
    commits.
    """
    finished = [run for run in runs if run.status == "finished"]
    if not finished:
        raise ConfigError("path", _places(runs), "holds no finished run; `hetsys run` makes some, `hetsys ls` shows what there is")
    refuse_mixtures(finished, any_commit)
    commits = Counter(run.code_id or run.commit for run in finished)
    rows = [_row(run) for run in finished]
    _refuse_duplicates(finished)
    invalid = sorted({row.seed for row in rows if row.summary.get("valid") is False})
    if len(invalid) == len({row.seed for row in rows}):
        remedy = f"every seed has an invalid run (valid: false): {why_invalid(finished)}"
        others = len({run.system for run in finished if run.summary.get("valid") is not False})
        raise ConfigError("path", _places(runs), remedy + ("; the other systems can be named by PATH" if others else ""))
    missing = [run for run in runs if run.status not in ("finished", "planned") and _is_of_frame(run, finished[0])]
    frame = Frame(
        experiment=finished[0].experiment,
        source=finished[0].source,
        frame_hash=finished[0].frame_hash,
        commit=next(iter(commits)) if len(commits) == 1 else "several",
        provenance=_worst([str(row.summary.get("provenance", "")) for row in rows]),
        invalid_seeds=tuple(invalid),
        why_invalid=why_invalid(finished),
        unfinished=tuple(f"{run.system} seed {run.seed}: {run.status}" for run in missing),
        caveats=tuple(caveats([run for run in finished if run.summary["seed"] not in invalid])),
        commits=dict(sorted(commits.items())) if len(commits) > 1 else {},
        fidelity=fidelity([run for run in finished if run.summary["seed"] not in invalid]),
    )
    return compare_rows([row for row in rows if row.seed not in invalid], frame, baseline, metrics)


def compare_rows(rows: Sequence[Row], frame: Frame, baseline: str | None, metrics: Sequence[str] | None) -> Comparison:
    """The comparison of rows that may share a table."""
    labels = dict(sorted((row.system, row.label) for row in rows))
    if baseline is not None:
        check_choice("baseline", baseline, labels)
        labels = {baseline: labels[baseline], **labels}
    names = _metrics(rows, metrics)
    table = {system: {row.seed: row.summary for row in rows if row.system == system} for system in labels}
    cells = {system: {name: _cell(system, metric(name), table, baseline) for name in names} for system in labels}
    return Comparison(frame, baseline, labels, tuple(sorted({row.seed for row in rows})), names, _judged(cells, frame, baseline))


def closing_table(paths: Sequence[Path], baseline: str | None, console: Console, any_commit: bool = False) -> None:
    """The table that ends `hetsys run`: one row a system with its means and, below them, the change against `baseline` with its
    interval; then where the numbers come from. A sweep over one key of the workload or cluster has a column for each of its values. Runs
    that must not share a table get a line that says so; those of several commits may with `any_commit`."""
    from hetsys.report.tables import show

    runs = [StoredRun(path) for path in paths]
    finished = {run.system for run in runs if run.status == "finished"}
    if not finished:
        return
    try:
        shown = compare_all(runs, baseline if baseline in finished else None, any_commit=any_commit)
    except ConfigError as error:
        console.print(f"No table: {error}", soft_wrap=True, markup=False, highlight=False)
        return
    show(shown, "table", console)


def compare_all(
    runs: Sequence[StoredRun], baseline: str | None = None, metrics: Sequence[str] | None = None, *, any_commit: bool = False
) -> Comparison | Grid:
    """`compare` for runs of one frame; for runs whose frames differ in one key, a comparison for each of its values. `metrics`: by default
    those that the runs' own preset names as its headline. Raises as `compare` does."""
    from hetsys.report.grid import compare_along

    finished = [run for run in runs if run.status == "finished"]
    metrics = metrics or default_headline(finished)
    axis = find_axis(finished)
    if axis is None:
        return compare(runs, baseline, metrics, any_commit=any_commit)
    return compare_along(runs, axis, baseline, metrics, any_commit=any_commit)


def main(args: argparse.Namespace, rerun: Callable[[Path], Mapping[str, Any]] | None = None) -> int:
    """`hetsys compare`: `args` has paths, results, baseline, metric (a list), frame, any_commit, format and aa.

    `rerun` runs a stored run again, from its own configuration, and returns the new summary: `--aa` needs it.
    """
    from rich.console import Console

    from hetsys.report import tables

    runs = [run for path in args.paths or [args.results] for run in find_runs(path)]
    if args.frame is not None:
        runs = of_frame(runs, args.frame)
    if not args.aa:
        shown = compare_all(runs, args.baseline or default_baseline(runs), args.metric, any_commit=args.any_commit)
        tables.show(shown, args.format, Console())
        return 0
    if rerun is None:
        raise ConfigError("--aa", True, "is only there where a runner is given")
    tables.show(against_itself(runs, args.baseline, args.metric, rerun, any_commit=args.any_commit), args.format, Console())
    return 0


def against_itself(
    runs: Sequence[StoredRun],
    system: str | None,
    metrics: Sequence[str] | None,
    rerun: Callable[[Path], Mapping[str, Any]],
    *,
    any_commit: bool = False,
) -> Comparison:
    """One system under two labels: its stored runs and the same runs once more. The interval is the noise floor; on device time
    it is 0."""
    chosen = system or default_baseline(runs)
    names = sorted({run.system for run in runs})
    if chosen is None and len(names) != 1:
        raise ConfigError("baseline", None, f"which system shall run against itself? choices: {', '.join(names)}")
    chosen = chosen or names[0]
    mine = [run for run in runs if run.system == chosen]
    once = compare(mine, chosen, metrics, any_commit=any_commit)
    kept = [run for run in mine if run.status == "finished" and _row(run).seed not in once.frame.invalid_seeds]
    rows = [_row(run) for run in kept]
    again = [Row(chosen + AGAIN, row.label + AGAIN, row.seed, rerun(run.path)) for row, run in zip(rows, kept, strict=True)]
    return compare_rows([*rows, *again], once.frame, chosen, metrics)


def default_baseline(runs: Sequence[StoredRun]) -> str | None:
    """The `baseline` that the runs' own configuration names, where it is among them."""
    named = next((run.config.get("baseline") for run in runs if run.status == "finished"), None)
    return str(named) if named in {run.system for run in runs if run.status == "finished"} else None


def default_headline(finished: Sequence[StoredRun]) -> list[str] | None:
    """The metrics that the configuration of the first of `finished` names for its closing table; None where it names none."""
    named = finished[0].config.get("headline") if finished else None
    return list(named) if named else None


def short_commit(commit: str) -> str:
    """The first ten digits of a commit, and of the hash of uncommitted changes after it."""
    clean, _, dirty = commit.partition("-")
    return clean[:10] + (f"+{dirty[:10]}" if dirty else "")


def _row(run: StoredRun) -> Row:
    return Row(run.system, run.label, int(run.summary["seed"]), run.summary)


def _is_of_frame(run: StoredRun, finished: StoredRun) -> bool:
    """Whether a run that did not finish belongs to the frame of one that did. One that failed before its environment was written is
    told by its configuration; one that holds no readable configuration either counts to its experiment."""
    if run.experiment != finished.experiment or run.frame_hash:
        return run.experiment == finished.experiment and run.frame_hash == finished.frame_hash
    try:
        return all(run.config.get(part) == finished.config.get(part) for part in FRAME_PARTS)
    except EngineError:
        return True


def refuse_mixtures(runs: Sequence[StoredRun], any_commit: bool, any_frame: bool = False) -> None:
    """Raise ConfigError, listing what was found, unless all runs have one source, (or `any_frame`) one frame and (or `any_commit`) one
    commit."""
    frames = [f"{run.experiment}@{run.frame_hash}" for run in runs]
    commits = [run.code_id or run.commit for run in runs]
    for key, said, why, otherwise in (
        ("source", [run.source for run in runs], "numbers of several sources never share a table", "give the PATH of one of them"),
        ("frame", frames, "runs of several frames are no comparison", "give the PATH of one of them"),
        ("commit", commits, "runs of several versions of hetsys", "run all of them at one commit, or compare with --any-commit"),
    ):
        found = sorted(set(said))
        if len(found) > 1 and not ((any_commit and key == "commit") or (any_frame and key == "frame")):
            counted = ", ".join(f"{value or 'unknown'} ({said.count(value)} runs)" for value in found)
            choices = "" if key == "commit" else _frames_apart(runs, said)
            raise ConfigError(key, counted, f"{why}; {f'choose one: {choices}' if choices else otherwise}")


def _frames_apart(runs: Sequence[StoredRun], said: Sequence[str]) -> str:
    """The frames in which `said` (one value a run) is the same, the largest first, each with what it holds; "" where there are no two."""
    by_frame: dict[str, list[tuple[str, StoredRun]]] = {}
    for run, value in zip(runs, said, strict=True):
        by_frame.setdefault(run.frame_hash, []).append((value, run))
    if len(by_frame) == 1:
        return ""
    whole = [(name, found) for name, found in by_frame.items() if name and len({value for value, _ in found}) == 1]
    whole.sort(key=lambda item: (-len(item[1]), item[0]))
    listed = [
        f"--frame {name[:_FRAME_DIGITS]} ({found[0][1].experiment}, {found[0][1].source}, runs: {len(found)})"
        for name, found in whole[:_FRAMES_SHOWN]
    ]
    more = f", and {len(whole) - _FRAMES_SHOWN} more" if len(whole) > _FRAMES_SHOWN else ""
    return ", ".join(listed) + more


def _refuse_duplicates(runs: Sequence[StoredRun]) -> None:
    seen: dict[tuple[str, int | None], StoredRun] = {}
    for run in runs:
        first = seen.setdefault((run.system, run.seed), run)
        if first is not run:
            both = f"{run.system}/{first.path.name}, {run.system}/{run.path.name}"
            raise ConfigError("path", both, "are two settings of one system and seed; name by PATH which of them to compare")


def _metrics(rows: Sequence[Row], wanted: Sequence[str] | None) -> tuple[str, ...]:
    """The metrics to show (by default the headline ones that some run has as a number); raises ConfigError for an unknown name."""
    known = {name for row in rows for name, value in row.summary.items() if value is None or _is_number(value)}
    for name in wanted or ():
        if name not in known:
            raise ConfigError("metric", name, did_you_mean(name, known))
    if wanted:
        return tuple(dict.fromkeys(wanted))
    return tuple(name for name in HEADLINE if any(_is_number(row.summary.get(name)) for row in rows))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(system: str, what: Metric, table: Mapping[str, Mapping[int, Mapping[str, Any]]], baseline: str | None) -> Cell:
    """Mean over the seeds that the system shares with the baseline (all, where there is none or it lacks the number), and the effect
    over the same seeds."""
    mine = _values(table[system], what.name)
    base = _values(table[baseline], what.name) if baseline is not None else {}
    if system == baseline or not base:
        return Cell(system, what.name, len(mine), sum(mine.values()) / len(mine) if mine else None)
    pairs = [(mine[seed], base[seed]) for seed in mine if seed in base]
    everything = [value for runs in table.values() for value in _values(runs, what.name).values()]
    effect = paired_effect(pairs, choose_scale(what.scale, everything))
    return Cell(system, what.name, len(pairs), sum(a for a, _ in pairs) / len(pairs) if pairs else None, effect)


def _values(runs: Mapping[int, Mapping[str, Any]], name: str) -> dict[int, float]:
    return {seed: float(summary[name]) for seed, summary in runs.items() if _is_number(summary.get(name))}


def _judged(cells: Mapping[str, Mapping[str, Cell]], frame: Frame, baseline: str | None) -> dict[str, dict[str, Cell]]:
    """The same cells with Holm's correction over all of them and a verdict each."""
    flat = [(cell, cells[baseline][cell.metric].mean if baseline else None) for row in cells.values() for cell in row.values()]
    made: dict[str, dict[str, Cell]] = {system: {} for system in cells}
    for cell in judge(flat, frame.source):
        made[cell.system][cell.metric] = cell
    return made


def judge(cells: Sequence[tuple[Cell, float | None]], source: str) -> list[Cell]:
    """The cells of one table or figure, each given with the mean of what it is compared with: Holm's correction over all of them, and a
    verdict for each that has an effect."""
    adjusted = iter(holm([cell.effect.p for cell, _ in cells if cell.effect is not None]))
    enough = MIN_SEEDS.get(source, max(MIN_SEEDS.values()))
    made = []
    for cell, base in cells:
        if cell.effect is not None:
            p, what = next(adjusted), metric(cell.metric)
            word = verdict(cell.effect, p, better=what.better, margin=_margin(cell.effect, what, base or 0.0), min_seeds=enough)
            cell = replace(cell, p_holm=p, verdict=word)
        made.append(cell)
    return made


def _margin(effect: Effect, what: Metric, base: float) -> float:
    """How much loss is "no loss": 2 % of a ratio; 0.02 of what is always compared by difference (fractions, relative envy); 2 %
    of the baseline's mean `base` where a 0 among the values ruled ratios out."""
    if effect.scale == "ratio" or what.scale == "difference":
        return MARGIN
    return MARGIN * abs(base)


def _worst(provenances: Sequence[str]) -> str:
    known = [name for name in provenances if name in PROVENANCES]
    return worst(known) if known else ""


def _places(runs: Sequence[StoredRun]) -> str:
    return ", ".join(sorted({str(run.path.parents[1]) for run in runs})) or "nothing"
