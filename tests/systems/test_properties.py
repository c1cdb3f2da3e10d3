"""What each fair policy promises, on random instances, against independent solvers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.systems.views import Array, allocate_saturated, best_envy_free_total, pareto_gap, saturated, system

Instance = tuple[Array, Array, Array]


def ratio_to_entitlement(shares: Array, instance: Instance) -> Array:
    speeds, capacity, weight = instance
    return np.asarray((speeds * shares).sum(axis=1) / (speeds @ capacity * weight / weight.sum()))


def worst_envy(shares: Array, instance: Instance) -> float:
    speeds, _, weight = instance
    worth = speeds @ (shares / weight[:, None]).T
    return float((worth / np.diag(worth)[:, None]).max()) - 1


@given(saturated(zeros=True))
def test_cooperative(instance: Instance) -> None:
    """No envy, sharing incentive, nothing usable idle, and as much in total as the program with every row, solved by scipy."""
    speeds, capacity, _ = instance
    shares = allocate_saturated(system("oef_coop"), *instance)
    assert worst_envy(shares, instance) <= 1e-6
    assert (ratio_to_entitlement(shares, instance) >= 1 - 1e-6).all()
    wanted = (speeds > 0).any(axis=0)
    np.testing.assert_allclose(shares.sum(axis=0)[wanted], capacity[wanted], rtol=1e-6)
    assert (speeds * shares).sum() == pytest.approx(best_envy_free_total(*instance), rel=1e-6)


@given(saturated())
def test_noncooperative(instance: Instance) -> None:
    """Equal throughput for the weight, Pareto efficient, and no more in total than the cooperative one where weights are equal."""
    speeds, capacity, weight = instance
    shares = allocate_saturated(system("oef_noncoop"), *instance)
    utility = (speeds * shares).sum(axis=1)
    np.testing.assert_allclose(utility / weight, (utility / weight).mean(), rtol=1e-6)
    assert pareto_gap(speeds, capacity, shares) <= 1e-5 * utility.sum()


@given(saturated(zeros=True))
def test_noncooperative_with_zeros_is_pareto_efficient(instance: Instance) -> None:
    speeds, capacity, _ = instance
    shares = allocate_saturated(system("oef_noncoop"), *instance)
    utility = (speeds * shares).sum(axis=1)
    assert (utility > 0).all()
    assert pareto_gap(speeds, capacity, shares) <= 1e-5 * utility.sum()


@given(saturated())
def test_envy_freeness_costs_the_noncooperative_one_nothing_in_total(instance: Instance) -> None:
    speeds, capacity, weight = instance
    equal = np.ones_like(weight)
    totals = [(speeds * allocate_saturated(system(name), speeds, capacity, equal)).sum() for name in ("oef_noncoop", "oef_coop")]
    assert totals[0] <= totals[1] * (1 + 1e-6)


@given(saturated(), st.floats(1.0, 4.0), st.data())
def test_overreports_to_the_noncooperative_policy_never_pay(instance: Instance, factor: float, data: st.DataObject) -> None:
    speeds, capacity, weight = instance
    liar, kind = data.draw(st.integers(0, len(speeds) - 1)), data.draw(st.integers(0, len(capacity) - 1))
    assume(kind > 0)  # the first kind is the unit
    lie = speeds.copy()
    lie[liar, kind] *= factor
    honest = speeds[liar] @ allocate_saturated(system("oef_noncoop"), *instance)[liar]
    assert speeds[liar] @ allocate_saturated(system("oef_noncoop"), lie, capacity, weight)[liar] <= honest * (1 + 1e-6)


@pytest.mark.parametrize("name", ["gavel_user", "gandiva_fair", "ceei", "equal_split"])
@given(instance=saturated(zeros=True))
def test_sharing_incentive(name: str, instance: Instance) -> None:
    assert (ratio_to_entitlement(allocate_saturated(system(name), *instance), instance) >= 1 - 1e-6).all()


@given(saturated(zeros=True))
def test_market_is_envy_free_and_efficient(instance: Instance) -> None:
    speeds, capacity, _ = instance
    shares = allocate_saturated(system("ceei"), *instance)
    assert worst_envy(shares, instance) <= 1e-6
    utility = (speeds * shares).sum(axis=1)
    assert pareto_gap(speeds, capacity, shares) <= 1e-5 * utility.sum()


@given(saturated())
def test_gavel_user_is_equal_in_its_own_yardstick(instance: Instance) -> None:
    speeds, capacity, _ = instance
    shares = allocate_saturated(system("gavel_user"), *instance)
    ratio = ratio_to_entitlement(shares, instance)
    np.testing.assert_allclose(ratio, ratio.mean(), rtol=1e-6)
    utility = (speeds * shares).sum(axis=1)
    assert pareto_gap(speeds, capacity, shares) <= 1e-5 * utility.sum()


@pytest.mark.parametrize("name", ["oef_coop", "oef_noncoop", "gavel_user", "gavel", "ceei", "gandiva_fair"])
@given(instance=saturated(zeros=True))
def test_max_efficiency_is_the_upper_anchor(name: str, instance: Instance) -> None:
    most = (instance[0] * allocate_saturated(system("max_efficiency"), *instance)).sum()
    assert (instance[0] * allocate_saturated(system(name), *instance)).sum() <= most * (1 + 1e-6)


@pytest.mark.parametrize("name", ["oef_coop", "oef_noncoop", "gavel_user", "ceei", "gandiva_fair", "max_efficiency"])
@given(instance=saturated(zeros=True), data=st.data())
def test_order_of_users_and_splitting_a_user_change_nothing(name: str, instance: Instance, data: st.DataObject) -> None:
    """Users in another order get the same; so do, together, two copies of a user with half its weight."""
    speeds, capacity, weight = instance
    shares = allocate_saturated(system(name), *instance)
    order = np.array(data.draw(st.permutations(range(len(speeds)))))
    shuffled = allocate_saturated(system(name), speeds[order], capacity, weight[order])
    np.testing.assert_allclose(shuffled, shares[order], atol=1e-6 * capacity.max())
    if name == "max_efficiency":  # of several optima it takes one: the order of users does not matter, their number may
        return
    halves = np.concatenate([[weight[0] / 2, weight[0] / 2], weight[1:]])
    split = allocate_saturated(system(name), np.vstack([speeds[:1], speeds]), capacity, halves)
    np.testing.assert_allclose(np.vstack([split[0] + split[1], split[2:]]), shares, atol=1e-6 * capacity.max())


@pytest.mark.parametrize("num_users", [2, 10, 40])
@pytest.mark.parametrize("num_kinds", [2, 3, 5])
def test_lazy_envy_rows_reach_the_optimum_of_all_rows(num_users: int, num_kinds: int) -> None:
    rng = np.random.default_rng(num_users * 10 + num_kinds)
    speeds = np.cumsum(np.column_stack([np.ones(num_users), rng.uniform(-0.3, 3, (num_users, num_kinds - 1))]), axis=1).clip(0.1)
    instance = (speeds, np.full(num_kinds, 8.0), rng.uniform(0.5, 2, num_users))
    lazy, full = (allocate_saturated(system("oef_coop", full_rows_up_to=rows), *instance) for rows in (0, 1000))
    assert (speeds * lazy).sum() == pytest.approx((speeds * full).sum(), rel=1e-6)
    assert worst_envy(lazy, instance) <= 1e-6


@pytest.mark.parametrize("name", ["oef_coop", "oef_noncoop", "gavel_user", "gavel", "max_efficiency"])
@pytest.mark.parametrize("seed", range(3))
def test_solvers_agree(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = (np.column_stack([np.ones(6), rng.uniform(0.5, 5, (6, 2))]), np.array([3.0, 4.0, 5.0]), rng.uniform(0.5, 2, 6))
    totals = [(instance[0] * allocate_saturated(system(name, solver=solver), *instance)).sum() for solver in ("highs", "cbc")]
    assert totals[0] == pytest.approx(totals[1], rel=1e-6)
