"""Scheduling against the wall clock: rounds that last their length, deadlines, failures at their time, crashes. Mostly with threads."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hetsys.core.cluster import Cluster, NodeGroup
from hetsys.core.errors import ConfigError, EngineError
from hetsys.core.host import usable_cores
from hetsys.core.scheduling.plan import Lease, LeaseOutcome, RoundPlan
from hetsys.core.scheduling.record import SchedulingRecord
from hetsys.core.scheduling.trace import DeviceFailure, JobTrace, Tenant
from hetsys.engines.scheduling.live import native as native_module
from hetsys.engines.scheduling.live.gangs import job_seed
from hetsys.engines.scheduling.live.native import NativeExecutor
from hetsys.engines.scheduling.loop import run
from tests.engines import fakes
from tests.engines.builders import SHEET, EqualShares
from tests.engines.fakes import ThreadLauncher, undisturbed
from tests.engines.live import jobs_of, live_job, rounds_of

NS = 1_000_000_000
WORKER = replace(SHEET, native="cpu", busy_fraction=0.4)
MACHINE = Cluster([NodeGroup("slow", 1), NodeGroup("fast", 1)], {"slow": WORKER, "fast": WORKER})


@pytest.fixture
def launcher() -> Iterator[ThreadLauncher]:
    made = ThreadLauncher()
    yield made
    made.close()


def run_natively(trace: JobTrace, folder: Path, launcher: Any, entry: Any, **more: Any) -> tuple[list[SchedulingRecord], NativeExecutor]:
    executor = NativeExecutor(trace, MACHINE, folder, 0, launcher, entry=entry, **more)
    try:
        return list(run(trace, MACHINE, EqualShares(), executor, time.perf_counter)), executor
    finally:
        executor.close()


def test_two_workers_finish_what_they_are_given(tmp_path: Path, launcher: ThreadLauncher) -> None:
    """Three jobs of steps of 5 ms on two workers, in rounds of 0.4 s: somebody is preempted, everybody goes on where he was."""
    jobs = tuple(live_job(name, tenant, steps=70, slow=200.0, fast=200.0) for name, tenant in (("x", "a"), ("y", "a"), ("z", "b")))
    trace = JobTrace((Tenant("a"), Tenant("b")), jobs, round_s=0.4, restart_s=0.05)
    ledger: list[dict[str, Any]] = []
    began_s = time.monotonic()
    records, executor = run_natively(trace, tmp_path, launcher, fakes.timed_train, note=ledger.append)
    wall_s = time.monotonic() - began_s
    rounds, done = rounds_of(records), jobs_of(records)
    assert {name: (job.status, job.steps) for name, job in done.items()} == dict.fromkeys("xyz", ("finished", 70))
    assert all(record.length_s >= 0.4 for record in rounds) and 0.4 * len(rounds) <= wall_s
    assert [a.start_s + a.length_s for a in rounds[:-1]] == pytest.approx([b.start_s for b in rounds[1:]])
    for name, losses in executor.books.losses.items():
        assert losses == undisturbed("conv/tiny", job_seed(0, live_job(name)), 70)
    assert all(job.finish_s is not None and 0.35 < job.finish_s <= wall_s for job in done.values())
    assert sum(line["steps"] for line in ledger) == 210
    assert not (tmp_path / "checkpoints").exists()


def lease(job: str, device: str = "slow-0-0", *, extended: bool = False) -> Lease:
    return Lease(job, device.split("-")[0], (device,), 200.0, extended)


def plan(index: int, start_ns: int, *leases: Lease, length_s: float = 0.3) -> RoundPlan:
    return RoundPlan(index, start_ns, round(length_s * NS), 0, leases)


def test_a_round_starts_at_its_time_and_lasts_its_length_even_where_all_is_done_before(tmp_path: Path, launcher: ThreadLauncher) -> None:
    trace = JobTrace((Tenant("a"),), (live_job("j", steps=10, slow=200.0), live_job("k", steps=10**6, slow=200.0)))
    executor = NativeExecutor(trace, MACHINE, tmp_path, 0, launcher, entry=fakes.timed_train)
    began_s = time.monotonic()
    first = executor.round(plan(0, 7 * NS, lease("j")))  # time 7 s is now: the first round is not waited for
    assert 0.3 <= time.monotonic() - began_s < 5 and first.end_ns >= 7.3 * NS
    done = first.leases[0]
    assert done.steps == 10 and done.finish_ns is not None and 7.05 * NS <= done.finish_ns <= first.end_ns
    assert done.held_ns == done.finish_ns - 7 * NS and 0.05 * NS <= done.stepping_ns <= done.held_ns
    start_ns = first.end_ns + NS // 4
    second = executor.round(plan(1, start_ns, lease("k")))
    assert second.end_ns >= start_ns + 0.3 * NS and 1 <= second.leases[0].steps <= 60
    late = executor.round(plan(2, start_ns, lease("k", extended=True)))  # its time has passed: it starts at once, and has its length
    assert late.end_ns >= second.end_ns + 0.3 * NS and late.leases[0].steps >= 1
    assert late.leases[0].held_ns == late.end_ns - start_ns and len(launcher.started) == 3  # with one to warm up
    executor.close()


def test_measured_speed_is_what_the_processes_clocks_say(tmp_path: Path, launcher: ThreadLauncher) -> None:
    trace = JobTrace((Tenant("a"),), (live_job("j", steps=10**6, slow=200.0),))
    executor = NativeExecutor(trace, MACHINE, tmp_path, 0, launcher, entry=fakes.timed_train)
    outcome: LeaseOutcome = executor.round(plan(0, 0, lease("j"), length_s=0.5)).leases[0]
    assert outcome.stepping_ns >= outcome.steps * 5_000_000  # a step sleeps 5 ms and more
    assert outcome.stepping_ns < 0.5 * NS + outcome.stepping_ns / outcome.steps + NS  # not far over the deadline
    executor.close()


def test_a_device_failure_kills_what_runs_on_it_at_its_time_and_the_job_goes_on(tmp_path: Path, launcher: ThreadLauncher) -> None:
    jobs = (live_job("j", "a", steps=300, slow=200.0, fast=0.0), live_job("k", "b", steps=100, slow=0.0, fast=200.0))
    failure = DeviceFailure("slow-0-0", 1.5, 0.3)
    trace = JobTrace((Tenant("a"), Tenant("b")), jobs, (failure,), round_s=1.0, restart_s=0.0)
    records, executor = run_natively(trace, tmp_path, launcher, fakes.timed_train)
    lost = [(record, grant) for record in rounds_of(records) for grant in record.grants if grant.failed]
    assert [(grant.job, grant.steps, grant.crashed) for _, grant in lost] == [("j", 0, False)]
    record, grant = lost[0]
    assert 1.5 <= record.start_s + grant.held_s < 2.0 and 1 <= grant.lost_steps <= 100
    done = jobs_of(records)
    assert [(done[name].status, done[name].steps, done[name].crashes) for name in "jk"] == [("finished", 300, 0), ("finished", 100, 0)]
    assert executor.books.losses["j"] == undisturbed("conv/tiny", job_seed(0, jobs[0]), 300)


def test_a_job_whose_process_fails_goes_on_from_its_checkpoint_and_says_what_was_lost(tmp_path: Path, launcher: ThreadLauncher) -> None:
    jobs = (live_job("victim", "a", steps=100, slow=200.0, fast=0.0), live_job("other", "b", steps=60, slow=0.0, fast=200.0))
    trace = JobTrace((Tenant("a"), Tenant("b")), jobs, round_s=0.5, restart_s=0.0)
    records, executor = run_natively(trace, tmp_path, launcher, fakes.timed_raising_train)
    victim, other = jobs_of(records)["victim"], jobs_of(records)["other"]
    assert (victim.status, victim.steps, victim.crashes) == ("finished", 100, 1)
    assert (other.status, other.steps, other.crashes, other.restarts) == ("finished", 60, 0, 0)
    assert 0 < victim.lost_steps <= 40  # as far as it had said: it says so every 0.1 s
    assert executor.books.losses["victim"] == undisturbed("conv/tiny", job_seed(0, jobs[0]), 100)


def test_a_worker_with_other_instructions_than_its_device_fails_the_run(
    tmp_path: Path, launcher: ThreadLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_module, "expected_capability", lambda native: "AVX2")
    trace = JobTrace((Tenant("a"),), (live_job("j", steps=5, slow=200.0),), round_s=0.2, restart_s=0.0)
    with pytest.raises(EngineError, match="slow-0-0 must compute with AVX2 instructions, and job j computed with unknown ones"):
        run_natively(trace, tmp_path, launcher, fakes.timed_train)


def test_the_processor_time_that_workers_got_is_known(tmp_path: Path, launcher: ThreadLauncher) -> None:
    """The stand-ins sleep through their steps: they take next to nothing of the 0.4 of a core that is theirs."""
    trace = JobTrace((Tenant("a"),), (live_job("x", steps=50, slow=200.0, fast=200.0),), round_s=0.4, restart_s=0.05)
    _, executor = run_natively(trace, tmp_path, launcher, fakes.timed_train)
    assert executor.cpu_share is not None and 0 <= executor.cpu_share < 0.5
    assert NativeExecutor(trace, MACHINE, tmp_path / "other", 0, launcher).cpu_share is None


def test_more_busy_workers_than_cores_are_refused(tmp_path: Path, launcher: ThreadLauncher) -> None:
    full = replace(WORKER, busy_fraction=1.0)
    crowd = Cluster([NodeGroup("slow", usable_cores())], {"slow": full})
    with pytest.raises(ConfigError, match="CPU workers"):
        NativeExecutor(JobTrace((), ()), crowd, tmp_path, 0, launcher)


def test_time_zero_is_when_the_first_round_starts(tmp_path: Path, launcher: ThreadLauncher) -> None:
    """A first arrival after an hour is not waited for; and a policy that thinks for long does not shorten a round."""
    trace = JobTrace((Tenant("a"),), (live_job("j", steps=20, slow=200.0, arrival_s=3600.0),), round_s=0.4, restart_s=0.0)
    executor = NativeExecutor(trace, MACHINE, tmp_path, 0, launcher, entry=fakes.timed_train)
    began_s = time.monotonic()
    records = list(run(trace, MACHINE, EqualShares(), executor, itertools.count().__next__))
    executor.close()
    assert time.monotonic() - began_s < 30 and jobs_of(records)["j"].finish_s == pytest.approx(3600.1, abs=20)
