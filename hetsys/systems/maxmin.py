"""Max-min over classes of users, plain and lexicographic: the programs behind OEF for selfish users and behind Gavel at the level of users.

At the right prices nearly every class buys one kind only, so a program in which those are fixed, with a row for each of the others alone,
has the same optimum; whether they were rightly fixed, its own prices tell. Ten thousand classes then take a second and not ten.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsys.core.scheduling.users import Array
from hetsys.systems.classes import Classes
from hetsys.systems.program import Program, spread, unknowns
from hetsys.systems.solve import Solver

_FREE = 1e-8
_WRONG = 1e-9
_SMALL = 64
_SAMPLE = 6


def lexicographic_max_min(classes: Classes, yardstick: Array, solver: Solver) -> tuple[Array, Array, Array]:
    """Raise the lowest level as far as it goes, hold those who cannot rise, raise the lowest of the others, and so on.

    The level of class c is `yardstick[c] * value[c] . f[c]`. Returns the fractions f (c, k), the levels (c,), and the prices (k,):
    what one more device of each kind adds to the lowest level. Where all speeds are above 0 all levels are equal and one program
    does; with zeros, a user that runs on few kinds does not lower the others. Raises SolverError.
    """
    unit = float(yardstick.mean())
    rates = (yardstick / unit)[:, None] * classes.value
    levels = np.full(classes.num_classes, np.nan)
    first = last = _raise_lowest(rates, classes.weight, levels, solver, None)
    while True:
        free = np.isnan(levels)
        can_rise = ((rates > 0) & (last.prices <= _FREE * last.prices.sum())).any(axis=1)
        tight = free & ~can_rise
        levels[tight if tight.any() else free] = last.level
        if not np.isnan(levels).any():
            break
        last = _raise_lowest(rates, classes.weight, levels * (1 - solver.slack), solver, last)
    return last.fractions, levels * unit, first.prices * unit / np.maximum(classes.users.capacity, 1e-300)


def equal_levels(classes: Classes, yardstick: Array, solver: Solver) -> tuple[Array, Array, Array]:
    """max t  s.t.  yardstick value.f = t (all classes);  sum_c weight_c f_c <= 1 (each kind);  f >= 0. Returns what
    `lexicographic_max_min` does. Where some speeds are 0 nobody rises above whoever can use least, and devices may be left over. Raises
    SolverError."""
    unit = float(yardstick.mean())
    rates = (yardstick / unit)[:, None] * classes.value
    found = _raise_lowest(rates, classes.weight, np.full(classes.num_classes, np.nan), solver, None)
    prices = found.prices * unit / np.maximum(classes.users.capacity, 1e-300)
    return found.fractions, np.full(classes.num_classes, found.level * unit), prices


@dataclass(frozen=True)
class _Raised:
    """`fractions` (c, k), the raised `level`, `prices` (k,) of whole kinds in units of it."""

    fractions: Array
    level: float
    prices: Array


def _raise_lowest(rates: Array, weight: Array, levels: Array, solver: Solver, last: _Raised | None) -> _Raised:
    """max t  s.t.  rates.f = t (classes whose `levels` are NaN), = level (the others);  sum_c weight_c f_c <= 1 (each kind);  f >= 0.

    `last`: an answer with at least these levels, whose bundles are still possible.
    """
    count = len(rates)
    if count <= _SMALL:
        return _with_rows_for(np.ones(count, dtype=bool), np.zeros(count, dtype=np.intp), rates, weight, levels, solver)
    if last is None:
        part = slice(None, None, _SAMPLE)
        prices = _raise_lowest(rates[part], weight[part] / weight[part].sum(), levels[part], solver, None).prices
        costs = np.sort(_costs(prices, rates), axis=1)
        kind = _costs(prices, rates).argmin(axis=1)
        chooses = costs[:, min(1, costs.shape[1] - 1)] <= costs[:, 0] * (1 + 1 / np.sqrt(count))
    else:
        kind = last.fractions.argmax(axis=1)
        chooses = (last.fractions > 0).sum(axis=1) != 1
    while True:
        found = _with_rows_for(chooses, kind, rates, weight, levels, solver)
        costs = _costs(found.prices, rates)
        wrong = ~chooses & (costs[np.arange(count), kind] > costs.min(axis=1) * (1 + _WRONG) + _WRONG * _WRONG)
        if not wrong.any():
            return found
        chooses |= wrong


def _costs(prices: Array, rates: Array) -> Array:
    """(c, k): what a unit of level costs a class on each kind; infinite where it cannot run."""
    return np.where(rates > 0, prices / np.where(rates > 0, rates, 1.0), np.inf)


def _with_rows_for(
    chooses: NDArray[np.bool_], kind: NDArray[np.intp], rates: Array, weight: Array, levels: Array, solver: Solver
) -> _Raised:
    """The program of `_raise_lowest` in which only the classes `chooses` (c,) may hold any kind, the others `kind` (c,) alone."""
    fixed, kinds = np.flatnonzero(~chooses), rates.shape[1]
    free, part = np.isnan(levels), weight[fixed] / rates[fixed, kind[fixed]]
    level = np.where(free, 0.0, levels)
    per_level = np.bincount(kind[fixed], part * free[fixed], minlength=kinds)
    held = np.bincount(kind[fixed], part * level[fixed], minlength=kinds)
    f = unknowns(rates[chooses] > 0)
    t = int(f.max(initial=-1)) + 1
    program = Program("max_min", spread(np.array([t]), 1.0))
    columns = np.column_stack([f.T, np.full(kinds, t)])
    program.add("capacity", columns, np.column_stack([np.broadcast_to(weight[chooses], f.T.shape), per_level]), upper=1 - held)
    if chooses.any():
        rows = np.column_stack([rates[chooses], np.where(free[chooses], -1.0, 0.0)])
        program.add("level", np.column_stack([f, np.full(len(f), t)]), rows, lower=level[chooses], upper=level[chooses])
    solution = solver.solve(program)
    fractions = np.zeros(rates.shape)
    fractions[chooses] = solution.matrix(f)
    fractions[fixed, kind[fixed]] = np.where(free[fixed], solution.objective, level[fixed]) / rates[fixed, kind[fixed]]
    return _Raised(fractions, solution.objective, np.maximum(solution.duals["capacity"], 0.0))
