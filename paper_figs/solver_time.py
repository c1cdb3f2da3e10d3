"""Seconds of one decision over the number of tenants, each with speeds of its own: the first of a run, and those that follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hetsys.report.drawing import canvas, save, style
from hetsys.report.figures import Figure
from hetsys.report.panels import (
    Point,
    by_value,
    caption,
    heading,
    label_ends,
    labels_of,
    look,
    point,
    short,
    spread_out,
    summary_of,
    values_of,
)
from hetsys.tracking.folder import StoredRun

FIGURE = Figure(
    name="solver_time",
    title="Time of one decision over the number of tenants",
    claim="three hundred tenants with speeds of their own are planned for in about a second, and again at once",
    command="hetsys run experiment=oef_solver_time",
    minutes=2,
    expected="oef_coop rises fastest, to 0.2 to 1.5 s at 300 tenants; all others below 0.4 s; following decisions below a tenth",
    experiment="oef_solver_time",
    axis="workload.tenants",
)

READING = "24 devices of three kinds; geometric mean, 95 % interval, every seed; host time of this machine, with runs side by side"
PANELS = (("solve_s_max", "first decision (the slowest of a run)"), ("solve_s_p50", "when nothing has changed (median of a run)"))


def draw(runs: list[StoredRun], out: Path) -> list[Path]:
    """Write `<experiment>-solver_time.{png,svg,csv}`."""
    groups, labels = by_value(runs, FIGURE.axis), labels_of(runs)
    found = {name: {tenants: values_of(group, summary_of(name)) for tenants, group in groups.items()} for name, _ in PANELS}
    rows = [
        {"metric": name, "tenants": tenants, "system": system, "label": labels[system], "seed": seed, "seconds": value}
        for name, by_tenants in found.items() for tenants, mine in by_tenants.items() for system in mine
        for seed, value in sorted(mine[system].items())
    ]  # fmt: skip
    with style():
        figure = canvas(11.4, 4.7)
        heading(figure, FIGURE.title, READING)
        for index, (name, title) in enumerate(PANELS):
            axes = figure.add_axes((0.055 + 0.5 * index, 0.15, 0.32, 0.66))
            points: dict[str, list[Point | None]] = {}
            for system in labels:
                seconds = {int(tenants): mine.get(system, {}).values() for tenants, mine in found[name].items()}
                points[system] = [point(tenants, values, ratio=True) for tenants, values in seconds.items() if values]
            _panel(axes, {system: mine for system, mine in points.items() if mine}, list(groups), title, labels)
        return save(figure, out, f"{runs[0].experiment}-{FIGURE.name}", caption(runs, FIGURE.axis), rows)


def _panel(axes: Any, points: dict[str, list[Point | None]], tenants: list[str], title: str, labels: dict[str, str]) -> None:
    spread_out(axes, points)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([int(count) for count in tenants], tenants)
    axes.minorticks_off()
    axes.set_xlabel("tenants, each with speeds of its own")
    axes.set_ylabel("seconds")
    axes.set_title(title, pad=6)
    axes.grid(True)
    axes.set_axisbelow(True)
    ends = [(one.mean, short(labels[system]), look(system, list(points)).colour) for system, mine in points.items() if (one := mine[-1])]
    label_ends(axes, ends)
