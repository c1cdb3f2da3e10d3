"""Equal split: each kind divided in proportion to weight, the lower anchor of every comparison."""

from __future__ import annotations

from dataclasses import dataclass

from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import Users
from hetsys.core.scheduling.view import ClusterView
from hetsys.systems.shares import Shares, allocate, equal_split, tenant_users


@dataclass(frozen=True)
class EqualSplit:
    """`x_l = m pi_l / sum(pi)`, over the users that can run on a kind. Nobody reports, so nobody can lie; envy-free, never
    efficient."""

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        return allocate(self, tenant_users(view), memo)

    def shares(self, users: Users) -> Shares:
        return Shares(equal_split(users))
