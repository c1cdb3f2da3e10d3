"""The scheduling loop on the simulated executor: times by hand, restarts, failures, departures, and invariants on random traces."""

from __future__ import annotations

import itertools
import json
from collections.abc import Container
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsys.core.cluster import Cluster
from hetsys.core.devicetime.charge import Charge
from hetsys.core.scheduling.plan import Allocation, Lease, RoundOutcome, RoundPlan
from hetsys.core.scheduling.record import JobRecord, ParkedRecord, RoundRecord, SchedulingRecord, decode, encode
from hetsys.core.scheduling.trace import DeviceFailure, JobTrace, Tenant
from hetsys.core.scheduling.view import ClusterView
from hetsys.engines.scheduling.loop import run
from hetsys.engines.scheduling.sim import SimExecutor
from hetsys.engines.scheduling.state import NS, SchedulingState
from hetsys.metrics.scheduling import summarize
from tests.engines.builders import EqualShares, cluster, job


def simulate(trace: JobTrace, machine: Cluster) -> list[SchedulingRecord]:
    return list(run(trace, machine, EqualShares(), SimExecutor(trace), lambda: 0.0))


def jobs_of(records: list[SchedulingRecord]) -> dict[str, JobRecord]:
    return {record.job: record for record in records if isinstance(record, JobRecord)}


def rounds_of(records: list[SchedulingRecord]) -> list[RoundRecord]:
    return [record for record in records if isinstance(record, RoundRecord)]


def test_one_job_takes_its_restart_and_its_steps() -> None:
    trace = JobTrace((Tenant("a"),), (job("j", steps=500, slow=1.0),), round_s=300.0, restart_s=20.0)
    records = simulate(trace, cluster(slow=(1, 1)))
    done = jobs_of(records)["j"]
    assert (done.start_s, done.finish_s, done.restarts, done.preemptions) == (0.0, 520.0, 0, 0)
    assert [sum(g.steps for g in r.grants) for r in rounds_of(records)] == [280, 220]
    assert [r.grants[0].held_s for r in rounds_of(records)] == [300.0, 220.0]


def test_a_step_under_way_survives_an_extended_lease() -> None:
    """Steps of 7 s: 100 s rounds hold 14.28 of them, so 3 rounds hold 42, not 3 x 14 + a loss of 2 s a round."""
    trace = JobTrace((Tenant("a"),), (job("j", steps=43, slow=1 / 7),), round_s=100.0, restart_s=0.0)
    records = simulate(trace, cluster(slow=(1, 1)))
    assert [sum(g.steps for g in r.grants) for r in rounds_of(records)] == [14, 14, 14, 1]
    assert jobs_of(records)["j"].finish_s == pytest.approx(301.0, abs=1e-6)


def test_two_tenants_take_turns_on_one_device_and_pay_for_each_restart() -> None:
    trace = JobTrace((Tenant("a"), Tenant("b")), (job("x", "a", steps=200), job("y", "b", steps=200)), round_s=100.0, restart_s=10.0)
    records = simulate(trace, cluster(slow=(1, 1)))
    # Credits before each round (x, y): (.5, .5) (0, 1) (.5, .5 held) (1, 0) (.5 held, .5) (0, 1): holding on decides a tie.
    assert [r.grants[0].job for r in rounds_of(records)] == ["x", "y", "y", "x", "x", "y"]
    done = jobs_of(records)
    assert done["x"].finish_s == 420.0  # 90 and, after another restart, 90 + 20 steps
    assert done["y"].finish_s == 520.0  # 90 + 100 and, after another restart, 10
    assert [(done[j].restarts, done[j].preemptions) for j in "xy"] == [(1, 1), (1, 1)]


def test_a_failed_device_costs_the_round_and_is_out_until_repaired() -> None:
    failure = DeviceFailure("slow-0-0", at_s=250.0, down_s=100.0)
    trace = JobTrace((Tenant("a"),), (job("j", steps=260),), (failure,), round_s=100.0, restart_s=0.0)
    records = simulate(trace, cluster(slow=(1, 1)))
    rounds = rounds_of(records)
    assert [r.capacity for r in rounds] == [(1,), (1,), (1,), (0,), (1,)]
    assert [(g.steps, g.failed, g.lost_steps) for g in rounds[2].grants] == [(0, True, 50)]
    assert jobs_of(records)["j"].finish_s == 460.0 and jobs_of(records)["j"].lost_steps == 50


