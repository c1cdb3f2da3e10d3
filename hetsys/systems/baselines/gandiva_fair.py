"""Gandiva_fair's automatic trading (EuroSys 2020), rebuilt: from an equal split, users swap slow devices for fast ones."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from hetsys.core.errors import ConfigError
from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import Array, Users
from hetsys.core.scheduling.view import ClusterView
from hetsys.systems.check import require_sharing_incentive
from hetsys.systems.classes import merge
from hetsys.systems.shares import Shares, allocate, tenant_users

_DUST = 1e-9


@dataclass(frozen=True)
class GandivaFair:
    """For each pair of kinds, those farthest apart in speed first: the user with the largest speed-up buys fast devices from the
    one with the smallest, for as many slow devices each as the next lower speed-up among those who could buy (the seller's own, if
    there is none), until one of them runs out; pairs are gone through again until nobody trades, at most `max_sweeps` times.

    Users with equal speeds trade as one. The details of the rule are our reading of a secondary source.
    """

    max_sweeps: int = 50

    def __post_init__(self) -> None:
        if self.max_sweeps < 0:
            raise ConfigError("system.max_sweeps", self.max_sweeps, "must be 0 or more; 0 is the equal split without trading")

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        return allocate(self, tenant_users(view), memo, keep="slice")

    def shares(self, users: Users) -> Shares:
        classes = merge(users)
        held = np.outer(classes.weight, users.capacity)
        pairs = sorted(combinations(range(len(users.capacity)), 2), key=lambda pair: (pair[0] - pair[1], pair))
        for _ in range(self.max_sweeps):
            if not sum(_trade(classes.speed, held, users.capacity, slow, fast) for slow, fast in pairs):
                break
        held = np.where(classes.speed > 0, held, 0.0)
        fractions = held / np.maximum(np.outer(classes.weight, users.capacity), 1e-300)
        shares = Shares(classes.devices(fractions))
        require_sharing_incentive(users, shares.devices)
        return shares


def _trade(speed: Array, held: Array, capacity: Array, slow: int, fast: int) -> int:
    """Trade the pair (slow, fast) to its end, changing `held` (c, k) in place; returns the number of trades."""
    trades = 0
    usable = (speed[:, slow] > 0) | (speed[:, fast] > 0)
    ratio = np.where(speed[:, slow] > 0, speed[:, fast] / np.maximum(speed[:, slow], 1e-300), np.inf)
    while True:
        buyers = np.flatnonzero(usable & (held[:, slow] > _DUST * capacity[slow]) & (speed[:, fast] > 0))
        sellers = np.flatnonzero((speed[:, slow] > 0) & (held[:, fast] > _DUST * capacity[fast]))
        if not (buyers.size and sellers.size):
            return trades
        buyer, seller = buyers[np.argmax(ratio[buyers])], sellers[np.argmin(ratio[sellers])]
        if not ratio[buyer] > ratio[seller] * (1 + _DUST):
            return trades
        bids = ratio[buyers]
        price = max(bids[(bids < ratio[buyer]) & (bids > ratio[seller])], default=ratio[seller])
        amount = held[seller, fast] if price == 0 else min(held[seller, fast], held[buyer, slow] / price)
        held[seller, fast] -= amount
        held[buyer, fast] += amount
        held[buyer, slow] -= amount * price
        held[seller, slow] += amount * price
        held[held < 0] = 0.0
        trades += 1
