"""Who holds kinds that are not neighbours in the order of speed, by how orderly speed-ups are, and what tidying up costs."""

from __future__ import annotations

from pathlib import Path

from hetsys.report.compare import default_baseline
from hetsys.report.drawing import GREY, canvas, save, style
from hetsys.report.figures import Figure
from hetsys.report.panels import by_value, caption, heading, labels_of, legend_of, paired, point, short, spread_out, summary_of, values_of
from hetsys.tracking.folder import StoredRun

FIGURE = Figure(
    name="adjacency",
    title="Who holds kinds that are not neighbours in the order of speed",
    claim="ratio-ordered tenants hold neighbouring kinds; others do not, and a second objective tidies some of them up at hardly any cost",
    command="hetsys run experiment=oef_adjacency",
    minutes=2,
    expected="oef_noncoop and gavel_user 0 when ratio-ordered; more gaps for monotone and any order; fewer with the step than without",
    experiment="oef_adjacency",
    axis="workload.order",
)

GAPS, TOTAL = "noncontiguous_users_fraction", "throughput_normalized_all"
ORDERS = ("ratio_ordered", "monotone", "any")


def draw(runs: list[StoredRun], out: Path) -> list[Path]:
    """Write `<experiment>-adjacency.{png,svg,csv}`."""
    groups, labels = by_value(runs, FIGURE.axis), labels_of(runs)
    orders = sorted(groups, key=lambda order: (ORDERS.index(order) if order in ORDERS else len(ORDERS), order))
    base = default_baseline(runs) or runs[0].system
    gaps = {order: values_of(groups[order], summary_of(GAPS)) for order in orders}
    totals = {order: paired(groups[order], [run for run in groups[order] if run.system == base], summary_of(TOTAL)) for order in orders}
    rows = [
        {"order": order, "system": system, "label": labels[system], "seed": seed, "gaps_fraction": value,
         "total_ratio": totals[order].get(system, {}).get(seed)}
        for order in orders for system, mine in gaps[order].items() for seed, value in sorted(mine.items())
    ]  # fmt: skip
    with style():
        figure = canvas(10.6, 4.9)
        heading(figure, FIGURE.title, "six kinds; mean over seeds, 95 % interval and every seed")
        left, right = figure.add_axes((0.06, 0.235, 0.42, 0.58)), figure.add_axes((0.56, 0.235, 0.42, 0.58))
        points = {system: [point(at, gaps[order].get(system, {}).values()) for at, order in enumerate(orders)] for system in labels}
        looks = spread_out(left, points, dodge=0.085, join=False)
        left.set(ylabel="share of tenants", ylim=(-0.03, None))
        left.set_title("Tenants with a gap among the kinds that they hold", pad=6)
        points = {
            system: [point(at, totals[order].get(system, {}).values(), ratio=True) for at, order in enumerate(orders)] for system in labels
        }
        spread_out(right, points, dodge=0.085, join=False)
        right.axhline(1.0, color=GREY, lw=0.9, ls=(0, (4, 3)), zorder=1)
        right.set_ylabel(f"ratio to {short(labels[base])}, same seed")
        right.set_title("Total throughput", pad=6)
        for axes in (left, right):
            axes.set_xticks(range(len(orders)), [order.replace("_", " ") for order in orders])
            axes.set_xlim(-0.5, len(orders) - 0.5)
            axes.grid(True, axis="y")
            axes.set_axisbelow(True)
        legend_of(figure, looks, labels)
        return save(figure, out, f"{runs[0].experiment}-{FIGURE.name}", caption(runs, FIGURE.axis), rows)
