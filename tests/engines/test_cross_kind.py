"""A gang on devices of several kinds: what it is charged, by hand, and that live processes carry it out on each of its devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hetsys.core.cluster import Cluster, NodeGroup
from hetsys.core.errors import ConfigError
from hetsys.core.scheduling.plan import Allocation, Lease, RoundPlan
from hetsys.core.scheduling.record import JobRecord, RoundRecord, SchedulingRecord
from hetsys.core.scheduling.trace import JobTrace, Tenant
from hetsys.core.scheduling.view import ClusterView
from hetsys.engines.scheduling.live import books as books_module
from hetsys.engines.scheduling.live import child
from hetsys.engines.scheduling.live.emulated import EmulatedExecutor
from hetsys.engines.scheduling.live.gangs import Gangs, job_seed
from hetsys.engines.scheduling.loop import run
from hetsys.engines.scheduling.sim import SimExecutor
from hetsys.engines.scheduling.state import NS
from hetsys.runtime.local import LocalLauncher
from tests.engines.builders import SHEET, EqualShares, cluster
from tests.engines.fakes import BYTES_A_STEP, ThreadLauncher, fake_train
from tests.engines.live import live_job

ODD = cluster(slow=(1, 3), fast=(1, 3))


class AcrossKinds(EqualShares):
    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        return replace(super().allocate(view, memo)[0], cross_kind=True), memo


def pairs(steps: int) -> JobTrace:
    """Three gangs of 2 for three slow and three fast devices: one of each is left for the third gang."""
    jobs = tuple(
        replace(
            live_job(name, name, steps=steps, gang=2, slow=1.0, fast=3.0, program="lstm/tiny"),
            spread_steps_per_s={"slow": 0.8, "fast": 2.0},
        )
        for name in "abc"
    )
    return JobTrace(tuple(Tenant(name) for name in "abc"), jobs, round_s=100.0, restart_s=10.0)


def rounds_of(records: list[SchedulingRecord]) -> list[RoundRecord]:
    return [record for record in records if isinstance(record, RoundRecord)]


def test_a_mixed_gang_runs_at_the_pace_of_its_slowest_kind_spread_over_hosts() -> None:
    trace = pairs(10**6)
    records = list(run(replace(trace, max_rounds=2), ODD, AcrossKinds(), SimExecutor(trace), lambda: 0.0))
    first, second = ({grant.job: grant for grant in record.grants} for record in rounds_of(records))
    (mixed,) = [grant for grant in first.values() if grant.mix]
    assert (mixed.kind, mixed.mix, mixed.spans_nodes, mixed.steps) == ("slow", (1, 1), True, 72)  # 90 s at 0.8 steps/s
    assert sorted(device.split("-")[0] for device in mixed.devices) == ["fast", "slow"]
    assert {grant.kind: grant.steps for grant in first.values() if not grant.mix} == {"slow": 90, "fast": 270}
    assert [record.idle for record in rounds_of(records)] == [(0, 0), (0, 0)]
    assert all(len(record.grants) == 3 for record in rounds_of(records))
    alone = list(run(replace(trace, max_rounds=2), ODD, EqualShares(), SimExecutor(trace), lambda: 0.0))
    assert [record.idle for record in rounds_of(alone)] == [(1, 1), (1, 1)]
    assert second.keys() == first.keys()


def test_speeds_of_mixed_gangs_are_not_learnt() -> None:
    trace = replace(pairs(10**6), learns=True, max_rounds=4)
    seen: list[set[tuple[float, ...]]] = []

    class Watched(AcrossKinds):
        def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
            seen.append({job.steps_per_s for job in view.jobs})
            return super().allocate(view, memo)

    list(run(trace, ODD, Watched(), SimExecutor(trace), lambda: 0.0))
    assert [sorted(speeds) for speeds in seen] == [[pytest.approx((1.0, 3.0), rel=0.02)]] * 4


def emulate(
    trace: JobTrace, folder: Path, launcher: Any, entry: Any
) -> tuple[list[SchedulingRecord], EmulatedExecutor, list[dict[str, Any]]]:
    ledger: list[dict[str, Any]] = []
    executor = EmulatedExecutor(trace, ODD, folder, 0, launcher, note=ledger.append, entry=entry)
    try:
        return list(run(trace, ODD, AcrossKinds(), executor, lambda: 0.0)), executor, ledger
    finally:
        executor.close()


@pytest.fixture(scope="module")
def launcher() -> Iterator[LocalLauncher]:
    made = LocalLauncher()
    yield made
    made.close()


def test_an_emulated_mixed_gang_makes_its_steps_on_each_of_its_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books_module, "reduced_bytes_a_step", lambda program: BYTES_A_STEP)
    trace, threads = pairs(400), ThreadLauncher()
    records, executor, ledger = emulate(trace, tmp_path, threads, fake_train)
    assert records == list(run(trace, ODD, AcrossKinds(), SimExecutor(trace), lambda: 0.0))
    mixed = [(record.index, grant) for record in rounds_of(records) for grant in record.grants if grant.mix]
    assert len(mixed) >= 2
    for index, grant in mixed:
        lines = [line for line in ledger if (line["round"], line["job"]) == (index, grant.job)]
        assert [(line["device"], line["kind"], line["steps"]) for line in lines] == [
            (device, device.split("-")[0], grant.steps) for device in grant.devices
        ]
    assert executor.books.totals()["ledger_mismatches"] == 0
    threads.close()


def test_real_processes_of_a_mixed_gang_train_as_one(tmp_path: Path, launcher: LocalLauncher) -> None:
    from hetsys.models.jobs.trainer import Trainer

    trace = replace(pairs(100), round_s=30.0, restart_s=5.0)
    records, executor, _ = emulate(trace, tmp_path, launcher, child.train)
    assert records == list(run(trace, ODD, AcrossKinds(), SimExecutor(trace), lambda: 0.0))
    assert any(grant.mix and grant.steps for record in rounds_of(records) for grant in record.grants)
    assert {record.status for record in records if isinstance(record, JobRecord)} == {"finished"}
    for spec in trace.jobs:
        trainer = Trainer(spec.program, job_seed(0, spec))
        alone = [trainer.step() for _ in range(100)]
        assert executor.books.losses[spec.name] == pytest.approx(alone, rel=1e-3)  # sums in another order


def test_gpus_and_cpus_are_no_one_gang(tmp_path: Path) -> None:
    sheets = {"slow": replace(SHEET, native="cpu"), "fast": replace(SHEET, native="cuda", cuda_indices=(0, 1, 2))}
    machine = Cluster([NodeGroup("slow", 3), NodeGroup("fast", 3)], sheets)
    trace, threads = pairs(10), ThreadLauncher()
    gangs = Gangs(trace, machine, tmp_path, 0, threads, fake_train)
    lease = Lease("a", "slow", ("slow-0-0", "fast-0-0"), 1.0, False, True, (1, 1))
    with pytest.raises(ConfigError, match=r"system\.cross_kind.*job a would train on fast and slow at once"):
        gangs.turn(RoundPlan(0, 0, 100 * NS, 0, (lease,)), lambda job: "")
    threads.close()
