"""Devices that nobody claims, or that no claim can use, for jobs that would wait otherwise; none of it is held against a claim."""

from __future__ import annotations

from collections.abc import Mapping

from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.turns import GrantedGang
from hetsys.core.scheduling.view import ClusterView, JobView


def fill(
    allocation: Allocation,
    view: ClusterView,
    waiting: dict[str, JobView],
    left: list[int],
    held: Mapping[str, int],
    mixes: Mapping[str, tuple[int, ...]],
) -> list[GrantedGang]:
    """Idle devices for waiting jobs, in order of arrival, those of tenants of weight 0 last; each on the kind it held, else on its fastest.
    Where `allocation.fill` is off, tenants of weight 0 only. `mixes[job]`: the devices of each kind that it held, where of several.

    With `allocation.cross_kind`, a gang that fits no kind then takes what is left on several (see `_mix`).
    """
    weight = {tenant.name: tenant.weight for tenant in view.tenants}
    if not (waiting and any(left)) or not (allocation.fill or 0.0 in weight.values()):
        return []
    room = sum(left) if allocation.cross_kind else max(left)
    candidates = [job for job in waiting.values() if job.gang <= room and (allocation.fill or weight[job.tenant] == 0)]
    candidates.sort(key=lambda job: (weight[job.tenant] == 0, job.arrival_s, job.name))
    grants = []
    for job in candidates:
        if not any(left):
            break
        kinds = [kind for kind, speed in enumerate(job.steps_per_s) if speed > 0 and job.gang <= left[kind]]
        if kinds:
            kind = max(kinds, key=lambda kind: (held.get(job.name) == kind, job.steps_per_s[kind]))
            left[kind] -= job.gang
            grants.append(GrantedGang(job.name, job.gang, kind, filled=True))
            del waiting[job.name]
    for job in candidates if allocation.cross_kind else ():
        if job.name in waiting and (mix := _mix(job, left, mixes.get(job.name, ()))):
            pace = _pace(job)
            slowest = min((kind for kind, count in enumerate(mix) if count), key=lambda kind: pace[kind])
            left[:] = [idle - count for idle, count in zip(left, mix, strict=True)]
            grants.append(GrantedGang(job.name, job.gang, slowest, filled=True, mix=mix))
            del waiting[job.name]
    return grants


def _pace(job: JobView) -> tuple[float, ...]:
    """Steps/s of a gang that spans kinds, were it all on each kind: it spans hosts, as no host has two kinds."""
    return job.spread_steps_per_s or job.steps_per_s


def _mix(job: JobView, left: list[int], before: tuple[int, ...]) -> tuple[int, ...]:
    """Devices of each kind for `job`: as many as it held, if they are free and no others are faster; else so that the slowest kind used
    is as fast as can be, and of faster kinds as few devices as need be. Empty where there are too few that it runs on."""
    pace = _pace(job)
    fastest_first = sorted((kind for kind, speed in enumerate(pace) if speed > 0 and left[kind]), key=lambda kind: -pace[kind])
    used: list[int] = []
    while fastest_first and sum(left[kind] for kind in used) < job.gang:
        used.append(fastest_first.pop(0))
    if sum(left[kind] for kind in used) < job.gang:
        return ()
    kept = before and all(count <= idle for count, idle in zip(before, left, strict=True))
    if kept and min(pace[kind] for kind, count in enumerate(before) if count) >= pace[used[-1]]:
        return before
    mix, missing = [0] * len(left), job.gang
    for kind in reversed(used):
        mix[kind] = min(left[kind], missing)
        missing -= mix[kind]
    return tuple(mix)
