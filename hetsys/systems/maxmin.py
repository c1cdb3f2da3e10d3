"""Lexicographic max-min over classes of users: the program behind OEF for selfish users and behind Gavel at the level of users."""

from __future__ import annotations

import numpy as np

from hetsys.core.scheduling.users import Array
from hetsys.systems.classes import Classes
from hetsys.systems.solve import Solver, column, dot, maximise, unknown, unknowns

_NOT_ZERO = 1e-7


def lexicographic_max_min(classes: Classes, yardstick: Array, solver: Solver) -> tuple[Array, Array, Array]:
    """Raise the lowest level as far as it goes, hold those who cannot rise, raise the lowest of the others, and so on.

    The level of class c is `yardstick[c] * value[c] . f[c]`. Returns the fractions f (c, k), the levels (c,), and the prices (k,):
    what one more device of each kind adds to the lowest level. Where all speeds are above 0 all levels are equal and one program
    does; with zeros, a user that runs on few kinds does not lower the others. Raises SolverError.
    """
    levels = np.full(classes.num_classes, np.nan)
    unit, first = float(yardstick.mean()), None
    while (free := np.isnan(levels)).any():
        fractions, level, duals, prices = _raise_lowest(classes, yardstick / unit, levels / unit, solver)
        first = prices if first is None else first
        tight = free & (duals > _NOT_ZERO)
        levels[tight if tight.any() else free & (duals >= duals[free].max())] = level * unit
    assert first is not None
    return fractions, levels, first * unit / np.maximum(classes.users.capacity, 1e-300)


def _raise_lowest(classes: Classes, yardstick: Array, levels: Array, solver: Solver) -> tuple[Array, float, Array, Array]:
    """max t  s.t.  yardstick value.f >= t (free classes), >= level (held ones);  sum_c weight_c f_c <= 1 (each kind);  f >= 0."""
    rates = (yardstick[:, None] * classes.value).tolist()
    kinds = np.asarray(classes.value.any(axis=0))
    problem = maximise("max_min")
    t = unknown(problem, "t")
    f = unknowns(problem, "f", classes.value > 0)
    problem += t + 0
    for j in np.flatnonzero(kinds):
        problem += column(classes.weight.tolist(), f, j) <= 1, f"capacity_{j}"
    for c, held in enumerate(levels.tolist()):
        if np.isnan(held):
            problem += dot(rates[c], f[c]) >= t, f"level_{c}"
        else:
            problem += dot(rates[c], f[c]) >= held * (1 - solver.slack), f"level_{c}"
    solution = solver.solve(problem)
    duals = -solution.dual("level", classes.num_classes)
    return solution.matrix(f, kinds.size), solution.objective, duals, solution.dual("capacity", kinds.size)
