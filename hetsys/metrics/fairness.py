"""How fairly a mixed cluster was divided: envy, sharing incentive, finish-time fairness, Jain's index.

All work on what an allocation *gave* (`UserShare.devices`), in the user's own speeds, so that a K80 and a V100 never count alike. A user
is a tenant's jobs of one type and gang, with its part of the tenant's weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsys.core.scheduling.record import JobRecord, RoundRecord, UserShare

Array = NDArray[np.float64]

ENVY_CAP = 100.0
"""Relative envy of a user whose own bundle is worth nothing to it, and the most that any envy counts (our choice: keeps JSON and
averages finite)."""

UNFAIR_RHO = 1.1
"""A job whose finish-time fairness is above this was treated unfairly (10 % of slack, our choice)."""

_CHUNK = 1_000_000
_EPS = 1e-9
_Span = tuple[list[UserShare], tuple[int, ...], float]


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
    """Allocations of R rounds in which n weighted users lived. `devices`, `speeds`: (R, n, k); `demand`, `weight`: (R, n);
    `capacity`: (R, k); `length_s`: (R,)."""

    users: tuple[tuple[str, ...], ...]
    devices: Array
    speeds: Array
    demand: Array
    weight: Array
    capacity: Array
    length_s: Array

    def envy(self) -> Array:
        """(R, n, n): how much more, relative to its own bundle, user l would get from user i's bundle scaled to l's weight.

        `max(v_l(b_i w_l / w_i) / v_l(b_l) - 1, 0)` (envy-freeness with weights: all 0), at most ENVY_CAP.
        """
        scale = self.weight[:, :, None] / self.weight[:, None, :]
        scaled = self.devices[:, None, :, :] * scale[..., None]
        value = bundle_value(scaled, self.speeds[:, :, None, :], self.demand[:, :, None])
        own = np.diagonal(value, axis1=1, axis2=2)[:, :, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(own > 0, value / own - 1.0, np.where(value > 0, ENVY_CAP, 0.0))
        return np.clip(relative, 0.0, ENVY_CAP)

    def sharing_incentive(self) -> Array:
        """(R, n): worth of a user's bundle over the worth of its own slice of every kind, `m w / sum(w)`; NaN where that is 0.

        1 or more: the user does not lose by sharing.
        """
        slices = self.capacity[:, None, :] * (self.weight / self.weight.sum(axis=1, keepdims=True))[..., None]
        entitled = bundle_value(slices, self.speeds, self.demand)
        own = bundle_value(self.devices, self.speeds, self.demand)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(entitled > 0, own / entitled, np.nan)


def stacked(rounds: Iterable[RoundRecord]) -> Iterator[Shares]:
    """The allocations of `rounds` as arrays, in groups with equally many users; weight 0 owns nothing and is left out.

    Successive rounds that hold the same allocation (the same object, as the engine and the reader hand it out) count as one long
    round.
    """
    spans: list[tuple[RoundRecord, float]] = []
    for record in rounds:
        if spans and spans[-1][0].users is record.users and spans[-1][0].capacity == record.capacity:
            spans[-1] = (spans[-1][0], spans[-1][1] + record.length_s)
        else:
            spans.append((record, record.length_s))
    groups: dict[tuple[int, int], list[_Span]] = {}
    for record, length_s in spans:
        owners = [user for user in record.users if user.weight > 0]
        if owners:
            groups.setdefault((len(owners), len(record.capacity)), []).append((owners, record.capacity, length_s))
    for (n, k), members in groups.items():
        size = max(1, _CHUNK // (n * n * k))
        for at in range(0, len(members), size):
            yield _stack(members[at : at + size])


def _stack(members: list[_Span]) -> Shares:
    def array(name: str) -> Array:
        return np.array([[getattr(user, name) for user in owners] for owners, _, _ in members], dtype=float)

    return Shares(
        users=tuple(tuple(user.user for user in owners) for owners, _, _ in members),
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
    `envy_mean`: of each user's largest entry; `sharing_incentive_min`: of each user's mean. None where there is no user."""

    envy_max: float | None
    envy_mean: float | None
    sharing_incentive_min: float | None


def share_fairness(rounds: Sequence[RoundRecord]) -> ShareFairness:
    """Envy and sharing incentive of the allocations of `rounds`, whether or not somebody waits."""
    names, matrix = envy_matrix(rounds)
    if not names:
        return ShareFairness(None, None, None)
    largest = np.nanmax(matrix, axis=1)
    return ShareFairness(float(largest.max()), float(largest.mean()), min(sharing_incentives(rounds).values(), default=None))


def sharing_incentives(rounds: Iterable[RoundRecord]) -> dict[str, float]:
    """Each user's sharing incentive, averaged over the time in which its own slice was worth something to it."""
    total: dict[str, float] = {}
    time_s: dict[str, float] = {}
    for shares in stacked(rounds):
        for row, incentive, length_s in zip(shares.users, shares.sharing_incentive().tolist(), shares.length_s.tolist(), strict=True):
            for name, value in zip(row, incentive, strict=True):
                if np.isfinite(value):
                    total[name] = total.get(name, 0.0) + value * length_s
                    time_s[name] = time_s.get(name, 0.0) + length_s
    return {name: value / time_s[name] for name, value in total.items()}


def envy_matrix(rounds: Iterable[RoundRecord]) -> tuple[tuple[str, ...], Array]:
    """Users by name and the (n, n) envy of row towards column, averaged over the time in which both lived (NaN: they never
    met)."""
    groups = list(stacked(rounds))
    names = tuple(sorted({name for shares in groups for row in shares.users for name in row}))
    index = {name: i for i, name in enumerate(names)}
    total, time_s = np.zeros((len(names), len(names))), np.zeros((len(names), len(names)))
    for shares in groups:
        for row, envy, length_s in zip(shares.users, shares.envy(), shares.length_s, strict=True):
            at = np.ix_([index[name] for name in row], [index[name] for name in row])
            total[at] += envy * length_s
            time_s[at] += length_s
    with np.errstate(invalid="ignore"):
        return names, np.where(time_s > 0, total / time_s, np.nan)


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