def test_gaps_late_first_arrivals_departures_and_the_round_limit() -> None:
    jobs = (job("late", arrival_s=950.0, steps=10), job("gone", "b", arrival_s=0.0, steps=10**9), job("far", arrival_s=5000.0, steps=10))
    jobs = (*jobs, job("tardy", "b", arrival_s=180.0))
    trace = JobTrace((Tenant("a"), Tenant("b", leaves_s=150.0)), jobs, round_s=100.0, restart_s=0.0)
    records = simulate(trace, cluster(slow=(1, 1)))
    done = jobs_of(records)
    assert done["gone"].left_s == 200.0
    assert [(r.job, r.reason) for r in records if isinstance(r, ParkedRecord)] == [("tardy", "arrives when its tenant has left")]
    assert done["gone"].status == "withdrawn" and done["gone"].steps == 200
    assert (done["late"].start_s, done["late"].finish_s) == (1000.0, 1010.0)
    assert [r.start_s for r in rounds_of(records)] == [0.0, 100.0, 1000.0, 5000.0]
    capped = jobs_of(simulate(replace(trace, max_rounds=1), cluster(slow=(1, 1))))
    assert {name: record.status for name, record in capped.items()} == dict.fromkeys(("late", "gone", "far", "tardy"), "unfinished")


def test_weight_zero_scavenges_idle_devices_only() -> None:
    jobs = (job("own", "a", steps=250), job("guest", "z", steps=100))
    trace = JobTrace((Tenant("a"), Tenant("z", weight=0.0)), jobs, round_s=100.0, restart_s=0.0)
    alone = jobs_of(simulate(trace, cluster(slow=(1, 1))))
    assert alone["own"].finish_s == 250.0 and alone["guest"].start_s == 300.0
    roomy = jobs_of(simulate(trace, cluster(slow=(1, 2))))
    assert roomy["guest"].finish_s == 100.0 and roomy["guest"].isolated_jct_s is None


def test_an_empty_trace_and_a_fully_parked_one_end_at_once() -> None:
    assert simulate(JobTrace((), ()), cluster(slow=(1, 1))) == []
    records = simulate(JobTrace((Tenant("a"),), (job("j", gang=9),)), cluster(slow=(1, 1)))
    assert [type(record) for record in records] == [ParkedRecord]


@st.composite
def traces(draw: st.DrawFn) -> JobTrace:
    tenants = tuple(Tenant(f"t{i}", weight=draw(st.sampled_from([0.0, 1.0, 2.5]))) for i in range(draw(st.integers(1, 4))))
    jobs = [
        job(
            f"j{i}", draw(st.sampled_from(tenants)).name, steps=draw(st.integers(1, 2000)), gang=draw(st.sampled_from([1, 2, 4])),
            arrival_s=draw(st.floats(0, 3000)), slow=draw(st.floats(0, 5)), fast=draw(st.floats(0, 9)),
        )
        for i in range(draw(st.integers(0, 8)))
    ]  # fmt: skip
    failures = tuple(
        DeviceFailure(draw(st.sampled_from(["slow-0-0", "fast-0-1"])), draw(st.floats(0, 2000)), draw(st.floats(1, 500)))
        for _ in range(draw(st.integers(0, 3)))
    )
    return JobTrace(tenants, tuple(jobs), failures, round_s=100.0, restart_s=draw(st.sampled_from([0.0, 10.0])), max_rounds=400)


