"""Sia (SOSP 2023), for jobs whose gangs are given: one kind a job, chosen by a program in whole numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsys.core.errors import ConfigError
from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import Array, Users
from hetsys.core.scheduling.view import ClusterView, JobView
from hetsys.systems.program import Program, spread, unknowns
from hetsys.systems.shares import Shares, allocate, job_users, uncached
from hetsys.systems.solve import Solver

Counts = NDArray[np.intp]


@dataclass(frozen=True)
class Sia(Solver):
    """min sum_ij X_ij (r_ij G_ij)^p + idle_cost sum_i (1 - sum_j X_ij)  s.t.  sum_j X_ij <= 1;  sum_i s_i X_ij <= m_j;  X in {0, 1}.

    `G_ij`: speed on kind j in units of the slowest that the job supports, times its gang `s_i`; `r_ij`: 1 for the kind that a job holds and
    for all kinds of a job that holds none, else  (age - restarts S) / (age + S)  with S the time of a restart: moving must pay. `move_cost`
    is added for each job on a kind that it did not hold. A job's gang is its own here, so kinds are all there is to choose. The answer is
    within `gap` of the best. Weights play no part.
    """

    power: float = -0.5
    idle_cost: float = 1.1
    move_cost: float = 0.01
    gap: float = 0.005

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -10 <= self.power < 0:
            raise ConfigError("system.power", self.power, "must be below 0, and -10 or more; lower is fairer")
        if not 0 < self.idle_cost <= 1000:
            raise ConfigError("system.idle_cost", self.idle_cost, "must be above 0 and at most 1000; 1 or less leaves jobs out")
        if not 0 <= self.move_cost <= self.idle_cost:
            raise ConfigError("system.move_cost", self.move_cost, "must be 0 or more, at most idle_cost")
        if not 0 <= self.gap < 1:
            raise ConfigError("system.gap", self.gap, "must be 0 or more and below 1; 0 is the best answer")

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        users = job_users(view)
        live = {job.name: job for job in view.jobs}
        rule = _Choice(self, view, tuple(live[name] for name in users.names))
        return allocate(rule, users, uncached(memo), keep="all", fill=False)


@dataclass(frozen=True)
class _Choice:
    """The rule for one moment."""

    sia: Sia
    view: ClusterView
    jobs: tuple[JobView, ...]

    def shares(self, users: Users) -> Shares:
        gain = self._gain(users)
        best = gain.argmax(axis=1)
        devices = np.where((np.arange(len(users.capacity)) == best[:, None]) & (gain > 0), users.demand[:, None], 0.0)
        if (devices.sum(axis=0) <= users.capacity).all():  # everybody has what is best for it
            return Shares(devices, "optimal")
        return Shares(self._choose(users, gain), "optimal")

    def _gain(self, users: Users) -> Array:
        """(n, k): by how much the objective falls if a job runs on a kind; 0 or less where it should not or cannot."""
        held = np.array([job.held_kind for job in self.jobs])[:, None]
        stays = held == np.arange(len(users.capacity))
        age = np.array([max(self.view.now_s - job.arrival_s, 0.0) for job in self.jobs])
        lost = self.view.restart_s * np.array([job.restarts for job in self.jobs])
        since = age + self.view.restart_s
        moved = np.where(since > 0, (age - lost) / np.where(since > 0, since, 1.0), 1.0)
        slowest = np.where(users.speed > 0, users.speed, np.inf).min(axis=1)
        good = users.speed / slowest[:, None] * users.demand[:, None] * np.where(stays | (held < 0), 1.0, np.maximum(moved, 0.0)[:, None])
        runs = (good > 0) & (users.demand[:, None] <= users.capacity)
        return np.where(runs, self.sia.idle_cost - np.where(runs, good, 1.0) ** self.sia.power - self.sia.move_cost * ~stays, 0.0)

    def _choose(self, users: Users, gain: Array) -> Array:
        """(n, k) devices. Jobs with equal gains are counted together, and those that came first are chosen of them."""
        rows, group, count = np.unique(np.column_stack([gain, users.demand]), axis=0, return_inverse=True, return_counts=True)
        chosen, group = self._counts(rows[:, :-1], rows[:, -1], count, users.capacity), group.reshape(-1)
        devices = np.zeros(gain.shape)
        for index in sorted(range(len(self.jobs)), key=lambda index: (self.jobs[index].arrival_s, index)):
            kinds = np.flatnonzero(chosen[group[index]])
            if kinds.size:
                chosen[group[index], kinds[-1]] -= 1
                devices[index, kinds[-1]] = users.demand[index]
        return devices

    def _counts(self, gain: Array, gang: Array, count: Counts, capacity: Array) -> Counts:
        """(c, k): how many of the `count` (c,) jobs of a sort run on each kind. The program in fractions first, rounded down and filled
        up; in whole numbers where that is not within the gap."""
        x = unknowns(gain > 0)

        def program(whole: bool) -> Program:
            made = Program("sia", spread(x, gain), whole=whole, gap=self.sia.gap)
            made.add("job", x, 1.0, upper=count.astype(float))
            made.add("capacity", x.T, gang, upper=capacity)
            return made

        fractions = self.sia.solve(program(whole=False))
        chosen = np.floor(fractions.matrix(x) + 1e-6).astype(np.intp)
        _fill_up(chosen, gain, gang, count, capacity)
        if (gain * chosen).sum() < fractions.objective * (1 - self.sia.gap):
            chosen = np.rint(self.sia.solve(program(whole=True)).matrix(x)).astype(np.intp)
        return chosen


def _fill_up(chosen: Counts, gain: Array, gang: Array, count: Counts, capacity: Array) -> None:
    """Add to `chosen` (c, k) what still fits, by gain for each device."""
    left, waiting = capacity - gang @ chosen, count - chosen.sum(axis=1)
    worth = gain / gang[:, None]
    for place in np.argsort(-worth, axis=None, kind="stable").tolist():
        sort, kind = divmod(place, gain.shape[1])
        more = min(int(waiting[sort]), int(left[kind] // gang[sort])) if gain[sort, kind] > 0 else 0
        if more > 0:
            chosen[sort, kind] += more
            waiting[sort] -= more
            left[kind] -= more * gang[sort]
