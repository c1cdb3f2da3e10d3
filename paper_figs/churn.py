"""What arrivals, departures and failures do to throughput, completion times, fairness and restarts of each policy."""

from __future__ import annotations

from pathlib import Path

from hetsys.report.compare import default_baseline
from hetsys.report.drawing import canvas, save, style
from hetsys.report.figures import Figure
from hetsys.report.panels import caption, heading, labels_of, paired, point, rows_of, short, summary_of, valid
from hetsys.tracking.folder import StoredRun

FIGURE = Figure(
    name="churn",
    title="Tenants that come and go, devices that fail",
    claim="the order of the schedulers survives arrivals, departures and failures",
    command="hetsys run experiment=oef_churn",
    minutes=4,
    expected="as without churn: max_efficiency first in throughput and worst in fairness, equal_split last and with most restarts",
    experiment="oef_churn",
    own=True,
    min_systems=2,
)

PANELS = (
    ("throughput_normalized", "throughput →"),
    ("jct_mean_s", "← mean completion time"),
    ("finish_time_fairness_p95", "← finish-time fairness ρ, p95"),
    ("restarts_per_round", "← restarts a round"),
)


def draw(runs: list[StoredRun], out: Path) -> list[Path]:
    """Write `<experiment>-churn.{png,svg,csv}`; nothing where the baseline is not among the runs."""
    base = default_baseline(runs)
    if base is None:
        return []
    labels = {name: label for name, label in labels_of(runs).items() if name != base}
    kept = valid(runs)
    ratios = {name: paired(kept, [run for run in kept if run.system == base], summary_of(name)) for name, _ in PANELS}
    rows = [
        {"metric": name, "system": system, "label": labels[system], "seed": seed, "ratio": value}
        for name, mine in ratios.items() for system in labels for seed, value in sorted(mine.get(system, {}).items())
    ]  # fmt: skip
    below = f"ratio to {short(labels_of(runs)[base])}, same seed: geometric mean, 95 % interval, every seed; arrows: the better side"
    with style():
        figure = canvas(11.4, 1.35 + 0.33 * len(labels))
        height = figure.get_size_inches()[1]
        heading(figure, FIGURE.title, below)
        for index, (name, unit) in enumerate(PANELS):
            axes = figure.add_axes((0.17 + 0.208 * index, 0.72 / height, 0.19, 1 - 1.35 / height))
            mine = ratios[name]
            rows_of(axes, [(system, short(labels[system]), point(0, mine.get(system, {}).values(), ratio=True), ()) for system in labels])
            axes.tick_params(axis="y", labelleft=index == 0)
            axes.set_xlabel(unit)
        return save(figure, out, f"{runs[0].experiment}-{FIGURE.name}", caption(runs), rows)
