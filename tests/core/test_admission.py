"""Who is let in, who is parked and why, and the yardstick of finish-time fairness, by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest

from hetsys.core.errors import ConfigError
from hetsys.core.scheduling.admission import admit
from hetsys.core.scheduling.isolated import isolated_jcts
from hetsys.core.scheduling.trace import DeviceFailure, JobTrace, Tenant
from tests.engines.builders import cluster, job

MACHINE = cluster(slow=(2, 2), fast=(1, 2))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (job("b", slow=nan), "nan"),
        (job("b", slow=inf), "inf"),
        (job("b", slow=-1.0), "-1.0"),
        (job("b", slow=5e-324), "between 1e-09 and 1000000.0"),
        (job("b", slow=0.0, fast=0.0), "0 steps/s"),
        (job("b", gang=5, slow=1.0), "fits no kind; the largest has 4"),
        (job("b", gang=4, fast=1.0, slow=0.0), "0 steps/s on every kind that can hold its gang; gang of 4 on slow"),
        (job("b", steps=0, slow=1.0), "num_steps >= 1"),
        (job("b", arrival_s=-1.0, slow=1.0), "arrival_s >= 0"),
        (job("b", gang=0, slow=1.0), "gang >= 1"),
        (replace(job("b", gang=3, slow=1.0), spread_steps_per_s={"slow": 0.0}), "when spread"),
    ],
)
def test_what_cannot_run_is_parked_and_others_are_not_affected(bad: object, reason: str) -> None:
    trace = JobTrace((Tenant("a"), Tenant("c")), (bad, job("good", "c")))  # type: ignore[arg-type]
    admitted, parked = admit(trace, MACHINE)
    assert [item.job.name for item in admitted] == ["good"]
    assert [(p.tenant, p.job) for p in parked] == [("a", "b")]
    assert reason in parked[0].reason


def test_tenants_without_jobs_or_with_a_senseless_weight_are_parked() -> None:
    trace = JobTrace((Tenant("idle"), Tenant("odd", weight=nan), Tenant("zero", weight=0.0)), (job("x", "odd"), job("y", "zero")))
    admitted, parked = admit(trace, MACHINE)
    assert [item.job.name for item in admitted] == ["y"]
    assert {(p.tenant, p.job) for p in parked} == {("idle", None), ("odd", "x")}


@pytest.mark.parametrize(
    ("trace", "key"),
    [
        (JobTrace((Tenant("a"), Tenant("a")), ()), "workload.tenants"),
        (JobTrace((Tenant("a"),), (job("x"), job("x"))), "workload.jobs"),
        (JobTrace((Tenant("a"),), (job("x", "nobody"),)), "workload.jobs.x.tenant"),
        (JobTrace((Tenant("a"),), (), restart_s=400.0), "workload.restart_s"),
        (JobTrace((Tenant("a"),), (), round_s=nan), "workload.round_s"),
        (JobTrace((Tenant("a"),), (), max_crashes=0), "workload.max_crashes"),
        (JobTrace((Tenant("a"),), (), failures=(DeviceFailure("nope", 0, 1),)), "workload.failures.device"),
    ],
)
def test_a_senseless_trace_is_refused(trace: JobTrace, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        admit(trace, MACHINE)
    assert caught.value.key == key


def test_a_gang_wider_than_a_host_runs_at_its_spread_speed() -> None:
    wide = replace(job("w", gang=3, slow=6.0), spread_steps_per_s={"slow": 2.0})
    narrow = replace(job("n", gang=2, slow=6.0), spread_steps_per_s={"slow": 2.0})
    admitted, _ = admit(JobTrace((Tenant("a"),), (wide, narrow)), MACHINE)
    assert [(item.speeds, item.spread_speeds) for item in admitted] == [((2.0, 0.0), (2.0, 0.0)), ((6.0, 0.0), (2.0, 0.0))]
    assert [item.unit_steps_per_s for item in admitted] == [2.0 / 3, 3.0]


def test_isolated_times_by_hand() -> None:
    """Share: 1 slow + 0.5 fast device. Alone: fractions (1, .5) sum to 1.5, so rate (1*1 + .5*4)/1.5 = 2 steps/s.
    Two jobs together: fractions (.5, .25) each: rate .5*1 + .25*4 = 1.5. a: 300 steps, b: 600; a ends at 200 s; b then has 300 left,
    alone at 2 steps/s: 350 s. c arrives at 930 s, starts at the next round of 100 s and runs alone: 70 s + 100 steps in 50 s. With 10 s
    to start, everybody ends 10 s later."""
    jobs = [job("a", steps=300, slow=1.0, fast=4.0), job("b", steps=600, slow=1.0, fast=4.0)]
    jobs += [job("c", steps=100, arrival_s=930.0, slow=1.0, fast=4.0)]
    admitted, _ = admit(JobTrace((Tenant("a"),), tuple(jobs)), MACHINE)
    assert isolated_jcts(admitted, [1.0, 0.5], 100.0, 0.0) == pytest.approx({"a": 200.0, "b": 350.0, "c": 120.0})
    assert isolated_jcts(admitted, [1.0, 0.5], 100.0, 10.0) == pytest.approx({"a": 210.0, "b": 360.0, "c": 130.0})
    assert isolated_jcts(admitted, [0.0, 0.0], 100.0, 0.0) == {"a": None, "b": None, "c": None}
