"""Fairness against efficiency: what each policy pays in throughput for how fairly it shares, by two measures of fairness."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetsys.metrics.scheduling import JOBS_FOR_P95
from hetsys.metrics.statistics import mean_interval
from hetsys.report.compare import Comparison, compare, default_baseline
from hetsys.report.drawing import COLOURS, GREY, MARKERS, canvas, caption_of, label_points, save, style
from hetsys.report.figures import Figure
from hetsys.tracking.folder import StoredRun

FIGURE = Figure(
    name="fairness_efficiency",
    title="Fairness against efficiency of all schedulers",
    claim="envy-free sharing of mixed GPUs costs no throughput against heterogeneity-aware max-min",
    command="hetsys run experiment=oef_mix",
    minutes=2,
    expected="oef_coop at or right of gavel, sharing incentive near 1; equal_split left, at 1; max_efficiency right and lowest",
    experiment="oef_mix",
    also=("oef",),
    min_systems=2,
)

X = "throughput_normalized"
PANELS = (
    ("sharing_incentive_min", "worth of own devices ÷ worth of own slice", "Sharing incentive, worst tenant"),
    ("finish_time_fairness_p95", "completion time ÷ that on own slice, p95", "Finish-time fairness ρ of the jobs"),
)
LOG_TICKS = [m * 10**e for e in range(-3, 7) for m in (1, 2, 5)]
OURS = "oef"


@dataclass(frozen=True)
class Point:
    """One seed of one system; `x` relative to the baseline's same seed, or absolute where there is no baseline."""

    system: str
    seed: int
    x: float
    y: dict[str, float | None]


def draw(runs: list[StoredRun], out: Path) -> list[Path]:
    """Write `<experiment>-fairness_efficiency.{png,svg,csv}`; nothing where no run has a throughput (nobody ever waited)."""
    names = (X, *(name for name, _, _ in PANELS))
    comparison = compare(runs, default_baseline(runs), names)
    points = _points(runs, comparison)
    if not points:
        return []
    rows = [{"system": p.system, "label": comparison.labels[p.system], "seed": p.seed, X: p.x, **p.y} for p in points]
    with style():
        figure = canvas(9.6, 4.6)
        figure.text(0.01, 0.965, FIGURE.title, fontsize=11.5, fontweight="bold", ha="left", va="top")
        for index, (name, label, title) in enumerate(PANELS):
            axes = figure.add_axes((0.06 + 0.5 * index, 0.165, 0.43, 0.68))
            _panel(axes, points, comparison, name, label, title)
        return save(figure, out, f"{comparison.frame.experiment}-{FIGURE.name}", caption_of(comparison), rows)


def _points(runs: list[StoredRun], comparison: Comparison) -> list[Point]:
    valid = [run for run in runs if run.status == "finished" and run.summary["seed"] not in comparison.frame.invalid_seeds]
    base = {run.summary["seed"]: run.summary[X] for run in valid if run.system == comparison.baseline}
    points = []
    for run in valid:
        seed, x = int(run.summary["seed"]), run.summary.get(X)
        reference = base.get(seed) if comparison.baseline else 1.0
        if x is not None and reference:
            points.append(Point(run.system, seed, x / reference, {name: run.summary.get(name) for name, _, _ in PANELS}))
    return points


def _panel(axes: Any, points: list[Point], comparison: Comparison, name: str, label: str, title: str) -> None:
    lower_is_fair = name.startswith("finish")
    if all(p.y[name] is None for p in points):
        _say_empty(axes, name, title)
        return
    axes.grid(True)
    axes.set_axisbelow(True)
    if lower_is_fair:
        values = [y for p in points if (y := p.y[name]) is not None]
        if max(values) > 5 * min(values):
            axes.set_yscale("log")
        axes.invert_yaxis()
    for at in (axes.axhline, axes.axvline) if comparison.baseline else (axes.axhline,):
        at(1.0, color=GREY, lw=0.9, ls=(0, (4, 3)), zorder=1)
    labels = []
    for index, system in enumerate(sorted(comparison.labels)):
        mine = [(p.x, y) for p in points if p.system == system and (y := p.y[name]) is not None]
        if not mine:
            continue
        colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
        axes.scatter(*zip(*mine, strict=True), s=9, color=colour, marker=marker, alpha=0.22, linewidths=0, zorder=2)
        x, y = _centre(axes, mine, comparison, system, colour)
        size = 62 if system.startswith(OURS) else 40
        axes.scatter([x], [y], s=size, color=colour, marker=marker, edgecolors="white", linewidths=0.8, zorder=5)
        labels.append((x, y, _short(comparison.labels[system]), colour, system.startswith(OURS)))
    _finish(axes, comparison, label, title, lower_is_fair)
    label_points(axes, labels, [(p.x, y) for p in points if (y := p.y[name]) is not None])


def _centre(axes: Any, mine: list[tuple[float, float]], comparison: Comparison, system: str, colour: str) -> tuple[float, float]:
    """Mean of both axes with the ends of both 95 % intervals; on the x axis the paired one of the comparison."""
    effect = comparison.cells[system][X].effect
    if effect is not None and effect.scale == "ratio":
        x, x_low, x_high = effect.value, effect.low, effect.high
    else:
        x, x_low, x_high = mean_interval([point[0] for point in mine])
    y, y_low, y_high = mean_interval([point[1] for point in mine])
    if x_low is not None and x_high is not None:
        axes.plot([x_low, x_high], [y, y], color=colour, lw=1.6, zorder=4, solid_capstyle="butt")
    if y_low is not None and y_high is not None:
        axes.plot([x, x], [max(y_low, y * 0.02), y_high], color=colour, lw=1.6, zorder=4, solid_capstyle="butt")
    return x, y


def _finish(axes: Any, comparison: Comparison, label: str, title: str, lower_is_fair: bool) -> None:
    from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullLocator

    baseline = comparison.labels[comparison.baseline] if comparison.baseline else ""
    axes.set_xlabel(
        f"normalised throughput ÷ that of {_short(baseline)}, same seed" if baseline else "normalised throughput (slow devices)"
    )
    axes.set_ylabel(label)
    axes.set_title(title, pad=8)
    axes.text(1.0, 1.02, "better ↗", transform=axes.transAxes, ha="right", va="bottom", color=GREY, fontsize=8)
    axes.margins(0.09, 0.09)
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_locator(FixedLocator(LOG_TICKS))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    elif not lower_is_fair:
        low, high = axes.get_ylim()
        bottom, highest = min(-0.04, low), axes.dataLim.y1
        axes.set_ylim(bottom, max(high, highest + 0.06 * (highest - bottom)))


def _say_empty(axes: Any, name: str, title: str) -> None:
    why = f": fewer than {JOBS_FOR_P95} jobs a run" if name.endswith("_p95") else ""
    axes.set_title(title, pad=8)
    axes.set(xticks=[], yticks=[])
    axes.text(0.5, 0.5, f"no data{why}", transform=axes.transAxes, ha="center", va="center", color=GREY)


def _short(label: str) -> str:
    return label.partition(" (")[0]
