"""Total throughput of each policy over how much faster the fast kinds are, relative to the baseline; the published claim beside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hetsys.report.compare import default_baseline
from hetsys.report.drawing import GREY, canvas, save, style
from hetsys.report.figures import Figure
from hetsys.report.panels import (
    Look,
    Point,
    by_value,
    caption,
    heading,
    label_ends,
    labels_of,
    paired,
    point,
    short,
    spread_out,
    summary_of,
)
from hetsys.report.published import published_panel
from hetsys.tracking.folder import StoredRun

FIGURE = Figure(
    name="speedup_spread",
    title="Total throughput over the spread of speed-ups",
    claim="the more the speed-ups differ, the more envy-free sharing gains over max-min; at spread 1 nobody gains anything",
    command="hetsys run experiment=oef_spread",
    minutes=3,
    expected="all lines at 1 for spread 1; oef_coop above 1 and rising, oef_noncoop and equal_split below and falling",
    experiment="oef_spread",
    min_systems=2,
    axis="workload.spread",
)

METRIC = "throughput_normalized_all"
FAIR = 1.2
"""The right panel shows what lies below this: the policies that leave nobody without devices."""


def draw(runs: list[StoredRun], out: Path) -> list[Path]:
    """Write `<experiment>-speedup_spread.{png,svg,csv}`."""
    labels, base = labels_of(runs), default_baseline(runs) or runs[0].system
    spreads, ratios = ratios_of(runs, base)
    points = {
        system: [point(at, mine[system].values(), ratio=True) for at, mine in enumerate(ratios) if system in mine] for system in labels
    }
    rows = [
        {"spread": spread, "system": system, "label": labels[system], "seed": seed, "ratio": value}
        for spread, mine in zip(spreads, ratios, strict=True) for system in mine for seed, value in sorted(mine[system].items())
    ]  # fmt: skip
    with style():
        figure = canvas(11.4, 4.7)
        heading(figure, FIGURE.title, f"ratio to {short(labels[base])}, same seed: geometric mean, 95 % interval and every seed")
        whole = figure.add_axes((0.05, 0.16, 0.26, 0.66))
        near = figure.add_axes((0.385, 0.16, 0.29, 0.66))
        _panel(whole, points, spreads, "all policies")
        looks = _panel(near, points, spreads, "the same, near the baseline")
        lowest = min((value for mine in points.values() for one in mine if one for value in (one.mean,)), default=1.0)
        near.set_ylim(min(lowest, 0.97) - 0.03, FAIR)
        label_ends(near, [_end(labels[system], mine, looks[system]) for system, mine in points.items() if mine])
        published_panel(figure.add_axes((0.84, 0.25, 0.142, 0.53)))
        return save(figure, out, f"{runs[0].experiment}-{FIGURE.name}", caption(runs, FIGURE.axis), rows)


def ratios_of(runs: list[StoredRun], base: str) -> tuple[list[str], list[dict[str, dict[int, float]]]]:
    """The values of the spread in order and, for each, by system and seed the ratio to `base`."""
    groups = by_value(runs, FIGURE.axis)
    found = [paired(group, [run for run in group if run.system == base], summary_of(METRIC)) for group in groups.values()]
    return list(groups), found


def _panel(axes: Any, points: dict[str, list[Point | None]], spreads: list[str], title: str) -> dict[str, Look]:
    axes.axhline(1.0, color=GREY, lw=0.9, ls=(0, (4, 3)), zorder=1)
    looks = spread_out(axes, points, dodge=0.06)
    axes.set_xticks(range(len(spreads)), spreads)
    axes.set_xlabel("spread: largest speed-up, fastest over slowest kind")
    axes.set_ylabel("total throughput ÷ that of the baseline")
    axes.set_title(title, pad=6)
    axes.grid(True, axis="y")
    axes.set_axisbelow(True)
    return looks


def _end(label: str, mine: list[Point | None], how: Look) -> tuple[float, str, str]:
    last = mine[-1]
    assert last is not None
    return min(last.mean, FAIR), short(label) + (" ↑" if last.mean > FAIR else ""), how.colour
