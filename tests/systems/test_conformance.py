"""What every scheduling system in conf/system/ must do, whoever wrote it; a new one is tested by being there."""

from __future__ import annotations

import pickle
from dataclasses import replace
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from hetsys.core.errors import ConfigError
from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.view import ClusterView
from tests.systems.views import devices, job, scheduling_systems, simple, system, view_of, views

SYSTEMS = scheduling_systems()
WHOLE_GANGS = {"sia", "fifo"}
UNFAIR = {"max_efficiency", "best_kind_only", *WHOLE_GANGS}
VARIANTS = [name for name in SYSTEMS if "_plus_" in name]  # one field of another option changed
FEW = settings(max_examples=25)
WITHOUT_WEIGHTS = {"gavel_finish_time"}


def check(allocation: Allocation, view: ClusterView) -> None:
    assert allocation.status in ("rule", "optimal"), allocation.note
    weight = {tenant.name: tenant.weight for tenant in view.tenants}
    jobs = {job.name: job.tenant for job in view.jobs}
    names = [claim.name for claim in allocation.claims]
    assert len(names) == len(set(names))
    claimed = [name for claim in allocation.claims for name in claim.jobs]
    assert len(claimed) == len(set(claimed))
    for claim in allocation.claims:
        assert weight[claim.tenant] > 0
        assert all(jobs[name] == claim.tenant for name in claim.jobs)
        assert claim.jobs and len(claim.devices) == len(view.kinds)
    shares = np.array([claim.devices for claim in allocation.claims]).reshape(-1, len(view.kinds))
    assert np.isfinite(shares).all() and (shares >= 0).all()
    assert (shares.sum(axis=0) <= np.array(view.capacity) * (1 + 1e-9)).all()
    gangs = {job.name: job.gang for job in view.jobs}
    for claim, row in zip(allocation.claims, shares, strict=True):
        assert row.sum() <= sum(gangs[name] for name in claim.jobs) * (1 + 1e-6)


def devices_of_claims(allocation: Allocation) -> Any:
    return np.array([claim.devices for claim in allocation.claims])


def check_snapshot(name: str, view: ClusterView) -> None:
    """Within capacity and demand, finite, only for the living and entitled; the same again, with and without a memory."""
    policy = system(name)
    first, memo = policy.allocate(view, None)
    check(first, view)
    assert policy.allocate(view, None)[0] == first
    assert policy.allocate(view, memo)[0] == first
    assert policy.allocate(view, pickle.loads(pickle.dumps(memo)))[0] == first


@pytest.mark.parametrize("name", sorted(set(SYSTEMS) - set(VARIANTS)))
@given(view=views())
def test_any_snapshot(name: str, view: ClusterView) -> None:
    check_snapshot(name, view)


@pytest.mark.parametrize("name", VARIANTS)
@FEW
@given(view=views())
def test_any_snapshot_to_a_variant(name: str, view: ClusterView) -> None:
    check_snapshot(name, view)


@pytest.mark.parametrize("name", sorted(WHOLE_GANGS))
@given(view=views())
def test_whole_gangs_or_nothing(name: str, view: ClusterView) -> None:
    """A job has its whole gang on one kind, or nothing, and no other job fills what is left."""
    allocation, _ = system(name).allocate(view, None)
    gangs = {job.name: job.gang for job in view.jobs}
    assert not allocation.fill
    for claim in allocation.claims:
        assert sorted(claim.devices)[-1] in (0.0, float(gangs[claim.jobs[0]])) and sum(share > 0 for share in claim.devices) <= 1


def check_memory(name: str, before: ClusterView, now: ClusterView) -> None:
    """To a millionth of a device. Prices and binding rows may be others where several sets of them prove the same optimum."""
    policy = system(name)
    _, memo = policy.allocate(before, None)
    with_memory, without = policy.allocate(now, memo)[0], policy.allocate(now, None)[0]
    np.testing.assert_allclose(devices_of_claims(with_memory), devices_of_claims(without), atol=1e-6)
    assert with_memory.levels == pytest.approx(without.levels, rel=1e-6, abs=1e-9)
    names = {"claims": (), "levels": {}, "prices": None, "binding": ()}
    assert replace(with_memory, **names) == replace(without, **names)
    assert [claim.name for claim in with_memory.claims] == [claim.name for claim in without.claims]


@pytest.mark.parametrize("name", sorted(set(SYSTEMS) - set(VARIANTS)))
@given(before=views(), now=views())
def test_memory_changes_nothing(name: str, before: ClusterView, now: ClusterView) -> None:
    check_memory(name, before, now)


