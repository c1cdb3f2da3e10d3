"""Who held which device over time: one row a device, colour = tenant, two or three systems of one seed above each other."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from hetsys.core.errors import ConfigError
from hetsys.report.drawing import COLOURS, GREY, PALE, canvas, caption_of_runs, save, style
from hetsys.report.figures import Figure
from hetsys.report.timeline import Span, device_spans, natural
from hetsys.tracking.folder import StoredRun

FIGURE = Figure(
    name="device_timeline",
    title="Who held which device",
    claim="what a policy decides becomes leases on devices: shares follow each tenant's own speed-ups, and few devices idle",
    command="hetsys run experiment=oef_mix",
    minutes=2,
    expected="equal_split: every tenant on every kind; gavel and oef_coop: tenants settle on the kinds that speed them up most",
    experiment="oef_mix",
    also=("oef",),
)

PREFERRED = ("equal_split", "gavel", "oef_coop")
MAX_SYSTEMS = 3
ZOOM = 16
"""The right panels show this fraction of the time, from the start: there the leases can be told apart."""


class Unit(NamedTuple):
    name: str
    seconds: float


SECONDS, HOURS = Unit("seconds", 1.0), Unit("hours", 3600.0)
LEAST_HOURS = 0.2
"""Shorter runs are drawn in seconds."""


def draw(runs: list[StoredRun], out: Path) -> list[Path]:
    """Write `<experiment>-device_timeline.{png,svg,csv}` for the lowest seed that most of the chosen systems have."""
    chosen = choose(runs)
    spans = {run.system: device_spans(run.records()) for run in chosen}
    everything = [span for mine in spans.values() for span in mine]
    if not everything:
        raise ConfigError("results", str(chosen[0].path), "its records hold no lease, so there is nothing to draw")
    hours, heights = _device_hours(everything), _rows(chosen, everything)
    colours = dict(zip(sorted(hours, key=lambda tenant: (-hours[tenant], tenant)), COLOURS, strict=False))
    end_s = max(span.end_s for span in everything)
    unit = HOURS if end_s >= LEAST_HOURS * HOURS.seconds else SECONDS
    with style():
        figure = canvas(9.6, 1.15 + 2.05 * len(chosen))
        height = figure.get_size_inches()[1]
        figure.text(0.01, 1 - 0.12 / height, FIGURE.title, fontsize=11.5, fontweight="bold", ha="left", va="top")
        for index, run in enumerate(chosen):
            bottom = 0.6 + 2.05 * (len(chosen) - 1 - index)
            whole = figure.add_axes((0.055, bottom / height, 0.555, 1.72 / height))
            start = figure.add_axes((0.635, bottom / height, 0.355, 1.72 / height))
            for axes, until_s in ((whole, end_s), (start, end_s / ZOOM)):
                _panel(axes, spans[run.system], heights, colours, until_s, unit, last=index == len(chosen) - 1)
            whole.set_title(run.label.partition(" (")[0], pad=4)
            whole.text(1.0, 1.02, _facts(run, unit), transform=whole.transAxes, ha="right", va="bottom", fontsize=7, color=GREY)
            start.set_title("how it begins", pad=4, fontweight="normal", fontsize=8.5)
            start.set_yticks([])
        _legend(figure, colours, hours, height)
        rows = [_row(run, span) for run in chosen for span in spans[run.system]]
        return save(figure, out, f"{chosen[0].experiment}-{FIGURE.name}", caption_of_runs(chosen), rows)


def choose(runs: list[StoredRun]) -> list[StoredRun]:
    """Up to MAX_SYSTEMS runs of one seed: the preferred systems where they are there, else the first by name."""
    systems = sorted({run.system for run in runs}, key=lambda name: (name not in PREFERRED, name))[:MAX_SYSTEMS]
    systems.sort(key=lambda name: (PREFERRED.index(name) if name in PREFERRED else MAX_SYSTEMS, name))
    seeds: dict[int, dict[str, StoredRun]] = defaultdict(dict)
    for run in runs:
        if run.system in systems and run.seed is not None:
            seeds[run.seed].setdefault(run.system, run)
    seed = min(seeds, key=lambda number: (-len(seeds[number]), number))
    return [seeds[seed][name] for name in systems if name in seeds[seed]]


def _device_hours(spans: list[Span]) -> dict[str, float]:
    hours: dict[str, float] = defaultdict(float)
    for span in spans:
        hours[span.tenant] += (span.end_s - span.start_s) / 3600.0
    return dict(hours)


def _rows(runs: list[StoredRun], spans: list[Span]) -> dict[str, dict[str, float]]:
    """By kind, slow to fast as the plan lists them: the height of each device's row, the same in all panels."""
    order = [str(kind) for kind in runs[0].plan.get("kinds") or []]
    kinds = sorted({span.kind for span in spans}, key=lambda kind: (order.index(kind) if kind in order else len(order), kind))
    rows: dict[str, dict[str, float]] = {}
    height = 0.0
    for kind in kinds:
        rows[kind] = {}
        for device in sorted({span.device for span in spans if span.kind == kind}, key=natural):
            rows[kind][device] = height
            height += 1.0
        height += 0.6
    return rows


