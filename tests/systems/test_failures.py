"""A solver that fails, times out or lies: the last allocation is kept, else the split is equal, and the run goes on and says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hetsys.core.errors import ConfigError, InfeasiblePlan, SolverError
from hetsys.systems import solve as door
from tests.systems.views import devices, simple, system

USE_A_SOLVER = ["oef_coop", "oef_noncoop", "oef_coop_plus", "oef_noncoop_plus", "gavel", "gavel_user", "gavel_agnostic", "max_efficiency"]
TOY = simple([[1, 2], [1, 3], [1, 4]], (1, 1))


def breaks(error: Exception) -> Callable[..., Any]:
    def solve(*_: Any, **__: Any) -> Any:
        raise error

    return solve


def distort(change: Callable[[float], float]) -> Callable[..., Any]:
    """A solver that reports Optimal and a wrong answer."""
    honest = door.solve

    def solve(*args: Any, **options: Any) -> door.Solution:
        solution = honest(*args, **options)
        return replace(solution, values=np.array([change(value) for value in solution.values.tolist()]))

    return solve


@pytest.mark.parametrize("name", USE_A_SOLVER)
@pytest.mark.parametrize("error", [SolverError("no answer within 10 s"), InfeasiblePlan("no optimum")])
def test_last_allocation_is_kept(name: str, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = system(name)
    good, memo = policy.allocate(TOY, None)
    monkeypatch.setattr(door, "solve", breaks(error))
    changed = replace(TOY, tenants=(*TOY.tenants[:2], replace(TOY.tenants[2], weight=2.0)))
    kept, after = policy.allocate(changed, memo)
    assert (kept.status, kept.note) == ("kept", str(error))
    np.testing.assert_allclose(devices(kept, changed), devices(good, TOY), atol=1e-9)
    assert policy.allocate(changed, after)[0] == kept


@pytest.mark.parametrize("name", USE_A_SOLVER)
def test_kept_for_those_who_are_still_here_within_what_is_up(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = system(name)
    before = simple([[1, 2], [1, 3], [1, 4]], (4, 4))
    good, memo = policy.allocate(before, None)
    monkeypatch.setattr(door, "solve", breaks(SolverError("crash")))
    newcomer = simple([[1, 2]], (4, 4), jobs=2).tenants[0]
    newcomer = replace(newcomer, name="new", jobs=tuple(replace(j, name=f"new.{j.name}", tenant="new") for j in newcomer.jobs))
    now = replace(before, capacity=(4, 1), tenants=(*before.tenants[1:], newcomer))
    kept, _ = policy.allocate(now, memo)
    was = devices(good, before)[1:]
    expected = np.column_stack([was[:, 0], was[:, 1] / max(1.0, was[:, 1].sum())])
    assert kept.status == "kept"
    np.testing.assert_allclose(devices(kept, now), np.vstack([expected, [[0, 0]]]), atol=1e-9)


@pytest.mark.parametrize("name", USE_A_SOLVER)
def test_without_a_last_allocation_the_split_is_equal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "solve", breaks(SolverError("crash")))
    allocation, memo = system(name).allocate(TOY, None)
    assert (allocation.status, allocation.note) == ("fallback", "crash")
    np.testing.assert_allclose(devices(allocation, TOY), np.full((3, 2), 1 / 3))
    monkeypatch.undo()
    assert system(name).allocate(TOY, memo)[0].status == "optimal"


@pytest.mark.parametrize("name", USE_A_SOLVER)
@pytest.mark.parametrize("change", [lambda value: float("nan"), lambda value: 2 * value + 1, lambda value: -value - 1])
def test_wrong_answers_are_refused(name: str, change: Callable[[float], float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "solve", distort(change))
    allocation, _ = system(name).allocate(TOY, None)
    assert allocation.status == "fallback"
    assert allocation.note


@pytest.mark.parametrize("name", ["oef_coop", "oef_noncoop", "gavel_user"])
def test_an_answer_that_leaves_devices_idle_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "solve", distort(lambda value: value / 2))
    assert system(name).allocate(TOY, None)[0].status == "fallback"


def test_market_that_does_not_settle() -> None:
    allocation, _ = system("ceei", max_iterations=1).allocate(TOY, None)
    assert allocation.status == "fallback"
    assert "1 iterations" in allocation.note


@pytest.mark.parametrize("name", USE_A_SOLVER)
def test_an_unchanged_instance_is_not_solved_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = system(name)
    first, memo = policy.allocate(TOY, None)
    monkeypatch.setattr(door, "solve", breaks(AssertionError("solved again")))
    almost_done = [replace(t, jobs=tuple(replace(j, steps_left=1) for j in t.jobs)) for t in TOY.tenants]
    later = replace(TOY, now_s=360.0, tenants=tuple(almost_done))
    assert policy.allocate(later, memo)[0] == first


@pytest.mark.parametrize("name", ["oef_coop", "oef_noncoop", "gavel_user", "max_efficiency"])
def test_a_finished_job_that_does_not_matter_is_no_reason_to_solve(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = system(name)
    first, memo = policy.allocate(TOY, None)
    monkeypatch.setattr(door, "solve", breaks(AssertionError("solved again")))
    fewer = replace(TOY, tenants=tuple(replace(tenant, jobs=tenant.jobs[1:]) for tenant in TOY.tenants))
    np.testing.assert_allclose(devices(policy.allocate(fewer, memo)[0], fewer), devices(first, TOY))


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("oef_coop", "solver", "hihgs"),
        ("oef_noncoop", "time_limit_s", 0.0),
        ("gavel", "time_limit_s", float("nan")),
        ("oef_coop", "full_rows_up_to", -1),
        ("ceei", "tolerance", 0.0),
        ("ceei", "max_iterations", 0),
        ("gandiva_fair", "max_sweeps", -1),
    ],
)
def test_mistakes_in_fields_name_the_key(name: str, field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"system.{field}="):
        system(name, **{field: value})
