"""Best kind only: the cluster without its slower kinds, the anchor that shows what mixing kinds is worth at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import Users
from hetsys.core.scheduling.view import ClusterView
from hetsys.systems.shares import Shares, allocate, tenant_users


@dataclass(frozen=True)
class BestKindOnly:
    """An equal split of the fastest kind that has devices; the slower kinds stay idle. A user that cannot run there shares, with
    others like it, the kind on which it runs fastest (our choice, so that nobody waits for ever)."""

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        return allocate(self, tenant_users(view), memo, fill=False)

    def shares(self, users: Users) -> Shares:
        usable = np.where(users.capacity > 0, users.speed, 0.0)
        best = usable == usable.max(axis=1, keepdims=True)
        fastest = np.flatnonzero(users.capacity > 0)[-1]
        best[usable[:, fastest] > 0] = np.arange(len(users.capacity)) == fastest
        weights = np.where(best & (usable > 0), users.weight[:, None], 0.0)
        return Shares(weights * (users.capacity / np.maximum(weights.sum(axis=0), 1e-300)))
