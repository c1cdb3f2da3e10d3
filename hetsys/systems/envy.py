"""The largest total throughput without envy, exactly, with few of the rows that say so: they are added where they are violated.

Of c (c - 1) rows about two a class bind. A few nearest neighbours and the rows that bound last time nearly suffice to begin with; what an
answer still violates is added, and the dual simplex goes on from where it was, until no pair is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from hetsys.core.scheduling.users import Array
from hetsys.systems.classes import Classes
from hetsys.systems.program import Index, Mask, Program, Solution, spread, unknowns
from hetsys.systems.solve import Solver
from hetsys.systems.warm import Start, carried

NEIGHBOURS, _NEIGHBOURS_WHEN_WARM = 6, 2
_WORST = 4
_ENVY = 1e-8
SAME = 1e-9
_TIE = 1e-8
_SCALE = 100.0


@dataclass(frozen=True)
class EnvyFree:
    """`fractions` (c, k) for each unit of weight; `prices` (k,): total throughput that one more device would add; `pairs` (p, 2): class and
    envied class of the rows that bind, `duals` (p,): total throughput that each costs, for each unit of the class's throughput for its
    weight; `start`: for the next time. Prices and binding rows are one choice of several where more rows meet than are needed."""

    fractions: Array
    prices: Array
    pairs: Index
    duals: Array
    start: Start | None


def most_without_envy(classes: Classes, solver: Solver, all_rows_up_to: int = 0, start: Start | None = None) -> EnvyFree:
    """max sum_c weight_c whole_c value_c.f_c  s.t.  value_c.f_c >= value_c.f_d (all c, d);  sum_c weight_c f_c <= 1 (kinds);  f >= 0.

    Up to `all_rows_up_to` classes all rows are there at once. `start`: of an earlier answer to like classes; it changes the time only, as
    of several optima a part of 1e-8 of the objective chooses one. Raises SolverError.
    """
    f = unknowns(classes.value > 0)
    gain = (classes.weight * classes.whole)[:, None] * classes.value
    unit = _SCALE / gain[gain > 0].mean()
    mean = gain.sum() / gain.shape[1]
    program = Program("oef_cooperative", spread(f, unit * (gain + _TIE * mean * classes.weight[:, None] * _preference(classes.value))))
    program.add("capacity", f.T, classes.weight, upper=1.0)
    all_rows = classes.num_classes <= max(all_rows_up_to, 2)
    pairs = _first_rows(program, f, classes, all_rows, start)
    known = np.zeros((classes.num_classes, classes.num_classes), dtype=bool)
    while True:
        known[pairs[:, 0], pairs[:, 1]] = True
        solution = solver.solve(program)
        fractions = solution.matrix(f)
        missing = pairs[:0] if all_rows else missing_rows(classes, fractions, known)
        if not missing.size:
            break
        add_rows(program, f, classes, missing)
        pairs = np.concatenate([pairs, missing])
    return _read(classes, program, solution, f, fractions, pairs, unit)


def _first_rows(program: Program, f: Index, classes: Classes, all_rows: bool, start: Start | None) -> Index:
    """Add the rows to begin with, and the basis of `start` if it serves; returns their pairs."""
    count = classes.num_classes
    like = None if start is None else carried(start, classes.speed)
    neighbours = NEIGHBOURS if like is None else _NEIGHBOURS_WHEN_WARM
    wanted = ~np.eye(count, dtype=bool) if all_rows else nearest(classes.value, neighbours)
    if like is None:
        pairs = np.argwhere(wanted)
        add_rows(program, f, classes, pairs)
        return pairs
    wanted[like.pairs[:, 0], like.pairs[:, 1]] = False
    pairs = np.concatenate([like.pairs, np.argwhere(wanted)])
    add_rows(program, f, classes, pairs)
    rows = np.concatenate([like.slack | ~(f >= 0).any(axis=0), np.arange(len(pairs)) >= len(like.pairs)])
    program.start(like.basic[f >= 0], rows)
    return pairs


def add_rows(program: Program, f: Index, classes: Classes, pairs: Index) -> None:
    """Add "the first class does not envy the second" for each of `pairs` (p, 2); `f` (c, k) numbers the unknown fractions."""
    own, other = pairs.T
    value = classes.value[own]
    program.add("envy", np.hstack([f[own], f[other]]), np.hstack([value, -value]), lower=0.0)


def _preference(value: Array) -> Array:
    """(c, k), between 0 and 1: what decides between several optima. A function of a class's own speeds, and a smooth one, so that neither
    the others nor a small change turn it."""
    waves, phases = _waves(value.shape[1])
    return np.asarray((1 + np.cos(value @ waves + phases)) / 2)


@cache
def _waves(kinds: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    return rng.uniform(5, 25, (kinds, kinds)), rng.uniform(0, 2 * np.pi, kinds)


def nearest(value: Array, neighbours: int) -> Mask:
    """(c, c): each class with the `neighbours` whose speeds are most like its own, both ways."""
    count = len(value)
    neighbours = min(neighbours, count - 1)
    near = np.zeros((count, count), dtype=bool)
    for begin in range(0, count, 1024):
        part = np.arange(begin, min(begin + 1024, count))
        distance = _distance(value[part], value)
        distance[np.arange(part.size), part] = np.inf
        near[part[:, None], np.argpartition(distance, neighbours - 1, axis=1)[:, :neighbours]] = True
    return near | near.T


def _distance(left: Array, right: Array) -> Array:
    return np.asarray((left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T)


def missing_rows(classes: Classes, fractions: Array, known: Mask) -> Index:
    """(p, 2): for each class the few bundles that it envies most, each with the holder whose speeds are most like its own; rows that the
    program has already are left out."""
    value = classes.value
    first, bundle = np.unique(np.round(fractions / SAME), axis=0, return_index=True, return_inverse=True)[1:]
    bundle = bundle.reshape(-1)
    own = (value * fractions).sum(axis=1)
    envy = value @ fractions[first].T - own[:, None]
    worst = np.argpartition(-envy, min(_WORST, len(first)) - 1, axis=1)[:, :_WORST]
    found = np.take_along_axis(envy, worst, axis=1) > (_ENVY * np.maximum(own, 1.0))[:, None]
    envious, envied = np.nonzero(found)[0], worst[found]
    pairs = np.column_stack([envious, envied])
    for index in np.unique(envied):
        which = envied == index
        holders = np.flatnonzero(bundle == index)
        pairs[which, 1] = holders[_distance(value[envious[which]], value[holders]).argmin(axis=1)]
    return np.asarray(pairs[~known[pairs[:, 0], pairs[:, 1]]])


def _read(
    classes: Classes, program: Program, solution: Solution, f: Index, fractions: Array, pairs: Index, unit: float
) -> EnvyFree:
    capacity = classes.users.capacity
    prices = solution.duals["capacity"] / unit / np.maximum(capacity, 1e-300)
    costs = -solution.duals.get("envy", np.zeros(0)) / unit / classes.whole[pairs[:, 0]]
    binding = costs > 1e-9 * np.abs(costs).max(initial=0.0)
    start = None
    if (basis := program.basis_found()) is not None:
        columns, rows = basis
        basic = (f >= 0) & columns[f]
        start = Start(classes.speed, basic, rows[: len(capacity)], pairs[~rows[len(capacity) :]])
    return EnvyFree(fractions, prices, pairs[binding], costs[binding], start)
