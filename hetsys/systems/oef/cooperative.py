"""OEF for users that cooperate (Middleware 2024): the largest total throughput of all allocations in which nobody envies
anybody."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetsys.core.errors import ConfigError
from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import Array, Users
from hetsys.core.scheduling.view import ClusterView
from hetsys.systems.check import require_no_envy, require_no_idle, require_sharing_incentive
from hetsys.systems.classes import Classes, merge
from hetsys.systems.shares import Shares, allocate, tenant_users
from hetsys.systems.solve import Solver, column, dot, maximise, total, unknowns

Pair = tuple[int, int]
_NEIGHBOURS = 4
_WORST = 2
_ENVY = 1e-8


@dataclass(frozen=True)
class OefCooperative(Solver):
    """max sum_l w_l . x_l  s.t.  w_l . x_l / pi_l >= w_l . x_i / pi_i for all users l, i;  sum_l x_l <= m;  x >= 0.

    Envy-free, hence each user has at least what its entitlement is worth to it. Pareto efficient among envy-free allocations only:
    others may be better for everyone. Up to `full_rows_up_to` classes of users the program has all its envy rows; above, rows are
    added where they are violated until none is, which ends at the same optimum.
    """

    full_rows_up_to: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.full_rows_up_to < 0:
            raise ConfigError("system.full_rows_up_to", self.full_rows_up_to, "must be 0 or more classes of users")

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        return allocate(self, tenant_users(view), memo, keep="slice")

    def shares(self, users: Users) -> Shares:
        """Throughput in units of the slowest kind that a user supports. `prices`: total throughput that one more device would add.
        Raises SolverError."""
        classes = merge(users)
        pairs = self._first_pairs(classes)
        while True:
            fractions, prices = self._solve_with(classes, sorted(pairs))
            missing = _most_envious(classes, fractions) - pairs
            if not missing:
                break
            pairs |= missing
        shares = Shares(classes.devices(fractions), "optimal", prices)
        require_no_envy(users, shares.devices)
        require_sharing_incentive(users, shares.devices)
        require_no_idle(users, shares.devices)
        return shares

    def _first_pairs(self, classes: Classes) -> set[Pair]:
        """All pairs of few classes; of many, each class with its nearest ones in logarithmic speed, both ways: they bind most
        often."""
        count = classes.num_classes
        if count <= self.full_rows_up_to:
            return {(c, d) for c in range(count) for d in range(count) if c != d}
        place = np.log(np.maximum(classes.value, 1e-3))
        distance = np.linalg.norm(place[:, None, :] - place[None, :, :], axis=2)
        near = np.argsort(distance, axis=1, kind="stable")[:, : _NEIGHBOURS + 1]
        return {pair for c, row in enumerate(near.tolist()) for d in row if c != d for pair in ((c, d), (d, c))}

    def _solve_with(self, classes: Classes, pairs: list[Pair]) -> tuple[Array, Array]:
        """max sum_c weight_c whole_c value_c.f_c  s.t.  value_c.f_c >= value_c.f_d (pairs);  sum_c weight_c f_c <= 1 (kinds)."""
        value, weight = classes.value.tolist(), classes.weight.tolist()
        gain = (classes.weight * classes.whole)[:, None] * classes.value
        problem = maximise("oef_cooperative")
        f = unknowns(problem, "f", classes.value > 0)
        problem += total(dot(row, f[c]) for c, row in enumerate(gain.tolist()))
        for j in np.flatnonzero(classes.value.any(axis=0)):
            problem += column(weight, f, j) <= 1, f"capacity_{j}"
        for c, d in pairs:
            problem += dot(value[c], f[c]) >= dot(value[c], f[d]), f"envy_{c}_{d}"
        solution = self.solve(problem)
        capacity = classes.users.capacity
        prices = solution.dual("capacity", len(capacity)) / np.maximum(capacity, 1e-300)
        return solution.matrix(f, len(capacity)), prices


def _most_envious(classes: Classes, fractions: Array) -> set[Pair]:
    """For each class that envies others, the pairs with the few whom it envies most."""
    worth = classes.value @ fractions.T
    envy = worth - np.diag(worth)[:, None]
    worst = np.argsort(-envy, axis=1, kind="stable")[:, :_WORST]
    limit = _ENVY * np.maximum(np.diag(worth), 1.0)
    return {(c, d) for c, row in enumerate(worst.tolist()) for d in row if envy[c, d] > limit[c]}
