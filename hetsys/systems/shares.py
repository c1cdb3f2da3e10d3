"""From a rule that divides devices among users to the allocation of a round: limited demand, the cache, and what happens on
failure.

Every scheduling policy is such a rule; this module is the part they share, so that they differ in the rule alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Protocol

import numpy as np

from hetsys.core.errors import ConfigError, InfeasiblePlan, SolverError
from hetsys.core.scheduling.plan import Allocation, Claim
from hetsys.core.scheduling.users import Array, Users, normalised_speed, users_of
from hetsys.core.scheduling.view import ClusterView
from hetsys.systems.check import require_feasible

_SLACK = 1e-9


@dataclass(frozen=True)
class Shares:
    """A rule's answer: `devices` (n, k), and where the method has them `prices` (k,) of a device and `levels` (n,)."""

    devices: Array
    status: str = "rule"
    prices: Array | None = None
    levels: Array | None = None


class Rule(Protocol):
    def shares(self, users: Users) -> Shares:
        """Divide `users.capacity`, of which at least one user can use something. Pure. Raises SolverError if there is no answer or
        the answer lacks what the rule promises."""
        ...


@dataclass(frozen=True)
class Memory:
    """What a policy carries from round to round. `stages` caches the last answers by their input and may be dropped at any time;
    `last` is the last good allocation (devices by claim), used only when a solver fails."""

    stages: Mapping[bytes, Shares] = field(default_factory=dict)
    last: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def tenant_users(view: ClusterView) -> Users:
    """The virtual users of `view`. Raises ConfigError for weights, speeds or capacities that are no numbers."""
    _check_weights(view)
    return users_of(view)


def job_users(view: ClusterView) -> Users:
    """Each live job as a user of its own, with the weight of its tenant and its gang as demand; none for tenants of weight 0."""
    _check_weights(view)
    weight = {tenant.name: tenant.weight for tenant in view.tenants}
    jobs = [job for job in view.jobs if weight[job.tenant] > 0]
    return Users(
        names=tuple(job.name for job in jobs),
        tenants=tuple(job.tenant for job in jobs),
        jobs=tuple((job.name,) for job in jobs),
        speed=np.array([normalised_speed(job) for job in jobs]).reshape(len(jobs), len(view.kinds)),
        capacity=np.asarray(view.capacity, dtype=float),
        weight=np.array([weight[job.tenant] for job in jobs]),
        demand=np.array([float(job.gang) for job in jobs]),
    )


def allocate(rule: Rule, users: Users, memo: object, *, limited: bool = True, fill: bool = True) -> tuple[Allocation, Memory]:
    """One round: `rule` divides the cluster; on a SolverError the last good allocation is kept, or without one the split is equal.

    `limited`: users never hold more than their demand, and what they leave is divided again among the others (False: the rule sees
    to demand itself).
    """
    memory = memo if isinstance(memo, Memory) else Memory()
    if users.num_users == 0:
        return Allocation(claims=(), fill=fill), memory
    try:
        whole = b"whole" + _key(users, with_demand=True)
        shares, stages = memory.stages.get(whole), dict(memory.stages)
        if shares is None:
            shares, stages = _divide(rule, users, memory.stages, limited)
            stages[whole] = shares
    except (SolverError, InfeasiblePlan) as error:
        return _allocation(users, _without_solver(users, memory.last), fill, str(error)), memory
    last = {name: tuple(row) for name, row in zip(users.names, shares.devices.tolist(), strict=True)}
    return _allocation(users, shares, fill, ""), Memory(stages, last)


def equal_split(users: Users) -> Array:
    """(n, k): each kind divided, in proportion to weight, among the users that run on it. With speeds above 0 everywhere this is
    the entitlement `m pi / sum(pi)`; a kind that some cannot use is not wasted on them."""
    able = users.weight[:, None] * (users.speed > 0)
    return np.asarray(able * (users.capacity / np.maximum(able.sum(axis=0), 1e-300)))


def _check_weights(view: ClusterView) -> None:
    for tenant in view.tenants:
        if not (isfinite(tenant.weight) and tenant.weight >= 0):
            raise ConfigError(f"weight of {tenant.name}", tenant.weight, "must be a finite number, 0 or more")


