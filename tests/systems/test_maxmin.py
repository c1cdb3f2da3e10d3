"""Max-min, plain and lexicographic: against bisection by hand for two kinds, and with rows for few classes against rows for all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsys.core.scheduling.users import Users
from hetsys.systems import maxmin
from hetsys.systems.classes import Classes, merge
from hetsys.systems.maxmin import equal_levels, lexicographic_max_min
from hetsys.systems.solve import SOLVERS, Solver
from tests.systems.oracles import equal_level, instances, unmerged, users
from tests.systems.views import Array, pareto_gap


def throughput(classes: Classes, fractions: Array) -> Array:
    """(c,): for each unit of the share of all weight."""
    return np.asarray(classes.whole * (classes.value * fractions).sum(axis=1))


def random_users(n: int, k: int, seed: int, zeros: float = 0.0, ties: bool = False) -> Users:
    rng = np.random.default_rng(seed)
    steps = rng.choice([0.0, 0.5, 1.0], (n, k - 1)) if ties else rng.uniform(0, 1, (n, k - 1))
    speed = np.cumsum(np.column_stack([np.ones(n), steps]), axis=1)
    speed[rng.random(speed.shape) < zeros] = 0.0
    speed[:, 0] = np.where(speed.any(axis=1), speed[:, 0], 1.0)
    return users(speed, rng.integers(1, 20, k), rng.uniform(0.5, 2, n))


def all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maxmin, "_SMALL", 10_000)


@given(instances(most_users=10, kinds=2))
def test_two_kinds_by_bisection(instance: Users) -> None:
    classes = merge(instance)
    fractions, levels, _ = equal_levels(classes, classes.whole, Solver())
    np.testing.assert_allclose(levels / instance.weight.sum(), equal_level(instance), rtol=1e-6)
    np.testing.assert_allclose(throughput(classes, fractions), levels, rtol=1e-6)


@given(instances())
def test_merging_equal_users_is_exact(instance: Users) -> None:
    for program in (equal_levels, lexicographic_max_min):
        merged, single = merge(instance), unmerged(instance)
        one = merged.per_user(program(merged, merged.whole, Solver())[1])
        np.testing.assert_allclose(program(single, single.whole, Solver())[1], one, rtol=1e-7)


@given(instances(most_users=6))
def test_lexicographic_is_efficient_and_lowers_nobody(instance: Users) -> None:
    classes = merge(instance)
    fractions, levels, prices = lexicographic_max_min(classes, classes.whole, Solver())
    devices = classes.devices(fractions)
    np.testing.assert_allclose(throughput(classes, fractions), levels, rtol=1e-6)
    np.testing.assert_allclose(levels.min(), equal_levels(classes, classes.whole, Solver())[1][0], rtol=1e-6)
    assert pareto_gap(instance.speed, instance.capacity, devices) <= 1e-5 * (instance.speed * devices).sum()
    assert prices @ instance.capacity == pytest.approx(levels.min(), rel=1e-6)


class TestFewRows:
    """Above `_SMALL` classes only those that hold several kinds have rows."""

    @pytest.mark.parametrize(("n", "k", "zeros", "ties"), [(90, 2, 0, False), (200, 3, 0, False), (400, 6, 0, False), (300, 5, 0, True)])
    def test_levels_and_prices_are_those_of_all_rows(
        self, n: int, k: int, zeros: float, ties: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        classes = merge(random_users(n, k, n + k, zeros, ties))
        assert classes.num_classes > maxmin._SMALL or ties
        monkeypatch.setattr(maxmin, "_SMALL", 10)
        few = equal_levels(classes, classes.whole, Solver())
        all_rows(monkeypatch)
        every = equal_levels(classes, classes.whole, Solver())
        np.testing.assert_allclose(few[1], every[1], rtol=1e-9)
        np.testing.assert_allclose(throughput(classes, few[0]), few[1], rtol=1e-8)
        np.testing.assert_allclose(few[2] @ classes.users.capacity, every[2] @ classes.users.capacity, rtol=1e-8)
        if not ties:
            np.testing.assert_allclose(few[2], every[2], rtol=1e-6)

    @pytest.mark.parametrize("seed", range(6))
    def test_lexicographic_with_zeros(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        classes = merge(random_users(120, 4, seed, zeros=0.4))
        few = lexicographic_max_min(classes, classes.whole, Solver())
        all_rows(monkeypatch)
        every = lexicographic_max_min(classes, classes.whole, Solver())
        np.testing.assert_allclose(few[1], every[1], rtol=1e-6)
        np.testing.assert_allclose(throughput(classes, few[0]), few[1], rtol=1e-6)
        assert ((classes.weight[:, None] * few[0]).sum(axis=0) <= 1 + 1e-7).all()

    @given(st.integers(0, 2**32), st.sampled_from([0.0, 0.3]), st.booleans())
    def test_any_instance(self, seed: int, zeros: float, ties: bool) -> None:
        classes = merge(random_users(25, 3, seed, zeros, ties))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(maxmin, "_SMALL", 4)
            few = [program(classes, classes.whole, Solver())[1] for program in (equal_levels, lexicographic_max_min)]
        every = [program(classes, classes.whole, Solver())[1] for program in (equal_levels, lexicographic_max_min)]
        np.testing.assert_allclose(few, every, rtol=1e-6)

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_every_solver(self, solver: str) -> None:
        classes = merge(random_users(100, 3, 1))
        levels = equal_levels(classes, classes.whole, Solver(solver=solver))[1]
        np.testing.assert_allclose(levels, equal_levels(classes, classes.whole, Solver())[1], rtol=1e-6)


def test_three_levels_by_hand() -> None:
    """Users of the slow kind, of two, of all three, one device of each: 1, then 2, then 9, in three steps; prices are of the first."""
    classes = merge(users(np.array([[1, 0, 0], [1, 2, 0], [1, 2, 9]]), np.ones(3)))
    _, levels, prices = lexicographic_max_min(classes, classes.whole, Solver())
    np.testing.assert_allclose(classes.per_user(levels) / 3, [1, 2, 9], rtol=1e-6)
    np.testing.assert_allclose(prices, [3, 0, 0], atol=1e-6)
    assert equal_levels(classes, classes.whole, Solver())[1] / 3 == pytest.approx([1, 1, 1])
