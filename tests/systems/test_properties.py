"""How the policies agree with each other and with themselves: solvers, numbers of rows, and the anchors of every comparison."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from hetsys.systems.solve import SOLVERS
from tests.systems.cases import Divided
from tests.systems.views import Array, allocate_saturated, saturated, system

Instance = tuple[Array, Array, Array]


@given(saturated())
def test_gavel_user_is_equal_in_its_own_yardstick(instance: Instance) -> None:
    speeds, capacity, weight = instance
    shares = allocate_saturated(system("gavel_user"), *instance)
    ratio = (speeds * shares).sum(axis=1) / (speeds @ capacity * weight)
    np.testing.assert_allclose(ratio, ratio.mean(), rtol=1e-6)


@pytest.mark.parametrize("name", ["oef_coop", "oef_noncoop", "gavel_user", "gavel", "ceei", "gandiva_fair", "gavel_water_filling", "fifo"])
@given(instance=saturated(zeros=True))
def test_max_efficiency_is_the_upper_anchor(name: str, instance: Instance) -> None:
    most = (instance[0] * allocate_saturated(system("max_efficiency"), *instance)).sum()
    assert (instance[0] * allocate_saturated(system(name), *instance)).sum() <= most * (1 + 1e-6)


@given(saturated(zeros=True))
def test_max_efficiency_does_not_mind_the_order_of_users(instance: Instance) -> None:
    """Of several optima it takes one: the order of users does not matter, their number may."""
    speeds, capacity, weight = instance
    shares = allocate_saturated(system("max_efficiency"), *instance)
    turned = allocate_saturated(system("max_efficiency"), speeds[::-1], capacity, weight[::-1])
    np.testing.assert_allclose(turned, shares[::-1], atol=1e-6 * capacity.max())


@pytest.mark.parametrize("num_users", [2, 10, 40])
@pytest.mark.parametrize("num_kinds", [2, 3, 5])
def test_lazy_envy_rows_reach_the_optimum_of_all_rows(num_users: int, num_kinds: int) -> None:
    rng = np.random.default_rng(num_users * 10 + num_kinds)
    speeds = np.cumsum(np.column_stack([np.ones(num_users), rng.uniform(-0.3, 3, (num_users, num_kinds - 1))]), axis=1).clip(0.1)
    instance = (speeds, np.full(num_kinds, 8.0), rng.uniform(0.5, 2, num_users))
    lazy, full = (allocate_saturated(system("oef_coop", full_rows_up_to=rows), *instance) for rows in (0, 1000))
    assert (speeds * lazy).sum() == pytest.approx((speeds * full).sum(), rel=1e-6)
    assert Divided(*instance, lazy).envy_free() <= 1e-6


@pytest.mark.parametrize("name", ["oef_coop", "oef_noncoop", "gavel_user", "gavel", "max_efficiency"])
@pytest.mark.parametrize("seed", range(3))
def test_solvers_agree(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = (np.column_stack([np.ones(6), rng.uniform(0.5, 5, (6, 2))]), np.array([3.0, 4.0, 5.0]), rng.uniform(0.5, 2, 6))
    totals = [(instance[0] * allocate_saturated(system(name, solver=solver), *instance)).sum() for solver in SOLVERS]
    assert totals == pytest.approx([totals[0]] * 3, rel=1e-6)
