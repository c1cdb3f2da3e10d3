"""Scheduling on emulated devices, with threads for processes: equal to the simulator, books that balance, and what if they don't."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsys.core.errors import ConfigError, EngineError
from hetsys.core.scheduling.plan import Lease
from hetsys.core.scheduling.trace import DeviceFailure, JobTrace, Tenant
from hetsys.engines.scheduling.live import books as books_module
from hetsys.engines.scheduling.live import gangs as gangs_module
from hetsys.engines.scheduling.live.books import Books
from hetsys.engines.scheduling.live.checkpoints import Checkpoints
from hetsys.engines.scheduling.live.emulated import EmulatedExecutor
from hetsys.engines.scheduling.live.gangs import job_seed
from hetsys.engines.scheduling.live.orders import Report, Start
from tests.engines import fakes
from tests.engines.builders import cluster, job
from tests.engines.fakes import BYTES_A_STEP, ThreadLauncher, undisturbed
from tests.engines.live import MACHINE, Entry, busy_trace, emulate, jobs_of, live_job, rounds_of, simulate


@pytest.fixture(autouse=True)
def known_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books_module, "reduced_bytes_a_step", lambda program: BYTES_A_STEP)


@pytest.fixture
def launcher() -> Iterator[ThreadLauncher]:
    made = ThreadLauncher()
    yield made
    made.close()


def test_an_emulated_run_equals_the_simulated_one(tmp_path: Path, launcher: ThreadLauncher) -> None:
    records, _ = emulate(busy_trace(), tmp_path, launcher)
    assert records == simulate(busy_trace())
    done = jobs_of(records)
    assert sum(job.preemptions for job in done.values()) > 2 and sum(job.lost_steps for job in done.values()) > 0  # it is no empty claim
    assert done["leaver"].status == "withdrawn" and {job.gang for job in done.values()} == {1, 2, 4}


@st.composite
def traces(draw: st.DrawFn) -> JobTrace:
    jobs = [
        live_job(
            f"j{i}", draw(st.sampled_from("ab")), steps=draw(st.integers(1, 900)), gang=draw(st.sampled_from([1, 2, 4])),
            arrival_s=draw(st.floats(0, 500)), slow=draw(st.floats(0, 2)), fast=draw(st.floats(0.1, 4)),
        )
        for i in range(draw(st.integers(1, 6)))
    ]  # fmt: skip
    failures = tuple(
        DeviceFailure(draw(st.sampled_from(["slow-0-0", "fast-0-1"])), draw(st.floats(0, 900)), draw(st.floats(1, 300)))
        for _ in range(draw(st.integers(0, 3)))
    )
    restart_s, learns = draw(st.sampled_from([0.0, 10.0, 99.0])), draw(st.booleans())
    return JobTrace((Tenant("a"), Tenant("b")), tuple(jobs), failures, round_s=100.0, restart_s=restart_s, max_rounds=25, learns=learns)


@given(traces())
def test_emulated_equals_simulated_on_any_trace_and_every_step_is_made_once(trace: JobTrace) -> None:
    launcher, ledger = ThreadLauncher(), []
    with TemporaryDirectory() as folder:
        records, executor = emulate(trace, Path(folder), launcher, note=ledger.append)
    assert records == simulate(trace)
    for spec in trace.jobs:
        losses = executor.books.losses[spec.name]
        assert losses == undisturbed(spec.program, job_seed(0, spec), len(losses))
        if spec.name in jobs_of(records):
            assert len(losses) == jobs_of(records)[spec.name].steps
    made: dict[tuple[str, str], int] = defaultdict(int)
    for line in ledger:
        made[line["job"], line["device"]] += line["steps"]
    charged: dict[tuple[str, str], int] = defaultdict(int)
    for record in rounds_of(records):
        for grant in record.grants:
            for device in grant.devices:
                charged[grant.job, device] += grant.steps + grant.lost_steps
    assert made == charged


def test_random_delays_change_nothing(tmp_path: Path, launcher: ThreadLauncher) -> None:
    quick, first = emulate(busy_trace(), tmp_path / "1", launcher)
    slow, second = emulate(busy_trace(), tmp_path / "2", launcher, entry=fakes.slow_train)
    assert slow == quick and second.books.digests() == first.books.digests()


def test_another_seed_trains_other_jobs_in_the_same_time(tmp_path: Path, launcher: ThreadLauncher) -> None:
    records, first = emulate(busy_trace(), tmp_path / "1", launcher)
    again, second = emulate(busy_trace(), tmp_path / "2", launcher, seed=1)
    assert again == records
    assert not set(first.books.digests().values()) & set(second.books.digests().values())


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (fakes.skips_a_step, r"job victim, rank 1 on \S+, round 0: steps ordered (\d+), counted (\d+)"),
        (fakes.doubles_a_step, r"job victim, rank 1 on \S+, round 0: steps ordered (\d+), counted (\d+)"),
        (fakes.runs_elsewhere, r"job victim, rank 1 on (slow|fast)-\d-\d, round 0: device ordered \S+, counted fast-9-9"),
        (fakes.writes_no_checkpoint, r"job victim: a checkpoint was reported and round-000000.pt is missing or empty"),
        (fakes.never_saves, r"job victim, rank 0 on \S+, round 0: saved_step ordered \d+, counted -1"),
        (fakes.starts_over, r"job victim, rank 0 on \S+, round \d: first_step ordered \d+, counted 0"),
        (fakes.pretends_a_step, r"job victim, rank 0 on \S+, round 0: last_step ordered \d+, counted \d+"),
        (fakes.reduces_nothing, r"job victim, rank 1 on \S+, round 0: reduced_bytes ordered \d+, counted 0"),
    ],
)
def test_books_that_do_not_balance_fail_the_run_and_name_the_place(
    tmp_path: Path, launcher: ThreadLauncher, entry: Entry, said: str
) -> None:
    with pytest.raises(EngineError, match="the books do not balance: " + said):
        emulate(busy_trace(), tmp_path, launcher, entry=entry)
    assert not list(tmp_path.rglob("*.pt"))


REPORT = Report("j", 0, "slow-0-0", "slow", 5, 0, (0.5,) * 5, 0, 5, 0, 1, 5)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kind": "fast"}, "kind ordered slow, counted fast"),
        ({"job": "k"}, "job ordered j, counted k"),
        ({"rank": 1}, "rank ordered 0, counted 1"),
        ({"last_step": 4}, "last_step ordered 5, counted 4"),
        ({"losses": (0.5,) * 4}, "losses ordered 5, counted 4"),
        ({"reduced_bytes": 4}, "reduced_bytes ordered 0, counted 4"),
    ],
)
def test_every_line_of_a_report_is_compared(wrong: dict[str, Any], said: str) -> None:
    books = Books([job("j")], None)
    lease = Lease("j", "slow", ("slow-0-0",), 1.0, False)
    books.check(0, lease, [REPORT], 5, saves=True)
    with pytest.raises(EngineError, match=said):
        books.check(0, lease, [replace(REPORT, **wrong)], 5, saves=True)


def test_a_job_that_raises_once_is_restarted_with_the_same_losses(tmp_path: Path, launcher: ThreadLauncher) -> None:
    calm, undisturbed_run = emulate(busy_trace(), tmp_path / "1", launcher)
    records, executor = emulate(busy_trace(), tmp_path / "2", launcher, entry=fakes.raises_once)
    victim = jobs_of(records)["victim"]
    assert (victim.status, victim.crashes, victim.steps) == ("finished", 1, 600)
    assert victim.finish_s > jobs_of(calm)["victim"].finish_s
    assert executor.books.digests()["victim"] == undisturbed_run.books.digests()["victim"]
    crashed = [grant for record in rounds_of(records) for grant in record.grants if grant.crashed]
    assert [(grant.job, grant.steps, grant.failed) for grant in crashed] == [("victim", 0, True)] and crashed[0].lost_steps > 0


def test_a_job_that_always_crashes_is_parked_with_its_reason_and_the_others_finish(tmp_path: Path, launcher: ThreadLauncher) -> None:
    ledger: list[dict[str, Any]] = []
    records, executor = emulate(busy_trace(), tmp_path, launcher, entry=fakes.always_raises, note=ledger.append)
    done = jobs_of(records)
    victim = done.pop("victim")
    assert (victim.status, victim.crashes, victim.steps) == ("parked", 3, 0)
    assert victim.reason.startswith("crashed 3 times in a row without progress; the last time: worker job victim rank ")
    assert victim.reason.endswith("RuntimeError: cannot find its data")
    assert {name: record.status for name, record in done.items() if name != "leaver"} == dict.fromkeys(
        ("single", "wide", "late", "pair"), "finished"
    )
    assert executor.books.digests()["victim"] == Books([job("victim")], None).digests()["victim"]
    assert len([line for line in ledger if "lost" in line and line["job"] == "victim"]) == 3


def test_a_process_that_hangs_is_ended_and_named(tmp_path: Path, launcher: ThreadLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(link: Any, start: Start) -> None:
        while True:
            link.recv()

    monkeypatch.setattr(gangs_module, "PATIENCE_S", 0.3)
    trace = JobTrace((Tenant("a"),), (live_job("j", steps=5),), round_s=100.0, restart_s=0.0, max_crashes=1)
    records, _ = emulate(trace, tmp_path, launcher, entry=hangs)
    assert jobs_of(records)["j"].reason.endswith("job j rank 0 on slow-0-0 gave no sign of life for 0.3 s")


def test_an_extended_lease_keeps_its_process_and_the_last_two_checkpoints(tmp_path: Path, launcher: ThreadLauncher) -> None:
    seen: list[list[str]] = []

    def look(line: dict[str, Any]) -> None:
        seen.append(sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.pt")))

    trace = JobTrace((Tenant("a"),), (live_job("x/../y", steps=450),), round_s=100.0, restart_s=10.0)
    emulate(trace, tmp_path, launcher, machine=cluster(slow=(1, 1)), note=look)
    assert [name for name, _ in launcher.started] == ["job x/../y rank 0 on slow-0-0"]
    files = [f"checkpoints/x%2F..%2Fy/round-{index:06d}.pt" for index in range(4)]
    assert seen == [files[:1], files[:2], files[:3], files[1:4], files[2:4]]  # the third goes when the newest is known to be there
    assert not (tmp_path / "checkpoints").exists() and not (tmp_path / "rendezvous").exists()


def test_the_ledger_is_plain_and_the_totals_add_up(tmp_path: Path, launcher: ThreadLauncher) -> None:
    ledger: list[dict[str, Any]] = []
    _, executor = emulate(busy_trace(), tmp_path, launcher, note=ledger.append)
    assert json.loads(json.dumps(ledger)) == ledger
    totals = executor.books.totals()
    assert totals["ledger_lines"] > len(ledger) and totals["ledger_mismatches"] == 0
    assert {name: totals[name] for name in ("executed_steps", "checkpoints", "reduced_bytes")} == {
        "executed_steps": sum(line["steps"] for line in ledger),
        "checkpoints": sum(line["checkpoints"] for line in ledger),
        "reduced_bytes": sum(line["reduced_bytes"] for line in ledger),
    }
    assert sum(line["reduced_bytes"] for line in ledger if line["job"] == "wide" and line["stands"]) == 4 * 700 * BYTES_A_STEP
    assert sum(line["steps"] for line in ledger if line["job"] == "single" and line["stands"]) == 500
    assert any(not line["stands"] and line["steps"] for line in ledger)


def test_a_job_without_a_program_cannot_be_executed(tmp_path: Path, launcher: ThreadLauncher) -> None:
    trace = JobTrace((Tenant("a"),), (job("j"), job("never", gang=99)))
    with pytest.raises(ConfigError, match=r"workload\.jobs\.j\.program"):
        EmulatedExecutor(trace, MACHINE, tmp_path, 0, launcher)


def test_checkpoints_know_the_latest_and_refuse_what_is_not_there(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path / "c")
    assert store.latest("..") == ""
    path = store.place("..", 3)
    with pytest.raises(EngineError, match=r"job \.\.: a checkpoint was reported and round-000003.pt is missing"):
        store.wrote("..", path)
    path.write_bytes(b"x")
    store.wrote("..", path)
    assert store.latest("..") == str(path) and path.is_relative_to(tmp_path / "c")
    store.forget("..")
    assert store.latest("..") == "" and tmp_path.exists() and not path.exists()
    store.close()
    store.close()
