"""What wrong speeds cost: total throughput, envy, sharing incentive and equality over the error of the profile, judged by true speeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hetsys.report.drawing import GREY, canvas, save, style
from hetsys.report.figures import Figure
from hetsys.report.panels import (
    Point,
    by_value,
    caption,
    evenness,
    heading,
    label_ends,
    labels_of,
    look,
    paired,
    point,
    short,
    spread_out,
    summary_of,
    values_of,
)
from hetsys.tracking.folder import StoredRun

FIGURE = Figure(
    name="profile_error",
    title="What wrong speeds cost, judged by the true ones",
    claim="an error of 10 % in the profile costs little throughput and little fairness; beyond 20 % the sharing incentive is lost",
    command="hetsys run experiment=oef_profile_error",
    minutes=3,
    expected="totals fall by less than a tenth at 30 %; envy grows, sharing incentive falls below 1 between 5 and 20 %; equal_split flat",
    experiment="oef_profile_error",
    axis="workload.profile_error",
)

TOTAL = "throughput_normalized_all"
READING = "error: relative standard deviation of each speed that the scheduler is told; mean, 95 % interval, every seed"
PANELS = (
    ("total", "total ÷ the same system's without error", "Total throughput", 1.0),
    ("envy_max", "envy, relative to the own share", "Envy of the worst tenant", 0.0),
    ("sharing_incentive_min", "worth of own devices ÷ of own slice", "Sharing incentive, worst tenant", 1.0),
    ("evenness", "least ÷ most progress of a tenant", "Equality of progress", 1.0),
)


def draw(runs: list[StoredRun], out: Path) -> list[Path]:
    """Write `<experiment>-profile_error.{png,svg,csv}`."""
    groups, labels = by_value(runs, FIGURE.axis), labels_of(runs)
    found = {name: _values(groups, name) for name, _, _, _ in PANELS}
    rows = [
        {"error": error, "metric": name, "system": system, "label": labels[system], "seed": seed, "value": value}
        for name, by_error in found.items() for error, mine in by_error.items() for system in mine
        for seed, value in sorted(mine[system].items())
    ]  # fmt: skip
    with style():
        figure = canvas(11.4, 6.6)
        heading(figure, FIGURE.title, READING)
        for index, (name, unit, title, level) in enumerate(PANELS):
            row, column = divmod(index, 2)
            axes = figure.add_axes((0.06 + 0.49 * column, 0.575 - 0.46 * row, 0.31, 0.31))
            points = {system: _points(found[name], system, name == "total") for system in labels}
            _panel(axes, {system: mine for system, mine in points.items() if mine}, list(groups), (unit, title, level), labels)
        return save(figure, out, f"{runs[0].experiment}-{FIGURE.name}", caption(runs, FIGURE.axis), rows)


def _values(groups: dict[str, list[StoredRun]], name: str) -> dict[str, dict[str, dict[int, float]]]:
    """By error, system and seed. The total is relative to the same system and seed at the least error."""
    if name == "total":
        first = next(iter(groups.values()))
        return {error: paired(group, first, summary_of(TOTAL)) for error, group in groups.items()}
    figure = evenness if name == "evenness" else summary_of(name)
    return {error: values_of(group, figure) for error, group in groups.items()}


def _points(found: dict[str, dict[str, dict[int, float]]], system: str, ratio: bool) -> list[Point | None]:
    values = [mine.get(system, {}).values() for mine in found.values()]
    return [point(at, mine, ratio=ratio) for at, mine in enumerate(values)] if any(values) else []


def _panel(
    axes: Any, points: dict[str, list[Point | None]], errors: list[str], words: tuple[str, str, float], labels: dict[str, str]
) -> None:
    unit, title, level = words
    axes.axhline(level, color=GREY, lw=0.9, ls=(0, (4, 3)), zorder=1)
    spread_out(axes, points, dodge=0.05)
    axes.set_xticks(range(len(errors)), [f"{100 * float(error):g} %" for error in errors])
    axes.set_xlabel("error of the profile")
    axes.set_ylabel(unit)
    axes.set_title(title, pad=6)
    axes.grid(True, axis="y")
    axes.set_axisbelow(True)
    if title.startswith("Envy") and axes.get_ylim()[1] > 2:
        axes.set_yscale("symlog", linthresh=0.1)
        axes.set_ylim(bottom=-0.01)
        axes.set_yticks([0, 0.1, 1, 10], ["0", "0.1", "1", "10"])
    ends = [(one.mean, short(labels[system]), look(system, list(points)).colour) for system, mine in points.items() if (one := mine[-1])]
    label_ends(axes, ends)
