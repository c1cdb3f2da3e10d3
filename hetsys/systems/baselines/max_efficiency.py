"""Max efficiency: the largest total throughput, fair or not: the upper anchor of every comparison. It starves slow users."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import Array, Users
from hetsys.core.scheduling.view import ClusterView
from hetsys.systems.classes import Classes, merge, most_for_weight
from hetsys.systems.shares import Shares, allocate, tenant_users
from hetsys.systems.solve import Solver, column, dot, maximise, total, unknown, unknowns


@dataclass(frozen=True)
class MaxEfficiency(Solver):
    """max sum_l w_l . x_l  s.t.  sum_j x_lj <= demand_l;  sum_l x_l <= m;  x >= 0, in units of a user's slowest supported kind.

    Ties are common (all users are equal on the slowest kind); of all optima, take one whose worst-off user is best off for its
    weight (our choice). `prices`: total throughput that one more device would add.
    """

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        return allocate(self, tenant_users(view), memo, keep="all")

    def shares(self, users: Users) -> Shares:
        most = most_for_weight(users)
        classes = merge(users, most)
        fractions, prices = self._most_efficient(classes, classes.per_class(most))
        return Shares(classes.devices(fractions), "optimal", prices)

    def _most_efficient(self, classes: Classes, most: Array) -> tuple[Array, Array]:
        """Fractions (c, k) for each unit of weight, and prices (k,). `most` (c,): devices that a unit of weight can use."""
        value, capacity = classes.value.tolist(), classes.users.capacity
        gain = ((classes.weight * classes.whole)[:, None] * classes.value).tolist()
        problem = maximise("max_efficiency")
        f = unknowns(problem, "f", classes.value > 0)
        efficiency = total(dot(row, f[c]) for c, row in enumerate(gain))
        problem += efficiency
        for j in np.flatnonzero(classes.value.any(axis=0)):
            problem += column(classes.weight.tolist(), f, j) <= 1, f"capacity_{j}"
        for c, limit in enumerate(most.tolist()):
            problem += dot(capacity.tolist(), f[c]) <= limit, f"demand_{c}"
        best = self.solve(problem)
        worst = unknown(problem, "worst")
        problem.setObjective(worst + 0)
        problem += efficiency >= best.objective * (1 - self.slack), "efficiency"
        for c in range(classes.num_classes):
            problem += dot(value[c], f[c]) >= worst, f"worst_{c}"
        prices = best.dual("capacity", len(capacity)) / np.maximum(capacity, 1e-300)
        return self.solve(problem).matrix(f, len(capacity)), prices
