"""Reports held against what leases showed: a speed that was measured replaces one that was told and is not true (our addition).

Non-cooperative OEF is proof against over-reports only; whoever reports a kind slower than it is, in units of its slowest kind, gains until
it is seen to run faster there. Speeds are compared in these units, as reports count in them: once all kinds have been measured, what the
program believes is within `1 + tolerance` of the truth either way. A liar then truly has at most `1 + tolerance` times the level E' of the
program, and gains only where E' is below the honest level (`docs/oef.md`): so it gains at most `tolerance`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import Array, Users
from hetsys.core.scheduling.view import ClusterView, JobView


def guarded(view: ClusterView, users: Users, tolerance: float) -> tuple[Users, int]:
    """`users` of `view`, with the measured speed wherever it differs from the one told by more than the relative `tolerance`, either way;
    and how many speeds that were. A kind that a user is said not to run on, or has not run on yet, stays as told.

    Both ways, as who reports the slowest kind faster than it is deflates the others. The users of a tenant stay apart as they were told.
    """
    jobs = {job.name: job for tenant in view.tenants for job in tenant.jobs}
    speed, count, room = users.speed.copy(), 0, np.log1p(tolerance)
    for row, names in enumerate(users.jobs):
        measured = _normalised(jobs[names[0]])
        known = (speed[row] > 0) & (measured > 0)
        wrong = known & (np.abs(np.log(np.where(known, measured, 1.0) / np.where(known, speed[row], 1.0))) > room)
        speed[row, wrong] = measured[wrong]
        count += int(wrong.sum())
    return (replace(users, speed=speed) if count else users), count


def probed(view: ClusterView, allocation: Allocation, part: float) -> Allocation:
    """`allocation`, in which whoever has run, and never on its slowest kind, exchanges some of its bundle for `part` of a gang there.

    So that kind, the unit of all its speeds, is measured within about 1 / `part` rounds; whoever says that it cannot run there is believed.
    """
    jobs = {job.name: job for tenant in view.tenants for job in tenant.jobs}
    rows, count = np.array([claim.devices for claim in allocation.claims]).reshape(-1, len(view.kinds)), 0
    for row, claim in zip(rows, allocation.claims, strict=True):
        job = jobs[claim.jobs[0]]
        unit = next((kind for kind, told in enumerate(job.steps_per_s) if told > 0), 0)
        wanted = min(part * job.gang - row[unit], row.sum() - row[unit])
        if any(job.measured_steps_per_s) and not job.measured_steps_per_s[unit] and job.gang <= view.capacity[unit] and wanted > 0:
            row[np.arange(row.size) != unit] *= 1 - wanted / (row.sum() - row[unit])
            row[unit] += wanted
            count += 1
    if not count:
        return allocation
    rows *= np.minimum(1.0, np.array(view.capacity) / np.maximum(rows.sum(axis=0), 1e-300))
    claims = tuple(replace(claim, devices=tuple(row)) for claim, row in zip(allocation.claims, rows.tolist(), strict=True))
    note = f"probe: {count} to be measured on the slowest kind"
    return replace(allocation, claims=claims, note="; ".join([*filter(None, [allocation.note]), note]))


def _normalised(job: JobView) -> Array:
    """(k,) what was measured, 0 where nothing was, in units of the slowest kind that the job is said to run on: as told where that was not
    measured."""
    measured = np.array(job.measured_steps_per_s or [0.0] * len(job.steps_per_s))
    unit = next((kind for kind, told in enumerate(job.steps_per_s) if told > 0), 0)
    return measured / (measured[unit] or job.steps_per_s[unit] or 1.0)
