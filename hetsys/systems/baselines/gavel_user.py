"""Gavel's yardstick at the level of users: everyone gets the same multiple of what its entitlement is worth to it, as high as
possible."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import Users
from hetsys.core.scheduling.view import ClusterView
from hetsys.systems.check import require_levels, require_no_idle, require_sharing_incentive
from hetsys.systems.classes import merge
from hetsys.systems.maxmin import lexicographic_max_min
from hetsys.systems.shares import Shares, allocate, tenant_users
from hetsys.systems.solve import Solver


@dataclass(frozen=True)
class GavelUser(Solver):
    """max t  s.t.  w_l . x_l >= t (w_l . m) pi_l / sum(pi) (users l), lexicographically;  sum_l x_l <= m;  x >= 0.

    The program of OEF for selfish users with another yardstick: the whole cluster in place of the slowest kind. So it has the
    sharing incentive, which that one has not. `levels`: each user's multiple.
    """

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        return allocate(self, tenant_users(view), memo, keep="slice")

    def shares(self, users: Users) -> Shares:
        classes = merge(users)
        fractions, levels, prices = lexicographic_max_min(classes, np.ones(classes.num_classes), self)
        shares = Shares(classes.devices(fractions), "optimal", prices, classes.per_user(levels))
        whole = (users.speed * users.capacity).sum(axis=1)
        able = classes.member >= 0
        yardstick = np.where(able, whole, 1.0) / users.weight[able].sum()
        require_levels(users, shares.devices, classes.per_user(levels), yardstick)
        require_sharing_incentive(users, shares.devices)
        require_no_idle(users, shares.devices)
        return shares
