"""From a rule that divides devices to the allocation of a round: limited demand, the cache, and what happens on failure.

Every scheduling policy is such a rule; this module is the part they share, so that they differ in the rule alone.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hetsys.core.errors import ConfigError, InfeasiblePlan, SolverError
from hetsys.core.scheduling.plan import Allocation, Binding, Claim
from hetsys.core.scheduling.users import Array, Users, normalised_speed, users_of
from hetsys.core.scheduling.view import ClusterView
from hetsys.systems.check import require_feasible

_SLACK = 1e-9


@dataclass(frozen=True)
class Shares:
    """A rule's answer: `devices` (n, k), and where the method has them `prices` (k,) of a device, `levels` (n,), and `binding`: rows of
    envy that bind, (user, envied user, dual), by index. `warm`: whatever helps the rule to find a like answer faster next time; `note`:
    what a person should know of the answer."""

    devices: Array
    status: str = "rule"
    prices: Array | None = None
    levels: Array | None = None
    binding: tuple[tuple[int, int, float], ...] = ()
    warm: object = None
    note: str = ""


class Rule(Protocol):
    def shares(self, users: Users) -> Shares:
        """Divide `users.capacity`, of which at least one user can use something. Pure. Raises SolverError if there is no answer or
        the answer lacks what the rule promises."""
        ...


@runtime_checkable
class WarmRule(Protocol):
    """A rule that is faster with `Shares.warm` of an earlier answer, to whatever users; the answer is the same without it."""

    def shares_from(self, users: Users, warm: object) -> Shares: ...


@dataclass(frozen=True)
class Rows:
    """Who divides: `users` hold the claims, `owners` are what a rule sees. Here each user owns its own share."""

    users: Users

    @property
    def owners(self) -> Users:
        return self.users

    @cached_property
    def owner(self) -> NDArray[np.intp]:
        """(n,): the owner of each user."""
        return np.arange(self.users.num_users)

    def key(self) -> bytes:
        """All that the division depends on."""
        return _key(self.users, with_demand=True)

    def usable(self, owner: int, devices: Array) -> Array:
        """(k,): the part of `devices` (k,) that the owner's jobs use where they make the best of them."""
        return _best(self.owners.speed[owner], devices, float(self.owners.demand[owner]))

    def worth(self, owner: int, devices: Array) -> float:
        """Throughput of the owner's jobs where they make the best of `devices` (k,)."""
        return float(self.owners.speed[owner] @ self.usable(owner, devices))

    def beyond_use(self, live: NDArray[np.intp], devices: Array) -> list[int]:
        """Of the owners `live` those (by position) whose share, `devices` (live, k), is more than their jobs can hold."""
        return np.flatnonzero(devices.sum(axis=1) > self.owners.demand[live] * (1 + _SLACK)).tolist()

    def divide(self, devices: Array) -> Array:
        """(n, k): what each user holds of its owner's share, `devices` (owners, k)."""
        return devices


@dataclass(frozen=True)
class Written:
    """An allocation, and what it was written from."""

    names: tuple[str, ...]
    jobs: tuple[tuple[str, ...], ...]
    shares: Shares
    allocation: Allocation


@dataclass(frozen=True)
class Memory:
    """What a policy carries from round to round, and may lose at any time. `stages` caches the last answers by their input; `last` is
    the last good allocation: it is handed out again where nothing changed, and kept where a solver fails."""

    stages: Mapping[bytes, Shares] = field(default_factory=dict)
    last: Written | None = None


def tenant_users(view: ClusterView) -> Users:
    """The virtual users of `view`. Raises ConfigError for weights, speeds or capacities that are no numbers."""
    _check_weights(view)
    return users_of(view)


def job_users(view: ClusterView, among: Container[str] | None = None) -> Users:
    """Each live job (of `among`, where given) as a user of its own, with the weight of its tenant and its gang as demand; none for tenants
    of weight 0."""
    _check_weights(view)
    weight = {tenant.name: tenant.weight for tenant in view.tenants}
    jobs = [job for job in view.jobs if weight[job.tenant] > 0 and (among is None or job.name in among)]
    return Users(
        names=tuple(job.name for job in jobs),
        tenants=tuple(job.tenant for job in jobs),
        jobs=tuple((job.name,) for job in jobs),
        speed=np.array([normalised_speed(job) for job in jobs]).reshape(len(jobs), len(view.kinds)),
        capacity=np.asarray(view.capacity, dtype=float),
        weight=np.array([weight[job.tenant] for job in jobs]),
        demand=np.array([float(job.gang) for job in jobs]),
    )


