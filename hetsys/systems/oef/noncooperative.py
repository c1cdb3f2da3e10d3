"""OEF for users that may misreport (Middleware 2024): everyone gets the same normalised throughput for its weight, as high as
possible."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import Users
from hetsys.core.scheduling.view import ClusterView
from hetsys.systems.check import require_levels, require_no_idle
from hetsys.systems.classes import merge
from hetsys.systems.maxmin import lexicographic_max_min
from hetsys.systems.shares import Shares, allocate, tenant_users
from hetsys.systems.solve import Solver


@dataclass(frozen=True)
class OefNonCooperative(Solver):
    """max E  s.t.  w_l . x_l = pi_l E for all users l;  sum_l x_l <= m;  x >= 0.

    Where some speeds are 0 equality would drag everyone down to those who can use little, so levels are raised lexicographically
    (our choice). Pareto efficient. A user gains nothing by reporting a kind faster than it is, but may gain by reporting it
    slower: that hole closes only if reports are held against measured speeds. `levels` of the allocation: each user's throughput
    for its weight.
    """

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        return allocate(self, tenant_users(view), memo)

    def shares(self, users: Users) -> Shares:
        """Throughput in units of the slowest kind that a user supports. Raises SolverError."""
        classes = merge(users)
        fractions, levels, prices = lexicographic_max_min(classes, classes.whole, self)
        entitled = users.weight[classes.member >= 0].sum()  # level of a class: with f per unit of the share of all weight
        reached = classes.per_user(levels) / entitled
        shares = Shares(classes.devices(fractions), "optimal", prices / entitled, reached)
        require_levels(users, shares.devices, reached, np.ones(users.num_users))
        require_no_idle(users, shares.devices)
        return shares
