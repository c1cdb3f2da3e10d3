"""Deviation carrying, as OEF is understood to round: each claim is given its share and what it has missed so far, in whole devices.

Of the published rule we know: real = round(share + deviation), a share below the smallest gang counts as zero, and the deviation carries
what was not given. Ours is the rest: by largest remainders a kind, so that no device is given twice; no claim is given more than its jobs
that still wait can hold; where the whole devices of all exceed the kind, the largest first; whole gangs of what a claim is given, the rest
waits; kinds from fast to slow; what a claim has missed is bounded at 8 of its gangs; idle devices go to waiting jobs without debt, as for
credits.
"""

from __future__ import annotations

from collections.abc import Sequence

from hetsys.core.scheduling.credit import CLIP_GANGS
from hetsys.core.scheduling.turns import Carried, GrantedGang, Queue
from hetsys.core.scheduling.view import JobView

_SLACK = 1e-9


def grant_by_deviation(
    queues: Sequence[Queue], waiting: dict[str, JobView], left: list[int], carried: Carried
) -> tuple[list[GrantedGang], dict[str, list[float]]]:
    """The gangs that claims are granted, and `Carried.owed` (their deviations) after the round. Takes from `waiting` and `left`."""
    owed = {}
    for queue in queues:
        row = carried.owed.get(queue.claim.name) or [0.0] * len(left)
        owed[queue.claim.name] = [share + missed for share, missed in zip(queue.claim.devices, row, strict=True)]
    grants: list[GrantedGang] = []
    for kind in reversed(range(len(left))):
        targets = [min(owed[queue.claim.name][kind], queue.room(kind, waiting)) for queue in queues]
        small = [target < queue.narrowest - _SLACK for queue, target in zip(queues, targets, strict=True)]
        real = whole_devices([0.0 if zero else target for zero, target in zip(small, targets, strict=True)], left[kind])
        for queue, devices in zip(queues, real, strict=True):
            while job := queue.next(kind, devices, waiting) if devices else None:
                del waiting[job.name]
                devices -= job.gang
                left[kind] -= job.gang
                owed[queue.claim.name][kind] -= job.gang
                grants.append(GrantedGang(job.name, job.gang, kind))
    for queue in queues:
        most = CLIP_GANGS * queue.widest
        row = owed[queue.claim.name]
        row[:] = [min(most, max(-most, value)) for value in row]
    return grants, owed


def whole_devices(targets: Sequence[float], capacity: int) -> list[int]:
    """Each target (0 or more) in whole devices, `min(capacity, round(sum))` in all: rounded down, then up where most was cut off. Where
    even that is more than `capacity`, the largest targets are met first."""
    real = [int(target + _SLACK) for target in targets]
    spare = min(capacity, int(sum(targets) + 0.5)) - sum(real)
    if spare > 0:
        cut = sorted(range(len(real)), key=lambda index: real[index] - targets[index])
        for index in [index for index in cut if targets[index] > real[index]][:spare]:
            real[index] += 1
    elif spare < 0:
        for index in sorted(range(len(real)), key=lambda index: -targets[index]):
            real[index] = min(real[index], capacity)
            capacity -= real[index]
    return real
