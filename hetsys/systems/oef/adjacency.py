"""A second goal beside the optimum: users whose kinds stand next to each other in the order of speed (our addition).

Devices far apart in speed are what a user profits least from holding together: its gangs wait for the slowest, or move to and fro. A
linear program cannot count gaps, so what it makes small is the devices beyond the neighbours of each user's main run of kinds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hetsys.core.scheduling.users import Array, Users
from hetsys.systems.classes import Classes, merge
from hetsys.systems.envy import NEIGHBOURS, SAME, add_rows, missing_rows, nearest
from hetsys.systems.program import Index, Program, spread, unknowns
from hetsys.systems.solve import Solver

Pairs = NDArray[np.intp]
_PASSES = 2
_NEAR = -1e-3
_HELD = 1e-7
_EXACT = 1e-7
_REGRET = 0.01
"""What the whole of the first goal counts beside the whole of the second, so that no more of it is given up than helps."""


def without_envy(users: Users, devices: Array, loss: float, solver: Solver) -> Array:
    """(n, k): `devices`, the cooperative optimum, with fewer gaps: no envy, nothing idle that was not, and at most the relative `loss` of
    the total throughput. Raises SolverError."""
    classes, fractions = _classes(users, devices)
    total = (classes.weight * classes.whole)[:, None] * classes.value
    most = float((total * fractions).sum())
    known = nearest(classes.value, NEIGHBOURS)
    known[tuple(_near_envy(classes, fractions).T)] = True

    def rows(program: Program, f: Index) -> None:
        program.add("total", f.reshape(1, -1), total.reshape(1, -1) / most, lower=1 - loss)
        add_rows(program, f, classes, np.argwhere(known))

    def repair(program: Program, f: Index, found: Array) -> bool:
        missing = missing_rows(classes, found, known)
        if missing.size:
            known[tuple(missing.T)] = True
            add_rows(program, f, classes, missing)
        return bool(missing.size)

    return classes.devices(_tidied(classes, fractions, total / most, rows, repair, solver))


def at_levels(users: Users, devices: Array, levels: Array, loss: float, solver: Solver) -> tuple[Array, Array]:
    """(n, k) and (n,): `devices`, in which users have `levels` (throughput for their weight), with fewer gaps and nothing idle that was
    not; and the levels, all lowered alike by at most the relative `loss`. Raises SolverError."""
    classes, fractions = _classes(users, devices)
    reached = (classes.value * fractions).sum(axis=1)
    parts = classes.weight[:, None] * classes.value / np.where(reached > 0, reached, 1.0)[:, None]

    def rows(program: Program, f: Index) -> None:
        size = classes.num_classes
        kept = np.full((size, 1), program.num_unknowns - 1)
        program.add("level", np.hstack([f, kept]), np.hstack([classes.value, -reached[:, None]]), lower=0.0, upper=0.0)
        program.add("loss", kept[:1], 1.0, lower=1 - loss, upper=1.0)

    found = _tidied(classes, fractions, parts, rows, lambda *_: False, solver, extra=1)
    after = (classes.value * found).sum(axis=1)
    scale = classes.per_user(np.where(reached > 0, after / np.where(reached > 0, reached, 1.0), 1.0))
    return classes.devices(found), np.where(classes.member >= 0, levels * scale, levels)


def _classes(users: Users, devices: Array) -> tuple[Classes, Array]:
    """The classes of `users`, and (c, k) what of each kind a class has for each unit of its weight."""
    classes = merge(users)
    part = users.weight / users.weight[classes.member >= 0].sum()
    return classes, classes.per_class(devices / np.maximum(part[:, None] * users.capacity, 1e-300))


def _tidied(
    classes: Classes,
    fractions: Array,
    first_goal: Array,
    rows: Callable[[Program, Index], None],
    repair: Callable[[Program, Index, Array], bool],
    solver: Solver,
    extra: int = 0,
) -> Array:
    """(c, k) fractions with fewer devices beyond the neighbours of main runs, under `rows`; solved anew as long as `repair` adds rows. In
    a second pass devices count the more, the fewer a class has left of a kind, so that what is nearly gone goes."""
    size = classes.weight[:, None] * classes.users.capacity / max(float(classes.users.capacity.sum()), 1e-300)
    f = unknowns(classes.value > 0)
    program: Program | None = None
    for step in range(_PASSES):
        far = _beyond(classes, fractions)
        if not (far * fractions > _HELD).any():
            break
        cost = far * size
        if step:
            cost = cost / (0.05 + fractions * size / np.maximum((fractions * size).sum(axis=1, keepdims=True), 1e-300))
        goal = np.concatenate([spread(f, _REGRET * first_goal - cost), np.zeros(extra)])
        if program is None:
            program = Program("adjacency", goal)
            whole = (classes.weight[:, None] * fractions).sum(axis=0)
            program.add("capacity", f.T, classes.weight, lower=np.where(whole > 1 - 1e-6, 1 - _EXACT, 0.0), upper=1.0)
            rows(program, f)
        program.maximise(goal)
        while True:
            found = solver.solve(program).matrix(f)
            if not repair(program, f, found):
                break
        fractions = found
    return fractions


def _beyond(classes: Classes, fractions: Array) -> Array:
    """(c, k): how many places a kind is beyond the neighbours of the class's main run, in the order of the kinds that it can use. The main
    run: of the unbroken rows of kinds that it holds, the one that is worth most to it."""
    far = np.zeros(fractions.shape)
    for c, value in enumerate(classes.value):
        usable = np.flatnonzero(value > 0)
        held = fractions[c, usable] * classes.weight[c] > _HELD
        if not held.any():
            continue
        run = np.cumsum(np.diff(held, prepend=False) & held) * held
        if run.max() < 2:
            low, high = np.flatnonzero(held)[[0, -1]]
        else:
            main = np.bincount(run, (value * fractions[c])[usable] * held)[1:].argmax() + 1
            low, high = np.flatnonzero(run == main)[[0, -1]]
        place = np.arange(usable.size)
        far[c, usable] = np.maximum(np.maximum(low - place, place - high) - 1, 0)
    return far


def _near_envy(classes: Classes, fractions: Array) -> Pairs:
    """(p, 2): pairs of a class and one whose bundle is worth to it nearly what its own is, or more; of several with the same bundle the one
    whose speeds are most like its own."""
    value = classes.value
    first, bundle = np.unique(np.round(fractions / SAME), axis=0, return_index=True, return_inverse=True)[1:]
    bundle = bundle.reshape(-1)
    own = (value * fractions).sum(axis=1)
    envy = (value @ fractions[first].T - own[:, None]) / np.maximum(own, 1.0)[:, None]
    envy[np.arange(len(own)), bundle] = -np.inf
    pairs = np.argwhere(envy > _NEAR)
    for index in np.unique(pairs[:, 1]):
        which, holders = pairs[:, 1] == index, np.flatnonzero(bundle == index)
        far = ((value[pairs[which, 0], None, :] - value[holders]) ** 2).sum(axis=2)
        pairs[which, 1] = -1 - holders[far.argmin(axis=1)]  # below 0, apart from the bundles that are still to come
    pairs[:, 1] = -1 - pairs[:, 1]
    return pairs
