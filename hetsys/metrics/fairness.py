"""How fairly a mixed cluster was divided: envy, sharing incentive, finish-time fairness, Jain's index.

All work on what an allocation *gave* (`UserShare.devices`), in the owner's own speeds, so that a K80 and a V100 never count alike. Owners
are tenants; or users, a tenant's jobs of one type and gang with their part of the tenant's weight. Most tenants have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hetsys.core.scheduling.record import JobRecord, RoundRecord, UserShare

Array = NDArray[np.float64]

ENVY_CAP = 100.0
"""Relative envy of a user whose own bundle is worth nothing to it, and the most that any envy counts (our choice: keeps JSON and
averages finite)."""

UNFAIR_RHO = 1.1
"""A job whose finish-time fairness is above this was treated unfairly (10 % of slack, our choice)."""

MOST_PAIRS = 100_000_000
"""Envy between users is worked out for at most so many pairs of a run, over all its allocations (a few seconds); else it is null."""

_CHUNK = 200_000
_HELD = 1e-6
_Span = tuple[list[UserShare], tuple[int, ...], float]
Level = Literal["tenant", "user"]


def jain_index(values: Sequence[float]) -> float | None:
    """Jain's index `(sum u)^2 / (n sum u^2)`: 1 where all are equal, 1/n where one has everything; None where nobody has anything.

    >>> jain_index([1.0, 3.0])  # 16 / (2 * 10)
    0.8
    """
    u = np.asarray(values, dtype=float)
    peak = u.max(initial=0.0)
    if peak <= 0:
        return None
    u = u / peak
    return float(u.sum() ** 2 / (len(u) * np.square(u).sum()))


def bundle_value(bundles: Array, speeds: Array, demand: Array) -> Array:
    """The worth of bundles of devices to users, in devices of the slowest kind: `max s.y  s.t. 0 <= y <= b, sum y <= demand`.

    A user uses its fastest kinds first and no more devices than its jobs can hold. `bundles`, `speeds`: (..., k); `demand`:
    (...); leading axes broadcast. For speeds (1, 2, 4), bundle (2, 2, 1) and demand 4: 1 x 4 + 2 x 2 + 1 x 1 = 9.
    """
    shape = np.broadcast_shapes(bundles.shape, speeds.shape)
    order = np.broadcast_to(np.argsort(-speeds, axis=-1, kind="stable"), shape)
    bundles, speeds = np.broadcast_to(bundles, shape), np.broadcast_to(speeds, shape)
    left, value = np.asarray(demand, dtype=float), np.zeros(shape[:-1])
    for rank in range(shape[-1]):
        at = order[..., rank : rank + 1]
        used = np.minimum(np.take_along_axis(bundles, at, -1)[..., 0], left)
        value += used * np.take_along_axis(speeds, at, -1)[..., 0]
        left = left - used
    return value


@dataclass(frozen=True)
class Shares:
    """Allocations of R rounds in which n weighted owners lived. `owners`: their names, R x n; `devices`, `speeds`: (R, n, k); `demand`,
    `weight`: (R, n); `capacity`: (R, k); `length_s`: (R,)."""

    owners: tuple[tuple[str, ...], ...]
    devices: Array
    speeds: Array
    demand: Array
    weight: Array
    capacity: Array
    length_s: Array

    def envy(self) -> Array:
        """(R, n, n): how much more, relative to its own bundle, owner l would get from owner i's bundle scaled to l's weight.

        `max(v_l(b_i w_l / w_i) / v_l(b_l) - 1, 0)` (envy-freeness with weights: all 0), at most ENVY_CAP.
        """
        value = self.worth()
        own = np.diagonal(value, axis1=1, axis2=2)[:, :, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(own > 0, value / own - 1.0, np.where(value > 0, ENVY_CAP, 0.0))
        return np.clip(relative, 0.0, ENVY_CAP)

    def worth(self) -> Array:
        """(R, n, n): the worth to owner l of owner i's bundle scaled to l's weight (`bundle_value`); its own on the diagonal."""
        of_kind = np.swapaxes(self.devices / self.weight[..., None], 1, 2)
        order, at = np.argsort(-self.speeds, axis=-1, kind="stable"), np.arange(len(self.owners))[:, None]
        left = np.broadcast_to(self.demand[:, :, None], (*self.demand.shape, self.demand.shape[1])).copy()
        value = np.zeros_like(left)
        for rank in range(order.shape[-1]):
            kind = order[..., rank]
            used = of_kind[at, kind] * self.weight[:, :, None]
            np.minimum(used, left, out=used)
            left -= used
            used *= np.take_along_axis(self.speeds, kind[..., None], -1)
            value += used
        return value

    def sharing_incentive(self) -> Array:
        """(R, n): worth of an owner's bundle over the worth of its own slice of every kind, `m w / sum(w)`; NaN where that is 0.

        1 or more: the owner does not lose by sharing.
        """
        entitled = bundle_value(self.slices(), self.speeds, self.demand)
        own = bundle_value(self.devices, self.speeds, self.demand)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(entitled > 0, own / entitled, np.nan)

    def slices(self) -> Array:
        """(R, n, k): the devices of an owner's own slice of every kind, `m w / sum(w)`."""
        return np.asarray(self.capacity[:, None, :] * (self.weight / self.weight.sum(axis=1, keepdims=True))[..., None])

    def has_gap(self) -> NDArray[np.bool_]:
        """(R, n): whether a kind that the owner runs on, and of which devices are up, lies between two that it holds and is not held."""
        held = self.devices > _HELD
        below = np.logical_or.accumulate(held, axis=-1)
        above = np.logical_or.accumulate(held[..., ::-1], axis=-1)[..., ::-1]
        usable = (self.speeds > 0) & (self.capacity > 0)[:, None, :]
        return np.asarray((below & above & ~held & usable).any(axis=-1))


