"""Parts that several figures share: each system's look, means with all seeds and intervals, paired ratios in rows, labels at line ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp, log
from typing import Any, NamedTuple

from hetsys.core.costs import PROVENANCES, worst
from hetsys.metrics.statistics import LEAST_SEEDS_OF_AN_INTERVAL, mean_interval
from hetsys.report.axes import along
from hetsys.report.drawing import COLOURS, GREY, MARKERS, joined
from hetsys.tracking.stored import StoredRun

_COLOUR_OF = {
    "oef_coop": 0, "oef_noncoop": 1, "gavel": 2, "gandiva_fair": 3, "ceei": 4, "max_efficiency": 5, "equal_split": 6, "gavel_user": 9,
    "gavel_agnostic": 7, "best_kind_only": 8,
}  # fmt: skip
_PLUS = "_plus"


class Look(NamedTuple):
    """How a system is drawn, in every figure. A variant (`oef_coop_plus...`) has the colour of its kin, hollow and dashed."""

    colour: str
    marker: str
    dashed: bool


def look(system: str, others: Sequence[str] = ()) -> Look:
    """The look of `system`; those without a colour of their own take turns in the order of `others`."""
    kin, plus, variant = system.partition(_PLUS)
    if kin in _COLOUR_OF:
        index = _COLOUR_OF[kin]
        return Look(COLOURS[index], MARKERS[(index + 3 * bool(variant)) % len(MARKERS)], bool(plus))
    unknown = [name for name in others if name.partition(_PLUS)[0] not in _COLOUR_OF]
    index = unknown.index(system) if system in unknown else 0
    return Look(COLOURS[(7 + index) % len(COLOURS)], MARKERS[(7 + index) % len(MARKERS)], False)


class Point(NamedTuple):
    """A mean over seeds at `x`, the ends of its 95 % interval (None below three seeds, of which it would say nothing), and every seed's
    value."""

    x: float
    mean: float
    low: float | None
    high: float | None
    seeds: tuple[float, ...]


def point(x: float, values: Iterable[float], *, ratio: bool = False) -> Point | None:
    """The point of `values`, one a seed: a geometric mean where they are ratios. None of nothing."""
    seeds = tuple(values)
    if not seeds:
        return None
    mean, low, high = mean_interval([log(value) for value in seeds] if ratio else seeds)
    back = exp if ratio else float
    if low is None or high is None or len(seeds) < LEAST_SEEDS_OF_AN_INTERVAL:
        return Point(x, back(mean), None, None, seeds)
    return Point(x, back(mean), back(low), back(high), seeds)


def short(label: str) -> str:
    """A system's label without what stands in brackets."""
    return label.partition(" (")[0]


def by_value(runs: Sequence[StoredRun], key: str) -> dict[str, list[StoredRun]]:
    """The valid ones of finished `runs` by their value of `key`: a seed with an invalid run counts for no system at that value."""
    return along(valid(runs), key)


