"""Deviation carrying, as OEF is understood to round: each claim is given its share and what it has missed so far, in whole devices.

Of the published rule we know: real = round(share + deviation), a share below the smallest gang counts as zero, and the deviation carries
what was not given. Ours is the rest: by largest remainders a kind, so that no device is given twice; no claim is given more than its jobs
that still wait can hold; whole gangs of what a claim is given; where more whole devices are owed than there are, and for those that are
left as no gang fits into them, gang by gang to the claim to which most devices are owed, also ahead of its turn; kinds from fast to slow;
debts forgiven and bounded as for credits.

Counted in devices, a small gang is owed most later than a large one. How long a claim waits is measured, not proven.
"""

from __future__ import annotations

from collections.abc import Sequence

from hetsys.core.scheduling.credit import CLIP_GANGS, bound, forgive_common
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

    def grant(queue: Queue, kind: int, job: JobView) -> None:
        del waiting[job.name]
        left[kind] -= job.gang
        owed[queue.claim.name][kind] -= job.gang
        grants.append(GrantedGang(job.name, job.gang, kind))

    for kind in reversed(range(len(left))):
        targets = [min(owed[queue.claim.name][kind], queue.room(kind, waiting)) for queue in queues]
        small = [target < queue.narrowest - _SLACK for queue, target in zip(queues, targets, strict=True)]
        real = whole_devices([0.0 if zero else target for zero, target in zip(small, targets, strict=True)], left[kind])
        for queue, devices in zip(queues, real, strict=True):
            while job := queue.next(kind, devices, waiting) if devices else None:
                devices -= job.gang
                grant(queue, kind, job)
        while best := _owed_most(queues, kind, left[kind], waiting, owed):
            grant(best[0], kind, best[1])
    forgive_common(queues, owed)
    bound(queues, owed, [CLIP_GANGS * queue.widest for queue in queues])
    return grants, owed


def _owed_most(
    queues: Sequence[Queue], kind: int, devices: int, waiting: dict[str, JobView], owed: dict[str, list[float]]
) -> tuple[Queue, JobView] | None:
    """Of the claims with a share or a debt of `kind` and a gang that fits into `devices`, the one that is owed most, and its next job."""
    best: tuple[float, Queue, JobView] | None = None
    for queue in queues if devices else ():
        debt = owed[queue.claim.name][kind]
        if (debt > 0 or queue.claim.devices[kind] > 0) and (best is None or debt > best[0]) and (job := queue.next(kind, devices, waiting)):
            best = debt, queue, job
    return best and best[1:]


def whole_devices(targets: Sequence[float], capacity: int) -> list[int]:
    """Each target (0 or more) in whole devices, `min(capacity, round(sum))` in all: rounded down, then up where most was cut off. None for
    anybody where rounded down they already exceed `capacity`."""
    real = [int(target + _SLACK) for target in targets]
    spare = min(capacity, int(sum(targets) + 0.5)) - sum(real)
    if spare < 0:
        return [0] * len(real)
    cut = sorted(range(len(real)), key=lambda index: real[index] - targets[index])
    for index in [index for index in cut if targets[index] > real[index]][:spare]:
        real[index] += 1
    return real
