"""What the tests of live scheduling share: a small trace in which much happens, and one way to run a trace on each executor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hetsys.core.cluster import Cluster
from hetsys.core.scheduling.record import JobRecord, RoundRecord, SchedulingRecord
from hetsys.core.scheduling.trace import DeviceFailure, Job, JobTrace, Tenant
from hetsys.engines.scheduling.live.emulated import EmulatedExecutor
from hetsys.engines.scheduling.loop import run
from hetsys.engines.scheduling.sim import SimExecutor
from hetsys.runtime.launch import Launcher
from tests.engines.builders import EqualShares, cluster, job
from tests.engines.fakes import fake_train

MACHINE = cluster(slow=(1, 4), fast=(1, 2))


def live_job(name: str, tenant: str = "a", *, program: str = "conv/tiny", **more: Any) -> Job:
    return replace(job(name, tenant, **more), program=program)


def busy_trace() -> JobTrace:
    """Gangs of 1, 2 and 4 that outnumber the devices of MACHINE, arrivals, a departure and two device failures."""
    jobs = (
        live_job("victim", "a", steps=600, gang=2, slow=1.0, fast=2.0),
        live_job("single", "a", steps=500, slow=1.5, fast=6.0, program="lstm/tiny"),
        live_job("wide", "b", steps=700, gang=4, slow=2.0, fast=3.0, program="recommendation/tiny"),
        live_job("late", "b", steps=300, arrival_s=130.0, slow=1.0, fast=4.0),
        live_job("pair", "b", steps=400, gang=2, arrival_s=60.0, slow=1.0, fast=1.5),
        live_job("leaver", "c", steps=10**6, slow=1.0, fast=1.0),
    )
    failures = (DeviceFailure("slow-0-1", 150.0, 120.0), DeviceFailure("fast-0-0", 330.0, 80.0))
    return JobTrace((Tenant("a"), Tenant("b"), Tenant("c", leaves_s=500.0)), jobs, failures, round_s=100.0, restart_s=10.0)


def simulate(trace: JobTrace, machine: Cluster = MACHINE) -> list[SchedulingRecord]:
    return list(run(trace, machine, EqualShares(), SimExecutor(trace), lambda: 0.0))


def emulate(
    trace: JobTrace, folder: Path, launcher: Launcher, *, machine: Cluster = MACHINE, seed: int = 0, **more: Any
) -> tuple[list[SchedulingRecord], EmulatedExecutor]:
    """The records, and the executor, closed, for what it remembers. `more` for the executor; without an entry, training is arithmetic."""
    executor = EmulatedExecutor(trace, machine, folder, seed, launcher, **{"entry": fake_train, **more})
    try:
        return list(run(trace, machine, EqualShares(), executor, lambda: 0.0)), executor
    finally:
        executor.close()


def jobs_of(records: list[SchedulingRecord]) -> dict[str, JobRecord]:
    return {record.job: record for record in records if isinstance(record, JobRecord)}


def rounds_of(records: list[SchedulingRecord]) -> list[RoundRecord]:
    return [record for record in records if isinstance(record, RoundRecord)]


Entry = Callable[..., None]
