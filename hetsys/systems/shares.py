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
    """A rule's answer: `devices` (n, k), and where the method has them `prices` (k,) of a device, `levels` (n,), and `binding`: rows of
    envy that bind, (user, envied user, dual), by index."""

    devices: Array
    status: str = "rule"
    prices: Array | None = None
    levels: Array | None = None
    binding: tuple[tuple[int, int, float], ...] = ()


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


def allocate(rule: Rule, users: Users, memo: object, *, keep: str = "bundle", fill: bool = True) -> tuple[Allocation, Memory]:
    """One round: `rule` divides the cluster; on a SolverError the last good allocation is kept, or without one the split is equal.

    `keep` says what users hold to whom the rule gave more devices than they can use, before the others divide the rest again: the best of
    that "bundle"; or, where that is worth less to them than the best of their own "slice" of every kind, the latter (for rules that promise
    that sharing costs nobody anything); "all": the rule sees to demand itself.
    """
    memory = memo if isinstance(memo, Memory) else Memory()
    if users.num_users == 0:
        return Allocation(claims=(), fill=fill), memory
    try:
        whole = b"whole" + _key(users, with_demand=True)
        shares, stages = memory.stages.get(whole), dict(memory.stages)
        if shares is None:
            shares, stages = _divide(rule, users, memory.stages, keep)
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


def _divide(rule: Rule, users: Users, cache: Mapping[bytes, Shares], keep: str) -> tuple[Shares, dict[bytes, Shares]]:
    """The rule's shares, in stages: users above their demand keep what `keep` says and leave; the rest divides what remains."""
    devices, levels = np.zeros(users.speed.shape), np.zeros(users.num_users)
    live, left = np.arange(users.num_users), users.capacity.copy()
    stages: dict[bytes, Shares] = {}
    first: Shares | None = None
    while (users.speed[live] * left).any():
        part = _subset(users, live, left)
        key = _key(part, with_demand=keep == "all")
        shares = cache.get(key) or rule.shares(part)
        require_feasible(part, shares.devices)
        stages[key] = shares
        first = first or shares
        devices[live] = shares.devices
        if shares.levels is not None:
            levels[live] = shares.levels
        settled = _settled(part, shares.devices, keep) if keep != "all" else {}
        if not settled:
            break
        over = np.isin(np.arange(live.size), list(settled))
        devices[live[over]] = list(settled.values())
        left = np.maximum(left - devices[live[over]].sum(axis=0), 0.0)
        left[left < _SLACK * users.capacity] = 0.0
        live = live[~over]
    first = first or Shares(devices)
    return replace(first, devices=devices, levels=None if first.levels is None else levels), stages


def _settled(users: Users, devices: Array, keep: str) -> dict[int, Array]:
    """Of the users above their demand, those who leave now, with what they hold. Whoever would lose by its bundle leaves first: what it
    does not take of it is worth more to the others than its slice was, and may change who is above demand at all."""
    over = np.flatnonzero(devices.sum(axis=1) > users.demand * (1 + _SLACK)).tolist()
    bundles = {user: _best(users.speed[user], devices[user], users.demand[user]) for user in over}
    if keep == "bundle":
        return bundles
    own = np.where(users.speed > 0, users.entitlement(), 0.0)
    slices = {user: _best(users.speed[user], own[user], users.demand[user]) for user in over}
    worse = [user for user in over if users.speed[user] @ bundles[user] < users.speed[user] @ slices[user] * (1 - _SLACK)]
    return {user: slices[user] for user in worse} or bundles


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
    shares, _ = _divide(_EqualSplit(), users, {}, "bundle")
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
