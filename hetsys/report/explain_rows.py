"""The rows of envy that held an allocation back, and whom each stands for: a row names one user of a class of equals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from hetsys.core.scheduling.record import RoundRecord, UserShare
from hetsys.metrics.fairness import Array, merge_tenants

_SAME = 1e-6


@dataclass(frozen=True)
class Phase:
    """Successive rounds with one allocation: the first of them, how many there are, and their time together."""

    record: RoundRecord
    rounds: int
    time_s: float


def phases(rounds: Iterable[RoundRecord]) -> list[Phase]:
    """`rounds` in groups that hold the same objects, as the reader hands them out."""

    def key(record: RoundRecord) -> tuple[object, ...]:
        return (*map(id, (record.users, record.prices, record.levels, record.binding)), record.capacity)

    groups = (list(members) for _, members in groupby(rounds, key))
    return [Phase(members[0], len(members), sum(record.length_s for record in members)) for members in groups]


@dataclass(frozen=True)
class Row:
    """A row that bound: `envious` tenants would envy the `envied` ones if these got more for their weight, or they less. `dual`: the mean
    over the `rounds` in which it bound."""

    envious: tuple[str, ...]
    envied: tuple[str, ...]
    rounds: int
    dual: float


def binding_rows(tenant: str, rounds: Iterable[RoundRecord]) -> tuple[Row, ...]:
    """The rows of envy that bound on `tenant`, on either side, by falling dual times rounds. A row names one user of a class of equals
    (equal speeds, equal share for the weight); here it stands for every tenant that has a user in the class."""
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], list[tuple[int, float]]] = {}
    for phase in phases(rounds):
        if not phase.record.binding:
            continue
        equals = _Equals(phase.record.users)
        alike = equals.names(tenant)
        for row in phase.record.binding:
            if row.claim in alike or row.envied in alike:
                found.setdefault((equals.tenants(row.claim), equals.tenants(row.envied)), []).append((phase.rounds, row.dual))
    rows = []
    for (envious, envied), duals in found.items():
        count = sum(times for times, _ in duals)
        rows.append(Row(envious, envied, count, sum(times * dual for times, dual in duals) / count))
    return tuple(sorted(rows, key=lambda row: (-row.dual * row.rounds, row.envious, row.envied)))


class _Equals:
    """Which tenants equal each other in one allocation, as a whole or by one of their users."""

    def __init__(self, shares: Sequence[UserShare]) -> None:
        owned, merged = [share for share in shares if share.weight > 0], merge_tenants(shares)
        self._tenant = [share.tenant for share in owned]
        self._user = {share.user: row for row, share in enumerate(owned)}
        self._owner = {share.tenant: row for row, share in enumerate(merged)}
        self._users, self._owners = _features(owned), _features(merged)
        self._known: dict[str, tuple[str, ...]] = {}

    def names(self, tenant: str) -> set[str]:
        """The users and tenants that equal `tenant` or one of its users."""
        mine = [row for row, name in enumerate(self._tenant) if name == tenant]
        users, owners, owner = list(self._user), list(self._owner), self._owner.get(tenant)
        whole = set() if owner is None else {owners[same] for same in _same_rows(self._owners, owner)}
        found = {users[same] for row in mine for same in _same_rows(self._users, row)}
        return found | whole | {user for user, name in zip(users, self._tenant, strict=True) if name in whole}

    def tenants(self, name: str) -> tuple[str, ...]:
        """Those that equal the user or tenant `name`, sorted; `name` itself where the allocation does not know it."""
        if name not in self._known:
            user = self._user.get(name)
            owner = self._owner.get(name if user is None else self._tenant[user])
            alike = set() if user is None else {self._tenant[row] for row in _same_rows(self._users, user)}
            names = list(self._owner)
            alike |= set() if owner is None else {names[row] for row in _same_rows(self._owners, owner)}
            self._known[name] = tuple(sorted(alike)) or (name,)
        return self._known[name]


def _features(shares: Sequence[UserShare]) -> Array:
    """(n, 2k): speeds, then devices for each unit of weight."""
    speeds, devices = np.array([share.speeds for share in shares]), np.array([share.devices for share in shares])
    return np.hstack([speeds, devices / np.array([[share.weight] for share in shares])]) if len(shares) else np.zeros((0, 0))


def _same_rows(features: Array, row: int) -> list[int]:
    near = np.abs(features - features[row]) <= _SAME * (1.0 + np.abs(features[row]))
    return [int(index) for index in np.flatnonzero(near.all(axis=1))]
