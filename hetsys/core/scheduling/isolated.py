"""How long a job would take if its tenant had its own share of the cluster to itself: the yardstick of finish-time fairness."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray

from hetsys.core.scheduling.admission import AdmittedJob
from hetsys.core.scheduling.view import JobView

_EPS_STEPS = 1e-6


def isolated_jcts(
    jobs: Sequence[AdmittedJob], devices: Sequence[float], round_s: float, restart_s: float
) -> dict[str, float | None]:
    """Completion times (s, from arrival) of one tenant's `jobs` on `devices[j]` devices of kind j, fractions allowed, nothing else running.

    The tenant's q live jobs share its devices equally: job i spends the fraction `x_ij = devices_j / (q gang_i)` of its time on kind j,
    scaled down where the fractions sum to more than 1 (the isolated allocation of Gavel, OSDI 2020, at the level of a tenant). As in the
    shared cluster, a job starts at the first round after its arrival and takes `restart_s` to do so (our choice: otherwise jobs shorter
    than a round look unfairly treated under every scheduler). None for a job that makes no progress there.
    """
    starts_s = np.array([ceil(item.job.arrival_s / round_s) * round_s + restart_s for item in jobs])
    arrivals_s = np.array([item.job.arrival_s for item in jobs])
    steps = np.array([float(item.job.num_steps) for item in jobs])
    gangs = np.array([float(item.job.gang) for item in jobs])
    worth = np.array([sum(count * speed for count, speed in zip(devices, item.speeds, strict=True)) for item in jobs])
    left, jcts_s = steps.copy(), np.full(len(jobs), np.nan)
    waiting = [int(i) for i in np.argsort(-starts_s, kind="stable") if worth[i] > 0]
    live: NDArray[np.intp] = np.empty(0, np.intp)
    now = 0.0
    while waiting or live.size:
        if not live.size:
            now = max(now, float(starts_s[waiting[-1]]))
        while waiting and starts_s[waiting[-1]] <= now:
            live = np.append(live, waiting.pop())
        rates = worth[live] / np.maximum(live.size * gangs[live], sum(devices))
        ends_s = now + left[live] / rates
        until = float(ends_s.min())
        if waiting:
            until = min(until, float(starts_s[waiting[-1]]))
        left[live] -= rates * (until - now)
        done = (ends_s <= until) | (left[live] <= _EPS_STEPS * steps[live])
        jcts_s[live[done]] = until - arrivals_s[live[done]]
        live, now = live[~done], until
    return {item.job.name: None if np.isnan(jct) else float(jct) for item, jct in zip(jobs, jcts_s, strict=True)}


def isolated_rate(job: JobView, capacity: Sequence[int], num_jobs: int) -> float:
    """Steps/s of a live job on an equal part of the cluster, `x_j = m_j / (n gang)` scaled down where the fractions sum to more than 1
    (Gavel's isolated allocation, at the level of jobs); `num_jobs` are live."""
    worth = sum(count * steps for count, steps in zip(capacity, job.steps_per_s, strict=True))
    return worth / max(num_jobs * job.gang, sum(capacity))
