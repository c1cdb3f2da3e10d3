"""The summary of a scheduling run, on a run of three rounds worked out by hand."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest

from hetsys.core.scheduling.record import ParkedRecord
from hetsys.metrics.common import mean, percentile, ratio
from hetsys.metrics.scheduling import HOST_TIMINGS, summarize
from tests.metrics.records import KINDS, PRICES, grant, job, round_, user

RUN = [
    ParkedRecord("t", None, "no jobs"),
    ParkedRecord("a", "a.9", "gang 16 fits no kind"),
    # two rounds in which somebody waits, then one in which nobody does
    round_(
        0, users=[user("a", (0.5, 0.5)), user("b", (0.5, 0.5))], progress={"a": 100.0, "b": 150.0}, waiting=1, policy_s=0.1,
        grants=[grant("a.0", "a", ["fast-0-0"]), grant("b.0", "b", ["slow-0-0"])],
    ),
    round_(
        1, users=[user("a", (0.5, 0.5)), user("b", (0.5, 0.5))], progress={"a": 50.0, "b": 100.0}, waiting=1, idle=(1, 0),
        grants=[grant("a.0", "a", ["fast-0-0"], held_s=50.0)], status="kept", policy_s=0.3,
    ),
    round_(
        2, users=[user("b", (1, 1))], progress={"b": 200.0}, idle=(1, 0), grants=[grant("b.0", "b", ["fast-0-0"])],
        status="fallback", policy_s=0.2,
    ),
    job("a.0", 150.0, alone_s=300.0, restarts=1),
    job("b.0", 280.0, tenant="b", arrival_s=20.0, alone_s=200.0, restarts=2, preemptions=1, steps=30, lost=10),
]  # fmt: skip


def test_a_run_by_hand() -> None:
    summary = summarize(RUN, kinds=KINDS, prices_usd_per_hour=PRICES)
    expected = {
        "throughput_normalized": 400 / 200,  # half of 600 is reached in round 1: 250 + 150 in the 200 s since the first arrival
        "throughput_normalized_all": 600 / 280,  # first arrival at 0, last departure at 280
        "throughput_watched": None,
        "jct_mean_s": (150 + 260) / 2,
        "jct_p50_s": 205.0,
        "jct_p95_s": None,  # two jobs do not make a 95th percentile
        "makespan_s": 280.0,
        "device_s": 280.0,
        "finish_time_fairness_p95": None,
        "finish_time_fairness_max": 260 / 200,
        "finish_time_unfair_fraction": 1 / 2,  # rho 0.5 and 1.3
        "jain_index": (0.75 + 1.25) ** 2 / (2 * (0.75**2 + 1.25**2)),
        "envy_max": 0.0,
        "envy_mean": 0.0,
        "sharing_incentive_min": 1.0,
        "user_envy_max": 0.0,
        "user_sharing_incentive_min": 1.0,
        "noncontiguous_users_fraction": 0.0,
        "entitlement_received_min": None,  # nobody was entitled to fifty gangs
        "wait_max_turns": None,
        "cross_host_gangs_fraction": None,  # nobody holds more than one device
        "cross_kind_gangs_fraction": None,
        "straggler_loss": None,
        "idle_device_fraction": 2 / 6,
        "stranded_device_fraction": 1 / 6,
        "device_hours": 350 / 3600,  # fast: 100 + 50 + 100 s, slow: 100 s
        "cost_usd": (250 * 3 + 100 * 1) / 3600,
        "rounds": 3,
        "restarts": 3,
        "restarts_per_round": 1.0,
        "preemptions": 1,
        "lost_steps_fraction": 10 / 50,
        "jobs_finished": 2,
        "jobs_unfinished": 0,
        "jobs_withdrawn": 0,
        "tenants_parked": 1,
        "jobs_parked": 1,
        "crashes": 0,
        "solver_kept": 1,
        "solver_fallbacks": 1,
        "solve_s_p50": 0.2,
        "solve_s_max": 0.3,
        "plan_s": 0.6,
    }
    assert summary.keys() == expected.keys()
    for name, value in expected.items():
        assert summary[name] == (value if value is None else pytest.approx(value)), name


def test_watched_tenants_are_reported_apart() -> None:
    """a made 150 in the two rounds in which it lived, b 450 in three; a tenant that never lived counts for nothing."""

    def watched(*names: str) -> float | int | None:
        return summarize(RUN, kinds=KINDS, prices_usd_per_hour=PRICES, watched=names)["throughput_watched"]

    assert watched("a") == pytest.approx(0.75) and watched("b", "nobody") == pytest.approx(1.5)
    assert watched("a", "b") == pytest.approx((0.75 + 1.5) / 2) and watched("nobody") is None


def test_jobs_that_did_not_finish_count_with_the_time_they_stayed() -> None:
    """Rounds end at 100, 200, 300. b leaves at 200 (its job stayed 200 - 50 s), a's second job is still there at 300."""
    rounds = [round_(i, users=[user("a", (1, 1))] + [user("b", (0, 0))] * (i < 2)) for i in range(3)]
    jobs = [
        job("a.0", 90.0, alone_s=90.0),
        job("a.1", None, arrival_s=100.0, left_s=300.0, alone_s=100.0),
        job("b.0", None, tenant="b", arrival_s=50.0, left_s=200.0, alone_s=50.0, status="withdrawn"),
    ]
    summary = summarize([*rounds, *jobs], kinds=KINDS, prices_usd_per_hour=PRICES)
    assert summary["jct_mean_s"] == pytest.approx((90 + 200 + 150) / 3)
    assert summary["finish_time_fairness_max"] == pytest.approx(3.0)  # b.0: 150 / 50
    assert (summary["jobs_unfinished"], summary["jobs_withdrawn"]) == (1, 1)
    assert summary["makespan_s"] == 300.0