@given(traces(), st.booleans())
def test_books_balance_on_any_trace(trace: JobTrace, learns: bool) -> None:
    trace = replace(trace, learns=learns)
    machine = cluster(slow=(1, 4), fast=(2, 2))
    state = SchedulingState(trace, machine)
    executor, policy, memo = SimExecutor(trace), EqualShares(), None
    records: list[SchedulingRecord] = list(state.parked)
    while state.pending:
        records += state.open_round(executor.down_at(state.now_ns))
        state.check()
        if not state.live:
            state.skip_idle()
            continue
        snapshot = state.view()
        for live in state.live.values():
            live.seen = None
        assert snapshot == state.view()  # what is shown of a job from before is what would be shown of it now
        allocation, memo = policy.allocate(snapshot, memo)
        plan = state.plan(allocation, snapshot)
        busy = [name for lease in plan.leases for name in lease.devices]
        assert len(busy) == len(set(busy)) and not set(busy) & state.down
        records += state.apply(allocation, snapshot, plan, executor.round(plan), 0.0)
    records += state.leftover()
    done = jobs_of(records)
    assert len(done) + sum(isinstance(r, ParkedRecord) and r.job is not None for r in records) == len(trace.jobs)
    steps: dict[str, int] = {}
    for record in rounds_of(records):
        for grant in record.grants:
            steps[grant.job] = steps.get(grant.job, 0) + grant.steps
        assert sum(record.idle) + sum(len(g.devices) for g in record.grants) == sum(record.capacity)
    for spec in trace.jobs:
        if spec.name in done:
            assert done[spec.name].steps == steps.get(spec.name, 0)
            assert (done[spec.name].status == "finished") == (steps.get(spec.name, 0) == spec.num_steps)
    assert decode(json.loads(json.dumps(row)) for row in encode(records)) == records


class Crashing(SimExecutor):
    """A simulated executor in which the processes of job "bad" die in the rounds of `crashes`."""

    def __init__(self, trace: JobTrace, crashes: Container[int]) -> None:
        super().__init__(trace)
        self._crashes = crashes

    def round(self, plan: RoundPlan) -> RoundOutcome:
        done = super().round(plan)
        if plan.index not in self._crashes or all(lease.job != "bad" for lease in plan.leases):
            return done
        self.undo("bad")
        lost = [
            replace(o, steps=0, lost_steps=o.steps, stepping_ns=0, finish_ns=None, failed=True, crashed=True, reason="out of memory")
            if o.job == "bad" else o for o in done.leases
        ]  # fmt: skip
        return replace(done, leases=tuple(lost))


def test_a_job_that_crashes_goes_on_from_its_checkpoint_and_progress_forgives() -> None:
    trace = JobTrace((Tenant("a"),), (job("bad", steps=300),), round_s=100.0, restart_s=10.0, max_crashes=2)
    records = list(run(trace, cluster(slow=(1, 1)), EqualShares(), Crashing(trace, (1, 3)), lambda: 0.0))
    rounds = rounds_of(records)
    assert [(g.steps, g.lost_steps, g.crashed, g.restarted) for r in rounds for g in r.grants] == [
        (90, 0, False, True), (0, 100, True, False), (90, 0, False, True), (0, 100, True, False), (90, 0, False, True),
        (30, 0, False, False),
    ]  # fmt: skip
    done = jobs_of(records)["bad"]
    assert (done.status, done.finish_s, done.crashes, done.reason, done.lost_steps) == ("finished", 530.0, 2, "", 200)
    assert decode(json.loads(json.dumps(row)) for row in encode(records)) == records


def test_a_job_that_crashes_too_often_is_parked_and_the_others_finish() -> None:
    jobs = (job("bad", steps=300), job("good", "b", steps=400))
    trace = JobTrace((Tenant("a"), Tenant("b")), jobs, round_s=100.0, restart_s=10.0, max_crashes=2)
    records = list(run(trace, cluster(slow=(1, 2)), EqualShares(), Crashing(trace, range(99)), lambda: 0.0))
    bad, good = jobs_of(records)["bad"], jobs_of(records)["good"]
    assert (bad.status, bad.left_s, bad.steps, bad.crashes) == ("parked", 200.0, 0, 2)
    assert bad.reason == "crashed 2 times in a row without progress; the last time: out of memory"
    assert (good.status, good.finish_s) == ("finished", 410.0)
    figures = summarize(records, kinds=("slow",), prices_usd_per_hour={"slow": 0.0})
    assert (figures["jobs_parked"], figures["crashes"], figures["jct_mean_s"]) == (1, 2, 410.0)  # a parked job counts until the end
    assert decode(json.loads(json.dumps(row)) for row in encode(records)) == records


def test_records_from_before_crashes_were_counted_can_still_be_read() -> None:
    records = simulate(JobTrace((Tenant("a"),), (job("j", steps=5),)), cluster(slow=(1, 1)))
    rows = list(encode(records))
    assert not any("crashes" in row or "reason" in row for row in rows) and decode(rows) == records


