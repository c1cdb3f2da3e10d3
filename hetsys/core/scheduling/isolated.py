"""How long a job would take if its tenant had its own share of the cluster to itself: the yardstick of finish-time fairness."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from hetsys.core.scheduling.admission import AdmittedJob
from hetsys.core.scheduling.view import ClusterView

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
    starts_s = {item.job.name: ceil(item.job.arrival_s / round_s) * round_s + restart_s for item in jobs}
    waiting = sorted(jobs, key=lambda item: starts_s[item.job.name], reverse=True)
    live: dict[str, tuple[AdmittedJob, float]] = {}
    jcts: dict[str, float | None] = {item.job.name: None for item in jobs}
    now = 0.0
    while waiting or live:
        if not live:
            now = max(now, starts_s[waiting[-1].job.name])
        while waiting and starts_s[waiting[-1].job.name] <= now:
            item = waiting.pop()
            if _rate(item, devices, 1) > 0:
                live[item.job.name] = (item, float(item.job.num_steps))
        if not live:
            continue
        rates = {name: _rate(item, devices, len(live)) for name, (item, _) in live.items()}
        ends = {name: now + left / rates[name] for name, (_, left) in live.items()}
        until = min(ends.values())
        if waiting:
            until = min(until, starts_s[waiting[-1].job.name])
        for name, (item, left) in list(live.items()):
            left -= rates[name] * (until - now)
            if ends[name] <= until or left <= _EPS_STEPS * item.job.num_steps:
                del live[name]
                jcts[name] = until - item.job.arrival_s
            else:
                live[name] = (item, left)
        now = until
    return jcts


def isolated_rates(view: ClusterView) -> dict[str, float]:
    """Steps/s of each live job on an equal part of the cluster, `x_ij = m_j / (n gang_i)` scaled down where the fractions sum to more than 1
    (Gavel's isolated allocation, at the level of jobs)."""
    num_jobs = len(view.jobs)
    rates = {}
    for job in view.jobs:
        shares = [up / (num_jobs * job.gang) for up in view.capacity]
        speed = sum(share * steps for share, steps in zip(shares, job.steps_per_s, strict=True))
        rates[job.name] = speed / max(1.0, sum(shares))
    return rates


def _rate(item: AdmittedJob, devices: Sequence[float], num_live: int) -> float:
    shares = [count / (num_live * item.job.gang) for count in devices]
    scale = max(1.0, sum(shares))
    return sum(share * speed for share, speed in zip(shares, item.speeds, strict=True)) / scale