def _divide(rule: Rule, users: Users, cache: Mapping[bytes, Shares], limited: bool) -> tuple[Shares, dict[bytes, Shares]]:
    """The rule's shares, in stages: users above their demand keep their best devices and leave; the rest divides what remains."""
    devices, levels = np.zeros(users.speed.shape), np.zeros(users.num_users)
    live, left = np.arange(users.num_users), users.capacity.copy()
    stages: dict[bytes, Shares] = {}
    first: Shares | None = None
    while (users.speed[live] * left).any():
        part = _subset(users, live, left)
        key = _key(part, with_demand=not limited)
        shares = cache.get(key) or rule.shares(part)
        require_feasible(part, shares.devices)
        stages[key] = shares
        first = first or shares
        devices[live] = shares.devices
        if shares.levels is not None:
            levels[live] = shares.levels
        over = shares.devices.sum(axis=1) > part.demand * (1 + _SLACK) if limited else np.zeros(live.size, bool)
        if not over.any():
            break
        for user in live[over]:
            devices[user] = _best(users.speed[user], devices[user], users.demand[user])
        left = np.maximum(left - devices[live[over]].sum(axis=0), 0.0)
        left[left < _SLACK * users.capacity] = 0.0
        live = live[~over]
    first = first or Shares(devices)
    return replace(first, devices=devices, levels=None if first.levels is None else levels), stages


def _subset(users: Users, live: np.ndarray[tuple[int], np.dtype[np.intp]], capacity: Array) -> Users:
    if live.size == users.num_users:
        return users
    names, tenants, jobs = (tuple(values[index] for index in live) for values in (users.names, users.tenants, users.jobs))
    return Users(names, tenants, jobs, users.speed[live], capacity, users.weight[live], users.demand[live])  # type: ignore[arg-type]


def _key(users: Users, *, with_demand: bool) -> bytes:
    """All that an answer depends on; demand only where the rule itself sees to it, or for the answer after all stages."""
    parts = [users.speed, users.weight, users.capacity]
    if with_demand:
        parts.append(np.minimum(users.demand, users.capacity.sum()))
    return repr(users.speed.shape).encode() + b"".join(part.tobytes() for part in parts)


def _best(speed: Array, devices: Array, demand: float) -> Array:
    """(k,): the fastest `demand` of `devices`; kinds of equal speed give up the same fraction."""
    kept = np.zeros_like(devices)
    for value in np.unique(speed[devices > 0])[::-1]:
        tied = np.where(speed == value, devices, 0.0)
        kept += tied * min(1.0, max(demand - kept.sum(), 0.0) / tied.sum())
    return kept


def _without_solver(users: Users, last: Mapping[str, tuple[float, ...]]) -> Shares:
    """The last allocation for those who are still here, within their demand and the capacity of now; else an equal split."""
    nothing = (0.0,) * len(users.capacity)
    kept = np.array([last.get(name, nothing) for name in users.names])
    kept = np.where(users.speed > 0, kept, 0.0) if kept.shape == users.speed.shape else np.zeros(users.speed.shape)
    kept = kept * np.minimum(1.0, users.demand / np.maximum(kept.sum(axis=1), 1e-300))[:, None]
    kept = kept * np.minimum(1.0, users.capacity / np.maximum(kept.sum(axis=0), 1e-300))
    if kept.any():
        return Shares(kept, "kept")
    shares, _ = _divide(_EqualSplit(), users, {}, limited=True)
    return replace(shares, status="fallback")


class _EqualSplit:
    def shares(self, users: Users) -> Shares:
        return Shares(equal_split(users))


def _allocation(users: Users, shares: Shares, fill: bool, note: str) -> Allocation:
    rows = zip(users.names, users.tenants, users.jobs, shares.devices.tolist(), strict=True)
    return Allocation(
        claims=tuple(Claim(name, tenant, jobs, tuple(devices)) for name, tenant, jobs, devices in rows),
        status=shares.status,
        fill=fill,
        prices=None if shares.prices is None else tuple(shares.prices.tolist()),
        levels={} if shares.levels is None else dict(zip(users.names, shares.levels.tolist(), strict=True)),
        note=note,
    )
