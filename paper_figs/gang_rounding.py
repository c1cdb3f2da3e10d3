"""What gangs of each size receive of their entitlement, and how long they wait for a turn, by how fractions become whole gangs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hetsys.core.scheduling.record import JobRecord, RoundRecord
from hetsys.metrics.received import received
from hetsys.report.drawing import GREY, canvas, save, style
from hetsys.report.figures import Figure
from hetsys.report.panels import Look, Point, caption, heading, labels_of, legend_of, point, spread_out, valid
from hetsys.tracking.folder import StoredRun

FIGURE = Figure(
    name="gang_rounding",
    title="What gangs receive of their entitlement",
    claim="whole-gang credits and carried deviations both deliver at least 95 % of every entitlement",
    command="hetsys run experiment=oef_rounding",
    minutes=2,
    expected="all at 0.95 or more for every gang, waits of at most 8 turns",
    experiment="oef_rounding",
    also=("oef_rounding_wide",),
    own=True,
)

READING = "mean over seeds, 95 % interval, every tenant of every seed; a turn: the rounds in which its share adds up to a gang"
ENOUGH = 0.95
"""What every user with enough turns should receive at least (a goal of ours)."""


class User(NamedTuple):
    """One user of one run: the part of its entitlement that it received, and its longest wait in turns."""

    system: str
    seed: int
    user: str
    gang: int
    fraction: float
    wait_turns: float


def draw(runs: list[StoredRun], out: Path) -> list[Path]:
    """Write `<experiment>-gang_rounding.{png,svg,csv}`; nothing where nobody was entitled to enough gangs."""
    labels, users = labels_of(runs), users_of(runs)
    if not users:
        return []
    gangs = sorted({user.gang for user in users})
    rows = [{**user._asdict(), "label": labels[user.system]} for user in users]
    with style():
        figure = canvas(10.6, 4.9)
        heading(figure, FIGURE.title, READING)
        left, right = figure.add_axes((0.06, 0.235, 0.42, 0.58)), figure.add_axes((0.56, 0.235, 0.42, 0.58))
        looks = _panel(left, users, gangs, "fraction", labels)
        left.axhline(ENOUGH, color=GREY, lw=0.9, ls=(0, (4, 3)), zorder=1)
        left.set(ylabel="received ÷ entitled, kind by kind", ylim=(max(0.0, min(0.85, *(user.fraction for user in users)) - 0.03), 1.02))
        left.set_title(f"Received (dashed: the goal, {ENOUGH:g})", pad=6)
        _panel(right, users, gangs, "wait_turns", labels)
        right.set(ylabel="longest wait (turns)", ylim=(0, None))
        right.set_title("Longest wait without a device", pad=6)
        legend_of(figure, looks, labels, columns=3)
        return save(figure, out, f"{runs[0].experiment}-{FIGURE.name}", caption(runs), rows)


def users_of(runs: list[StoredRun]) -> list[User]:
    """Every user that was entitled to enough gangs, of every valid run."""
    found = []
    for run in sorted(valid(runs), key=lambda run: (run.system, run.summary["seed"])):
        records = run.records()
        rounds = [record for record in records if isinstance(record, RoundRecord)]
        jobs = [record for record in records if isinstance(record, JobRecord)]
        kinds = [str(kind) for kind in run.plan.get("kinds") or []]
        for mine in received(rounds, jobs, kinds).values():
            if mine.counts:
                wait = mine.longest_wait / mine.turn_rounds
                found.append(User(run.system, run.summary["seed"], mine.user, mine.gang, mine.fraction, wait))
    return found


def _panel(axes: Any, users: list[User], gangs: list[int], name: str, labels: Mapping[str, str]) -> dict[str, Look]:
    points: dict[str, list[Point | None]] = {}
    for system in labels:
        points[system] = [_point(at, [user for user in users if user.system == system and user.gang == gang], name) for at, gang in
                          enumerate(gangs)]  # fmt: skip
    looks = spread_out(axes, points, dodge=0.11, join=False)
    axes.set_xticks(range(len(gangs)), [f"gang of {gang}" for gang in gangs])
    axes.set_xlim(-0.5, len(gangs) - 0.5)
    axes.grid(True, axis="y")
    axes.set_axisbelow(True)
    return looks


def _point(at: int, users: list[User], name: str) -> Point | None:
    """The mean of the seeds' means with its interval; the faint points are all users."""
    by_seed: dict[int, list[float]] = {}
    for user in users:
        by_seed.setdefault(user.seed, []).append(getattr(user, name))
    one = point(at, [sum(values) / len(values) for values in by_seed.values()])
    return None if one is None else one._replace(seeds=tuple(getattr(user, name) for user in users))
