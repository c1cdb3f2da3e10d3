"""Max efficiency: the largest total throughput, fair or not: the upper anchor of every comparison. It starves slow users."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import Array, Users
from hetsys.core.scheduling.view import ClusterView
from hetsys.systems.classes import Classes, merge, most_for_weight
from hetsys.systems.program import Program, spread, unknowns
from hetsys.systems.shares import Shares, allocate, tenant_users
from hetsys.systems.solve import Solver


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
        f = unknowns(classes.value > 0)
        worst = np.array([int(f.max()) + 1])
        capacity, count = classes.users.capacity, classes.num_classes
        efficiency = spread(f, (classes.weight * classes.whole)[:, None] * classes.value, f.max() + 2)
        program = Program("max_efficiency", efficiency)
        program.add("capacity", f.T, classes.weight, upper=1.0)
        program.add("demand", f, capacity, upper=most)
        best = self.solve(program)
        program.add("efficiency", np.arange(len(efficiency))[None], efficiency, lower=best.objective * (1 - self.slack))
        program.add("worst", np.column_stack([f, np.repeat(worst, count)]), np.column_stack([classes.value, -np.ones(count)]), lower=0.0)
        program.maximise(spread(worst, 1.0))
        return self.solve(program).matrix(f), best.duals["capacity"] / np.maximum(capacity, 1e-300)
