"""The summary of a scheduling run, from its records alone. Every name carries its unit; definitions stand in `summarize`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hetsys.core.scheduling.record import JobRecord, ParkedRecord, RoundRecord, SchedulingRecord
from hetsys.metrics.common import Number, mean, percentile, ratio
from hetsys.metrics.fairness import (
    UNFAIR_RHO,
    finish_time_fairness,
    jain_index,
    noncontiguous_users_fraction,
    share_fairness,
    tenant_rates,
)
from hetsys.metrics.gangs import devices_by_kind, gang_figures
from hetsys.metrics.received import received, received_figures

HOST_TIMINGS = ("wall_s", "plan_s", "solve_s_p50", "solve_s_max")
"""Names that hold the host's own time: the only ones that may differ between two runs of one configuration."""

JOBS_FOR_P95 = 20
"""A 95th percentile over jobs needs this many of them (our choice: the worst one in twenty), else it is null."""


def summarize(
    records: Sequence[SchedulingRecord], *, kinds: Sequence[str], prices_usd_per_hour: Mapping[str, float], watched: Sequence[str] = ()
) -> dict[str, Number]:
    """The numbers of one run. `kinds` from slow to fast; a price for each; `watched` tenants. None means: undefined for this run.

    Throughput: `throughput_normalized` is the progress of all tenants, in device-seconds of the slowest kind that each job supports, a
    second, over the *first half* of the run: from the first arrival to the round in which half of all progress of the run is made.
    (Every system of a seed does the same work; the second half belongs to the last few long jobs, when there is little to divide.)
    `_all`: over the whole makespan. `throughput_watched`: mean over the watched tenants of their progress a second for their weight, over
    all rounds in which they live.

    Time: `makespan_s` from the first arrival to the last departure; `device_s` from time 0. `jct_*`: arrival to departure of
    every job; withdrawn jobs count until their tenant leaves, unfinished ones and those parked after crashes until the end, so all systems
    of a seed average the same jobs and starving one is never rewarded (`jobs_unfinished`, `jobs_withdrawn` and `jobs_parked` say how
    many; the latter counts those refused at the door too). p95 is null below JOBS_FOR_P95 jobs.

    Fairness: see `hetsys.metrics.fairness`; envy, sharing incentive and rates are of tenants (`user_*`: of their users) and taken over the
    first half. `jain_index`: of progress a second, divided by weight. The theorems of a policy speak of users that can use whatever they
    are given; here demand is limited, and worth counts only what a tenant's jobs can hold.

    Capacity: `idle_device_fraction` of the device time that was up; `stranded_device_fraction`: idle while jobs waited.
    `device_hours`: time under a lease; `cost_usd`: the same at the sheets' dated prices. `lost_steps_fraction` of all steps done.
    Gangs: see `hetsys.metrics.gangs`; what they received of their entitlement: `hetsys.metrics.received`.

    Host: `solve_s_*` and `plan_s` are the policy's own seconds; `solver_kept`, `solver_fallbacks` count rounds whose solver failed.
    """
    rounds = [record for record in records if isinstance(record, RoundRecord)]
    jobs = [record for record in records if isinstance(record, JobRecord)]
    parked = [record for record in records if isinstance(record, ParkedRecord)]
    half = first_half(rounds)
    start_s = min((job.arrival_s for job in jobs), default=0.0)
    end_s = max((job.left_s for job in jobs), default=start_s)
    times_s = [(end_s if job.status == "parked" else job.left_s) - job.arrival_s for job in jobs]
    return {
        "throughput_normalized": _throughput(half, half[-1].start_s + half[-1].length_s - start_s if half else 0.0),
        "throughput_normalized_all": _throughput(rounds, end_s - start_s),
        "throughput_watched": _throughput_watched(rounds, watched),
        **_times(times_s, start_s, end_s),
        **_fairness(half, finish_time_fairness(jobs, times_s)),
        **gang_figures(rounds, jobs),
        **received_figures(received(rounds, jobs, kinds)),
        **_capacity(rounds, kinds, prices_usd_per_hour),
        **_counts(rounds, jobs, parked),
        **_host(rounds),
    }


