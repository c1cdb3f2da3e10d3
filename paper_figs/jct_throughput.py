"""Throughput and completion time of each policy over the baseline's, seed by seed; emulated runs beside the simulated ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hetsys.report.compare import default_baseline
from hetsys.report.drawing import canvas, save, style
from hetsys.report.figures import Figure
from hetsys.report.panels import caption, heading, labels_of, paired, point, rows_of, short, summary_of, valid
from hetsys.tracking.folder import StoredRun

FIGURE = Figure(
    name="jct_throughput",
    title="Throughput and completion time, simulated and emulated",
    claim="envy-free sharing costs neither throughput nor completion time, and what is simulated is what real processes carry out",
    command="hetsys run experiment=oef_live",
    minutes=8,
    expected="every emulated mark lies on the point of its simulated seed; policies that know the speeds within a few per cent",
    experiment="oef_live_sim",
    also=("oef", "oef_mix", "oef_tenants", "oef_philly_week", "oef_philly"),
    own=True,
    min_systems=2,
    beside=("oef_live", "oef_live_short"),
)

PANELS = (("throughput_normalized", "throughput (more is better →)"), ("jct_mean_s", "mean completion time (← less is better)"))
SWEPT = "oef_live_sim"
"""Only the simulated runs of the frame that `beside` executes have emulated marks."""


def draw(runs: list[StoredRun], out: Path) -> list[Path]:
    """Write `<experiment>-jct_throughput.{png,svg,csv}`; nothing where the baseline is not among the runs."""
    main = [run for run in runs if run.experiment == runs[0].experiment]
    emulated = [run for run in runs if run.experiment != runs[0].experiment] if same_frame(main, runs) else []
    base = default_baseline(main)
    if base is None:
        return []
    labels = {name: label for name, label in labels_of(main).items() if name != base}
    ratios = {(source, name): _ratios(group, base, name) for source, group in _sources(main, emulated) for name, _ in PANELS}
    rows = [
        {"metric": name, "source": source, "system": system, "label": labels[system], "seed": seed, "ratio": value}
        for (source, name), mine in ratios.items() for system in labels for seed, value in sorted(mine.get(system, {}).items())
    ]  # fmt: skip
    below = f"ratio to {short(labels_of(main)[base])}, same seed: geometric mean, 95 % interval, every seed"
    with style():
        figure = canvas(10.6, 1.35 + 0.33 * len(labels))
        height = figure.get_size_inches()[1]
        heading(figure, FIGURE.title if emulated else "Throughput and completion time", below + ("; ◇ emulated" if emulated else ""))
        for index, (name, unit) in enumerate(PANELS):
            axes = figure.add_axes((0.2 + 0.415 * index, 0.72 / height, 0.375, 1 - 1.35 / height))
            mine = ratios[main[0].source, name]
            hollow = ratios.get(("emulated", name), {}) if emulated else {}
            rows_of(axes, [
                (system, short(labels[system]), point(0, mine.get(system, {}).values(), ratio=True), [*hollow.get(system, {}).values()])
                for system in labels
            ])  # fmt: skip
            axes.tick_params(axis="y", labelleft=index == 0)
            axes.set_xlabel(unit)
        said = caption(main) + (f" · ◇ {caption(emulated)}" if emulated else "")
        return save(figure, out, f"{main[0].experiment}-{FIGURE.name}", said, rows)


def same_frame(main: Sequence[StoredRun], runs: Sequence[StoredRun]) -> bool:
    """Whether the runs of other experiments are the executed ones of the frame of `main`: those of oef_live_sim, or of its name in the
    default preset."""
    return main[0].experiment in (SWEPT, "oef") and len(main) < len(runs)


def _sources(main: list[StoredRun], emulated: list[StoredRun]) -> list[tuple[str, list[StoredRun]]]:
    return [(main[0].source, main), *([("emulated", emulated)] if emulated else [])]


def _ratios(runs: list[StoredRun], base: str, name: str) -> dict[str, dict[int, float]]:
    """By system and seed, the ratio of the figure `name` to that of `base`."""
    kept = valid(runs)
    return paired(kept, [run for run in kept if run.system == base], summary_of(name))
