"""Gavel's max-min policy (OSDI 2020): jobs, not tenants, get equal multiples of an equal part's worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetsys.core.errors import SolverError
from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import Array, Users
from hetsys.core.scheduling.view import ClusterView
from hetsys.systems.check import TOLERANCE
from hetsys.systems.classes import Classes, merge, most_for_weight
from hetsys.systems.shares import Shares, allocate, job_users
from hetsys.systems.solve import Solver, column, dot, maximise, total, unknown, unknowns

_NOT_ZERO = 1e-7


@dataclass(frozen=True)
class Gavel(Solver):
    """max t  s.t.  (T_i . x_i) s_i / (T_i . xprop_i) >= weight_i t (jobs i);  sum_i s_i x_ij <= m_j;  sum_j x_ij <= 1;  x >= 0.

    `x_ij` is the part of its time that job i spends on kind j, `s_i` its gang, `xprop_ij = m_j / n`. Here in devices, `s_i x_ij`.
    A job's weight is its tenant's (our choice). Where jobs could still rise above the lowest, the sum of all ratios is then made as
    large as it gets (our choice; the plain program leaves that open, and water filling is another policy). `levels`: each job's ratio
    for its weight.
    """

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        return allocate(self, job_users(view), memo, keep="all")

    def shares(self, users: Users) -> Shares:
        classes = merge(users)
        fractions, prices = self._max_min(classes, None)
        devices = classes.devices(fractions)
        if (devices.sum(axis=1) > users.demand * (1 + TOLERANCE)).any():
            most = most_for_weight(users)
            classes = merge(users, most)
            fractions, prices = self._max_min(classes, classes.per_class(most))
            devices = classes.devices(fractions)
        if (devices.sum(axis=1) > users.demand * (1 + TOLERANCE)).any():
            raise SolverError("the allocation gives a job more than all of its time")
        levels = classes.per_user((classes.value * fractions).sum(axis=1))
        return Shares(devices, "optimal", prices, levels)

    def _max_min(self, classes: Classes, most: Array | None) -> tuple[Array, Array]:
        """Fractions (c, k) for each unit of weight, and prices (k,). `most` (c,): devices for a unit of weight that fill a job's
        time; None leaves the row `sum_j x_ij <= 1` out, which is exact wherever the answer keeps to it."""
        value, capacity = classes.value.tolist(), classes.users.capacity
        problem = maximise("gavel")
        t = unknown(problem, "t")
        f = unknowns(problem, "f", classes.value > 0)
        problem += t + 0
        for j in np.flatnonzero(classes.value.any(axis=0)):
            problem += column(classes.weight.tolist(), f, j) <= 1, f"capacity_{j}"
        for c in range(classes.num_classes):
            problem += dot(value[c], f[c]) >= t, f"ratio_{c}"
            if most is not None:
                problem += dot(capacity.tolist(), f[c]) <= float(most[c]), f"time_{c}"
        lowest = self.solve(problem)
        answer = lowest
        if (lowest.dual("ratio", classes.num_classes) > -_NOT_ZERO).any():
            problem += t >= lowest.objective * (1 - self.slack), "lowest"
            problem.setObjective(total(dot(row, f[c]) for c, row in enumerate((classes.weight[:, None] * classes.value).tolist())))
            answer = self.solve(problem)
        prices = lowest.dual("capacity", len(capacity)) / np.maximum(capacity, 1e-300)
        return answer.matrix(f, len(capacity)), prices
