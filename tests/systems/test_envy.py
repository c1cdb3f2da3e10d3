"""The cooperative program: few rows, merged classes and a start from the last round change its time and not its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsys.core.errors import SolverError
from hetsys.core.scheduling.users import Users
from hetsys.systems import envy
from hetsys.systems.check import max_envy
from hetsys.systems.classes import merge
from hetsys.systems.envy import EnvyFree, most_without_envy
from hetsys.systems.oef.cooperative import OefCooperative
from hetsys.systems.shares import Shares
from hetsys.systems.solve import SOLVERS, Solver
from hetsys.systems.warm import Start, carried
from tests.systems.oracles import instances, most_without_envy_of_neighbours, unmerged, users
from tests.systems.views import Array, best_envy_free_total

LAZY = OefCooperative(full_rows_up_to=0)
FULL = OefCooperative(full_rows_up_to=10_000)


def total(users: Users, devices: Array) -> float:
    return float((users.speed * devices).sum())


def random_users(n: int, k: int, seed: int) -> Users:
    """All speeds different, growing from kind to kind."""
    rng = np.random.default_rng(seed)
    speed = np.cumsum(np.column_stack([np.ones(n), rng.uniform(0, 1, (n, k - 1))]), axis=1)
    return users(speed, np.full(k, 8.0), rng.uniform(0.5, 2, n))


def next_round(before: Users, seed: int) -> Users:
    """Some leave, others come, some speeds move a little."""
    rng = np.random.default_rng(seed)
    speed, weight = before.speed.copy(), before.weight.copy()
    moved, gone = rng.random(len(speed)) < 0.15, rng.random(len(speed)) < 0.15
    speed[moved, 1:] *= rng.uniform(0.97, 1.03, speed[moved, 1:].shape)
    come = random_users(len(speed), speed.shape[1], seed + 1).speed[: int(rng.integers(0, 5))]
    weight = np.concatenate([weight[~gone], np.ones(len(come))])
    return users(np.vstack([speed[~gone], come]), before.capacity, weight)


class TestRows:
    @given(instances())
    def test_few_rows_reach_what_all_of_them_allow(self, instance: Users) -> None:
        shares = LAZY.shares(instance)
        assert total(instance, shares.devices) == pytest.approx(
            best_envy_free_total(instance.speed, instance.capacity, instance.weight), rel=1e-6
        )
        assert max_envy(instance, shares.devices) <= 1e-6
        np.testing.assert_allclose(shares.devices, FULL.shares(instance).devices, atol=1e-6)

    @given(instances())
    def test_merging_equal_users_is_exact(self, instance: Users) -> None:
        merged = most_without_envy(merge(instance), Solver())
        single = most_without_envy(unmerged(instance), Solver())
        apart = unmerged(instance).devices(single.fractions)
        together = merge(instance).devices(merged.fractions)
        assert total(instance, together) == pytest.approx(total(instance, apart), rel=1e-9)

    @pytest.mark.parametrize(("n", "k"), [(20, 2), (60, 3), (60, 6), (150, 4)])
    def test_many_users(self, n: int, k: int) -> None:
        instance = random_users(n, k, seed=n + k)
        few, every = LAZY.shares(instance), FULL.shares(instance)
        assert total(instance, few.devices) == pytest.approx(total(instance, every.devices), rel=1e-9)
        np.testing.assert_allclose(few.devices, every.devices, atol=1e-6)
        assert max_envy(instance, few.devices) <= 1e-8

    def test_most_rows_are_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rows = []
        honest = envy._read

        def read(classes: object, program: object, *others: object) -> EnvyFree:
            rows.append(program.num_rows)  # type: ignore[attr-defined]
            return honest(classes, program, *others)  # type: ignore[arg-type]

        monkeypatch.setattr(envy, "_read", read)
        LAZY.shares(random_users(150, 4, seed=0))
        assert 150 < rows[0] < 150 * 149 / 10


class TestTwoKinds:
    @given(instances(most_users=10, kinds=2))
    def test_neighbours_in_the_order_of_speedups_are_enough(self, instance: Users) -> None:
        assert total(instance, LAZY.shares(instance).devices) == pytest.approx(most_without_envy_of_neighbours(instance), rel=1e-6)

    def test_with_three_kinds_they_are_not(self) -> None:
        """12 without envy; 13.5 if the first may envy the third, who is no neighbour."""
        instance = users(np.array([[1, 1, 2], [1, 1, 4], [1, 3, 4]]), np.array([1, 3, 1]))
        assert most_without_envy_of_neighbours(instance) == pytest.approx(13.5)
        assert total(instance, LAZY.shares(instance).devices) == pytest.approx(12)
        assert best_envy_free_total(instance.speed, instance.capacity, instance.weight) == pytest.approx(12)


class TestDuals:
    """Users (1, 2) and (1, 4), one device of each kind. The first holds the slow one and a fast part a with 1 + 2a = 2 (1 - a): a = 1/4.
    The total is 5 - 2a. A unit of the row asks for a = 1/2 and costs 1/2; another slow device asks for a = 0 and gives 1 + 1/2; another
    fast one asks for a = 3/4 and gives 4 - 1."""

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_by_hand(self, solver: str) -> None:
        shares = OefCooperative(solver=solver).shares(users(np.array([[1, 2], [1, 4]]), np.array([1, 1])))
        np.testing.assert_allclose(shares.devices, [[1, 0.25], [0, 0.75]], atol=1e-7)
        np.testing.assert_allclose(shares.prices, [1.5, 3], rtol=1e-6)
        ((user, envied, dual),) = shares.binding
        assert (user, envied) == (0, 1)
        assert dual == pytest.approx(0.5, rel=1e-6)

    def test_with_weights_and_more_devices(self) -> None:
        """Weights 2 and 1: (1 + 2a) / 2 = 2 (1 - a): a = 1/2; a unit of the row, for a unit of weight, asks for 1/3 more: 2/3."""
        shares = OefCooperative().shares(users(np.array([[1, 2], [1, 4]]), np.array([1, 1]), np.array([2, 1])))
        np.testing.assert_allclose(shares.devices, [[1, 0.5], [0, 0.5]], atol=1e-7)
        assert [binding[:2] for binding in shares.binding] == [(0, 1)]
        assert shares.binding[0][2] == pytest.approx(2 / 3, rel=1e-6)
        more = OefCooperative().shares(users(np.array([[1, 2], [1, 4]]), np.array([3, 3]), np.array([20, 10])))
        np.testing.assert_allclose(more.devices, [[3, 1.5], [0, 1.5]], atol=1e-7)
        assert more.binding[0][2] == pytest.approx(20 / 3, rel=1e-6)

    def test_one_user_stands_for_all_of_its_speeds(self) -> None:
        instance = users(np.array([[1, 4], [1, 2], [1, 4], [1, 2]]), np.array([2, 2]))
        shares = OefCooperative().shares(instance)
        assert [binding[:2] for binding in shares.binding] == [(1, 0)]

    @given(instances(), st.floats(1e-4, 1e-3))
    def test_prices_and_rows_say_what_the_total_is_made_of(self, instance: Users, extra: float) -> None:
        """All rows have a right-hand side of 0, so devices at their prices are the whole total; and prices bound what more devices add."""
        shares = LAZY.shares(instance)
        assert shares.prices is not None
        assert shares.prices @ instance.capacity == pytest.approx(total(instance, shares.devices), rel=1e-6)
        assert all(dual > 0 and user != envied for user, envied, dual in shares.binding)
        more = replace(instance, capacity=instance.capacity * (1 + extra * np.arange(len(instance.capacity))))
        gained = total(more, LAZY.shares(more).devices) - total(instance, shares.devices)
        assert gained <= shares.prices @ (more.capacity - instance.capacity) + 1e-6 * total(instance, shares.devices)


class TestStart:
    @given(instances(), instances())
    def test_any_start_leads_to_the_same_answer(self, before: Users, now: Users) -> None:
        warm = LAZY.shares(before).warm
        np.testing.assert_allclose(LAZY.shares_from(now, warm).devices, LAZY.shares(now).devices, atol=1e-6)

    @given(instances(most_users=9, zeros=False), st.data())
    def test_users_who_leave(self, before: Users, data: st.DataObject) -> None:
        stay = data.draw(st.lists(st.integers(0, before.num_users - 1), min_size=1, unique=True))
        now = users(before.speed[stay], before.capacity, before.weight[stay])
        found = LAZY.shares_from(now, LAZY.shares(before).warm)
        np.testing.assert_allclose(found.devices, LAZY.shares(now).devices, atol=1e-6)

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("k", [2, 3, 5])
    def test_round_after_round(self, seed: int, k: int) -> None:
        instance, warm = random_users(50, k, seed), None
        for turn in range(4):
            shares = LAZY.shares_from(instance, warm)
            np.testing.assert_allclose(shares.devices, LAZY.shares(instance).devices, atol=1e-6)
            instance, warm = next_round(instance, 10 * seed + turn), shares.warm

    def test_it_saves_most_of_the_work(self) -> None:
        anew = begun = 0
        for seed in range(6):
            before = random_users(80, 4, seed)
            speed = np.vstack([before.speed[3:], random_users(2, 4, seed + 10).speed])
            now = users(speed, before.capacity, np.append(before.weight[3:], [1, 1]))
            warm = LAZY.shares(before).warm
            anew, begun = anew + iterations(now, None), begun + iterations(now, warm)
            assert iterations(before, warm) == 0
        assert begun < anew / 3

    @pytest.mark.parametrize("warm", [None, "nonsense", 7, LAZY.shares(random_users(9, 3, seed=1)).warm])
    def test_what_is_no_start_for_these_users_is_left_aside(self, warm: object) -> None:
        instance = random_users(30, 4, seed=2)
        np.testing.assert_array_equal(LAZY.shares_from(instance, warm).devices, LAZY.shares(instance).devices)

    def test_solvers_without_a_basis_have_no_start(self) -> None:
        shares = OefCooperative(solver="pulp_highs").shares(random_users(5, 2, seed=1))
        assert shares.warm is None


def iterations(instance: Users, warm: object) -> int:
    from hetsys.systems import solve as door

    counts: list[int] = []
    honest = door._Highs.answer

    def answer(self: door._Highs, program: object) -> tuple[Array, Array]:
        counts.append(self.model.getInfo().simplex_iteration_count)
        return honest(self, program)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(door._Highs, "answer", answer)
        LAZY.shares_from(instance, warm)
    return sum(counts)


class TestCarriedBasis:
    """Who leaves or comes leaves as many unknowns basic as rows without slack."""

    def basis(self) -> Start:
        """Four classes on two kinds. The first holds both, the others the fast one; each is tied to the next."""
        speed = np.array([[1, 1.0], [1, 2.0], [1, 3.0], [1, 4.0]])
        basic = np.array([[True, True], [False, True], [False, True], [False, True]])
        return Start(speed, basic, np.array([False, False]), np.array([[0, 1], [1, 2], [2, 3]]))

    def square(self, start: Start) -> bool:
        return int(start.basic.sum()) == len(start.pairs) + int((~start.slack).sum())

    def test_nothing_new(self) -> None:
        start = self.basis()
        found = carried(start, start.speed)
        assert found is not None and found.pairs.tolist() == start.pairs.tolist() and self.square(found)

    def test_in_another_order(self) -> None:
        found = carried(self.basis(), self.basis().speed[::-1])
        assert found is not None and found.pairs.tolist() == [[3, 2], [2, 1], [1, 0]]
        assert found.basic.tolist() == self.basis().basic[::-1].tolist()

    def test_whom_a_leaver_tied_together_are_tied(self) -> None:
        found = carried(self.basis(), self.basis().speed[[0, 1, 3]])
        assert found is not None and self.square(found)
        assert found.pairs.tolist() == [[0, 1], [1, 2]]

    def test_the_last_of_a_chain_leaves_no_trace(self) -> None:
        found = carried(self.basis(), self.basis().speed[:3])
        assert found is not None and found.pairs.tolist() == [[0, 1], [1, 2]] and self.square(found)

    def test_a_newcomer_is_joined_to_the_most_like_one(self) -> None:
        found = carried(self.basis(), np.vstack([self.basis().speed, [[1, 3.2]]]))
        assert found is not None and self.square(found)
        assert found.pairs.tolist() == [[0, 1], [1, 2], [2, 3], [4, 2]]
        assert found.basic[4].tolist() == [False, True]

    def test_a_speed_that_moved_is_the_same_class(self) -> None:
        speed = self.basis().speed.copy()
        speed[2, 1] = 3.1
        found = carried(self.basis(), speed)
        assert found is not None and found.pairs.tolist() == self.basis().pairs.tolist()

    def test_mostly_new_or_of_other_kinds(self) -> None:
        assert carried(self.basis(), np.linspace(1, 9, 20).reshape(10, 2)) is None
        assert carried(self.basis(), np.ones((4, 3))) is None


def refused(change: Callable[[EnvyFree], EnvyFree], monkeypatch: pytest.MonkeyPatch) -> Shares:
    honest = most_without_envy
    monkeypatch.setattr("hetsys.systems.oef.cooperative.most_without_envy", lambda *arguments: change(honest(*arguments)))
    return LAZY.shares(users(np.array([[1, 2], [1, 3], [1, 4]]), np.array([1, 1])))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda fractions: fractions[::-1], "not envy-free"),
        (lambda fractions: fractions * 0.9, "of what its entitlement is worth"),
        (lambda fractions: np.where(fractions == fractions.max(), 0.5 * fractions, fractions), "not envy-free|entitlement|to nobody"),
    ],
)
def test_an_answer_without_what_the_rule_promises_is_refused(
    change: Callable[[Array], Array], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SolverError, match=complaint):
        refused(lambda found: replace(found, fractions=change(found.fractions)), monkeypatch)
