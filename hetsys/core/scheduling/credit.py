"""Gang credits: the claim that is owed most, in units of its gang, takes a whole gang, again and again until nothing more fits.

Each claim keeps a credit a kind, in devices: its share is added every round, what it is granted is taken away; it may fall below zero if
devices are left. So large gangs wait their turn instead of for ever.

A bound on waiting, for a claim whose jobs all have gang g and whose shares of the kinds where they fit add up to x: its wait grows by
min(1, x/g) a round, and from `OVERDUE` on the claim is overdue. Overdue claims go before all others, the longest overdue first. So they go
in the order in which they became overdue, and in every round the first of them is granted a gang, as nothing is taken yet. A claim that
becomes overdue has at most those before it that are already: with n claims it has its gang within `OVERDUE` max(1, g/x) + n rounds.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from hetsys.core.scheduling.turns import Carried, GrantedGang, Queue
from hetsys.core.scheduling.view import JobView

CLIP_GANGS = 8.0
"""What is owed is bounded by this many gangs either way, so that no debt or claim outlives its reason."""

OVERDUE = 6.0
_URGENT = 1e6
_SLACK = 1e-9


def grant_by_credit(
    queues: Sequence[Queue], waiting: dict[str, JobView], left: list[int], carried: Carried, held: Mapping[str, int], sticky: float
) -> tuple[list[GrantedGang], dict[str, list[float]], dict[str, float]]:
    """The gangs that claims are granted, and `Carried.owed` and `Carried.waits` after the round. Takes from `waiting` and `left`."""
    owed = {
        queue.claim.name: [a + b for a, b in zip(row, queue.claim.devices, strict=True)] if (row := carried.owed.get(queue.claim.name))
        else list(queue.claim.devices)
        for queue in queues
    }  # fmt: skip
    grants: list[GrantedGang] = []
    granted: set[int] = set()
    heap: list[tuple[float, int, int, str]] = []

    def offer(order: int, kind: int) -> None:
        """Queue the claim's next job for devices of `kind`, if it has one that fits."""
        queue = queues[order]
        if job := queue.next(kind, left[kind], waiting):
            name = queue.claim.name
            worth = owed[name][kind] / job.gang + (sticky if held.get(job.name) == kind else 0.0)
            if order not in granted and (wait := carried.waits.get(name, 0.0)) >= OVERDUE - _SLACK and queue.claim.devices[kind] > 0:
                worth += _URGENT * wait
            heapq.heappush(heap, (-worth, order, kind, job.name))

    for order, queue in enumerate(queues):
        row = owed[queue.claim.name]
        for kind, share in enumerate(queue.claim.devices):
            if left[kind] and (share > 0 or row[kind] > 0):
                offer(order, kind)
    while heap:
        worth, order, kind, name = heapq.heappop(heap)
        job = waiting.get(name)
        if job is not None and job.gang <= left[kind] and not (worth < -_URGENT and order in granted):
            del waiting[name]
            left[kind] -= job.gang
            owed[queues[order].claim.name][kind] -= job.gang
            grants.append(GrantedGang(name, job.gang, kind))
            granted.add(order)
        if left[kind]:
            offer(order, kind)
    forgive_common(queues, owed)
    bound(queues, owed, [CLIP_GANGS * queue.widest for queue in queues])
    return grants, owed, _waits(queues, granted, carried.waits)


def forgive_common(queues: Sequence[Queue], owed: Mapping[str, list[float]]) -> None:
    """Where all with a share of a kind are owed (or all owe), forgive them that: the same part of its share for each.

    Whole gangs cannot always use what the fractions promise (8 devices for a gang of 8 and a single: one of them always waits), so all may
    be owed more and more, and only the differences decide. Equal amounts instead of equal parts would take most from small shares.
    """
    for kind in range(len(queues[0].claim.devices) if queues else 0):
        rows = [(owed[queue.claim.name], share) for queue in queues if (share := queue.claim.devices[kind]) > 0]
        rounds = [row[kind] / share for row, share in rows]
        common = max(min(rounds), 0.0) or min(max(rounds), 0.0) if rounds else 0.0
        for row, share in rows if common else ():
            row[kind] -= common * share


def bound(queues: Sequence[Queue], owed: Mapping[str, list[float]], bounds: Sequence[float]) -> None:
    """Keep what each claim is owed, and owes, within its bound in devices. Where one is above, all who are owed on that kind are forgiven
    the part of their shares that brings it down; likewise below. Cutting off each at its bound would make the differences disappear."""
    for kind in range(len(queues[0].claim.devices) if queues else 0):
        rows = [(owed[queue.claim.name], queue.claim.devices[kind], most) for queue, most in zip(queues, bounds, strict=True)]
        over = max(((row[kind] - most) / share for row, share, most in rows if share > 0 and row[kind] > most), default=0.0)
        under = max(((-most - row[kind]) / share for row, share, most in rows if share > 0 and row[kind] < -most), default=0.0)
        for row, share, most in rows:
            value = row[kind]
            value = max(0.0, value - over * share) if value > 0 else min(0.0, value + under * share)
            row[kind] = min(most, max(-most, value))


def _waits(queues: Sequence[Queue], granted: set[int], before: Mapping[str, float]) -> dict[str, float]:
    """Until a claim is overdue its wait grows with its share, then by 1 a round: so the longest overdue waits most. Without a share it
    stays as it is."""
    waits = {}
    for order, queue in enumerate(queues):
        wait = before.get(queue.claim.name, 0.0)
        if any(queue.claim.devices):
            wait += 1.0 if wait >= OVERDUE - _SLACK else min(1.0, sum(queue.claim.devices) / queue.narrowest)
        if wait and order not in granted:
            waits[queue.claim.name] = wait
    return waits
