"""Reports held against what leases showed: a speed that was measured replaces one that was told and is not true (our addition).

Non-cooperative OEF is proof against over-reports only; whoever reports a kind slower than it is gains until it is seen to run faster there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hetsys.core.scheduling.users import Users, normalised_speed
from hetsys.core.scheduling.view import ClusterView, JobView


def guarded(view: ClusterView, users: Users, tolerance: float) -> tuple[Users, int]:
    """`users` of `view`, with the measured speed wherever it differs from the one told by more than the relative `tolerance`, either way;
    and how many speeds that were. A kind that a user is said not to run on, or has not run on yet, stays as told.

    Both ways, as the slowest kind is the unit of all: who reports it faster than it is deflates the others. The users of a tenant stay
    apart as they were told.
    """
    jobs = {job.name: job for tenant in view.tenants for job in tenant.jobs}
    speed, count = None, 0
    for row, names in enumerate(users.jobs):
        job = jobs[names[0]]
        seen = _seen(job, tolerance)
        if seen is not None:
            speed = users.speed.copy() if speed is None else speed
            speed[row] = normalised_speed(replace(job, steps_per_s=seen))
            count += sum(a != b for a, b in zip(seen, job.steps_per_s, strict=True))
    return (users if speed is None else replace(users, speed=speed)), count


def _seen(job: JobView, tolerance: float) -> tuple[float, ...] | None:
    """The job's speeds with what was measured where that counts; None where they are as told."""
    measured = job.measured_steps_per_s
    if not any(measured):
        return None
    room = np.log1p(tolerance)
    pairs = zip(job.steps_per_s, measured, strict=True)
    seen = tuple(new if told > 0 and new > 0 and abs(np.log(new / told)) > room else told for told, new in pairs)
    return seen if seen != job.steps_per_s else None
