"""The door: which jobs of a trace can run on a cluster at all. What cannot is parked with its reason and disturbs nobody."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import isfinite

from hetsys.core.cluster import Cluster
from hetsys.core.errors import ConfigError
from hetsys.core.scheduling.record import ParkedRecord
from hetsys.core.scheduling.trace import Job, JobTrace, Tenant

_SLOWEST, _FASTEST = 1e-9, 1e6
"""Speeds that whole nanoseconds count to 0.1 % and better, steps/s."""


@dataclass(frozen=True)
class AdmittedJob:
    """A job with its speeds in the order of the cluster's kinds.

    `speeds[j]`: steps/s of the gang on kind j where it is placed as well as that kind's hosts allow, 0 where it cannot run;
    `spread_speeds[j]`: steps/s when the gang spans hosts. `unit_steps_per_s`: the speed of one device of the slowest kind it supports.
    `told[j]`: what the scheduler is told of `speeds[j]`, 0 where that is 0. `told_spread[j]`: the same
    of `spread_speeds[j]`. `must_span[j]`: no host of kind j holds the whole gang.
    """

    job: Job
    speeds: tuple[float, ...]
    spread_speeds: tuple[float, ...]
    unit_steps_per_s: float
    told: tuple[float, ...]
    must_span: tuple[bool, ...]
    told_spread: tuple[float, ...] = ()


def admit(trace: JobTrace, cluster: Cluster) -> tuple[tuple[AdmittedJob, ...], tuple[ParkedRecord, ...]]:
    """Split the jobs of `trace` into those that can run and those that are parked, in order of arrival.

    Raises ConfigError for what makes the trace as a whole meaningless: duplicate names, jobs of unknown tenants, a restart that takes
    a whole round, failures of devices that do not exist, a bound on crashes below 1.
    """
    _check_trace(trace, cluster)
    admitted: list[AdmittedJob] = []
    parked: list[ParkedRecord] = []
    refused = {tenant.name: reason for tenant in trace.tenants if (reason := _tenant_fault(tenant))}
    for job in sorted(trace.jobs, key=lambda job: job.arrival_s):
        reason = refused.get(job.tenant) or _job_fault(job, cluster)
        if reason:
            parked.append(ParkedRecord(job.tenant, job.name, reason))
        else:
            admitted.append(_with_speeds(job, cluster))
    busy = {job.tenant for job in trace.jobs}
    parked += [
        ParkedRecord(tenant.name, None, refused.get(tenant.name, "has no jobs")) for tenant in trace.tenants if tenant.name not in busy
    ]
    return tuple(admitted), tuple(parked)


def _check_trace(trace: JobTrace, cluster: Cluster) -> None:
    for key, names in (("tenants", [t.name for t in trace.tenants]), ("jobs", [j.name for j in trace.jobs])):
        name, count = Counter(names).most_common(1)[0] if names else ("", 0)
        if count > 1:
            raise ConfigError(f"workload.{key}", name, f"the name is used {count} times; give each its own")
    known = {tenant.name for tenant in trace.tenants}
    for job in trace.jobs:
        if job.tenant not in known:
            raise ConfigError(f"workload.jobs.{job.name}.tenant", job.tenant, "no such tenant; add it to the tenants")
    devices = {device.name for device in cluster.devices}
    for failure in trace.failures:
        if failure.device not in devices:
            raise ConfigError("workload.failures.device", failure.device, "the cluster has no such device")
    if not (isfinite(trace.round_s) and trace.round_s > 0):
        raise ConfigError("workload.round_s", trace.round_s, "must be a finite number of seconds above 0")
    if not 0 <= trace.restart_s < trace.round_s:
        raise ConfigError("workload.restart_s", trace.restart_s, f"must be 0 or more and below round_s={trace.round_s}")
    if trace.max_crashes < 1:
        raise ConfigError("workload.max_crashes", trace.max_crashes, "must be 1 or more: so many crashes in a row park a job")


def _tenant_fault(tenant: Tenant) -> str:
    if not (isfinite(tenant.weight) and tenant.weight >= 0):
        return f"weight {tenant.weight} is not a finite number, 0 or more"
    return ""


def _job_fault(job: Job, cluster: Cluster) -> str:
    """Why `job` can never run on `cluster`; empty if it can."""
    if job.gang < 1 or job.num_steps < 1 or not (isfinite(job.arrival_s) and job.arrival_s >= 0):
        return f"needs gang >= 1, num_steps >= 1, arrival_s >= 0; has {job.gang}, {job.num_steps}, {job.arrival_s}"
    for kind, speed in (*job.steps_per_s.items(), *job.spread_steps_per_s.items(), *(job.known_steps_per_s or {}).items()):
        if speed and not _SLOWEST <= speed <= _FASTEST:
            return f"speed on {kind} is {speed}; speeds must be 0 or between {_SLOWEST} and {_FASTEST} steps/s"
    devices = cluster.num_devices_by_kind
    if all(job.gang > count for count in devices.values()):
        return f"gang of {job.gang} fits no kind; the largest has {max(devices.values())} devices"
    fitting = [kind for kind, count in devices.items() if job.gang <= count]
    if not any(job.steps_per_s.get(kind, 0) > 0 for kind in fitting):
        return f"runs at 0 steps/s on every kind that can hold its gang; gang of {job.gang} on {', '.join(fitting)}"
    admitted = _with_speeds(job, cluster)
    if not any(admitted.speeds):
        return f"a gang of {job.gang} must span hosts, and it runs at 0 steps/s when spread"
    if not any(admitted.told):
        return "the scheduler is told 0 steps/s for every kind that it runs on"
    return ""


def _with_speeds(job: Job, cluster: Cluster) -> AdmittedJob:
    host_size = {kind: max(g.devices for g in cluster.nodes if g.kind == kind and g.count) for kind in cluster.kinds}
    speeds, spread, told = [], [], []
    must_span = tuple(job.gang > host_size[kind] for kind in cluster.kinds)
    for (kind, count), spans in zip(cluster.num_devices_by_kind.items(), must_span, strict=True):
        plain = job.steps_per_s.get(kind, 0.0) if job.gang <= count else 0.0
        apart = job.spread_steps_per_s.get(kind, plain) if plain else 0.0
        speeds.append(apart if spans else plain)
        spread.append(apart)
        if job.known_steps_per_s is None:
            told.append(speeds[-1])
        else:
            told.append(job.known_steps_per_s.get(kind, 0.0) * (speeds[-1] / plain) if plain else 0.0)
    unit = next((speed for speed in speeds if speed > 0), 0.0) / job.gang
    told_spread = tuple(known * apart / speed if speed else 0.0 for known, apart, speed in zip(told, spread, speeds, strict=True))
    return AdmittedJob(job, tuple(speeds), tuple(spread), unit, tuple(told), must_span, told_spread)
