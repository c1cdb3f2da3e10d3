"""Systems by the values of an axis: one comparison for each value, judged together, for sweeps that change one key besides the system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hetsys.core.errors import check_choice
from hetsys.report.axes import Axis
from hetsys.report.compare import Cell, Comparison, Row, compare, compare_rows, judge, refuse_mixtures
from hetsys.tracking.stored import StoredRun


@dataclass(frozen=True)
class Grid:
    """Plain data. `comparisons[value]`: the runs of one value; `cells[metric][system][value]`: means and effects, Holm's correction over
    all cells. Effects are against `baseline` at the same value or, where there is a `reference`, against the same system at that value."""

    axis: Axis
    baseline: str | None
    reference: str | None
    labels: Mapping[str, str]
    metrics: tuple[str, ...]
    comparisons: Mapping[str, Comparison]
    cells: Mapping[str, Mapping[str, Mapping[str, Cell]]]

    @property
    def any_comparison(self) -> Comparison:
        return next(iter(self.comparisons.values()))


def compare_along(
    runs: Sequence[StoredRun],
    axis: Axis,
    baseline: str | None = None,
    metrics: Sequence[str] | None = None,
    *,
    any_commit: bool = False,
) -> Grid:
    """Compare the finished ones of `runs`, whose frames differ in `axis`, value by value.

    Where the configuration of the runs names a `reference`, and the axis has it, systems are compared with themselves at that value.
    Raises ConfigError as `compare` does, and for runs of several sources or (unless `any_commit`) commits.
    """
    finished = [run for group in axis.runs.values() for run in group]
    refuse_mixtures(finished, any_commit, any_frame=True)
    if baseline is not None:
        check_choice("baseline", baseline, {run.system for run in finished})
    comparisons = {value: _compared(runs, group, baseline, metrics, any_commit) for value, group in axis.runs.items()}
    reference = reference_of(axis)
    found = _against_reference(axis, comparisons, reference) if reference is not None else _as_they_are(comparisons)
    source = finished[0].source
    labels = dict(sorted({system: label for one in comparisons.values() for system, label in one.labels.items()}.items()))
    if baseline is not None:
        labels = {baseline: labels[baseline], **labels}
    names = tuple(dict.fromkeys(name for one in comparisons.values() for name in one.metrics))
    cells: dict[str, dict[str, dict[str, Cell]]] = {name: {system: {} for system in labels} for name in names}
    judged = judge([(cell, base) for _, cell, base in found], source)
    for (value, _, _), cell in zip(found, judged, strict=True):
        cells[cell.metric][cell.system][value] = cell
    return Grid(axis, baseline, reference, labels, names, comparisons, cells)


def reference_of(axis: Axis) -> str | None:
    """The value of `axis` that the configuration of its runs names as the one that systems are compared with themselves at."""
    named = next(iter(axis.runs.values()))[0].config.get("reference")
    said = f"{named:g}" if isinstance(named, int | float) else str(named)
    return said if said in axis.runs else None


def _compared(
    runs: Sequence[StoredRun], group: Sequence[StoredRun], baseline: str | None, metrics: Sequence[str] | None, any_commit: bool
) -> Comparison:
    """The comparison of one value, with the runs of its frame that did not finish."""
    frame = group[0].frame_hash
    mine = [*group, *(run for run in runs if run.status != "finished" and run.frame_hash == frame)]
    there = baseline if baseline in {run.system for run in group} else None
    return compare(mine, there, metrics, any_commit=any_commit)


_Found = list[tuple[str, Cell, float | None]]
"""A value of the axis, a cell, and the mean of what the cell is compared with."""


def _as_they_are(comparisons: Mapping[str, Comparison]) -> _Found:
    found: _Found = []
    for value, one in comparisons.items():
        for row in one.cells.values():
            for cell in row.values():
                base = one.cells[one.baseline][cell.metric].mean if one.baseline else None
                found.append((value, cell, base))
    return found


def _against_reference(axis: Axis, comparisons: Mapping[str, Comparison], reference: str) -> _Found:
    """Each system against itself at the value `reference`, seed by seed; seeds that are invalid at a value do not count there."""
    rows: dict[str, list[Row]] = {}
    for value, one in comparisons.items():
        for run in axis.runs[value]:
            if run.summary["seed"] not in one.frame.invalid_seeds:
                rows.setdefault(run.system, []).append(Row(value, value, int(run.summary["seed"]), run.summary))
    found: _Found = []
    for system, mine in rows.items():
        base = reference if any(row.system == reference for row in mine) else None
        first = next(iter(comparisons.values()))
        one = compare_rows(mine, replace(first.frame, invalid_seeds=()), base, first.metrics)
        for value, row in one.cells.items():
            for cell in row.values():
                mean = one.cells[base][cell.metric].mean if base else None
                found.append((value, replace(cell, system=system), mean))
    return found
