"""What a lie about its speeds brings a tenant: true progress against the same seed's truth, by kind of lie and policy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetsys.report.drawing import COLOURS, GREY, canvas, save, style
from hetsys.report.figures import Figure
from hetsys.report.panels import by_value, caption, heading, labels_of, paired, point, short, summary_of
from hetsys.tracking.folder import StoredRun

FIGURE = Figure(
    name="misreports",
    title="What a lie about its speeds brings the tenant that tells it",
    claim="overstating never pays under non-cooperative OEF; understating does, unless all kinds have been measured",
    command="hetsys run experiment=oef_misreports",
    minutes=2,
    expected="oef_noncoop: below 0 for over, above 0 in many seeds for under; oef_noncoop_plus: at 0 but for the slowest",
    experiment="oef_misreports",
    axis="workload.lie",
)

TRUTH = "none"
KINDS = {
    "over": "all\nover", "under": "all\nunder", "entry_over": "entry\nover", "entry_under": "entry\nunder", "pair_over": "pair\nover",
    "pair_under": "pair\nunder", "slowest_over": "slow\nover", "slowest_none": "slow\nnone",
}  # fmt: skip
PAIR = ("tenant-00", "tenant-01")
PAYS = 0.01
"""A gain below this is rounding."""
READING = (
    "true progress ÷ that under the truth − 1, same seed: mean, 95 % interval, every seed; at the bottom: seeds that gain more than 1 % "
    "(entry: the fastest kind alone; pair: both together; slow: of the slowest kind alone, faster or none)"
)
_CLIP = (-0.6, 0.9)
Gains = dict[str, dict[str, dict[int, float]]]


def draw(runs: list[StoredRun], out: Path) -> list[Path]:
    """Write `<experiment>-misreports.{png,svg,csv}`; nothing where no run tells the truth, as there is then nothing to compare with."""
    gains, labels = gains_of(runs), labels_of(runs)
    if not any(gains.values()):
        return []
    rows = [
        {"lie": lie, "system": system, "label": labels[system], "seed": seed, "gain_fraction": gain}
        for lie, mine in gains.items() for system in mine for seed, gain in sorted(mine[system].items())
    ]  # fmt: skip
    systems = [system for system in labels if any(system in mine for mine in gains.values())]
    columns = 4
    lines = -(-len(systems) // columns)
    with style():
        figure = canvas(11.4, 0.95 + 2.25 * lines)
        height = figure.get_size_inches()[1]
        heading(figure, FIGURE.title, READING)
        for index, system in enumerate(systems):
            row, column = divmod(index, columns)
            bottom = 0.62 + 2.25 * (lines - 1 - row)
            axes = figure.add_axes((0.06 + 0.238 * column, bottom / height, 0.22, 1.5 / height))
            _panel(axes, {lie: mine[system] for lie, mine in gains.items() if system in mine}, short(labels[system]), first=column == 0)
        return save(figure, out, f"{runs[0].experiment}-{FIGURE.name}", caption(runs, FIGURE.axis), rows)


def gains_of(runs: list[StoredRun]) -> Gains:
    """By lie, system and seed: by which fraction the true progress of the liar (of a pair: of both together) is above that under the
    truth."""
    groups = by_value(runs, FIGURE.axis)
    truth = groups.get(TRUTH, [])
    gains: Gains = {}
    for lie in KINDS:
        figure = _of_pair if lie.startswith("pair") else summary_of("throughput_watched")
        found = paired(groups.get(lie, []), truth, figure)
        gains[lie] = {system: {seed: value - 1.0 for seed, value in mine.items()} for system, mine in found.items()}
    return gains


def _of_pair(run: StoredRun) -> float | None:
    """The progress of both tenants of a pair over the whole run."""
    return float(sum(row["progress"].get(name, 0.0) for row in run.rows("round") for name in PAIR))


def _panel(axes: Any, gains: Mapping[str, Mapping[int, float]], title: str, first: bool) -> None:
    from matplotlib.ticker import PercentFormatter

    axes.axhline(0.0, color=GREY, lw=0.9, ls=(0, (4, 3)), zorder=1)
    low, high = _CLIP
    for at, lie in enumerate(KINDS):
        one = point(at, gains.get(lie, {}).values())
        if one is None:
            continue
        colour = COLOURS[1] if lie.endswith("over") else COLOURS[0]
        axes.scatter([at] * len(one.seeds), [min(max(value, low), high) for value in one.seeds], s=9, color=colour, alpha=0.3, linewidths=0)
        if one.low is not None and one.high is not None:
            axes.plot([at, at], [max(one.low, low), min(one.high, high)], color=colour, lw=2.0, zorder=4, solid_capstyle="butt")
        axes.scatter([at], [min(max(one.mean, low), high)], s=30, color=colour, edgecolors="white", linewidths=0.8, zorder=5)
        paid = sum(value > PAYS for value in one.seeds)
        axes.text(at, low - 0.02, f"{paid}/{len(one.seeds)}", fontsize=6.5, ha="center", va="bottom", color="black" if paid else GREY)
    axes.set_xticks(range(len(KINDS)), KINDS.values(), fontsize=6.5)
    axes.set_ylim(low - 0.04, high)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_title(title.replace(", without", "\nwithout"), pad=4, fontsize=9)
    axes.grid(True, axis="y")
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", labelleft=first)
    if first:
        axes.set_ylabel("gain of the liar", labelpad=2)
