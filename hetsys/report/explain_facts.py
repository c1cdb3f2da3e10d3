"""Why a tenant got what it got, from a scheduling run's records alone: what it was allotted and held, what it would have had otherwise,
prices, and the rows of envy that held the answer back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hetsys.core.scheduling.record import Grant, JobRecord, ParkedRecord, RoundRecord, SchedulingRecord, UserShare
from hetsys.metrics.fairness import ENVY_CAP, Array, bundle_value, envy_matrix, merge_tenants, sharing_incentives
from hetsys.report.explain_rows import Row, binding_rows, phases

Devices = tuple[float, ...]
_SLICE = ""
_FREE = 1e-8


@dataclass(frozen=True)
class Records:
    """The records of one run, by type; `kinds` from slow to fast."""

    kinds: tuple[str, ...]
    rounds: tuple[RoundRecord, ...]
    jobs: tuple[JobRecord, ...]
    parked: tuple[ParkedRecord, ...]

    @staticmethod
    def of(records: Sequence[SchedulingRecord], kinds: Sequence[str]) -> Records:
        rounds = tuple(record for record in records if isinstance(record, RoundRecord))
        jobs = tuple(record for record in records if isinstance(record, JobRecord))
        return Records(tuple(kinds), rounds, jobs, tuple(record for record in records if isinstance(record, ParkedRecord)))

    @cached_property
    def tenants(self) -> tuple[str, ...]:
        """Every tenant that lived or was parked, sorted."""
        lived = {tenant for record in self.rounds for tenant in record.progress}
        return tuple(sorted(lived | {job.tenant for job in self.jobs} | {record.tenant for record in self.parked}))

    def of_tenant(self, tenant: str) -> list[JobRecord]:
        return [job for job in self.jobs if job.tenant == tenant]

    def refused(self, tenant: str) -> tuple[tuple[str | None, str], ...]:
        """What was parked of `tenant`, at the door or later: (job, or None for the whole tenant; reason)."""
        at_the_door = [(record.job, record.reason) for record in self.parked if record.tenant == tenant]
        later = [(job.job, job.reason) for job in self.of_tenant(tenant) if job.status == "parked"]
        return (*at_the_door, *later)


@dataclass(frozen=True)
class Line:
    """One tenant in a word. `allotted`, `held`: devices by kind, means over its rounds (in fractions; by gangs). `incentive`: worth of its
    allotment over that of its own slice; `envy`, `envied`: the most that it envies anyone, and whom. `parked`: jobs, or the tenant."""

    tenant: str
    weight: float
    rounds: int
    jobs: int
    finished: int
    parked: int
    restarts: int
    allotted: Devices
    held: Devices
    incentive: float | None
    envy: float | None
    envied: str | None


@dataclass(frozen=True)
class Bundle:
    """A bundle of devices in the eyes of a tenant: its own, its slice (`name` ""), or another tenant's scaled to its weight; means over the
    time of the `rounds` in which both lived. `worth`: to it; `of_own`: that over the worth of its own (None where that was nothing);
    `envy`: as in `metrics.fairness`."""

    name: str
    rounds: int
    devices: Devices
    worth: float
    of_own: float | None
    envy: float


@dataclass(frozen=True)
class User:
    """Jobs of one type and gang of a tenant. `cost[j]`: price of a device of kind j over its speed there, which is what a unit of
    throughput costs; None where it does not run. () where no price is above 0; `cheapest` is None there, and where a kind costs nothing:
    prices are then those of a lower level than the user's."""

    name: str
    speeds: Devices
    cost: tuple[float | None, ...]
    cheapest: str | None


@dataclass(frozen=True)
class Span:
    """Rounds `first` to `last` in which the tenant's jobs held the same: (job, devices, kind or kinds)."""

    first: int
    last: int
    held: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True)
class Story:
    """All that is said of one tenant over its `rounds`, `first` to `last`. `*_rounds`: devices of a kind times rounds: of its own slice,
    allotted, held. `waiting`: rounds in which it held nothing. `share`: its part of all weight, averaged. `own`, `alone`: None where it
    owns nothing. `incentive`: as in `metrics.fairness`. `levels`: of its claims, by name, averaged.
    `binding_rounds`: rounds in which any row of envy bound, its own or not."""

    tenant: str
    weight: float
    share: float
    first: int
    last: int
    rounds: int
    waiting: int
    own: Bundle | None
    alone: Bundle | None
    others: tuple[Bundle, ...]
    incentive: float | None
    prices: Devices | None
    users: tuple[User, ...]
    levels: dict[str, float]
    rows: tuple[Row, ...]
    binding_rounds: int
    slice_rounds: Devices
    allotted_rounds: Devices
    held_rounds: Devices
    spans: tuple[Span, ...]
    jobs: dict[str, int]
    restarts: int
    preemptions: int
    crashes: int
    parked: tuple[tuple[str | None, str], ...]