@pytest.mark.parametrize("name", VARIANTS)
@FEW
@given(before=views(), now=views())
def test_memory_changes_nothing_to_a_variant(name: str, before: ClusterView, now: ClusterView) -> None:
    check_memory(name, before, now)


@pytest.mark.parametrize("name", sorted(set(SYSTEMS) - UNFAIR))
@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]])
@pytest.mark.parametrize("speed", [1.0, 7.0])
def test_equal_speeds_are_an_equal_split(name: str, weights: list[float], speed: float) -> None:
    """The null case: where kinds do not differ, every fair system gives each tenant its entitlement."""
    if name in WITHOUT_WEIGHTS:
        weights = [1.0, 1.0, 1.0]
    view = simple([[speed, speed]] * 3, (3, 6), weights, jobs=12)
    allocation, _ = system(name).allocate(view, None)
    shares = devices(allocation, view).sum(axis=1)
    np.testing.assert_allclose(shares, 9 * np.array(weights) / sum(weights), rtol=1e-6)


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("bad", [nan, inf, -1.0])
@pytest.mark.parametrize("where", ["speed", "weight", "capacity"])
def test_no_number_reaches_a_solver_that_is_none(name: str, where: str, bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the solver saw it")

    monkeypatch.setattr("hetsys.systems.solve.solve", refuse)
    good = simple([[1, 2], [1, 3]], (1, 1), jobs=2)
    tenant = good.tenants[0]
    view = {
        "speed": replace(good, tenants=(replace(tenant, jobs=(job("x", "t0", (1.0, bad)),)), good.tenants[1])),
        "weight": replace(good, tenants=(replace(tenant, weight=bad), good.tenants[1])),
        "capacity": replace(good, capacity=(1, bad)),
    }[where]
    with pytest.raises(ConfigError, match=where):
        system(name).allocate(view, None)


@pytest.mark.parametrize("name", SYSTEMS)
class TestEdges:
    def test_nobody(self, name: str) -> None:
        allocation, _ = system(name).allocate(view_of([], (2, 2)), None)
        assert allocation.claims == ()

    def test_only_tenants_without_weight(self, name: str) -> None:
        allocation, _ = system(name).allocate(simple([[1, 2]], (2, 2), [0.0]), None)
        assert allocation.claims == ()

    def test_no_devices_at_all(self, name: str) -> None:
        view = simple([[1, 2], [1, 3]], (0, 0))
        allocation, _ = system(name).allocate(view, None)
        assert not devices(allocation, view).any()

    def test_single_tenant_has_the_best_devices(self, name: str) -> None:
        view = simple([[1, 2]], (2, 2), jobs=2)
        allocation, _ = system(name).allocate(view, None)
        shares = devices(allocation, view)[0]
        assert shares.sum() == pytest.approx(2.0)
        assert name == "gavel_agnostic" or shares[1] == pytest.approx(2.0)

    def test_a_kind_that_nobody_can_use_stays_idle(self, name: str) -> None:
        view = simple([[1, 0, 2], [1, 0, 2]], (2, 5, 2))
        allocation, _ = system(name).allocate(view, None)
        assert not devices(allocation, view)[:, 1].any()

    def test_a_kind_without_devices(self, name: str) -> None:
        view = simple([[1, 2, 9], [1, 3, 9]], (2, 2, 0))
        allocation, _ = system(name).allocate(view, None)
        check(allocation, view)
        assert devices(allocation, view).sum() == pytest.approx(2.0 if name == "best_kind_only" else 4.0)

    def test_more_kinds_than_tenants(self, name: str) -> None:
        view = simple([[1, 2, 3, 4, 5, 6], [1, 1, 2, 3, 5, 8]], (1,) * 6)
        allocation, _ = system(name).allocate(view, None)
        check(allocation, view)
        assert devices(allocation, view).sum() == pytest.approx(1.0 if name == "best_kind_only" else 6.0)

    def test_equal_tenants_get_equal_bundles(self, name: str) -> None:
        if name in WHOLE_GANGS:
            pytest.skip("one of two equal jobs comes first")
        view = simple([[1, 2, 5], [1, 3, 4], [1, 2, 5]], (3, 3, 3))
        shares = devices(system(name).allocate(view, None)[0], view)
        np.testing.assert_allclose(shares[0], shares[2], rtol=1e-9)

    def test_two_job_types_of_one_name_with_other_speeds(self, name: str) -> None:
        tenant = replace(simple([[1, 2]], (2, 2)).tenants[0], jobs=(job("x", "t0", (1, 2)), job("y", "t0", (1, 3))))
        view = view_of([tenant], (2, 2))
        check(system(name).allocate(view, None)[0], view)