def valid(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """Those of `runs` of whose frame and seed no run is invalid."""
    invalid = {(run.frame_hash, run.summary["seed"]) for run in runs if run.summary.get("valid") is False}
    return [run for run in runs if (run.frame_hash, run.summary["seed"]) not in invalid]


def paired(
    runs: Sequence[StoredRun], base: Sequence[StoredRun], figure: Callable[[StoredRun], float | None]
) -> dict[str, dict[int, float]]:
    """By system and seed: `figure` of each of `runs` over that of the run of the same seed in `base`, which holds one run a seed, or one a
    system and seed. Pairs in which either is missing or the latter is 0 are left out."""
    bases = {(run.system, run.summary["seed"]): figure(run) for run in base}
    alone = {seed: value for (_, seed), value in bases.items()} if len({run.system for run in base}) == 1 else {}
    found: dict[str, dict[int, float]] = {}
    for run in runs:
        seed, mine = run.summary["seed"], figure(run)
        other = alone.get(seed) if alone else bases.get((run.system, seed))
        if mine is not None and other:
            found.setdefault(run.system, {})[seed] = mine / other
    return found


def summary_of(name: str) -> Callable[[StoredRun], float | None]:
    """A function that gives a run's figure `name`."""
    return lambda run: run.summary.get(name)


def evenness(run: StoredRun) -> float | None:
    """The least progress of a tenant over the most, in the whole run; None where there is none."""
    made: dict[str, float] = {}
    for row in run.rows("round"):
        for tenant, progress in row["progress"].items():
            made[tenant] = made.get(tenant, 0.0) + progress
    return min(made.values()) / max(made.values()) if made and max(made.values()) > 0 else None


def labels_of(runs: Sequence[StoredRun]) -> dict[str, str]:
    """By system, its label; our own first, then by name."""
    found = {run.system: run.label for run in runs}
    return dict(sorted(found.items(), key=lambda item: (not item[0].startswith("oef"), item[0])))


def caption(runs: Sequence[StoredRun], key: str = "") -> str:
    """Where the numbers come from, for the line under a picture; `key`: what was swept."""
    first = runs[0]
    frame = f"{first.experiment}@{first.frame_hash}"
    if key:
        frame = f"{first.experiment}, {len({run.frame_hash for run in runs})} values of {key}"
    seeds = len({run.seed for run in valid(runs)})
    known = [str(run.summary["provenance"]) for run in runs if run.summary.get("provenance") in PROVENANCES]
    lost = len({(run.frame_hash, run.seed) for run in runs}) - len({(run.frame_hash, run.seed) for run in valid(runs)})
    said = joined(first.source, f"{seeds} seed{'s' * (seeds != 1)}", worst(known) if known else "", frame, first.code_id or first.commit)
    return said + (f" · {lost} invalid seed{'s' * (lost != 1)} left out" if lost else "")


def spread_out(axes: Any, points: Mapping[str, Sequence[Point | None]], dodge: float = 0.0, join: bool = True) -> dict[str, Look]:
    """Draw the points of each system: every seed faintly, the interval as a bar, the mean as a marker, means joined by a line. Systems
    stand `dodge` apart at an x. Returns the look of each."""
    looks = {system: look(system, list(points)) for system in points}
    for rank, (system, mine) in enumerate(points.items()):
        colour, marker, dashed = looks[system]
        shift = dodge * (rank - (len(points) - 1) / 2)
        there = [one for one in mine if one is not None]
        for one in there:
            axes.scatter([one.x + shift] * len(one.seeds), one.seeds, s=13, color=colour, alpha=0.22, linewidths=0, zorder=2)
            if one.low is not None and one.high is not None:
                axes.plot([one.x + shift] * 2, [one.low, one.high], color=colour, lw=1.5, zorder=4, solid_capstyle="butt")
        if join:
            axes.plot([one.x + shift for one in there], [one.mean for one in there], color=colour, lw=1.2, alpha=0.8,
                      ls=(0, (4, 2)) if dashed else "-", zorder=3)  # fmt: skip
        axes.scatter([one.x + shift for one in there], [one.mean for one in there], s=26, marker=marker, linewidths=1.0, edgecolors=colour,
                     facecolors="white" if dashed else colour, zorder=5)  # fmt: skip
    return looks


def label_ends(axes: Any, ends: Sequence[tuple[float, str, str]], gap_pt: float = 8.5) -> None:
    """Write each `(y, text, colour)` right of `axes` at its height, moved apart by at least `gap_pt` where they would overlap."""
    figure = axes.figure
    figure.canvas.draw()
    unit = figure.dpi / 72.0
    box = axes.get_window_extent()
    spots = sorted((axes.transData.transform((0, y))[1], text, colour) for y, text, colour in ends)
    places: list[float] = []
    for spot, _, _ in spots:
        places.append(max(spot, places[-1] + gap_pt * unit) if places else max(spot, box.y0))
    over = max(0.0, places[-1] - box.y1) if places else 0.0
    limit = places[-1] - over if places else 0.0
    for index in range(len(places) - 1, -1, -1):
        places[index] = min(places[index], limit)
        limit = places[index] - gap_pt * unit
    for (spot, text, colour), place in zip(spots, places, strict=True):
        line = {"arrowstyle": "-", "color": colour, "lw": 0.5, "alpha": 0.6, "shrinkA": 1, "shrinkB": 0, "relpos": (0.0, 0.5)}
        axes.annotate(
            text, xy=(1.0, (spot - box.y0) / box.height), xytext=(1.0 + 9 * unit / box.width, (place - box.y0) / box.height),
            xycoords="axes fraction", textcoords="axes fraction", color=colour, fontsize=7.5, va="center", ha="left", annotation_clip=False,
            arrowprops=line,
        )  # fmt: skip


def rows_of(axes: Any, rows: Sequence[tuple[str, str, Point | None, Sequence[float]]], *, centre: float = 1.0) -> None:
    """Paired ratios, a row each: `(system, label, point, hollow)`, every seed below the line, the interval as a bar, the mean as a marker;
    `hollow` values (of another source) as hollow marks above. Equality is a dashed line."""
    systems = [system for system, _, _, _ in rows]
    axes.axvline(centre, color=GREY, lw=0.9, ls=(0, (4, 3)), zorder=1)
    for at, (system, _, one, hollow) in enumerate(rows):
        colour, marker, dashed = look(system, systems)
        if one is not None:
            axes.scatter(one.seeds, [at + 0.24] * len(one.seeds), s=9, color=colour, alpha=0.4, linewidths=0, zorder=2)
            if one.low is not None and one.high is not None:
                axes.plot([one.low, one.high], [at, at], color=colour, lw=2.0, zorder=4, solid_capstyle="butt")
            face = "white" if dashed else colour
            axes.scatter([one.mean], [at], s=34, marker=marker, facecolors=face, edgecolors=colour, linewidths=1.0, zorder=5)
        if hollow:
            places = [at - 0.27] * len(hollow)
            axes.scatter(hollow, places, s=30, marker="d", facecolors="none", edgecolors=colour, linewidths=1.1, zorder=6)
    axes.set_yticks(range(len(rows)), [label for _, label, _, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(True, axis="x")
    axes.set_axisbelow(True)


def legend_of(figure: Any, looks: Mapping[str, Look], labels: Mapping[str, str], *, columns: int = 4) -> None:
    """Which mark is which system, in a block above the line under the picture."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=how.colour, marker=how.marker, ls="", mfc="white" if how.dashed else how.colour, label=short(labels[system]))
        for system, how in looks.items()
    ]
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.05, 0.05), ncols=columns, frameon=False, fontsize=7.5)


def values_of(runs: Sequence[StoredRun], figure: Callable[[StoredRun], float | None]) -> dict[str, dict[int, float]]:
    """By system and seed: `figure` of each of `runs` that has it."""
    found: dict[str, dict[int, float]] = {}
    for run in runs:
        if (value := figure(run)) is not None:
            found.setdefault(run.system, {})[run.summary["seed"]] = value
    return found


def heading(figure: Any, text: str, below: str = "") -> None:
    """The title of a picture, and a line below it that says how to read it."""
    height = figure.get_size_inches()[1]
    figure.text(0.01, 1 - 0.1 / height, text, fontsize=11.5, fontweight="bold", ha="left", va="top")
    if below:
        figure.text(0.01, 1 - 0.34 / height, below, fontsize=8, color=GREY, ha="left", va="top")
