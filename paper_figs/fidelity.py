"""Fidelity: what the simulator, fed with this machine's profile, predicted of each run against what the run measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from hetsys.report.compare import compare, default_baseline
from hetsys.report.drawing import COLOURS, GREY, MARKERS, PALE, canvas, caption_of, save, style
from hetsys.report.figures import Figure
from hetsys.tracking.folder import StoredRun

FIGURE = Figure(
    name="fidelity",
    title="Predicted by the simulator against measured on this machine",
    claim="fed with this machine's profile, the simulator predicts what schedulers achieve on it",
    command="hetsys run experiment=oef_native",
    minutes=10,
    expected="points on the diagonal: throughput within 7 %, mean completion time within 12 % (median over policies)",
    experiment="oef_native",
    also=("oef_native_short",),
)

PANELS = (
    ("throughput_normalized", "normalised throughput (slow devices)", 0.07),
    ("jct_mean_s", "mean completion time (s)", 0.12),
)
"""Name in the summary, axis, and how far off the prediction may be."""


@dataclass(frozen=True)
class Point:
    system: str
    seed: int
    measured: float
    predicted: float


def draw(runs: list[StoredRun], out: Path) -> list[Path]:
    """Write `<experiment>-fidelity.{png,svg,csv}`; nothing where no run holds a prediction, as only measured ones do."""
    points = {name: points_of(runs, name) for name, _, _ in PANELS}
    if not any(points.values()):
        return []
    comparison = compare(runs, default_baseline(runs), [name for name, _, _ in PANELS])
    rows = [
        {"metric": name, "system": p.system, "label": comparison.labels[p.system], "seed": p.seed, "measured": p.measured,
         "predicted": p.predicted, "error_fraction": p.predicted / p.measured - 1.0}
        for name, mine in points.items() for p in mine
    ]  # fmt: skip
    with style():
        figure = canvas(9.6, 4.9)
        figure.text(0.01, 0.97, FIGURE.title, fontsize=11.5, fontweight="bold", ha="left", va="top")
        for index, (name, label, within) in enumerate(PANELS):
            axes = figure.add_axes((0.07 + 0.5 * index, 0.17, 0.42, 0.65))
            _panel(axes, points[name], comparison.labels, label, within)
        return save(figure, out, f"{comparison.frame.experiment}-{FIGURE.name}", caption_of(comparison), rows)


def points_of(runs: list[StoredRun], name: str) -> list[Point]:
    """Each valid run that holds the measured figure `name` and its prediction, neither of them 0."""
    found = []
    for run in runs:
        measured, predicted = run.summary.get(name), run.summary.get(f"predicted_{name}")
        if measured and predicted and run.summary.get("valid") is not False:
            found.append(Point(run.system, int(run.summary["seed"]), float(measured), float(predicted)))
    return found


def median_error(points: list[Point]) -> float:
    """The mean error of each system's seeds, as a fraction of what was measured; then the median over the systems."""
    by_system: dict[str, list[float]] = {}
    for point in points:
        by_system.setdefault(point.system, []).append(abs(point.predicted / point.measured - 1.0))
    return median(fmean(errors) for errors in by_system.values())


def _panel(axes: Any, points: list[Point], labels: Any, label: str, within: float) -> None:
    axes.set_xlabel(f"measured: {label}")
    axes.set_ylabel("predicted by the simulator")
    if not points:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", va="center", color=GREY)
        return
    values = [value for point in points for value in (point.measured, point.predicted)]
    low, high = min(values) / 1.1, max(values) * 1.1
    axes.fill_between([low, high], [low * (1 - within), high * (1 - within)], [low * (1 + within), high * (1 + within)], color=PALE,
                      alpha=0.3, lw=0, zorder=1)  # fmt: skip
    axes.plot([low, high], [low, high], color=GREY, lw=0.9, zorder=2)
    for index, system in enumerate(sorted({point.system for point in points})):
        mine = [point for point in points if point.system == system]
        axes.scatter(
            [point.measured for point in mine], [point.predicted for point in mine], s=30, color=COLOURS[index % len(COLOURS)],
            marker=MARKERS[index % len(MARKERS)], edgecolors="white", linewidths=0.6, zorder=3, label=labels[system].partition(" (")[0],
        )  # fmt: skip
    axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.set_title(f"off by {100 * median_error(points):.1f} % (median over policies); band ± {100 * within:.0f} %", pad=8)
    axes.legend(frameon=False, fontsize=7.5, loc="best", handletextpad=0.2)
