"""OEF for users that may misreport (Middleware 2024): everyone gets the same normalised throughput for its weight, as high as
possible."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import Array, Users
from hetsys.core.scheduling.view import ClusterView
from hetsys.systems.check import require_levels
from hetsys.systems.classes import Classes, merge
from hetsys.systems.maxmin import equal_levels
from hetsys.systems.shares import Shares, allocate, tenant_users
from hetsys.systems.solve import Solver


@dataclass(frozen=True)
class OefNonCooperative(Solver):
    """max E  s.t.  w_l . x_l = pi_l E for all users l;  sum_l x_l <= m;  x >= 0.

    Pareto efficient where all speeds are above 0. Where some are 0, equality holds everybody down to who can use least, and devices may be
    left to nobody. A user gains nothing by reporting a kind faster than it is, but may gain by reporting it slower: that hole closes only
    if reports are held against measured speeds. `levels` of the allocation: each user's throughput for its weight.
    """

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        return allocate(self, tenant_users(view), memo, rounding="deviation")

    def shares(self, users: Users) -> Shares:
        """Throughput in units of the slowest kind that a user supports. Raises SolverError."""
        classes = merge(users)
        fractions, levels, prices = self._levels(classes)
        entitled = users.weight[classes.member >= 0].sum()  # level of a class: with f per unit of the share of all weight
        reached = classes.per_user(levels) / entitled
        shares = Shares(classes.devices(fractions), "optimal", prices / entitled, reached)
        require_levels(users, shares.devices, reached, np.ones(users.num_users))
        return shares

    def _levels(self, classes: Classes) -> tuple[Array, Array, Array]:
        """Fractions (c, k), levels (c,) for each unit of the share of all weight, prices (k,)."""
        return equal_levels(classes, classes.whole, self)