def merge_tenants(users: Iterable[UserShare]) -> list[UserShare]:
    """Each tenant as one owner, in order of appearance: devices, weight and demand are the sums over its users, and a device of a kind is
    worth what the fastest of them makes of it. Weight 0 owns nothing and is left out."""
    groups: dict[str, list[UserShare]] = {}
    for user in users:
        if user.weight > 0:
            groups.setdefault(user.tenant, []).append(user)
    return [_merged(tenant, group) for tenant, group in groups.items()]


def _merged(tenant: str, group: list[UserShare]) -> UserShare:
    if len(group) == 1:
        return group[0]
    return UserShare(
        user=tenant,
        tenant=tenant,
        weight=sum(user.weight for user in group),
        devices=tuple(map(sum, zip(*(user.devices for user in group), strict=True))),
        speeds=tuple(map(max, zip(*(user.speeds for user in group), strict=True))),
        demand=sum(user.demand for user in group),
    )


def stacked(rounds: Iterable[RoundRecord], level: Level = "tenant") -> Iterator[Shares]:
    """The allocations of `rounds` as arrays, in groups with equally many owners; weight 0 owns nothing and is left out.

    Successive rounds that hold the same allocation (the same object, as the engine and the reader hand it out) count as one long
    round.
    """
    groups: dict[tuple[int, int], list[_Span]] = {}
    for record, length_s in _spans(rounds):
        owners = merge_tenants(record.users) if level == "tenant" else [user for user in record.users if user.weight > 0]
        if owners:
            groups.setdefault((len(owners), len(record.capacity)), []).append((owners, record.capacity, length_s))
    for (n, k), members in groups.items():
        size = max(1, _CHUNK // (n * n * k))
        for at in range(0, len(members), size):
            yield _stack(members[at : at + size], level)


def _spans(rounds: Iterable[RoundRecord]) -> list[tuple[RoundRecord, float]]:
    spans: list[tuple[RoundRecord, float]] = []
    for record in rounds:
        if spans and spans[-1][0].users is record.users and spans[-1][0].capacity == record.capacity:
            spans[-1] = (spans[-1][0], spans[-1][1] + record.length_s)
        else:
            spans.append((record, record.length_s))
    return spans


def _stack(members: list[_Span], level: Level) -> Shares:
    def array(name: str) -> Array:
        return np.array([[getattr(user, name) for user in owners] for owners, _, _ in members], dtype=float)

    return Shares(
        owners=tuple(tuple(getattr(user, level) for user in owners) for owners, _, _ in members),
        devices=array("devices"),
        speeds=array("speeds"),
        demand=array("demand"),
        weight=array("weight"),
        capacity=np.array([capacity for _, capacity, _ in members], dtype=float),
        length_s=np.array([length_s for _, _, length_s in members], dtype=float),
    )


@dataclass(frozen=True)
class ShareFairness:
    """Of allocations averaged over time, so that one short round decides nothing. `envy_max`: the largest entry of `envy_matrix`;
    `envy_mean`: of each tenant's largest entry; `sharing_incentive_min`: of each tenant's mean; `user_*`: the same of users. None where
    there is nobody, and for `user_envy_max` above MOST_PAIRS."""

    envy_max: float | None
    envy_mean: float | None
    sharing_incentive_min: float | None
    user_envy_max: float | None
    user_sharing_incentive_min: float | None


def share_fairness(rounds: Sequence[RoundRecord]) -> ShareFairness:
    """Envy and sharing incentive of the allocations of `rounds`, whether or not somebody waits."""
    names, matrix = envy_matrix(rounds)
    if not names:
        return ShareFairness(None, None, None, None, None)
    largest = np.nanmax(matrix, axis=1)
    most, least = float(largest.max()), min(sharing_incentives(rounds).values(), default=None)
    users = {user.user for record, _ in _spans(rounds) for user in record.users if user.weight > 0}
    if len(users) == len(names):
        return ShareFairness(most, float(largest.mean()), least, most, least)
    user_least = min(sharing_incentives(rounds, "user").values(), default=None)
    return ShareFairness(most, float(largest.mean()), least, _user_envy_max(rounds), user_least)


def _user_envy_max(rounds: Sequence[RoundRecord]) -> float | None:
    if sum(len(record.users) ** 2 for record, _ in _spans(rounds)) > MOST_PAIRS:
        return None
    return float(np.nanmax(envy_matrix(rounds, "user")[1]))


def sharing_incentives(rounds: Iterable[RoundRecord], level: Level = "tenant") -> dict[str, float]:
    """Each owner's sharing incentive, averaged over the time in which its own slice was worth something to it."""
    total: dict[str, float] = {}
    time_s: dict[str, float] = {}
    for shares in stacked(rounds, level):
        for row, incentive, length_s in zip(shares.owners, shares.sharing_incentive().tolist(), shares.length_s.tolist(), strict=True):
            for name, value in zip(row, incentive, strict=True):
                if np.isfinite(value):
                    total[name] = total.get(name, 0.0) + value * length_s
                    time_s[name] = time_s.get(name, 0.0) + length_s
    return {name: value / time_s[name] for name, value in total.items()}


def envy_matrix(rounds: Iterable[RoundRecord], level: Level = "tenant") -> tuple[tuple[str, ...], Array]:
    """Owners by name and the (n, n) envy of row towards column, averaged over the time in which both lived (NaN: they never
    met)."""
    rounds = list(rounds)
    names = tuple(sorted({getattr(user, level) for record, _ in _spans(rounds) for user in record.users if user.weight > 0}))
    index = {name: i for i, name in enumerate(names)}
    total, time_s = np.zeros((len(names), len(names))), np.zeros((len(names), len(names)))
    for shares in stacked(rounds, level):
        for row, envy, length_s in zip(shares.owners, shares.envy(), shares.length_s, strict=True):
            at = np.ix_([index[name] for name in row], [index[name] for name in row])
            total[at] += envy * length_s
            time_s[at] += length_s
    with np.errstate(invalid="ignore"):
        return names, np.where(time_s > 0, total / time_s, np.nan)


def noncontiguous_users_fraction(rounds: Iterable[RoundRecord]) -> float | None:
    """The share of users whose kinds are not next to each other in the order of speed, of those that hold anything, averaged over time.

    A gap is a kind that the user runs on and of which devices are up (our choice). None where nobody ever holds anything.
    """
    total = time_s = 0.0
    for shares in stacked(rounds, "user"):
        holds = (shares.devices > _HELD).any(axis=-1).sum(axis=1)
        gaps = shares.has_gap().sum(axis=1)
        total += float((shares.length_s * gaps / np.maximum(holds, 1)).sum())
        time_s += float(shares.length_s[holds > 0].sum())
    return total / time_s if time_s else None


def tenant_rates(rounds: Iterable[RoundRecord]) -> dict[str, float]:
    """Progress a second, divided by weight, of every weighted tenant, averaged over those of `rounds` in which it lives."""
    made: dict[str, float] = {}
    time_s: dict[str, float] = {}
    for record in rounds:
        weight: dict[str, float] = {}
        for user in record.users:
            weight[user.tenant] = weight.get(user.tenant, 0.0) + user.weight
        for tenant, part in weight.items():
            if part > 0:
                made[tenant] = made.get(tenant, 0.0) + record.progress.get(tenant, 0.0) / part
                time_s[tenant] = time_s.get(tenant, 0.0) + record.length_s
    return {tenant: made[tenant] / time_s[tenant] for tenant in made if time_s[tenant] > 0}


def finish_time_fairness(jobs: Iterable[JobRecord], times_s: Iterable[float]) -> list[float]:
    """`rho` = time from arrival to departure / the same on the tenant's own share (Themis, NSDI 2020), of every job that has the
    latter.

    `times_s`: the former, one a job; a lower bound for jobs that did not finish makes a lower bound of rho.
    """
    return [
        time_s / job.isolated_jct_s
        for job, time_s in zip(jobs, times_s, strict=True)
        if job.isolated_jct_s is not None and job.isolated_jct_s > 0
    ]