def lines(run: Records, rounds: Sequence[RoundRecord]) -> list[Line]:
    """One line a tenant over `rounds`, in the order of names; where they are not all of the run's, of those who live in them."""
    k, lived = len(run.kinds), Counter(tenant for record in rounds for tenant in record.progress)
    allotted = {tenant: np.zeros(k) for tenant in run.tenants}
    weight: dict[str, float] = {}
    for phase in phases(rounds):
        for owner in merge_tenants(phase.record.users):
            allotted[owner.tenant] += phase.rounds * np.array(owner.devices)
            weight[owner.tenant] = owner.weight
    held, incentives, (names, envy) = _held(rounds, run.kinds), sharing_incentives(rounds), envy_matrix(rounds)
    found = []
    for tenant in run.tenants:
        if not lived[tenant] and len(rounds) < len(run.rounds):
            continue
        jobs, count = run.of_tenant(tenant), max(lived[tenant], 1)
        row = np.nan_to_num(envy[names.index(tenant)], nan=-1.0) if tenant in names else np.zeros(0)
        most = int(row.argmax()) if row.size else 0
        found.append(
            Line(
                tenant, weight.get(tenant, 0.0), lived[tenant], len(jobs), sum(job.status == "finished" for job in jobs),
                len(run.refused(tenant)), sum(job.restarts for job in jobs), _over(allotted[tenant], count),
                _over(held.get(tenant, (0.0,) * k), count), incentives.get(tenant), float(row[most]) if row.size else None,
                names[most] if row.size and row[most] > 0 else None,
            )
        )  # fmt: skip
    return found


def story(run: Records, tenant: str, rounds: Sequence[RoundRecord]) -> Story:
    """What is known of `tenant` over those of `rounds` in which it lives."""
    lived = [record for record in rounds if tenant in record.progress]
    own, alone, others = bundles(tenant, lived)
    jobs, prices = run.of_tenant(tenant), _prices(lived)
    allotted, slices, share = _allotted(tenant, lived, len(run.kinds))
    return Story(
        tenant=tenant, weight=_weight(tenant, lived), share=share, first=lived[0].index if lived else 0,
        last=lived[-1].index if lived else 0, rounds=len(lived),
        waiting=sum(all(grant.tenant != tenant for grant in record.grants) for record in lived),
        own=own, alone=alone, others=others, incentive=sharing_incentives(lived).get(tenant), prices=prices,
        users=users(tenant, lived, prices, run.kinds), levels=levels(run, tenant, lived), rows=binding_rows(tenant, lived),
        binding_rounds=sum(bool(record.binding) for record in lived), slice_rounds=slices, allotted_rounds=allotted,
        held_rounds=_held(lived, run.kinds).get(tenant, (0.0,) * len(run.kinds)), spans=spans(tenant, lived, run.kinds),
        jobs=dict(Counter(job.status for job in jobs)),
        restarts=sum(job.restarts for job in jobs), preemptions=sum(job.preemptions for job in jobs),
        crashes=sum(job.crashes for job in jobs), parked=run.refused(tenant),
    )  # fmt: skip


def bundles(tenant: str, rounds: Iterable[RoundRecord]) -> tuple[Bundle | None, Bundle | None, tuple[Bundle, ...]]:
    """What `tenant` was allotted, its own slice, and each other tenant's share scaled to its weight; the others by falling envy.
    None, None and () for a tenant of weight 0."""
    sums: dict[str, Array] = {}
    counts: Counter[str] = Counter()
    for phase in phases(rounds):
        owners = merge_tenants(phase.record.users)
        me = next((owner for owner in owners if owner.tenant == tenant), None)
        if me is None:
            continue
        entitled = np.array(phase.record.capacity) * me.weight / sum(owner.weight for owner in owners)
        rows = [(owner.tenant, np.array(owner.devices) * (me.weight / owner.weight)) for owner in owners] + [(_SLICE, entitled)]
        worth = bundle_value(np.array([devices for _, devices in rows]), np.array(me.speeds), np.array(me.demand)).tolist()
        own = worth[owners.index(me)]
        for (name, devices), value in zip(rows, worth, strict=True):
            envy = min(max(value / own - 1.0, 0.0), ENVY_CAP) if own > 0 else ENVY_CAP * (value > 0)
            sums[name] = sums.get(name, 0.0) + phase.time_s * np.array([1.0, value, own, envy, *devices])
            counts[name] += phase.rounds
    if tenant not in sums:
        return None, None, ()
    found = {name: _bundle(name, counts[name], values) for name, values in sums.items()}
    others = [bundle for name, bundle in found.items() if name not in (_SLICE, tenant)]
    others.sort(key=lambda bundle: (-bundle.envy, -(bundle.of_own or 0.0), bundle.name))
    return found[tenant], found[_SLICE], tuple(others)


def _bundle(name: str, rounds: int, sums: Array) -> Bundle:
    time_s, worth, own, envy, *devices = sums.tolist()
    return Bundle(name, rounds, _over(devices, time_s), worth / time_s, worth / own if own > 0 else None, envy / time_s)


