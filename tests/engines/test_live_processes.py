"""Scheduling with real processes: real models trained under leases, preempted, resumed, killed, and bit for bit the same."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hetsys.core.cluster import Cluster, NodeGroup
from hetsys.core.scheduling.trace import DeviceFailure, JobTrace, Tenant
from hetsys.engines.scheduling.live import books as books_module
from hetsys.engines.scheduling.live import child
from hetsys.engines.scheduling.live.gangs import job_seed
from hetsys.engines.scheduling.live.native import NativeExecutor
from hetsys.engines.scheduling.loop import run
from hetsys.runtime.local import LocalLauncher
from tests.engines import fakes
from tests.engines.builders import SHEET, EqualShares, cluster
from tests.engines.live import busy_trace, emulate, jobs_of, live_job, rounds_of, simulate


@pytest.fixture(scope="module")
def launcher() -> Iterator[LocalLauncher]:
    made = LocalLauncher()
    yield made
    made.close()


def undisturbed(program: str, seed: int, steps: int) -> list[float]:
    """The losses of a job that one process runs through in one piece."""
    from hetsys.models.jobs.trainer import Trainer

    trainer = Trainer(program, seed)
    return [trainer.step() for _ in range(steps)]


def test_preempted_and_resumed_jobs_lose_nothing_bit_for_bit(tmp_path: Path, launcher: LocalLauncher) -> None:
    """Three jobs take turns on one device, so each starts again several times, in another process, from its checkpoint."""
    programs = ("conv/tiny", "lstm/tiny", "small_lm/tiny")
    jobs = tuple(live_job(f"j{i}", "abc"[i], steps=70, slow=0.5, program=program) for i, program in enumerate(programs))
    trace = JobTrace(tuple(Tenant(name) for name in "abc"), jobs, round_s=60.0, restart_s=5.0)
    machine = cluster(slow=(1, 1))
    records, executor = emulate(trace, tmp_path, launcher, machine=machine, entry=child.train)
    assert records == simulate(trace, machine)
    for spec in jobs:
        assert jobs_of(records)[spec.name].restarts >= 1
        assert executor.books.losses[spec.name] == undisturbed(spec.program, job_seed(0, spec), 70)


@contextmanager
def another_program_on_every_core() -> Iterator[None]:
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def test_real_gangs_run_as_simulated_and_the_same_on_a_loaded_machine(tmp_path: Path, launcher: LocalLauncher) -> None:
    """Gangs of 4, 2 and 1 on four devices, of which one fails under the gang of 2, which goes on when the others have finished."""
    jobs = (
        live_job("four", "a", steps=60, gang=4, slow=1.0, program="transformer/tiny"),
        live_job("two", "b", steps=70, gang=2, slow=1.0, program="conv/tiny"),
        live_job("one", "b", steps=50, slow=1.0, program="actor_critic/tiny"),
    )
    trace = JobTrace((Tenant("a"), Tenant("b")), jobs, (DeviceFailure("slow-0-1", 65.0, 20.0),), round_s=50.0, restart_s=5.0)
    machine = cluster(slow=(1, 4))
    records, first = emulate(trace, tmp_path / "1", launcher, machine=machine, entry=child.train)
    assert records == simulate(trace, machine)
    done = jobs_of(records)
    assert (done["two"].restarts, done["two"].lost_steps, done["two"].steps) == (1, 15, 70)
    with another_program_on_every_core():
        again, second = emulate(trace, tmp_path / "2", launcher, machine=machine, entry=child.train)
    assert again == records and second.books.digests() == first.books.digests() and second.books.totals() == first.books.totals()
    alone = undisturbed("conv/tiny", job_seed(0, jobs[1]), 70)
    assert first.books.losses["two"] == pytest.approx(alone, rel=1e-3)  # sums in another order; the models' own tests say how close


def test_a_killed_process_is_named_and_its_job_restarted_with_the_same_losses(
    tmp_path: Path, launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(books_module, "reduced_bytes_a_step", lambda program: fakes.BYTES_A_STEP)
    trace, ledger = busy_trace(), []
    calm, undisturbed_run = emulate(trace, tmp_path / "1", fakes.ThreadLauncher())
    records, executor = emulate(trace, tmp_path / "2", launcher, entry=fakes.crashes_once, note=ledger.append)
    assert {job: record.status for job, record in jobs_of(records).items()} == {job: r.status for job, r in jobs_of(calm).items()}
    assert jobs_of(records)["victim"].crashes == 1
    assert executor.books.digests()["victim"] == undisturbed_run.books.digests()["victim"]
    (lost,) = [line for line in ledger if "lost" in line]
    assert lost["job"] == "victim" and "job victim rank 1 on " in lost["lost"] and "died with signal 9" in lost["lost"]


def test_a_rank_killed_under_a_real_gang_costs_its_lease_only(tmp_path: Path, launcher: LocalLauncher) -> None:
    jobs = (
        live_job("victim", "a", steps=40, gang=2, slow=1.0, program="lstm/tiny"),
        live_job("other", "b", steps=40, slow=1.0, program="recommendation/tiny"),
    )
    trace = JobTrace((Tenant("a"), Tenant("b")), jobs, round_s=25.0, restart_s=5.0)
    machine = cluster(slow=(1, 3))
    _, undisturbed_run = emulate(trace, tmp_path / "1", launcher, machine=machine, entry=child.train)
    ledger: list[dict[str, Any]] = []
    records, executor = emulate(trace, tmp_path / "2", launcher, machine=machine, entry=fakes.trains_and_kills_a_rank, note=ledger.append)
    (lost,) = [line["lost"] for line in ledger if "lost" in line]
    assert "died with signal 9" in lost, "its peer fails as well, and is not to blame"
    victim, other = jobs_of(records)["victim"], jobs_of(records)["other"]
    assert (victim.crashes, victim.status, victim.lost_steps) == (1, "finished", 20)
    assert (other.crashes, other.status, other.finish_s) == (0, "finished", 45.0)
    assert executor.books.digests() == undisturbed_run.books.digests()


def test_a_native_run_trains_a_gang_of_two_and_a_single_on_the_wall_clock(tmp_path: Path, launcher: LocalLauncher) -> None:
    """A gang holds both workers, then a single one of them: rank 0 decides for both when the time is over, so the books agree."""
    worker = replace(SHEET, native="cpu", busy_fraction=0.8)
    machine = Cluster([NodeGroup("slow", 2)], {"slow": worker})
    jobs = (
        live_job("gang", "a", steps=400, gang=2, slow=200.0, program="lstm/tiny"),
        live_job("one", "b", steps=200, slow=200.0, program="conv/tiny"),
    )
    trace = JobTrace((Tenant("a"), Tenant("b")), jobs, round_s=1.5, restart_s=0.2, max_rounds=60, learns=True)
    ledger: list[dict[str, Any]] = []
    executor = NativeExecutor(trace, machine, tmp_path, 0, launcher, note=ledger.append)
    try:
        records = list(run(trace, machine, EqualShares(), executor, time.perf_counter))
    finally:
        executor.close()
    done = jobs_of(records)
    assert {name: (job.status, job.steps, job.crashes) for name, job in done.items()} == {
        "gang": ("finished", 400, 0), "one": ("finished", 200, 0),
    }  # fmt: skip
    assert executor.books.losses["one"] == undisturbed("conv/tiny", job_seed(0, jobs[1]), 200)
    by_rank = [sum(line["steps"] for line in ledger if line["job"] == "gang" and line["rank"] == rank) for rank in (0, 1)]
    assert by_rank == [400, 400]
    assert sum(grant.steps for record in rounds_of(records) for grant in record.grants) == 600
