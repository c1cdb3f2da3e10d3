"""What gangs on devices of several kinds are worth: idle devices, throughput and the loss to the slowest device, over the spread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hetsys.report.compare import default_baseline
from hetsys.report.drawing import GREY, canvas, save, style
from hetsys.report.figures import Figure
from hetsys.report.panels import (
    Point,
    by_value,
    caption,
    heading,
    labels_of,
    legend_of,
    paired,
    point,
    short,
    spread_out,
    summary_of,
    values_of,
)
from hetsys.tracking.folder import StoredRun

FIGURE = Figure(
    name="cross_kind_gangs",
    title="Gangs of three on hosts of four, with and without gangs of several kinds",
    claim="idle devices of several kinds together are worth something where the kinds are close in speed, and less the further apart",
    command="hetsys run experiment=oef_cross_kind",
    minutes=1,
    expected="a quarter of the devices idle without, hardly any with; throughput 15 to 30 % more at spread 1.5, 3 to 20 % more at 12",
    experiment="oef_cross_kind",
    axis="workload.spread",
)

PANELS = (
    ("throughput_normalized_all", "Total throughput", ""),
    ("idle_device_fraction", "Idle devices", "share of device time"),
    ("straggler_loss", "Loss to the slowest device", "share of what the devices could make"),
)


def draw(runs: list[StoredRun], out: Path) -> list[Path]:
    """Write `<experiment>-cross_kind_gangs.{png,svg,csv}`."""
    groups, labels, base = by_value(runs, FIGURE.axis), labels_of(runs), default_baseline(runs) or runs[0].system
    found = {name: {spread: _values(group, name, base) for spread, group in groups.items()} for name, _, _ in PANELS}
    rows = [
        {"spread": spread, "metric": name, "system": system, "label": labels[system], "seed": seed, "value": value}
        for name, by_spread in found.items() for spread, mine in by_spread.items() for system in mine
        for seed, value in sorted(mine[system].items())
    ]  # fmt: skip
    with style():
        figure = canvas(10.6, 4.3)
        heading(figure, FIGURE.title, "mean over seeds, 95 % interval, every seed; only gangs that fit no single kind may mix kinds")
        for index, (name, title, unit) in enumerate(PANELS):
            axes = figure.add_axes((0.065 + 0.325 * index, 0.225, 0.26, 0.58))
            points: dict[str, list[Point | None]] = {
                system: [point(at, mine.get(system, {}).values(), ratio=not index) for at, mine in enumerate(found[name].values())]
                for system in labels
            }
            looks = spread_out(axes, points, dodge=0.06)
            _finish(axes, list(groups), title, unit or f"ratio to {short(labels[base])}, same seed")
            if not index:
                axes.axhline(1.0, color=GREY, lw=0.9, ls=(0, (4, 3)), zorder=1)
            else:
                axes.set_ylim(bottom=min(-0.01, axes.get_ylim()[0]))
        legend_of(figure, looks, labels)
        return save(figure, out, f"{runs[0].experiment}-{FIGURE.name}", caption(runs, FIGURE.axis), rows)


def _values(runs: list[StoredRun], name: str, base: str) -> dict[str, dict[int, float]]:
    if name == PANELS[0][0]:
        return paired(runs, [run for run in runs if run.system == base], summary_of(name))
    return values_of(runs, summary_of(name))


def _finish(axes: Any, spreads: list[str], title: str, unit: str) -> None:
    axes.set_xticks(range(len(spreads)), spreads)
    axes.set_xlim(-0.4, len(spreads) - 0.6)
    axes.set_xlabel("spread of speed-ups")
    axes.set_ylabel(unit)
    axes.set_title(title, pad=6)
    axes.grid(True, axis="y")
    axes.set_axisbelow(True)
