"""Two cases in which nothing can be gained: every policy that is fair must come out the same."""

from __future__ import annotations

from pathlib import Path

from hetsys.report.compare import default_baseline
from hetsys.report.drawing import PALE, canvas, save, style
from hetsys.report.figures import Figure
from hetsys.report.panels import by_value, caption, evenness, heading, labels_of, paired, point, rows_of, short, summary_of, values_of
from hetsys.tracking.folder import StoredRun

FIGURE = Figure(
    name="null_cases",
    title="Where nothing can be gained, every total is the same",
    claim="with kinds alike, or tenants alike, all policies make the same total; tenants differ by whole gangs alone",
    command="hetsys run experiment=oef_null",
    minutes=0.5,
    expected="total throughput within 0.5 % of each other in both cases; least progress over most 0.8 to 1 for the fair ones",
    experiment="oef_null",
    axis="workload.speeds",
)

TOTAL = "throughput_normalized_all"
WITHIN = 0.005
"""Whole devices and whole steps may make so much of a difference, and no more."""


def draw(runs: list[StoredRun], out: Path) -> list[Path]:
    """Write `<experiment>-null_cases.{png,svg,csv}`; nothing where the baseline is not among the runs."""
    base = default_baseline(runs)
    if base is None:
        return []
    groups, labels = by_value(runs, FIGURE.axis), labels_of(runs)
    totals = {case: paired(group, [run for run in group if run.system == base], summary_of(TOTAL)) for case, group in groups.items()}
    evens = {case: values_of(group, evenness) for case, group in groups.items()}
    rows = [
        {"speeds": case, "system": system, "label": labels[system], "seed": seed, "total_ratio": value,
         "least_over_most_progress": evens[case].get(system, {}).get(seed)}
        for case, mine in totals.items() for system in labels for seed, value in sorted(mine.get(system, {}).items())
    ]  # fmt: skip
    with style():
        figure = canvas(11.4, 1.5 + 0.3 * len(labels))
        height = figure.get_size_inches()[1]
        heading(figure, FIGURE.title, f"every tenant has the speeds above; band: ± {100 * WITHIN:g} %; progress differs by whole gangs")
        width = 0.8 / (2 * len(groups))
        for index, case in enumerate(groups):
            for part, found in enumerate((totals[case], evens[case])):
                axes = figure.add_axes((0.17 + (2 * index + part) * (width + 0.008), 0.75 / height, width - 0.012, 1 - 1.6 / height))
                rows_of(axes, [(name, short(labels[name]), point(0, found.get(name, {}).values()), ()) for name in labels])
                axes.axvspan(1 - WITHIN, 1 + WITHIN, color=PALE, alpha=0.35, lw=0, zorder=0)
                low, high = axes.get_xlim()
                axes.set_xlim(min(low, 0.98 - 0.5 * part), max(high, 1.02))
                axes.tick_params(axis="y", labelleft=index + part == 0)
                axes.set_xlabel("least ÷ most progress" if part else f"total ÷ that of {short(labels[base])}")
                axes.set_title("" if part else f"speeds {case.strip('[]')}", pad=5)
        return save(figure, out, f"{runs[0].experiment}-{FIGURE.name}", caption(runs, FIGURE.axis), rows)
