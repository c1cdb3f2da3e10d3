"""The drill: 200 rounds with tenants that come and go, jobs that crash (5 %) and devices that vanish and come back, for every system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings

from hetsys.core.scheduling.plan import LeaseOutcome
from hetsys.core.scheduling.record import JobRecord, RoundRecord, SchedulingRecord
from hetsys.engines.scheduling.live import books as books_module
from hetsys.engines.scheduling.live.emulated import EmulatedExecutor
from hetsys.engines.scheduling.live.gangs import job_seed
from hetsys.runtime.local import PRELOAD, LocalLauncher
from tests.engines.drill import MACHINE, ODD, WIDE, FallingExecutor, Watch, drill, drill_trace
from tests.engines.fakes import BYTES_A_STEP, falling_train, undisturbed
from tests.systems.views import scheduling_systems, system

FULL = settings.default.max_examples > 100
OURS = ("oef_coop", "oef_noncoop", "oef_coop_plus", "oef_noncoop_plus", "oef_coop_plus_cross_kind", "gavel")
WITHOUT_SHARES = {"best_kind_only", "fifo", "max_efficiency", "sia"}
"""What is not a system of fair shares may let a job wait as long as it likes."""


def simulate(name: str, seed: int) -> tuple[list[SchedulingRecord], Watch, FallingExecutor]:
    trace = drill_trace(seed, 200)
    executor = FallingExecutor(trace)
    records, watch = drill(trace, system(name), executor)
    return records, watch, executor


@pytest.mark.parametrize("name", scheduling_systems() if FULL else OURS)
@pytest.mark.parametrize("seed", range(5) if FULL else [0])
def test_two_hundred_rounds_of_everything_that_can_happen(name: str, seed: int) -> None:
    """All that `Watch` holds in each round; here, what is left in the books at the end, and that the drill was one."""
    records, watch, executor = simulate(name, seed)
    done = {record.job: record for record in records if isinstance(record, JobRecord)}
    rounds = [record for record in records if isinstance(record, RoundRecord)]
    kept, lost, crashes = Counter[str](), Counter[str](), Counter[str]()
    for grant in (grant for record in rounds for grant in record.grants):
        kept[grant.job] += grant.steps
        lost[grant.job] += grant.lost_steps
        crashes[grant.job] += grant.crashed
    for job, record in done.items():
        assert (record.steps, record.lost_steps, record.crashes) == (kept[job], lost[job], crashes[job])
        assert record.steps == executor.truth[job], "steps are made up or forgotten"
        assert (record.status == "finished") == (record.steps == executor.trace_steps[job])
    assert len(rounds) == 200 and 0.03 <= watch.num_crashes / watch.num_leases <= 0.08
    assert any(grant.failed and not grant.crashed for record in rounds for grant in record.grants)
    assert len({record.capacity for record in rounds}) > 5
    assert name in WITHOUT_SHARES or watch.most["shareless"] <= 20, "a job is entitled to nothing for long"


@pytest.mark.parametrize("name", ["oef_coop_plus_cross_kind", "oef_coop_plus"])
def test_the_drill_with_gangs_of_several_kinds(name: str) -> None:
    """Where left-overs are of several kinds; what is held across kinds is part of all that is watched."""
    trace = drill_trace(0, 200, ODD, (2, 2, 2, 3))
    records, watch = drill(trace, system(name), FallingExecutor(trace), ODD)
    mixed = [grant for record in records if isinstance(record, RoundRecord) for grant in record.grants if grant.mix]
    assert len(mixed) == watch.num_mixed and (len(mixed) > 20) == name.endswith("cross_kind")
    for grant in mixed:
        assert grant.spans_nodes and sum(grant.mix) == len(grant.devices)
    assert any(grant.steps and not grant.restarted for grant in mixed) or not mixed, "none of them ever stays where it is"


@pytest.mark.parametrize("name", ["oef_coop", "oef_noncoop", "oef_coop_plus", "oef_noncoop_plus", "gavel"])
@pytest.mark.parametrize("seed", range(2) if FULL else [0])
def test_the_drill_where_a_kind_has_more_devices_than_the_largest_gang(name: str, seed: int) -> None:
    trace = drill_trace(seed, 200, WIDE, (1, 2, 4, 8), 5.0)
    _, watch = drill(trace, system(name), FallingExecutor(trace), WIDE)
    assert 0.03 <= watch.num_crashes / watch.num_leases <= 0.12
    assert watch.most["rounds"] > 15, "nobody ever waits"


class Forgets(FallingExecutor):
    """Takes more from a job that falls than it did in the round."""

    def undo(self, job: str) -> None:
        super().undo(job)
        self._progress[job].steps_left += 1


class Hides(FallingExecutor):
    """Says of a fall that all steps were kept."""

    def _fall(self, outcome: LeaseOutcome) -> LeaseOutcome:
        said = super()._fall(outcome)
        return replace(said, steps=said.lost_steps, lost_steps=0) if said.crashed else said


@pytest.mark.parametrize("crooked", [Forgets, Hides])
def test_the_drill_can_fail(crooked: type[FallingExecutor]) -> None:
    trace = drill_trace(0, 60)
    with pytest.raises(AssertionError):
        drill(trace, system("equal_split"), crooked(trace))


@pytest.fixture(scope="module")
def launcher() -> Iterator[LocalLauncher]:
    made = LocalLauncher((*PRELOAD, "tests.engines.fakes"))
    yield made
    made.close()


@pytest.mark.parametrize("name", ["oef_noncoop_plus", "oef_coop_plus_cross_kind"] if FULL else ["oef_noncoop_plus"])
def test_the_drill_with_real_processes_that_are_really_killed(
    name: str, tmp_path: Path, launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every lease is held by processes; those that fall kill themselves (SIGKILL) within their round. What comes out is to the step what
    is simulated, and the losses of each job are those of one that runs through undisturbed."""
    monkeypatch.setattr(books_module, "reduced_bytes_a_step", lambda program: BYTES_A_STEP)
    trace = drill_trace(1, 200 if FULL else 12)
    executor = EmulatedExecutor(trace, MACHINE, tmp_path, 0, launcher, entry=falling_train)
    try:
        records, watch = drill(trace, system(name), executor)
    finally:
        executor.close()
    twin = FallingExecutor(trace)
    assert without_reasons(records) == without_reasons(drill(trace, system(name), twin)[0])
    assert watch.num_crashes >= (60 if FULL else 1)
    for spec in trace.jobs:
        losses = executor.books.losses[spec.name]
        assert losses == undisturbed(spec.program, job_seed(0, spec), len(losses)) and len(losses) == twin.truth[spec.name]


def without_reasons(records: list[SchedulingRecord]) -> list[SchedulingRecord]:
    """Why a process ended is said in other words where none was there."""
    return [replace(record, reason="") if isinstance(record, JobRecord) else record for record in records]