def _panel(
    axes: Any,
    spans: list[Span],
    rows: dict[str, dict[str, float]],
    colours: dict[str, str],
    until_s: float,
    unit: Unit,
    last: bool,
) -> None:
    from matplotlib.collections import PolyCollection

    boxes, faces = [], []
    for span in _merged([span for span in spans if span.start_s < until_s]):
        y, start, end = rows[span.kind][span.device], span.start_s / unit.seconds, span.end_s / unit.seconds
        boxes.append([(start, y - 0.42), (end, y - 0.42), (end, y + 0.42), (start, y + 0.42)])
        faces.append(colours.get(span.tenant, PALE))
    axes.add_collection(PolyCollection(boxes, facecolors=faces, edgecolors="none", rasterized=True))
    failed = [(span.end_s / unit.seconds, rows[span.kind][span.device]) for span in spans if span.failed and span.end_s <= until_s]
    if failed:
        axes.scatter(*zip(*failed, strict=True), marker="x", s=14, color="black", linewidths=1.0, zorder=5)
    axes.set_xlim(0, until_s / unit.seconds)
    axes.set_ylim(-0.8, max(height for row in rows.values() for height in row.values()) + 0.8)
    axes.set_yticks([sum(row.values()) / len(row) for row in rows.values()])
    axes.set_yticklabels(list(rows))
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelbottom=last)
    axes.spines["left"].set_visible(False)
    if last:
        axes.set_xlabel(f"time ({unit.name})")


def _merged(spans: list[Span]) -> list[Span]:
    """Spans of one tenant that follow each other on a device, as one box."""
    boxes: list[Span] = []
    latest: dict[str, Span] = {}
    for span in spans:
        before = latest.get(span.device)
        if before is not None and before.tenant == span.tenant and abs(span.start_s - before.end_s) < 1e-6:
            before.end_s = span.end_s
        else:
            latest[span.device] = Span(span.device, span.kind, "", span.tenant, span.start_s, span.end_s, span.gang)
            boxes.append(latest[span.device])
    return boxes


def _facts(run: StoredRun, unit: Unit) -> str:
    summary = run.summary
    facts = []
    if summary.get("idle_device_fraction") is not None:
        facts.append(f"idle {100 * summary['idle_device_fraction']:.1f} %")
    if summary.get("restarts_per_round") is not None:
        facts.append(f"{summary['restarts_per_round']:.1f} restarts a round")
    if summary.get("jct_mean_s") is not None:
        facts.append(f"mean JCT {summary['jct_mean_s'] / unit.seconds:.1f} {unit.name[0]}")
    return " · ".join(facts)


def _legend(figure: Any, colours: dict[str, str], hours: dict[str, float], height: float) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=tenant) for tenant, colour in colours.items()]
    if len(hours) > len(colours):
        handles.append(Patch(color=PALE, label=f"{len(hours) - len(colours)} more tenants"))
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0.065, 1 - 0.3 / height), ncols=min(11, len(handles)), frameon=False,
        fontsize=7, handlelength=1.0, handleheight=0.8, columnspacing=1.2, borderaxespad=0.2,
    )  # fmt: skip


def _row(run: StoredRun, span: Span) -> dict[str, object]:
    return {
        "system": run.system, "seed": run.seed, "device": span.device, "kind": span.kind, "tenant": span.tenant, "job": span.job,
        "start_s": span.start_s, "end_s": span.end_s, "steps": span.steps, "failed": span.failed,
    }  # fmt: skip