def allocate(
    rule: Rule,
    who: Users | Rows,
    memo: object,
    *,
    keep: str = "bundle",
    fill: bool = True,
    rounding: str = "credit",
    cross_kind: bool = False,
    note: str = "",
) -> tuple[Allocation, Memory]:
    """One round: `rule` divides the cluster; on a SolverError the last good allocation is kept, or without one the split is equal.

    `keep` says what owners hold to whom the rule gave more devices than they can use, before the others divide the rest again: the best of
    that "bundle"; or, where that is worth less to them than the best of their own "slice" of every kind, the latter (for rules that promise
    that sharing costs nobody anything); "all": the rule sees to demand itself. `fill`, `rounding`, `cross_kind` and, where no solver
    failed, `note` (and what the rule notes) are the allocation's.
    """
    memory = memo if isinstance(memo, Memory) else Memory()
    rows = who if isinstance(who, Rows) else Rows(who)
    users, form = rows.users, Allocation((), fill=fill, rounding=rounding, cross_kind=cross_kind)
    if users.num_users == 0:
        return form, memory
    try:
        whole = b"whole" + rows.key()
        shares, stages = memory.stages.get(whole), memory.stages
        if shares is None:
            shares, stages = _divide(rule, rows, memory.stages, keep)
            stages = {**stages, whole: shares}
    except (SolverError, InfeasiblePlan) as error:
        return _allocation(users, _without_solver(users, memory.last), replace(form, note=str(error))), memory
    last, note = memory.last, "; ".join(filter(None, (note, shares.note)))
    if last is None or last.shares is not shares or (last.names, last.jobs) != (users.names, users.jobs) or last.allocation.note != note:
        last = Written(users.names, users.jobs, shares, _allocation(users, shares, replace(form, note=note)))
    return last.allocation, Memory(stages, last)


def uncached(memo: object) -> Memory:
    """`memo` for a rule whose answer depends on more than its users: nothing is found again, but the last allocation can be kept."""
    return Memory(last=memo.last) if isinstance(memo, Memory) else Memory()


def equal_split(users: Users) -> Array:
    """(n, k): each kind divided, in proportion to weight, among the users that run on it. With speeds above 0 everywhere this is
    the entitlement `m pi / sum(pi)`; a kind that some cannot use is not wasted on them."""
    able = users.weight[:, None] * (users.speed > 0)
    return np.asarray(able * (users.capacity / np.maximum(able.sum(axis=0), 1e-300)))


def _check_weights(view: ClusterView) -> None:
    for tenant in view.tenants:
        if not (isfinite(tenant.weight) and tenant.weight >= 0):
            raise ConfigError(f"weight of {tenant.name}", tenant.weight, "must be a finite number, 0 or more")


def _divide(rule: Rule, rows: Rows, cache: Mapping[bytes, Shares], keep: str) -> tuple[Shares, dict[bytes, Shares]]:
    """The shares of `rows.users`, in stages: owners above their demand keep what `keep` says and leave; the rest divides what remains."""
    owners, before = rows.owners, list(cache.values())
    devices, levels = np.zeros(owners.speed.shape), np.zeros(owners.num_users)
    live, left = np.arange(owners.num_users), owners.capacity.copy()
    stages: dict[bytes, Shares] = {}
    first: Shares | None = None
    while (owners.speed[live] * left).any():
        part = _subset(owners, live, left)
        key = _key(part, with_demand=keep == "all")
        like = [*before[len(stages) : len(stages) + 1], *reversed(stages.values())]  # this stage of the last round, else the stage before
        shares = cache.get(key) or _ask(rule, part, next((one.warm for one in like if one.warm is not None), None))
        require_feasible(part, shares.devices)
        stages[key] = shares
        first = first or shares
        devices[live] = shares.devices
        if shares.levels is not None:
            levels[live] = shares.levels
        settled = _settled(rows, part, live, shares.devices, keep) if keep != "all" else {}
        if not settled:
            break
        over = np.isin(np.arange(live.size), list(settled))
        devices[live[over]] = list(settled.values())
        left = np.maximum(left - devices[live[over]].sum(axis=0), 0.0)
        left[left < _SLACK * owners.capacity] = 0.0
        live = live[~over]
    first = first or Shares(devices)
    return _for_users(rows, replace(first, devices=devices, levels=None if first.levels is None else levels, warm=None)), stages


