"""A simplex basis of the last round, carried over to the users of now: who left is cut out of it, who came is joined to the most like one.

The basis of the cooperative program is nearly a forest: a class holds one kind, and one row without slack ties its bundle to a like one's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetsys.core.scheduling.users import Array
from hetsys.systems.program import Index, Mask

Pair = tuple[int, int]


@dataclass(frozen=True)
class Start:
    """Of c classes with speeds `speed` (c, k): `basic` (c, k), which unknowns are basic; `slack` (k,), which kinds' capacity rows are;
    `pairs` (p, 2), the rows of envy that are not."""

    speed: Array
    basic: Mask
    slack: Mask
    pairs: Index


def carried(start: Start, speed: Array) -> Start | None:
    """`start` for classes with speeds `speed` (c, k); None where most of them are new, or the kinds are others."""
    if start.speed.shape[1] != speed.shape[1]:
        return None
    old = _matched(start.speed, speed)
    here = np.flatnonzero(old >= 0)
    if 2 * here.size < len(speed):
        return None
    now = np.full(len(start.speed), -1, dtype=np.intp)
    now[old[here]] = here
    pairs = now[_without(start, np.flatnonzero(now < 0).tolist())]
    basic = np.zeros(speed.shape, dtype=bool)
    basic[here] = start.basic[old[here]]
    joined = []
    direction = _direction(speed)
    for new in np.flatnonzero(old < 0).tolist():
        like = int(here[((direction[here] - direction[new]) ** 2).sum(axis=1).argmin()])
        kinds = np.flatnonzero(basic[like] & (speed[new] > 0))
        if kinds.size:
            basic[new, kinds[speed[new, kinds].argmax()]] = True
            joined.append((new, like))
    pairs = np.concatenate([pairs, np.array(joined, dtype=np.intp).reshape(-1, 2)])
    return Start(speed, basic & (speed > 0), start.slack, pairs)


def _direction(speed: Array) -> Array:
    return np.asarray(speed / speed.sum(axis=1, keepdims=True))


def _matched(before: Array, now: Array) -> Index:
    """(c,): for each class of now the one of before that it is: of equal speeds, or, where none is, the nearest of those that are left if
    no other is nearer; -1 for newcomers."""
    number = {row.tobytes(): index for index, row in enumerate(before)}
    old = np.array([number.get(row.tobytes(), -1) for row in now], dtype=np.intp)
    strangers = np.flatnonzero(old < 0).tolist()
    if not strangers:
        return old
    left = np.ones(len(before), dtype=bool)
    left[old[old >= 0]] = False
    gone = np.flatnonzero(left)
    place, places = _direction(before), _direction(now)
    for new in strangers:
        if not gone.size:
            break
        distance = ((place - places[new]) ** 2).sum(axis=1)
        nearest = int(gone[distance[gone].argmin()])
        if distance[nearest] <= distance.min():
            old[new] = nearest
            gone = gone[gone != nearest]
    return old


def _without(start: Start, gone: list[int]) -> Index:
    """(p, 2): the rows of `start` without those of the classes `gone`; those whom a leaver tied together are tied to each other, so that as
    many rows are left without slack as unknowns are left basic."""
    if not gone:
        return start.pairs
    pairs = {(one, other) for one, other in start.pairs.tolist()}
    rows: dict[int, set[Pair]] = {}
    for pair in pairs:
        for end in pair:
            rows.setdefault(end, set()).add(pair)
    place = _direction(start.speed)
    for leaver in gone:
        cut = rows.pop(leaver, set())
        pairs -= cut
        envied = {other for _, other in cut} - {leaver}
        others = sorted(envied | ({one for one, _ in cut} - {leaver}))
        for other in others:
            rows[other] -= cut
        needed = len(cut) - int(start.basic[leaver].sum())
        for one, other in _ties(others, pairs, start.basic, place, needed):
            pair = (other, one) if one in envied and other not in envied else (one, other)
            pairs.add(pair)
            rows[one].add(pair)
            rows[other].add(pair)
    return np.array(sorted(pairs), dtype=np.intp).reshape(-1, 2)


def _ties(ends: list[int], pairs: set[Pair], basic: Mask, place: Array, needed: int) -> list[Pair]:
    """At most `needed` ties between `ends` that `pairs` has not: the shortest that join those that are not joined yet, then the shortest
    between classes of different kinds (of equal kinds one more would say nothing new)."""
    if needed <= 0 or len(ends) < 2:
        return []
    distance = ((place[ends][:, None] - place[ends]) ** 2).sum(axis=2)
    left, right = np.triu_indices(len(ends), 1)
    order = np.argsort(distance[left, right], kind="stable")
    candidates = [(ends[i], ends[j]) for i, j in zip(left[order].tolist(), right[order].tolist(), strict=True)]
    tied = [pair for pair in candidates if pair in pairs or pair[::-1] in pairs]
    part = {end: end for end in ends}
    joining, closing = [], []
    for one, other in [*tied, *(pair for pair in candidates if pair not in set(tied))]:
        joins, is_new = part[one] != part[other], (one, other) not in tied
        if joins:
            part = {end: part[one] if name == part[other] else name for end, name in part.items()}
        if is_new and joins:
            joining.append((one, other))
        elif is_new and (basic[one] != basic[other]).any():
            closing.append((one, other))
    return [*joining, *closing][:needed]