def test_nothing_done_and_nothing_at_all() -> None:
    quiet = summarize([round_(users=[user("a", (1, 1))], progress={"a": 0.0})], kinds=KINDS, prices_usd_per_hour=PRICES)
    assert quiet["throughput_normalized"] is None and quiet["jain_index"] is None and quiet["jct_mean_s"] is None
    empty = summarize([], kinds=KINDS, prices_usd_per_hour=PRICES)
    assert empty["rounds"] == 0 and empty["throughput_normalized_all"] is None and empty["cost_usd"] == 0.0
    assert all(value is None or math.isfinite(value) for value in (*quiet.values(), *empty.values()))


def test_p95_from_twenty_jobs_on() -> None:
    jobs = [job(f"j{i}", float(i + 1), alone_s=1.0) for i in range(20)]
    summary = summarize(jobs, kinds=KINDS, prices_usd_per_hour=PRICES)
    assert summary["jct_p95_s"] == pytest.approx(19.05)  # position 0.95 x 19 = 18.05 among 1..20
    assert summary["finish_time_fairness_p95"] == pytest.approx(19.05)
    assert summarize(jobs[1:], kinds=KINDS, prices_usd_per_hour=PRICES)["jct_p95_s"] is None


def test_only_the_host_timings_depend_on_the_host() -> None:
    slower = [replace(record, policy_s=9.0) if hasattr(record, "policy_s") else record for record in RUN]
    one = summarize(RUN, kinds=KINDS, prices_usd_per_hour=PRICES)
    other = summarize(slower, kinds=KINDS, prices_usd_per_hour=PRICES)
    assert {name for name in one if one[name] != other[name]} == set(HOST_TIMINGS) - {"wall_s"}


def test_small_helpers() -> None:
    assert percentile([1.0, 2.0, 4.0], 50) == 2.0 and percentile([], 50) is None
    assert mean([1.0, 4.0]) == 2.5 and mean([]) is None
    assert ratio(1.0, 4.0) == 0.25 and ratio(1.0, 0.0) is None


def test_a_long_run_is_summarised_at_once() -> None:
    """2,000 rounds with 15 tenants and 30 leases, every allocation another: below half a second on a busy machine (0.1 s quiet)."""
    tenants = [f"t{i}" for i in range(15)]
    grants = [grant(f"j{i}", tenants[i % 15], [f"fast-0-{i}"]) for i in range(30)]
    records = [
        round_(
            i, users=[user(name, (0.1 * (i % 7), 1.0)) for name in tenants], progress=dict.fromkeys(tenants, 1.0), grants=grants,
            capacity=(15, 15), waiting=3,
        )
        for i in range(2000)
    ]  # fmt: skip
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        summarize(records, kinds=KINDS, prices_usd_per_hour=PRICES)
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.5
