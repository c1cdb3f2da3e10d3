"""From fractions of devices to whole gangs, round by round, so that over time every claim receives what it was allotted.

Each claim keeps a credit a kind, in devices: its share is added every round, what it is granted is taken away. The largest credit in
units of the claim's gang goes first and receives whole gangs, so that large gangs wait their turn instead of for ever. Among the jobs of
a claim the one that has had the fewest rounds comes first, unless another holds on to its devices and is not far ahead.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.view import ClusterView, JobView

CLIP_GANGS = 8.0
"""Credit is bounded by this many gangs either way, so that no debt or claim outlives its reason."""

PATIENCE_ROUNDS = 2
"""A job that holds devices keeps its claim's turn until it is more rounds ahead of a waiting one than this (our choice)."""

Credits = dict[str, list[float]]


@dataclass(frozen=True)
class GrantedGang:
    """Job `job` holds `gang` devices of kind index `kind` this round."""

    job: str
    gang: int
    kind: int


def round_gangs(
    allocation: Allocation, view: ClusterView, credits: Mapping[str, Sequence[float]], held: Mapping[str, int], sticky: float
) -> tuple[list[GrantedGang], Credits]:
    """Whole gangs for one round and the credits after it; never more devices than `view.capacity`.

    `held[job]` is the kind that a job held in the last round; holding on is worth `sticky` gangs of credit (the cost of a restart as a
    share of a round). Claims with a share of a kind are served in order of credit, below zero if devices are left (work conserving);
    then the jobs of tenants of weight 0 and, if `allocation.fill`, any other job may use what is still idle, and that is not held against
    its claim.
    """
    waiting = {job.name: job for job in view.jobs}
    credit = {
        claim.name: [a + b for a, b in zip(credits.get(claim.name, [0.0] * len(view.kinds)), claim.devices, strict=True)]
        for claim in allocation.claims
    }
    left = list(view.capacity)
    grants = _grant_claims(allocation, waiting, credit, left, held, sticky)
    if waiting and any(left):
        grants += _fill(view, waiting, left, held, everybody=allocation.fill)
    gangs = {job.name: job.gang for job in view.jobs}
    widest = {claim.name: max(gangs[name] for name in claim.jobs) for claim in allocation.claims}
    for kind in range(len(view.kinds)):
        _recentre(kind, {claim.name: claim.devices[kind] for claim in allocation.claims}, credit, widest)
    return grants, credit


def _recentre(kind: int, share: Mapping[str, float], credit: Credits, widest: Mapping[str, int]) -> None:
    """Where everybody on a kind is owed (or in debt), forgive what all have in common, then bound what is left.

    Whole gangs cannot always use what the fractions promise (8 devices for a gang of 8 and a single: one of them always waits), so
    credits may all rise; only their differences decide, and a bound alone would make those disappear and starve whoever came second.
    """
    owed = [credit[name][kind] / widest[name] for name, part in share.items() if part > 0]
    common = max(min(owed), 0.0) or min(max(owed), 0.0) if owed else 0.0
    for name, part in share.items():
        gang, row = widest[name], credit[name]
        if row[kind]:
            row[kind] = min(CLIP_GANGS * gang, max(-CLIP_GANGS * gang, row[kind] - (common * gang if part > 0 else 0.0)))


def _grant_claims(
    allocation: Allocation, waiting: dict[str, JobView], credit: Credits, left: list[int], held: Mapping[str, int], sticky: float
) -> list[GrantedGang]:
    grants: list[GrantedGang] = []
    queue: list[tuple[float, int, int, str]] = []

    def offer(order: int, kind: int) -> None:
        """Queue the claim's next job for a device of `kind`, if it has one that fits."""
        claim = allocation.claims[order]
        fitting = [job for name in claim.jobs if (job := waiting.get(name)) and job.steps_per_s[kind] > 0 and job.gang <= left[kind]]
        if fitting:
            job = min(fitting, key=lambda job: job.rounds_held - PATIENCE_ROUNDS * (held.get(job.name) == kind))
            bonus = sticky if held.get(job.name) == kind else 0.0
            heapq.heappush(queue, (-(credit[claim.name][kind] / job.gang + bonus), order, kind, job.name))

    for order, claim in enumerate(allocation.claims):
        for kind, share in enumerate(claim.devices):
            if share > 0 or credit[claim.name][kind] > 0:
                offer(order, kind)
    while queue:
        _, order, kind, name = heapq.heappop(queue)
        job = waiting.get(name)
        if job is not None and job.gang <= left[kind]:
            del waiting[name]
            left[kind] -= job.gang
            credit[allocation.claims[order].name][kind] -= job.gang
            grants.append(GrantedGang(name, job.gang, kind))
        offer(order, kind)
    return grants


def _fill(
    view: ClusterView, waiting: dict[str, JobView], left: list[int], held: Mapping[str, int], everybody: bool
) -> list[GrantedGang]:
    """Idle devices for waiting jobs: entitled tenants first, then those of weight 0; each on the kind it held, else on its fastest."""
    grants: list[GrantedGang] = []
    weight = {tenant.name: tenant.weight for tenant in view.tenants}
    candidates = [job for job in waiting.values() if everybody or weight[job.tenant] == 0]
    for job in sorted(candidates, key=lambda job: (weight[job.tenant] == 0, job.arrival_s, job.name)):
        kinds = [kind for kind, speed in enumerate(job.steps_per_s) if speed > 0 and job.gang <= left[kind]]
        if kinds:
            kind = max(kinds, key=lambda kind: (held.get(job.name) == kind, job.steps_per_s[kind]))
            left[kind] -= job.gang
            grants.append(GrantedGang(job.name, job.gang, kind))
            del waiting[job.name]
    return grants
