"""What is proven of the two OEF programs and of the market, on random instances and against independent solvers. The properties that every
system has or has not are in test_property_table.py."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from tests.systems.views import Array, allocate_saturated, best_envy_free_total, saturated, system

Instance = tuple[Array, Array, Array]


def shares_of(name: str, instance: Instance) -> Array:
    return allocate_saturated(system(name), *instance)


def total(name: str, instance: Instance) -> float:
    return float((instance[0] * shares_of(name, instance)).sum())


def highest_level(instance: Instance) -> float:
    """The non-cooperative program with a row for each user and no merging, solved by scipy: max E  s.t.  w_l . x_l = pi_l E."""
    speeds, capacity, weight = instance
    n, k = speeds.shape
    level = np.hstack([np.kron(np.eye(n), np.ones(k)) * speeds.reshape(-1), -weight[:, None]])
    use = np.hstack([np.tile(np.eye(k), n), np.zeros((k, 1))])
    return float(-linprog(-np.eye(n * k + 1)[-1], A_ub=use, b_ub=capacity, A_eq=level, b_eq=np.zeros(n)).fun)


def envy_free_gain(instance: Instance, shares: Array) -> float:
    """The most that could be added to the throughputs of `shares` in total, while nobody loses, by a division that is envy-free too."""
    speeds, capacity, weight = instance
    n, k = speeds.shape
    own = np.kron(np.eye(n), np.ones(k)) * speeds.reshape(-1)
    envy = [np.kron(np.eye(n)[j] / weight[j] - np.eye(n)[i] / weight[i], speeds[i]) for i in range(n) for j in range(n) if i != j]
    rows = np.vstack([-own, *envy, np.tile(np.eye(k), n)])
    limits = np.concatenate([-(speeds * shares).sum(axis=1) * (1 - 1e-9), np.zeros(len(envy)), capacity])
    found = linprog(-speeds.reshape(-1), A_ub=rows, b_ub=limits)
    assert found.status == 0, found.message
    return float(-found.fun - (speeds * shares).sum())


@given(saturated(zeros=True))
def test_cooperative_is_the_program_with_every_row(instance: Instance) -> None:
    """Classes merged and rows added where they are violated, against all users and all rows; nothing usable is idle."""
    speeds, capacity, _ = instance
    shares = shares_of("oef_coop", instance)
    assert (speeds * shares).sum() == pytest.approx(best_envy_free_total(*instance), rel=1e-6)
    wanted = (speeds > 0).any(axis=0)
    np.testing.assert_allclose(shares.sum(axis=0)[wanted], capacity[wanted], rtol=1e-6)


@given(saturated(zeros=True))
def test_no_envy_free_division_dominates_the_cooperative_one(instance: Instance) -> None:
    """Pareto efficient among envy-free divisions. By itself it is not: see test_counterexamples.py."""
    shares = shares_of("oef_coop", instance)
    assert envy_free_gain(instance, shares) <= 1e-6 * (instance[0] * shares).sum()


@given(saturated(zeros=True))
def test_noncooperative_is_the_program_with_every_row(instance: Instance) -> None:
    """Equal throughput for the weight, as high as scipy gets it for all users one by one."""
    speeds, _, weight = instance
    utility = (speeds * shares_of("oef_noncoop", instance)).sum(axis=1)
    np.testing.assert_allclose(utility / weight, highest_level(instance), rtol=1e-6)


@given(saturated())
def test_equality_costs_more_than_envy_freeness(instance: Instance) -> None:
    """With equal weights the non-cooperative total is at most the cooperative one."""
    speeds, capacity, weight = instance
    alike = (speeds, capacity, np.ones_like(weight))
    assert total("oef_noncoop", alike) <= total("oef_coop", alike) * (1 + 1e-6)


@given(saturated(zeros=True))
def test_the_market_costs_no_more_than_envy_freeness_allows(instance: Instance) -> None:
    """CEEI is one of the envy-free divisions, so its total is at most the cooperative one."""
    assert total("ceei", instance) <= total("oef_coop", instance) * (1 + 1e-6)


@given(saturated())
def test_few_users_of_the_noncooperative_program_hold_several_kinds(instance: Instance) -> None:
    """A basic optimum of n users and k kinds has at most n + k - 1 shares; users with equal speeds count as one."""
    speeds, capacity, weight = instance
    rows, first, member = np.unique(speeds, axis=0, return_index=True, return_inverse=True)
    weight = np.bincount(member.reshape(-1), weights=weight)
    shares = shares_of("oef_noncoop", (speeds[first], capacity, weight))
    assert (shares > 1e-7 * capacity).sum() <= len(rows) + len(capacity) - 1


@st.composite
def ratio_ordered(draw: st.DrawFn) -> Instance:
    """Users whose gain from each kind to the next is strictly larger than that of the user before."""
    kinds = draw(st.integers(2, 6))
    steps = np.cumsum(draw(st.lists(st.floats(0.2, 1.0), min_size=kinds - 1, max_size=kinds - 1)))
    grow = np.cumsum(draw(st.lists(st.floats(0.05, 0.8), min_size=1, max_size=6)))
    capacity = np.array(draw(st.lists(st.integers(1, 9), min_size=kinds, max_size=kinds)), dtype=float)
    weight = np.array(draw(st.lists(st.sampled_from([1.0, 1.0, 0.5, 3.0]), min_size=len(grow), max_size=len(grow))))
    return np.column_stack([np.ones(len(grow)), np.exp(np.outer(grow, steps))]), capacity, weight


@pytest.mark.parametrize("name", ["oef_noncoop", "gavel_user"])
@given(instance=ratio_ordered())
def test_ratio_ordered_users_hold_neighbouring_kinds(name: str, instance: Instance) -> None:
    """And those who gain more from speed hold none slower than the others."""
    shares = shares_of(name, instance)
    held = [np.flatnonzero(row > 1e-6 * instance[1]) for row in shares]
    for kinds in held:
        assert kinds[-1] - kinds[0] + 1 == len(kinds)
    for slower, faster in pairwise(held):
        assert slower[-1] <= faster[0]


@st.composite
def two_kinds(draw: st.DrawFn) -> Instance:
    """Users of two kinds, sorted by their speed on the second."""
    ratios = sorted(draw(st.lists(st.sampled_from([1.0, 2.0, 4.0]) | st.floats(0.3, 12), min_size=1, max_size=7)))
    capacity = np.array(draw(st.lists(st.integers(1, 9), min_size=2, max_size=2)), dtype=float)
    weight = np.array(draw(st.lists(st.sampled_from([1.0, 1.0, 0.5, 3.0]), min_size=len(ratios), max_size=len(ratios))))
    return np.column_stack([np.ones(len(ratios)), ratios]), capacity, weight


@given(two_kinds())
def test_two_kinds_in_closed_form(instance: Instance) -> None:
    """Non-cooperative: by bisection; whoever gains least from the fast kind takes slow devices first, and fast ones when those are gone."""
    speeds, capacity, weight = instance

    def fast_needed(level: float) -> float:
        slow, fast = capacity[0], 0.0
        for ratio, need in zip(speeds[:, 1], weight * level, strict=True):
            taken = min(slow, need)
            slow -= taken
            fast += (need - taken) / ratio
        return float(fast)

    low, high = 0.0, float((speeds * capacity).sum() / weight.min())
    for _ in range(200):
        level = (low + high) / 2
        low, high = (level, high) if fast_needed(level) <= capacity[1] else (low, level)
    utility = (speeds * shares_of("oef_noncoop", instance)).sum(axis=1)
    np.testing.assert_allclose(utility / weight, low, rtol=1e-6)


@given(two_kinds())
def test_two_kinds_need_the_rows_between_neighbours_only(instance: Instance) -> None:
    """Cooperative, two kinds: the rows of envy between classes next to each other in the order of speed suffice. Neither for single users
    with ties, nor for three kinds: see test_counterexamples.py."""
    classes, member = np.unique(instance[0], axis=0, return_inverse=True)
    merged = (classes, instance[1], np.bincount(member.reshape(-1), weights=instance[2]))
    assert neighbours_only(merged) == pytest.approx(total("oef_coop", instance), rel=1e-6)


def neighbours_only(instance: Instance) -> float:
    """The cooperative program with the rows between users next to each other only, by scipy."""
    speeds, capacity, weight = instance
    n, k = speeds.shape
    pairs = [pair for i in range(n - 1) for pair in ((i, i + 1), (i + 1, i))]
    envy = [np.kron(np.eye(n)[j] / weight[j] - np.eye(n)[i] / weight[i], speeds[i]) for i, j in pairs]
    rows = np.vstack([*envy, np.tile(np.eye(k), n)])
    return float(-linprog(-speeds.reshape(-1), A_ub=rows, b_ub=np.concatenate([np.zeros(len(pairs)), capacity])).fun)


@pytest.mark.parametrize("name", ["oef_coop", "oef_noncoop", "gavel_user", "ceei", "gandiva_fair"])
@given(instance=saturated(zeros=True), data=st.data())
def test_order_of_users_and_splitting_a_user_change_nothing(name: str, instance: Instance, data: st.DataObject) -> None:
    """Users in another order get the same; so do, together, two copies of a user with half its weight, whatever they hold each."""
    speeds, capacity, weight = instance
    shares = shares_of(name, instance)
    order = np.array(data.draw(st.permutations(range(len(speeds)))))
    shuffled = shares_of(name, (speeds[order], capacity, weight[order]))
    np.testing.assert_allclose(shuffled, shares[order], atol=1e-6 * capacity.max())
    split = shares_of(name, (np.vstack([speeds[:1], speeds]), capacity, np.r_[weight[0] / 2, weight[0] / 2, weight[1:]]))
    np.testing.assert_allclose(np.vstack([split[0] + split[1], split[2:]]), shares, atol=1e-6 * capacity.max())


@given(saturated(), st.floats(0.1, 10.0), st.integers(-4, 4))
def test_only_relative_weights_count(instance: Instance, factor: float, power: int) -> None:
    """The same shares where weights are doubled or halved, which is exact; otherwise, of several best divisions, perhaps another one."""
    speeds, capacity, weight = instance
    for name in ("oef_coop", "oef_noncoop"):
        shares = shares_of(name, instance)
        np.testing.assert_allclose(shares_of(name, (speeds, capacity, weight * 2.0**power)), shares, atol=1e-6 * capacity.max())
        total = (speeds * shares).sum()
        assert (speeds * shares_of(name, (speeds, capacity, weight * factor))).sum() == pytest.approx(total, rel=1e-6)
