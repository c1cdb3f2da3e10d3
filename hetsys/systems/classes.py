"""Users with equal speeds, merged into classes: programs become smaller and better scaled, and their answers canonical.

Merging is exact: averaging the bundles of users with equal speeds, in proportion to their weights, keeps every row and the
objective of the programs used here. Classes are sorted by speed, so an answer does not depend on the order of the users.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsys.core.scheduling.users import Array, Users


@dataclass(frozen=True)
class Classes:
    """c classes over k kinds, of the n users that can use any device that is there.

    `speed` (c, k): normalised speed of a device, 0 for kinds without devices; `weight` (c,): the classes' shares of all weight,
    sum 1; `whole` (c,): throughput of a class that has the whole cluster; `value` (c, k): the part of it that comes from each
    kind, rows sum to 1. The unknowns of the programs are `f` (c, k): the fraction of a kind that a class gets for each unit of its
    weight. With f = 1 everywhere each user has its entitlement, and `value[c] . f[c]` is its throughput in units of that. `member`
    (n,): the class of each user, -1 for a user that can use nothing now.
    """

    users: Users
    speed: Array
    weight: Array
    whole: Array
    value: Array
    member: NDArray[np.intp]

    @property
    def num_classes(self) -> int:
        return len(self.weight)

    def devices(self, fractions: Array) -> Array:
        """(n, k) devices of each user, from (c, k) fractions for each unit of weight, without rounding noise."""
        users, found = self.users, np.zeros(self.users.speed.shape)
        has = self.member >= 0
        part = users.weight[has] / users.weight[has].sum()
        found[has] = part[:, None] * fractions[self.member[has]] * users.capacity
        return _without_noise(found, users.capacity)

    def first(self) -> NDArray[np.intp]:
        """(c,): the first member of each class."""
        return np.unique(np.where(self.member < 0, self.num_classes, self.member), return_index=True)[1][: self.num_classes]

    def per_class(self, values: Array) -> Array:
        """(c,): the value of a member of each class, for values that all its members share."""
        return np.asarray(values[self.first()])

    def per_user(self, values: Array) -> Array:
        """(n,): each user's value of its class, 0 for users outside any class."""
        return np.where(self.member >= 0, values[self.member], 0.0)


def most_for_weight(users: Users) -> Array:
    """(n,): how many devices each user can hold at once, for a unit of its share of all weight; more than there are is all."""
    able = (users.speed * users.capacity).any(axis=1)
    return np.asarray(np.minimum(users.demand, users.capacity.sum()) * users.weight[able].sum() / users.weight)


def _without_noise(devices: Array, capacity: Array) -> Array:
    """(n, k): `devices` with shares of about 0 made 0 and kinds that exceed their capacity by no more than a solver's tolerance
    scaled into it. What is wrong by more than that stays wrong, for the checks to find."""
    noise = np.minimum(1e-9 * capacity, 1e-8 * np.abs(devices).sum(axis=1, keepdims=True))  # nothing, even beside a small bundle
    clean = np.where((devices > -1e-9 * capacity) & (devices < noise), 0.0, devices)  # below 0 a bundle may be noise as a whole
    used = clean.sum(axis=0)
    over = (used > capacity) & (used < capacity * (1 + 1e-6))
    return np.where(over, clean * (capacity / np.where(over, used, 1.0)), clean)


def merge(users: Users, extra: Array | None = None) -> Classes:
    """Classes of users with equal speeds on the kinds that have devices, and equal `extra` (n,) where given. At least one user
    must be able to use something."""
    speed = np.where(users.capacity > 0, users.speed, 0.0)
    able = speed.any(axis=1)
    keys = speed if extra is None else np.column_stack([speed, extra])
    rows, inverse, _ = unique_rows(keys[able])
    member = np.full(users.num_users, -1, dtype=np.intp)
    member[able] = inverse
    rows = rows[:, : speed.shape[1]]
    weight = np.bincount(member[able], weights=users.weight[able], minlength=len(rows))
    whole = rows @ users.capacity
    value = rows * users.capacity / whole[:, None]
    return Classes(users, rows, weight / weight.sum(), whole, value, member)


def unique_rows(rows: Array) -> tuple[Array, NDArray[np.intp], NDArray[np.intp]]:
    """The different ones of `rows` (n, q), sorted; which of them each is, (n,); and the first place of each."""
    order = np.lexsort(rows.T[::-1])
    ordered = rows[order]
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    inverse = np.empty(len(rows), dtype=np.intp)
    inverse[order] = np.cumsum(new) - 1
    return ordered[new], inverse, order[new]
