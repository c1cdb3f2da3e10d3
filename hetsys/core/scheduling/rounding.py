"""From fractions of devices to whole gangs, round by round, so that over time every claim receives what it was allotted.

What a claim *receives* is what it is granted against its share. Devices that are idle after that go to waiting jobs for nothing, on top:
they are no claim's, so they are never counted as received and never held against it.
"""

from __future__ import annotations

from collections.abc import Mapping

from hetsys.core.errors import check_choice
from hetsys.core.scheduling.credit import grant_by_credit
from hetsys.core.scheduling.deviation import grant_by_deviation
from hetsys.core.scheduling.fill import fill
from hetsys.core.scheduling.plan import ROUNDINGS, Allocation
from hetsys.core.scheduling.turns import Carried, GrantedGang, passed_over, queues_of
from hetsys.core.scheduling.view import ClusterView

_NO_MIXES: Mapping[str, tuple[int, ...]] = {}


def round_gangs(
    allocation: Allocation,
    view: ClusterView,
    carried: Carried,
    held: Mapping[str, int],
    sticky: float,
    mixes: Mapping[str, tuple[int, ...]] = _NO_MIXES,
) -> tuple[list[GrantedGang], Carried]:
    """Whole gangs for one round and what to remember of it; never more devices than `view.capacity`.

    `held[job]` is the kind that a job held in the last round, `mixes[job]` the devices of each kind where they were of several; under
    "credit", holding on is worth `sticky` gangs (the cost of a restart as a share of a round). Claims with a share of a kind are served
    as `allocation.rounding` says; then the jobs of tenants of weight 0 and, if `allocation.fill`, any other job may use what is idle.
    """
    check_choice("allocation.rounding", allocation.rounding, ROUNDINGS)
    waiting = {job.name: job for job in view.jobs}
    held = {job: kind for job, kind in held.items() if job not in mixes} if mixes else held
    queues = queues_of(allocation.claims, waiting, held, carried.passed)
    left = list(view.capacity)
    waits: dict[str, float] = {}
    if allocation.rounding == "deviation":
        grants, owed = grant_by_deviation(queues, waiting, left, carried)
    else:
        grants, owed, waits = grant_by_credit(queues, waiting, left, carried, held, sticky)
    grants += fill(allocation, view, waiting, left, held, mixes)
    return grants, Carried(owed, waits, passed_over(queues, grants, carried.passed))