def _ask(rule: Rule, users: Users, warm: object) -> Shares:
    return rule.shares_from(users, warm) if isinstance(rule, WarmRule) else rule.shares(users)


def _for_users(rows: Rows, shares: Shares) -> Shares:
    """From owners to users: of its owner's bundle each holds its part; rows of envy stand with the first user of each owner."""
    first = np.unique(rows.owner, return_index=True)[1].tolist()
    levels = None if shares.levels is None else shares.levels[rows.owner]
    binding = tuple((first[owner], first[envied], dual) for owner, envied, dual in shares.binding)
    return replace(shares, devices=rows.divide(shares.devices), levels=levels, binding=binding)


def _settled(rows: Rows, part: Users, live: NDArray[np.intp], devices: Array, keep: str) -> dict[int, Array]:
    """Of the owners `live` above their demand, those who leave now, with what they hold. Whoever would lose by its bundle leaves first:
    what it does not take of it is worth more to the others than its slice was, and may change who is above demand at all."""
    over = rows.beyond_use(live, devices)
    bundles = {index: rows.usable(int(live[index]), devices[index]) for index in over}
    if keep == "bundle" or not over:
        return bundles
    own = np.where(part.speed > 0, part.entitlement(), 0.0)
    worse = {}
    for index in over:
        owner = int(live[index])
        if rows.worth(owner, bundles[index]) < rows.worth(owner, own[index]) * (1 - _SLACK):
            worse[index] = rows.usable(owner, own[index])
    return worse or bundles


def _subset(users: Users, live: NDArray[np.intp], capacity: Array) -> Users:
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
    left, kept = demand, [0.0] * len(devices)
    pairs = list(zip(speed.tolist(), devices.tolist(), strict=True))
    for value in sorted({pace for pace, count in pairs if count > 0}, reverse=True):
        tied = sum(count for pace, count in pairs if pace == value)
        part = min(1.0, max(left, 0.0) / tied)
        kept = [count * part if pace == value else had for (pace, count), had in zip(pairs, kept, strict=True)]
        left -= tied * part
    return np.array(kept)


def _without_solver(users: Users, last: Written | None) -> Shares:
    """The last allocation for those who are still here, within their demand and the capacity of now; else an equal split."""
    nothing = (0.0,) * len(users.capacity)
    known = last is not None and last.shares.devices.shape[1] == len(nothing)
    held = dict(zip(last.names, last.shares.devices.tolist(), strict=True)) if last is not None and known else {}
    kept = np.where(users.speed > 0, np.array([held.get(name, nothing) for name in users.names]).reshape(users.speed.shape), 0.0)
    kept = kept * np.minimum(1.0, users.demand / np.maximum(kept.sum(axis=1), 1e-300))[:, None]
    kept = kept * np.minimum(1.0, users.capacity / np.maximum(kept.sum(axis=0), 1e-300))
    if kept.any():
        return Shares(kept, "kept")
    shares, _ = _divide(_EqualSplit(), Rows(users), {}, "bundle")
    return replace(shares, status="fallback")


class _EqualSplit:
    def shares(self, users: Users) -> Shares:
        return Shares(equal_split(users))


def _allocation(users: Users, shares: Shares, form: Allocation) -> Allocation:
    rows = zip(users.names, users.tenants, users.jobs, shares.devices.tolist(), strict=True)
    return replace(
        form,
        claims=tuple(Claim(name, tenant, jobs, tuple(devices)) for name, tenant, jobs, devices in rows),
        status=shares.status,
        prices=None if shares.prices is None else tuple(shares.prices.tolist()),
        levels={} if shares.levels is None else dict(zip(users.names, shares.levels.tolist(), strict=True)),
        binding=tuple(Binding(users.names[user], users.names[envied], dual) for user, envied, dual in shares.binding),
    )
