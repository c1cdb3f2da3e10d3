"""Tenants that always have work: orders and spreads of speeds, lies that leave the truth alone, jobs that never end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsys.core.cluster import Cluster
from hetsys.core.errors import ConfigError
from hetsys.core.scheduling.trace import Job, JobTrace
from hetsys.workloads.saturated import LIES, ORDERS, Saturated
from tests.workloads.conftest import make_cluster

SIX = make_cluster(a=4, b=4, c=4, d=4, e=4, f=4)


def _types(trace: JobTrace) -> list[Job]:
    """One job of each type, in order."""
    return list({job.job_type: job for job in trace.jobs}.values())


def _speeds(trace: JobTrace) -> np.ndarray:
    """(types, kinds) speed-ups over the first kind."""
    rows = np.array([[*job.steps_per_s.values()] for job in _types(trace)])
    return np.asarray(rows / rows[:, :1])


def test_default_is_twelve_tenants_each_with_jobs_for_the_whole_cluster(cluster: Cluster) -> None:
    trace = Saturated().sample(0, cluster)
    assert [tenant.name for tenant in trace.tenants][:2] == ["tenant-00", "tenant-01"] and len(trace.tenants) == 12
    assert all(sum(job.gang for job in trace.jobs if job.tenant == tenant.name) == 24 for tenant in trace.tenants)
    assert (trace.round_s, trace.restart_s, trace.max_rounds, trace.learns) == (360.0, 20.0, 100, False)
    assert (trace.provenance, trace.watched, trace.data_sha256) == ("derived", ("tenant-00",), {})
    assert all(job.known_steps_per_s is None and job.arrival_s == 0 for job in trace.jobs)


def test_no_job_can_end_and_none_holds_more_steps_than_that_takes(cluster: Cluster) -> None:
    trace = Saturated(max_rounds=7, round_s=100.0, gangs=(1, 8)).sample(1, cluster)
    for job in trace.jobs:
        most = 7 * 100.0 * max(job.steps_per_s.values())
        assert most < job.num_steps <= most + 2


@given(order=st.sampled_from(ORDERS), spread=st.floats(1.0, 50.0), seed=st.integers(0, 500))
def test_speeds_keep_their_order_and_their_spread(order: str, spread: float, seed: int) -> None:
    speeds = _speeds(Saturated(tenants=8, order=order, spread=spread).sample(seed, SIX))
    assert (speeds <= spread * (1 + 1e-9)).all() and (speeds >= 1 / spread * (1 - 1e-9)).all()
    if order != "any":
        assert (np.diff(speeds, axis=1) >= -1e-9).all()
    if order == "ratio_ordered":
        ratios = speeds[:, 1:] / speeds[:, :-1]
        by_reach = ratios[np.argsort(ratios[:, 0])]
        assert (np.diff(by_reach, axis=0) >= -1e-9).all()


def test_a_spread_of_one_makes_all_devices_alike(cluster: Cluster) -> None:
    assert _speeds(Saturated(spread=1.0, order="any").sample(0, cluster)) == pytest.approx(1.0)


def test_a_wider_spread_stretches_the_same_draw(cluster: Cluster) -> None:
    narrow, wide = (_speeds(Saturated(spread=spread).sample(3, cluster)) for spread in (2.0, 4.0))
    assert np.log(wide) == pytest.approx(2.0 * np.log(narrow))


@given(zeros=st.floats(0.0, 1.0), seed=st.integers(0, 500))
def test_unsupported_kinds_leave_everybody_one(zeros: float, seed: int) -> None:
    trace = Saturated(tenants=10, zeros=zeros).sample(seed, SIX)
    supported = np.array([[speed > 0 for speed in job.steps_per_s.values()] for job in _types(trace)])
    assert supported.any(axis=1).all()
    assert zeros > 0 or supported.all()
    assert zeros < 1 or (supported.sum(axis=1) == 1).all()


def test_gangs_weights_and_given_speeds_are_dealt_out_in_turn(cluster: Cluster) -> None:
    trace = Saturated(tenants=3, job_types_per_tenant=2, gangs=(1, 4), weights=(1, 0), speeds=((1, 2, 4), (1, 0, 3))).sample(0, cluster)
    assert [job.gang for job in _types(trace)] == [1, 4] * 3
    assert [tenant.weight for tenant in trace.tenants] == [1.0, 0.0, 1.0]
    assert _speeds(trace).tolist() == [[1, 2, 4], [1, 0, 3]] * 3
    assert [sum(job.job_type == one.job_type for job in trace.jobs) for one in _types(trace)] == [24, 6] * 3
    assert _types(trace)[1].steps_per_s == {"k80": 40.0, "p100": 0.0, "v100": 120.0}, "of the whole gang"


@pytest.mark.parametrize(
    ("lie", "first", "second"),
    [
        ("none", None, None), ("over", [1, 3, 12], None), ("under", [1, 1, 4], None), ("entry_over", [1, 2, 12], None),
        ("entry_under", [1, 2, 4], None), ("pair_over", [1, 3, 12], [1, 6, 4.5]), ("pair_under", [1, 4 / 3, 16 / 3], [1, 8 / 3, 2]),
        ("slowest_over", [1.5, 2, 8], None), ("slowest_none", [0, 2, 8], None),
    ],
)  # fmt: skip
def test_lies_change_what_is_told_and_nothing_else(cluster: Cluster, lie: str, first: list[float] | None, second: Any) -> None:
    factor = 2.0 if lie in ("under", "entry_under") else 1.5
    speeds = ((1, 2, 8), (1, 4, 3), (1, 1, 1))
    plain = Saturated(tenants=3, speeds=speeds).sample(0, cluster)
    lied = Saturated(tenants=3, speeds=speeds, lie=lie, lie_factor=factor).sample(0, cluster)
    told = [job.known_steps_per_s and [round(speed / 10, 9) for speed in job.known_steps_per_s.values()] for job in _types(lied)]
    assert told == [first and pytest.approx(first), second and pytest.approx(second), None]
    assert replace(lied, jobs=tuple(replace(job, known_steps_per_s=None) for job in lied.jobs)) == plain


def test_a_liar_whose_unit_is_not_the_first_kind_leaves_its_unit_alone(cluster: Cluster) -> None:
    lied = Saturated(tenants=1, speeds=((0, 2, 8),), lie="over", lie_factor=2.0).sample(0, cluster)
    assert list(_types(lied)[0].known_steps_per_s.values()) == [0.0, 20.0, 160.0]  # type: ignore[union-attr]


def test_who_runs_on_one_kind_only_cannot_lie_about_its_slowest(cluster: Cluster) -> None:
    for lie in ("slowest_over", "slowest_none"):
        lied = Saturated(tenants=1, speeds=((0, 0, 8),), lie=lie).sample(0, cluster)
        assert list(_types(lied)[0].known_steps_per_s.values()) == [0.0, 0.0, 80.0]  # type: ignore[union-attr]


@given(lie=st.sampled_from(LIES), seed=st.integers(0, 200))
def test_who_lies_about_errors_lies_on_top_of_them(lie: str, seed: int) -> None:
    workload = Saturated(tenants=4, profile_error=0.2)
    honest, lied = workload.sample(seed, SIX), replace(workload, lie=lie).sample(seed, SIX)
    for a, b in zip(_types(honest), _types(lied), strict=True):
        assert a.known_steps_per_s is not None and b.known_steps_per_s is not None
        factors = {round(b.known_steps_per_s[kind] / a.known_steps_per_s[kind], 6) for kind in SIX.kinds}
        liar = lie != "none" and (a.tenant == "tenant-00" or (a.tenant == "tenant-01" and lie.startswith("pair")))
        factor = 0.0 if lie == "slowest_none" else 1.5 if lie.endswith("over") else round(1 / 1.5, 6)
        assert factors == ({1.0, factor} if liar else {1.0})


def test_errors_have_the_size_that_was_asked_for() -> None:
    trace = Saturated(tenants=400, profile_error=0.2).sample(0, SIX)
    errors = [job.known_steps_per_s[kind] / job.steps_per_s[kind] for job in _types(trace) for kind in SIX.kinds]  # type: ignore[index]
    assert np.mean(errors) == pytest.approx(1.0, abs=0.02) and np.std(errors) == pytest.approx(0.2, rel=0.1)


def test_seeds_differ_where_something_is_drawn(cluster: Cluster) -> None:
    assert Saturated().sample(0, cluster) == Saturated().sample(0, cluster) != Saturated().sample(1, cluster)
    assert Saturated().seeded and not Saturated(speeds=((1, 2, 4),)).seeded
    assert Saturated(speeds=((1, 2, 4),), profile_error=0.1).seeded and Saturated(speeds=((1, 2, 4),), failures_per_device_day=1).seeded
    assert "not measured" in Saturated().notice


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"tenants": 0}, "workload.tenants"), ({"job_types_per_tenant": 1.5}, "workload.job_types_per_tenant"),
        ({"order": "mono"}, "workload.order"), ({"lie": "overt"}, "workload.lie"), ({"spread": 0.5}, "workload.spread"),
        ({"spread": 1e9}, "workload.spread"), ({"zeros": 1.5}, "workload.zeros"), ({"profile_error": -1}, "workload.profile_error"),
        ({"lie_factor": 0}, "workload.lie_factor"), ({"lie": "pair_over", "tenants": 1}, "workload.lie"), ({"gangs": []}, "workload.gangs"),
        ({"gangs": [2, 0]}, "workload.gangs[1]"), ({"weights": [1, -1]}, "workload.weights[1]"), ({"weights": []}, "workload.weights"),
        ({"speeds": []}, "workload.speeds"), ({"speeds": [[1, 2], [0, 0]]}, "workload.speeds[1]"),
        ({"speeds": [[1, -2]]}, "workload.speeds[0][1]"), ({"speeds": [[1, float("nan")]]}, "workload.speeds[0][1]"),
        ({"speeds": [[1, 1e7]]}, "workload.speeds[0][1]"), ({"max_rounds": 0}, "workload.max_rounds"),
    ],
)  # fmt: skip
def test_mistakes_are_named(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Saturated(**settings)
    assert caught.value.key == key


def test_given_speeds_must_fit_the_cluster(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match="has 2 entries, and the cluster has 3 kinds"):
        Saturated(speeds=((1, 2),)).sample(0, cluster)
