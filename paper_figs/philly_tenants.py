"""How each tenant of the Philly trace fares against a slice of its own, by its size, under every policy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from hetsys.report.drawing import GREY, canvas, save, style
from hetsys.report.figures import Figure
from hetsys.report.panels import caption, heading, labels_of, look, point, short, valid
from hetsys.tracking.folder import StoredRun

FIGURE = Figure(
    name="philly_tenants",
    title="Finish-time fairness of the Philly tenants, by their size",
    claim="tenant-level sharing keeps small tenants from paying for large ones; policies that see jobs only do not",
    command="hetsys run experiment=oef_philly_week",
    minutes=8,
    expected="at or below 1 for small tenants under oef_coop, ceei, gandiva_fair, equal_split; above 1 for some under gavel",
    experiment="oef_philly_week",
    also=("oef_philly", "oef_tenants"),
    own=True,
)

READING = "below 1: jobs end sooner than on the tenant's own slice of every kind; geometric mean over seeds, 95 % interval, every seed"
COLUMNS = 5
TICKS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Fared(NamedTuple):
    """One tenant in one run: its jobs, and their mean completion time over that on its own slice."""

    system: str
    seed: int
    tenant: str
    jobs: int
    rho: float


def draw(runs: list[StoredRun], out: Path) -> list[Path]:
    """Write `<experiment>-philly_tenants.{png,svg,csv}`; nothing where no job says how long it would have taken alone."""
    labels, fared = labels_of(runs), fared_in(runs)
    if not fared:
        return []
    systems = [system for system in labels if any(one.system == system for one in fared)]
    lines = -(-len(systems) // COLUMNS)
    rows = [{**one._asdict(), "label": labels[one.system]} for one in fared]
    limits = (min(one.rho for one in fared) / 1.3, max(one.rho for one in fared) * 1.3)
    with style():
        figure = canvas(11.4, 1.0 + 2.2 * lines)
        height = figure.get_size_inches()[1]
        heading(figure, FIGURE.title, READING)
        for index, system in enumerate(systems):
            row, column = divmod(index, COLUMNS)
            bottom = 0.62 + 2.2 * (lines - 1 - row)
            axes = figure.add_axes((0.055 + 0.19 * column, bottom / height, 0.172, 1.5 / height))
            _panel(axes, [one for one in fared if one.system == system], look(system, systems).colour, limits)
            axes.set_title(short(labels[system]).replace(", without", "\nwithout"), pad=4, fontsize=8.5)
            axes.tick_params(axis="y", labelleft=column == 0)
            axes.tick_params(axis="x", labelbottom=index + COLUMNS >= len(systems))
            if column == 0:
                axes.set_ylabel("ρ: time ÷ time alone")
            if index + COLUMNS >= len(systems):
                axes.set_xlabel("jobs of the tenant")
        return save(figure, out, f"{runs[0].experiment}-{FIGURE.name}", caption(runs), rows)


def fared_in(runs: list[StoredRun]) -> list[Fared]:
    """Every tenant of every valid run that has a job which would have made progress on the tenant's own slice."""
    found = []
    for run in sorted(valid(runs), key=lambda run: (run.system, run.summary["seed"])):
        rho: dict[str, list[float]] = {}
        for row in run.rows("job"):
            if row.get("isolated_jct_s"):
                rho.setdefault(row["tenant"], []).append((row["left_s"] - row["arrival_s"]) / row["isolated_jct_s"])
        found += [Fared(run.system, run.summary["seed"], name, len(mine), fmean(mine)) for name, mine in rho.items() if fmean(mine) > 0]
    return found


def _panel(axes: Any, fared: list[Fared], colour: str, limits: tuple[float, float]) -> None:
    from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullLocator

    axes.set(xscale="log", yscale="log", ylim=limits)
    axes.axhline(1.0, color=GREY, lw=0.9, ls=(0, (4, 3)), zorder=1)
    axes.scatter([one.jobs for one in fared], [one.rho for one in fared], s=6, color=colour, alpha=0.2, linewidths=0, zorder=2)
    for mine in _by_tenant(fared).values():
        at = fmean(one.jobs for one in mine)
        mean = point(at, [one.rho for one in mine], ratio=True)
        assert mean is not None, "a tenant without a run"
        if mean.low is not None and mean.high is not None:
            axes.plot([at, at], [mean.low, mean.high], color=colour, lw=1.4, zorder=4, solid_capstyle="butt")
        axes.scatter([at], [mean.mean], s=20, color=colour, edgecolors="white", linewidths=0.6, zorder=5)
    axes.yaxis.set_major_locator(FixedLocator(TICKS))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.grid(True)
    axes.set_axisbelow(True)


def _by_tenant(fared: list[Fared]) -> Mapping[str, list[Fared]]:
    found: dict[str, list[Fared]] = {}
    for one in fared:
        found.setdefault(one.tenant, []).append(one)
    return found