def users(tenant: str, rounds: Iterable[RoundRecord], prices: Devices | None, kinds: Sequence[str]) -> tuple[User, ...]:
    """The users of `tenant` in order of appearance, with the cost of a unit of throughput on each kind at the mean `prices`."""
    seen: dict[str, UserShare] = {}
    for phase in phases(rounds):
        for share in phase.record.users:
            if share.tenant == tenant:
                seen.setdefault(share.user, share)
    found = []
    prices = prices if prices and any(prices) else None
    for name, share in seen.items():
        cost = tuple(price / speed if speed > 0 else None for price, speed in zip(prices or (), share.speeds, strict=bool(prices)))
        known = [(value, kind) for value, kind in zip(cost, kinds, strict=False) if value is not None]
        least, cheapest = min(known, key=lambda pair: pair[0], default=(0.0, None))
        found.append(User(name, share.speeds, cost, cheapest if least > _FREE * max(prices or (0.0,)) else None))
    return tuple(found)


def levels(run: Records, tenant: str, rounds: Iterable[RoundRecord]) -> dict[str, float]:
    """The level of each claim of `tenant` (a user's, or a job's where the policy divides among jobs), averaged over rounds."""
    jobs = {job.job for job in run.of_tenant(tenant)}
    sums: dict[str, float] = {}
    counts: Counter[str] = Counter()
    for phase in phases(rounds):
        mine = {user.user for user in phase.record.users if user.tenant == tenant} | jobs | {tenant}
        for name in mine & phase.record.levels.keys():
            sums[name] = sums.get(name, 0.0) + phase.rounds * phase.record.levels[name]
            counts[name] += phase.rounds
    return {name: sums[name] / count for name, count in counts.items()}


def spans(tenant: str, rounds: Iterable[RoundRecord], kinds: Sequence[str]) -> tuple[Span, ...]:
    """What the tenant's jobs held, in spans of successive rounds with the same (job, devices, kind)."""
    found: list[Span] = []
    for record in rounds:
        mine = (grant for grant in record.grants if grant.tenant == tenant)
        held = tuple(sorted((grant.job, len(grant.devices), _kind_text(grant, kinds)) for grant in mine))
        if found and found[-1].held == held and found[-1].last == record.index - 1:
            found[-1] = Span(found[-1].first, record.index, held)
        else:
            found.append(Span(record.index, record.index, held))
    return tuple(found)


def _kind_text(grant: Grant, kinds: Sequence[str]) -> str:
    parts = [f"{count} {kind}" for count, kind in zip(grant.mix, kinds, strict=False) if count]
    return " + ".join(parts) if parts else grant.kind


def _allotted(tenant: str, rounds: Iterable[RoundRecord], k: int) -> tuple[Devices, Devices, float]:
    """Devices times rounds that `tenant` was allotted, those of its own slice, and its part of all weight averaged over rounds."""
    allotted, slices, share, count = np.zeros(k), np.zeros(k), 0.0, 0
    for phase in phases(rounds):
        mine = [user for user in phase.record.users if user.tenant == tenant and user.weight > 0]
        part = sum(user.weight for user in mine) / (sum(user.weight for user in phase.record.users) or 1.0)
        allotted += phase.rounds * np.sum([user.devices for user in mine], axis=0) if mine else 0.0
        slices += phase.rounds * part * np.array(phase.record.capacity)
        share, count = share + phase.rounds * part, count + phase.rounds
    return tuple(allotted.tolist()), tuple(slices.tolist()), share / max(count, 1)


def _held(rounds: Iterable[RoundRecord], kinds: Sequence[str]) -> dict[str, Devices]:
    """Devices times rounds that jobs held, by tenant."""
    index = {kind: j for j, kind in enumerate(kinds)}
    held: dict[str, list[float]] = {}
    for record in rounds:
        for grant in record.grants:
            row = held.setdefault(grant.tenant, [0.0] * len(kinds))
            for j, count in enumerate(grant.mix) if grant.mix else [(index[grant.kind], len(grant.devices))]:
                row[j] += count
    return {tenant: tuple(row) for tenant, row in held.items()}


def _weight(tenant: str, rounds: Sequence[RoundRecord]) -> float:
    """The weight of `tenant`; 0 where it owned nothing in any round."""
    owned = (sum(user.weight for user in record.users if user.tenant == tenant) for record in rounds)
    return next((weight for weight in owned if weight > 0), 0.0)


def _prices(rounds: Iterable[RoundRecord]) -> Devices | None:
    """Prices averaged over time; None where no round has any."""
    known = [(phase.time_s, phase.record.prices) for phase in phases(rounds) if phase.record.prices is not None]
    time_s = sum(length_s for length_s, _ in known)
    return _over(np.sum([length_s * np.array(prices) for length_s, prices in known], axis=0).tolist(), time_s) if time_s else None


def _over(values: Iterable[float], whole: float) -> Devices:
    return tuple(float(value) / whole for value in values)
