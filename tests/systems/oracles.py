"""Two kinds of devices, where both programs of OEF have answers without a solver: by hand of the order of users' speed-ups.

Also instances for tests that need `Users` without tenants, jobs and a view.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from hetsys.core.scheduling.users import Users
from hetsys.systems.classes import Classes
from tests.systems.views import Array


def users(speed: Array, capacity: Array, weight: Array | None = None) -> Users:
    """n users who could use the whole cluster."""
    names = tuple(f"u{i}" for i in range(len(speed)))
    weight = np.ones(len(speed)) if weight is None else np.asarray(weight, dtype=float)
    speed, capacity = np.array(speed, dtype=float), np.array(capacity, dtype=float)
    return Users(names, names, tuple((name,) for name in names), speed, capacity, weight, np.full(len(speed), 1e9))


def unmerged(users: Users) -> Classes:
    """Each user as a class of its own, equal speeds or not."""
    whole = users.speed @ users.capacity
    value = users.speed * users.capacity / whole[:, None]
    return Classes(users, users.speed, users.weight / users.weight.sum(), whole, value, np.arange(users.num_users))


@st.composite
def instances(draw: st.DrawFn, most_users: int = 7, kinds: int | None = None, zeros: bool = True) -> Users:
    """Ties, zeros, weights; up to 6 kinds; the first kind that a user supports = 1."""
    n, k = draw(st.integers(1, most_users)), kinds or draw(st.integers(1, 6))
    capacity = draw(st.lists(st.integers(1, 9), min_size=k, max_size=k))
    value = st.one_of(st.sampled_from([1.0, 2.0, 4.0]), st.floats(0.3, 12)) | (st.just(0.0) if zeros else st.nothing())
    rows = [draw(st.lists(value, min_size=k, max_size=k).filter(any)) for _ in range(n)]
    speed = np.array([[one / next(x for x in row if x > 0) for one in row] for row in rows])
    return users(speed, capacity, draw(st.lists(st.sampled_from([1.0, 1.0, 0.5, 3.0]), min_size=n, max_size=n)))


def speedups(speed: Array) -> Array:
    """(n,): fast over slow speed."""
    slow, fast = speed.T
    return np.where(slow > 0, fast / np.where(slow > 0, slow, 1.0), np.inf)


def equal_level(users: Users) -> float:
    """max E  s.t.  w.x = pi E: at a given E, users take slow devices in the order of their speed-ups until there are none, and the others
    fast ones; E is found by bisection."""

    def enough(level: float) -> bool:
        slow, fast = users.capacity
        for user in np.argsort(speedups(users.speed)):
            need, (on_slow, on_fast) = users.weight[user] * level, users.speed[user]
            taken = min(slow, need / on_slow) if on_slow > 0 else 0.0
            slow, need = slow - taken, need - taken * on_slow
            if need > 1e-12 * level:
                if on_fast == 0:
                    return False
                fast -= need / on_fast
        return bool(fast >= 0)

    low, high = 0.0, 1.0
    while enough(high):
        high *= 2
    for _ in range(200):
        low, high = ((low + high) / 2, high) if enough((low + high) / 2) else (low, (low + high) / 2)
    return low


def most_without_envy_of_neighbours(users: Users) -> float:
    """max sum w.x without envy between users next to each other in the order of speed-ups, equal users taken as one. With two kinds that is
    all envy: of neighbours the one with the larger speed-up holds no fewer fast and no more slow devices for its weight, so whoever does
    not envy a neighbour envies nobody beyond it. With more kinds it is not."""
    from scipy.optimize import linprog

    speed, member = np.unique(users.speed, axis=0, return_inverse=True)
    weight = np.bincount(member.reshape(-1), users.weight)
    order = np.argsort(speedups(speed)) if speed.shape[1] == 2 else np.arange(len(speed))
    n, k = speed.shape
    rows = []
    for one, other in [*pairwise(order), *pairwise(order[::-1])]:
        row = np.zeros((n, k))
        row[one] -= speed[one] / weight[one]
        row[other] += speed[one] / weight[other]
        rows.append(row.reshape(-1))
    limits = np.concatenate([np.zeros(len(rows)), users.capacity])
    matrix = np.vstack([*rows, np.tile(np.eye(k), n)])
    return float(-linprog(-speed.reshape(-1), A_ub=matrix, b_ub=limits).fun)
