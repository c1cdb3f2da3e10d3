"""Lexicographic max-min over jobs that have only their whole time to spend: what Gavel's water filling and finish-time fairness share.

Solved exactly, without a general solver: a job that needs a certain speed takes the cheapest mix of two kinds at given prices, and prices
follow from a small game between kinds and such choices. It takes milliseconds for thousands of jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from hetsys.core.errors import SolverError
from hetsys.core.scheduling.users import Array, Users
from hetsys.systems.check import TOLERANCE

Index = NDArray[np.intp]

_EPS = 1e-10
_SAME = 1e-12
_FINEST = 4 * float(np.finfo(float).eps)
_LITTLE = 1e-8
_NOT_NOISE = 1e-7
_NEARLY = 1e-6
_MAX_STEPS = 2000


@dataclass(frozen=True)
class Jobs:
    """n jobs over k kinds, whose needs rise with a common level t: at t, job i needs the speed `work_i t / (due_i - spent_i t)`, but never
    more than its full speed, and all of that once the denominator is 0.

    `rate` (n, k): speed of the whole gang on a kind, in any unit a job, 0 where it cannot run; `gang` (n,); `capacity` (k,), all above 0;
    every job has a rate above 0. With `spent` 0 a level is a speed in units of `work / due`. With `work` steps left, `due` the time that
    the job would have taken alone, and `spent` the time since it came, 1/t is its finish-time ratio.
    """

    rate: Array
    gang: Array
    capacity: Array
    work: Array
    due: Array
    spent: Array

    @cached_property
    def full(self) -> Array:
        """(n,): full speed."""
        return np.asarray(self.rate.max(axis=1))

    @cached_property
    def top(self) -> Array:
        """(n,): the level from which on a job needs its full speed."""
        return np.asarray(self.full * self.due / (self.work + self.spent * self.full))

    def need(self, level: float) -> Array:
        """(n,): the speeds needed at `level`."""
        below = level < self.top
        left = np.where(below, self.due - self.spent * level, 1.0)
        return np.where(below, np.minimum(self.work * level / left, self.full), self.full)


def job_devices(users: Users, jobs_of: Callable[[Index, Index], Jobs]) -> Array:
    """(n, k) devices of all `users` from `jobs_of(rows, kinds)`, the problem of those that can run now on the kinds that have devices.
    Raises SolverError, also where the answer gives a job more than all of its time."""
    kinds = np.flatnonzero(users.capacity > 0)
    rows = np.flatnonzero((users.speed[:, kinds] > 0).any(axis=1))
    devices = np.zeros(users.speed.shape)
    devices[np.ix_(rows, kinds)] = raise_levels(jobs_of(rows, kinds))
    if (devices.sum(axis=1) > users.demand * (1 + TOLERANCE)).any():
        raise SolverError("the allocation gives a job more than all of its time")
    return devices


def raise_levels(jobs: Jobs) -> Array:
    """(n, k) devices: the lowest level as high as it goes, then the next, and so on. Raises SolverError.

    Whoever is held back pays for the kinds that hold it back. The others use none of these in any answer, so they go on without.
    """
    held, free = np.zeros(len(jobs.rate)), np.ones(len(jobs.rate), bool)
    level, prices, room = 0.0, np.full(len(jobs.capacity), 1 / len(jobs.capacity)), 1.0
    while free.any():
        level, needs, prices, load, devices = _highest(jobs, free, held, level, prices, room)
        room = max(room, load) + _EPS  # whoever is held fills the cluster, but for rounding
        dear, pays = needs.paid(prices)
        stuck = free & ((pays > _NOT_NOISE) | (level >= jobs.top * (1 - _LITTLE)))
        closed = (free & ~stuck)[:, None] & dear & (jobs.rate > 0)
        if not (stuck.any() or closed.any()):  # prices so low that they look like noise: they are all that holds anybody back
            stuck = free & (pays > 0) & (pays >= pays[free].max())
        if not (stuck.any() or closed.any()):
            raise SolverError("no job holds the level of the others back")
        held = np.where(stuck, needs.speed, held)
        free &= ~stuck
        jobs = replace(jobs, rate=np.where(closed, 0.0, jobs.rate))
    return devices


def _highest(
    jobs: Jobs, free: NDArray[np.bool_], held: Array, low: float, prices: Array, room: float
) -> tuple[float, _Needs, Array, float, Array]:
    """The highest level from `low` on at which the jobs that are `free` can be served together in `room` times the cluster while the others
    keep the speed `held`; the needs at it, the prices of kinds that say why it is not higher, the load of the fullest kind, and devices
    (n, k).

    From above: prices refute levels, and the next level tried is the highest that they do not refute.
    """

    def at(level: float) -> _Needs:
        return _Needs(jobs, np.where(free, jobs.need(level), held))

    level = max(low, float(jobs.top[free].max()))
    for _ in range(_MAX_STEPS):
        before, level = level, _highest_paid(at, prices, room, low, level)
        needs, refuting = at(level), prices
        load, prices, devices = _balance(needs, prices)
        if load <= room + _EPS / 2 or (level == before and load <= 1 + _NEARLY):
            return level, needs, refuting, load, devices / max(load, 1.0)
    raise SolverError("no level of the jobs was found that fits the devices")


def _highest_paid(at: Callable[[float], _Needs], prices: Array, room: float, low: float, high: float) -> float:
    """The highest level in [low, high] whose cost, which rises with the level, is at most `room`; `low` where none is."""
    from scipy.optimize import brentq

    def excess(level: float) -> float:
        return at(level).cost(prices) - room

    if excess(high) <= 0:
        return high
    return low if excess(low) >= 0 else float(brentq(excess, low, high, xtol=1e-300, rtol=_FINEST, maxiter=1000))


@dataclass
class _Needs:
    """The speeds (n,) that jobs must reach, and the mixes of two kinds (or of a kind and idling) that reach them."""

    jobs: Jobs
    speed: Array
    pairs: Index = field(init=False)
    part: Array = field(init=False)
    barred: Array = field(init=False)

    def __post_init__(self) -> None:
        """`part` (n, p): the part of its time on the second kind of each pair; `barred`: infinite where a pair cannot reach the speed."""
        num_jobs, kinds = self.jobs.rate.shape
        self.pairs = np.array([(kinds, b) for b in range(kinds)] + list(combinations(range(kinds), 2))).T
        rate = np.column_stack([self.jobs.rate, np.zeros(num_jobs)])
        first, second = rate[:, self.pairs[0]], rate[:, self.pairs[1]]
        gap = second - first
        with np.errstate(divide="ignore", invalid="ignore"):
            self.part = (self.speed[:, None] - first) / gap
        usable = (gap != 0) & (self.part >= 0) & (self.part <= 1) & (second > 0) & ((first > 0) | (self.pairs[0] == kinds))
        self.part = np.where(usable, self.part, 0.0)
        self.barred = np.where(usable, 0.0, np.inf)

    def cheapest(self, prices: Array) -> tuple[Index, Array]:
        """The cheapest pair of each job (n,), at `prices` (k,) of all devices of a kind, and what a time on it costs (n,)."""
        unit = np.append(prices / self.jobs.capacity, 0.0)
        first, second = unit[self.pairs]
        cost = self.part * (second - first) + (first + self.barred)
        best = cost.argmin(axis=1)
        return best, cost[np.arange(len(best)), best]

    def paid(self, prices: Array) -> tuple[NDArray[np.bool_], Array]:
        """(k,): the kinds that have a price; (n,): what a job pays for its speed, in units of the dearest device for each full speed."""
        unit = prices / self.jobs.capacity
        return unit > _NOT_NOISE * unit.max(), self.cheapest(prices)[1] / (unit.max() * self.speed / self.jobs.full)

    def cost(self, prices: Array) -> float:
        return float(self.jobs.gang @ self.cheapest(prices)[1])

    def load(self, best: Index) -> Array:
        """(k,): the part of each kind that is used if each job takes the pair `best`."""
        second = self.jobs.gang * self.part[np.arange(len(best)), best]
        kinds = len(self.jobs.capacity)
        used = np.bincount(self.pairs[1][best], second, kinds + 1) + np.bincount(self.pairs[0][best], self.jobs.gang - second, kinds + 1)
        return np.asarray(used[:kinds] / self.jobs.capacity)

    def devices(self, choices: list[tuple[float, Index]]) -> Array:
        """(n, k) devices where jobs take the pairs of each choice for a part of the time."""
        rows = np.arange(len(self.speed))
        found = np.zeros((len(rows), len(self.jobs.capacity) + 1))
        for weight, best in choices:
            second = weight * self.jobs.gang * self.part[rows, best]
            found[rows, self.pairs[1][best]] += second
            found[rows, self.pairs[0][best]] += weight * self.jobs.gang - second
        return found[:, :-1]


def _balance(needs: _Needs, prices: Array) -> tuple[float, Array, Array]:
    """The least load of the fullest kind that serves `needs`, the prices (k,), sum 1, that prove it, and devices (n, k).

    A game: one side sets prices, the other picks for each job the cheapest pair. Solved by the simplex method on kinds + 1 rows, with a new
    column wherever the cheapest choice at the current prices beats the current mix. By how much it must do so rises slowly, so that
    rounding does not keep it going.
    """
    kinds = len(prices)
    choice = needs.cheapest(prices)[0]
    load = needs.load(choice)
    fullest = int(load.argmax())
    columns: list[Array] = [np.append(-np.ones(kinds), 0.0), np.append(load, 1.0)]
    columns += [np.append(np.eye(kinds)[j], 0.0) for j in range(kinds) if j != fullest]
    picked: list[Index | None] = [None, choice] + [None] * (kinds - 1)
    for step in range(_MAX_STEPS):
        basis = np.column_stack(columns)
        inverse = _inverse(basis)
        prices, values = -inverse[0, :kinds], inverse[:, kinds]  # the value costs 1; the parts of the mix add up to 1
        if prices.min() < -1e-12:
            new, picks = np.append(np.eye(kinds)[int(prices.argmin())], 0.0), None
        else:
            prices = np.maximum(prices, 0.0)
            prices /= prices.sum()
            picks, cost = needs.cheapest(prices)
            new = np.append(needs.load(picks), 1.0)
            known = (np.abs(basis - new[:, None]) <= _EPS).all(axis=0).any()
            if known or needs.jobs.gang @ cost >= values[0] * (1 - _EPS / 4 * (1 + step)):
                mix = [(float(weight), pairs) for weight, pairs in zip(values, picked, strict=True) if pairs is not None and weight > _SAME]
                return float(values[0]), prices, needs.devices(mix)
        change = inverse @ new
        change[0] = 0.0
        ratio = np.where(change > _SAME, np.maximum(values, 0.0) / np.where(change > _SAME, change, 1.0), np.inf)
        out = int(ratio.argmin())
        if not np.isfinite(ratio[out]):
            break
        columns[out], picked[out] = new, picks
    raise SolverError("the prices of kinds did not settle")


def _inverse(basis: Array) -> Array:
    try:
        return np.asarray(np.linalg.inv(basis), dtype=float)
    except np.linalg.LinAlgError as error:
        raise SolverError(f"the prices of kinds have no solution: {error}") from error
