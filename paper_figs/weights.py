"""What tenants of each weight make of the cluster, over what their own slice of it would make and over their part by weight."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hetsys.core.scheduling.record import RoundRecord
from hetsys.report.drawing import GREY, canvas, save, style
from hetsys.report.figures import Figure
from hetsys.report.panels import Point, caption, heading, labels_of, legend_of, point, spread_out, valid
from hetsys.tracking.folder import StoredRun

FIGURE = Figure(
    name="weights",
    title="What tenants receive for their weight",
    claim="shares follow weights whatever the speeds, and weight 0 disturbs nobody",
    command="hetsys run experiment=oef_weights",
    minutes=1,
    expected="at or above 1 for every weight but under oef_noncoop, where progress for a weight is equal instead; weight 0 makes nothing",
    experiment="oef_weights",
    own=True,
)

READING = "mean over seeds, 95 % interval, every tenant of every seed; progress as it was made, on true speeds and whole devices"


class Made(NamedTuple):
    """One tenant of one run: its progress, what its own slice of every kind would have made (both in device-seconds of its slowest kind),
    and its part by weight of the progress of all; that of a weight of 1 where it has none."""

    system: str
    seed: int
    tenant: str
    weight: float
    progress: float
    of_slice: float
    of_all: float


def draw(runs: list[StoredRun], out: Path) -> list[Path]:
    """Write `<experiment>-weights.{png,svg,csv}`; nothing where no tenant has a weight."""
    labels = labels_of(runs)
    made = [one for run in sorted(valid(runs), key=lambda run: (run.system, run.summary["seed"])) for one in made_by(run)]
    weights = sorted({one.weight for one in made})
    if not any(weights):
        return []
    panels = (
        ("against a slice of one's own", "progress ÷ that of the own slice", [weight for weight in weights if weight], _over_slice),
        ("against the part by weight (weight 0: that of 1)", "progress ÷ part by weight of all progress", weights, _over_all),
    )
    with style():
        figure = canvas(10.6, 4.9)
        heading(figure, FIGURE.title, READING)
        for index, (title, unit, ticks, value) in enumerate(panels):
            axes = figure.add_axes((0.06 + 0.5 * index, 0.235, 0.42, 0.58))
            axes.axhline(1.0, color=GREY, lw=0.9, ls=(0, (4, 3)), zorder=1)
            points = {name: _points([one for one in made if one.system == name], ticks, value) for name in labels}
            looks = spread_out(axes, points, dodge=0.08, join=False)
            axes.set_xticks(range(len(ticks)), [f"weight {weight:g}" for weight in ticks])
            axes.set_xlim(-0.5, len(ticks) - 0.5)
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
            axes.set_ylabel(unit)
            axes.set_title(f"Progress {title}", pad=6)
            axes.grid(True, axis="y")
            axes.set_axisbelow(True)
        legend_of(figure, looks, labels)
        rows = [{**one._asdict(), "label": labels[one.system]} for one in made]
        return save(figure, out, f"{runs[0].experiment}-{FIGURE.name}", caption(runs), rows)


def made_by(run: StoredRun) -> list[Made]:
    """Every tenant of a run, over the whole of it."""
    progress: dict[str, float] = {}
    weight: dict[str, float] = {}
    own: dict[str, float] = {}
    for record in run.records():
        if not isinstance(record, RoundRecord):
            continue
        for tenant, value in record.progress.items():
            progress[tenant] = progress.get(tenant, 0.0) + value
        total = sum(user.weight for user in record.users)
        weight.update({user.tenant: 0.0 for user in record.users})
        for user in record.users:
            weight[user.tenant] += user.weight
            whole = sum(speed * up for speed, up in zip(user.speeds, record.capacity, strict=True)) * record.length_s
            own[user.tenant] = own.get(user.tenant, 0.0) + whole * user.weight / total
    if not weight or not any(progress.values()):
        return []
    for_one = sum(progress.values()) / sum(weight.values())
    return [
        Made(run.system, run.summary["seed"], name, weight.get(name, 0.0), value, own.get(name, 0.0), for_one * (weight.get(name) or 1.0))
        for name, value in progress.items()
    ]


def _over_slice(one: Made) -> float:
    return one.progress / one.of_slice


def _over_all(one: Made) -> float:
    return one.progress / one.of_all


def _points(made: list[Made], weights: list[float], value: Callable[[Made], float]) -> list[Point | None]:
    """By weight: the mean of the seeds' means with its interval; the faint points are all tenants."""
    found: list[Point | None] = []
    for at, weight in enumerate(weights):
        by_seed: dict[int, list[float]] = {}
        for one in made:
            if one.weight == weight:
                by_seed.setdefault(one.seed, []).append(value(one))
        mean = point(at, [sum(values) / len(values) for values in by_seed.values()])
        found.append(mean and mean._replace(seeds=tuple(each for values in by_seed.values() for each in values)))
    return found
