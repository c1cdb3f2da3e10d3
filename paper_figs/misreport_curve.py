"""What one tenant's report brings it, from far below to far above the truth: true throughput over the speed-up that it reports."""

from __future__ import annotations

from pathlib import Path

from hetsys.report.drawing import GREY, canvas, save, style
from hetsys.report.figures import Figure
from hetsys.report.panels import by_value, caption, heading, label_ends, labels_of, look, short
from hetsys.tracking.folder import StoredRun

FIGURE = Figure(
    name="misreport_curve",
    title="What a report brings: true throughput over the reported speed-up",
    claim="under non-cooperative OEF the best report is just above the rival's speed-up, below the own; measured speeds end that",
    command="hetsys run experiment=oef_misreport_curve",
    minutes=0.5,
    expected="oef_noncoop: 2 at the truth (4), a jump to 3 just above the rival's 2, falling on both sides; oef_noncoop_plus: flat at 2",
    experiment="oef_misreport_curve",
    axis="workload.lie_factor",
)

METRIC = "throughput_watched"
DEVICES = 8.0
"""Of each kind: throughput is shown for one device of each, as the example is worked out by hand."""


def draw(runs: list[StoredRun], out: Path) -> list[Path]:
    """Write `<experiment>-misreport_curve.{png,svg,csv}`; nothing where the runs do not say what the true speed-ups are."""
    speeds = runs[0].config.get("workload", {}).get("speeds")
    if not speeds or len(speeds) < 2:
        return []
    truth, rival = speeds[0][-1] / speeds[0][0], speeds[1][-1] / speeds[1][0]
    labels, curves = labels_of(runs), curves_of(runs, truth)
    rows = [
        {"report": report, "system": system, "label": labels[system], "true_throughput": value}
        for system, mine in curves.items() for report, value in mine
    ]  # fmt: skip
    with style():
        figure = canvas(8.4, 4.6)
        heading(
            figure, FIGURE.title, f"a device of each of two kinds; the first of two tenants gains {truth:g}-fold, its rival {rival:g}-fold"
        )
        axes = figure.add_axes((0.075, 0.15, 0.62, 0.67))
        for at, text in ((truth, "the truth"), (rival, "the rival's speed-up")):
            axes.axvline(at, color=GREY, lw=0.9, ls=(0, (4, 3)), zorder=1)
            axes.text(at, 1.01, text, transform=axes.get_xaxis_transform(), fontsize=7, color=GREY, ha="center", va="bottom")
        for system, mine in curves.items():
            colour, marker, dashed = look(system, list(curves))
            xs, ys = zip(*mine, strict=True)
            dash, face = ((0, (4, 2)), "white") if dashed else ("-", colour)
            axes.plot(xs, ys, color=colour, lw=1.3, ls=dash, marker=marker, ms=5, mfc=face)
        axes.set_xscale("log")
        axes.set_xticks([1, 2, 3, 4, 5, 8], ["1", "2", "3", "4", "5", "8"])
        axes.minorticks_off()
        axes.set_xlabel("reported speed-up on the fast kind")
        axes.set_ylabel("true throughput (slow devices)")
        axes.grid(True)
        axes.set_axisbelow(True)
        label_ends(axes, [(mine[-1][1], short(labels[system]), look(system, list(curves)).colour) for system, mine in curves.items()])
        return save(figure, out, f"{runs[0].experiment}-{FIGURE.name}", caption(runs, FIGURE.axis), rows)


def curves_of(runs: list[StoredRun], truth: float) -> dict[str, list[tuple[float, float]]]:
    """By system, `(reported speed-up, true throughput for one device of each kind)` in order; of several seeds the lowest."""
    curves: dict[str, dict[float, float]] = {}
    for factor, group in by_value(runs, FIGURE.axis).items():
        for run in sorted(group, key=lambda run: -run.summary["seed"]):
            if run.summary.get(METRIC) is not None:
                curves.setdefault(run.system, {})[float(factor) * truth] = run.summary[METRIC] / DEVICES
    return {system: sorted(curve.items()) for system, curve in sorted(curves.items())}