def first_half(rounds: Sequence[RoundRecord]) -> list[RoundRecord]:
    """The rounds up to and with the one in which half of the run's progress is reached; none where there is no progress."""
    made = np.cumsum([sum(record.progress.values()) for record in rounds])
    return list(rounds[: int(np.searchsorted(made, made[-1] / 2)) + 1]) if len(made) and made[-1] > 0 else []


def _throughput(rounds: Sequence[RoundRecord], time_s: float) -> float | None:
    return ratio(sum(sum(record.progress.values()) for record in rounds), time_s) if rounds else None


def _throughput_watched(rounds: Sequence[RoundRecord], watched: Sequence[str]) -> float | None:
    rates = tenant_rates(rounds) if watched else {}
    return mean([rates[tenant] for tenant in watched if tenant in rates])


def _times(times_s: Sequence[float], start_s: float, end_s: float) -> dict[str, Number]:
    return {
        "jct_mean_s": mean(times_s),
        "jct_p50_s": percentile(times_s, 50),
        "jct_p95_s": percentile(times_s, 95, JOBS_FOR_P95),
        "makespan_s": end_s - start_s,
        "device_s": end_s,
    }


def _fairness(rounds: Sequence[RoundRecord], rho: Sequence[float]) -> dict[str, Number]:
    shares = share_fairness(rounds)
    return {
        "finish_time_fairness_p95": percentile(rho, 95, JOBS_FOR_P95),
        "finish_time_fairness_max": max(rho, default=None),
        "finish_time_unfair_fraction": ratio(sum(value > UNFAIR_RHO for value in rho), len(rho)),
        "jain_index": jain_index(list(tenant_rates(rounds).values())),
        "envy_max": shares.envy_max,
        "envy_mean": shares.envy_mean,
        "sharing_incentive_min": shares.sharing_incentive_min,
        "user_envy_max": shares.user_envy_max,
        "user_sharing_incentive_min": shares.user_sharing_incentive_min,
        "noncontiguous_users_fraction": noncontiguous_users_fraction(rounds),
    }


def _capacity(rounds: Sequence[RoundRecord], kinds: Sequence[str], prices_usd_per_hour: Mapping[str, float]) -> dict[str, Number]:
    up_s = sum(sum(record.capacity) * record.length_s for record in rounds)
    idle_s = sum(sum(record.idle) * record.length_s for record in rounds)
    stranded_s = sum(sum(record.stranded) * record.length_s for record in rounds)
    hours = dict.fromkeys(kinds, 0.0)
    for record in rounds:
        for grant in record.grants:
            for kind, count in devices_by_kind(grant, kinds).items():
                hours[kind] += count * grant.held_s / 3600.0
    return {
        "idle_device_fraction": ratio(idle_s, up_s),
        "stranded_device_fraction": ratio(stranded_s, up_s),
        "device_hours": sum(hours.values()),
        "cost_usd": sum(hours[kind] * prices_usd_per_hour[kind] for kind in kinds),
    }


def _counts(rounds: Sequence[RoundRecord], jobs: Sequence[JobRecord], parked: Sequence[ParkedRecord]) -> dict[str, Number]:
    restarts = sum(job.restarts for job in jobs)
    lost, kept = sum(job.lost_steps for job in jobs), sum(job.steps for job in jobs)
    return {
        "rounds": len(rounds),
        "restarts": restarts,
        "restarts_per_round": ratio(restarts, len(rounds)),
        "preemptions": sum(job.preemptions for job in jobs),
        "lost_steps_fraction": ratio(lost, lost + kept),
        "jobs_finished": sum(job.status == "finished" for job in jobs),
        "jobs_unfinished": sum(job.status == "unfinished" for job in jobs),
        "jobs_withdrawn": sum(job.status == "withdrawn" for job in jobs),
        "tenants_parked": sum(record.job is None for record in parked),
        "jobs_parked": sum(record.job is not None for record in parked) + sum(job.status == "parked" for job in jobs),
        "crashes": sum(job.crashes for job in jobs),
        "solver_kept": sum(record.status == "kept" for record in rounds),
        "solver_fallbacks": sum(record.status == "fallback" for record in rounds),
    }


def _host(rounds: Sequence[RoundRecord]) -> dict[str, Number]:
    seconds = np.array([record.policy_s for record in rounds])
    return {
        "solve_s_p50": percentile(seconds.tolist(), 50),
        "solve_s_max": float(seconds.max()) if len(seconds) else None,
        "plan_s": float(seconds.sum()),
    }