def test_a_charge_delays_every_round_and_nothing_is_charged_by_default() -> None:
    trace = JobTrace((Tenant("a"),), (job("j", steps=150),), round_s=100.0, restart_s=0.0)
    ticks = itertools.count(step=0.25)

    def starts(charge: Charge) -> tuple[list[float], float | None]:
        records = list(run(trace, cluster(slow=(1, 1)), EqualShares(), SimExecutor(trace), lambda: next(ticks), charge))
        return [r.start_s for r in rounds_of(records)], jobs_of(records)["j"].finish_s

    assert starts(Charge()) == ([0.0, 100.0], 150.0)
    assert starts(Charge("constant", 2.0)) == ([2.0, 104.0], 154.0)
    assert starts(Charge("measured")) == ([0.25, 100.5], 150.5)


def test_a_device_lost_while_the_policy_decides_costs_the_round() -> None:
    failure = DeviceFailure("slow-0-0", at_s=103.0, down_s=10.0)
    trace = JobTrace((Tenant("a"),), (job("j", steps=150),), (failure,), round_s=100.0, restart_s=0.0)
    records = list(run(trace, cluster(slow=(1, 1)), EqualShares(), SimExecutor(trace), lambda: 0.0, Charge("constant", 2.0)))
    grants = [g for r in rounds_of(records) for g in r.grants]
    assert [(g.steps, g.failed, g.held_s) for g in grants] == [(100, False, 100.0), (0, True, 0.0), (50, False, 50.0)]


def test_a_scheduler_that_learns_corrects_what_it_was_told_and_fairness_is_judged_by_the_truth() -> None:
    """Told that the kinds are alike, it sees after a lease on each that fast is four times as fast."""
    spec = replace(job("j", steps=10**6, slow=1.0, fast=4.0), known_steps_per_s={"slow": 1.0, "fast": 1.0})
    trace = JobTrace((Tenant("a"),), (spec, replace(spec, name="k")), round_s=100.0, restart_s=0.0, max_rounds=3, learns=True)
    views: list[ClusterView] = []

    class Watched(EqualShares):
        def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
            views.append(view)
            return super().allocate(view, memo)

    records = list(run(trace, cluster(slow=(1, 1), fast=(1, 1)), Watched(), SimExecutor(trace), lambda: 0.0))
    assert [{job.steps_per_s for job in view.jobs} for view in views] == [{(1.0, 1.0)}, {(1.0, 4.0)}, {(1.0, 4.0)}]
    assert {user.speeds for record in rounds_of(records) for user in record.users} == {(1.0, 4.0)}


def test_what_took_how_long_is_reported_without_start_up_and_the_step_under_way() -> None:
    failure = DeviceFailure("slow-0-0", at_s=75.0, down_s=10.0)
    trace = JobTrace((Tenant("a"),), (job("j", steps=99, slow=0.1),), (failure,), round_s=50.0, restart_s=7.0)
    executor = SimExecutor(trace)
    lease = Lease("j", "slow", ("slow-0-0",), 0.1, False)
    first = executor.round(RoundPlan(0, 0, 50 * NS, 7 * NS, (lease,))).leases[0]
    assert (first.steps, first.stepping_ns) == (4, 40 * NS)
    second = executor.round(RoundPlan(1, 50 * NS, 50 * NS, 7 * NS, (replace(lease, extended=True),))).leases[0]
    assert (second.failed, second.lost_steps, second.stepping_ns) == (True, 2, 20 * NS)  # 3 s of the first were done before


def test_a_gang_that_cannot_run_spread_makes_no_step_there() -> None:
    spec = replace(job("j", gang=2, steps=10), spread_steps_per_s={"slow": 0.0})
    trace = JobTrace((Tenant("a"),), (spec,), round_s=100.0, restart_s=0.0)
    lease = Lease("j", "slow", ("slow-0-0", "slow-1-0"), 0.0, False, True)
    outcome = SimExecutor(trace).round(RoundPlan(0, 0, 100 * NS, 0, (lease,))).leases[0]
    assert (outcome.steps, outcome.failed, outcome.held_ns) == (0, False, 100 * NS)
