"""What the two OEF programs do not promise, in the smallest numbers: exact where the claim is about every optimum, else through the
policies."""

from __future__ import annotations

from fractions import Fraction as F

import numpy as np
import pytest

from hetsys.core.errors import ConfigError
from tests.systems.cases import bundles, worth
from tests.systems.test_theorems import neighbours_only
from tests.systems.views import best_envy_free_total, devices, job, pareto_gap, simple, system, utilities, view_of

Row = list[F]

SPEEDS = [[F(1), F(1), F(3)], [F(1), F(6), F(8)], [F(1), F(8), F(9)]]
CAPACITY = [F(1), F(3), F(4)]
OPTIMUM = [[F(1), F(0), F(13, 9)], [F(0), F(3, 2), F(23, 18)], [F(0), F(3, 2), F(23, 18)]]
BETTER = [[F(1), F(0), F(53, 36)], [F(0), F(0), F(91, 36)], [F(0), F(3), F(0)]]
PRICES = [F(20, 9), F(115, 18), F(20, 3)]
ENVY = {(0, 1): F(10, 9), (0, 2): F(1, 9), (1, 2): F(1, 4)}
"""Duals of the rows  w_l . x_l >= w_l . x_i  by (l, i); those of all others are 0."""


def dot(a: Row, b: Row) -> F:
    return sum((x * y for x, y in zip(a, b, strict=True)), F(0))


def worths(speeds: list[Row], shares: list[Row]) -> Row:
    return [dot(own, share) for own, share in zip(speeds, shares, strict=True)]


def is_envy_free(speeds: list[Row], shares: list[Row]) -> bool:
    return all(dot(own, shares[i]) >= dot(own, other) for i, own in enumerate(speeds) for other in shares)


def uses_exactly(shares: list[Row], capacity: Row) -> bool:
    return [sum(column) for column in zip(*shares, strict=True)] == capacity and all(share >= 0 for row in shares for share in row)


def rank(rows: list[Row]) -> int:
    """By elimination."""
    rows, found = [row.copy() for row in rows], 0
    for column in range(len(rows[0])):
        pivot = next((i for i in range(found, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        for i in range(found + 1, len(rows)):
            factor = rows[i][column] / rows[found][column]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[found], strict=True)]
        found += 1
    return found


class TestCooperativeIsNotParetoEfficient:
    """Speeds (1, 1, 3), (1, 6, 8), (1, 8, 9) on 1, 3 and 4 devices: the only optimum, and something better for everybody."""

    def test_the_optimum_keeps_every_row(self) -> None:
        assert uses_exactly(OPTIMUM, CAPACITY) and is_envy_free(SPEEDS, OPTIMUM)
        assert worths(SPEEDS, OPTIMUM) == [F(16, 3), F(173, 9), F(47, 2)]
        assert sum(worths(SPEEDS, OPTIMUM)) == F(865, 18)

    def test_duals_prove_that_it_is_the_only_one(self) -> None:
        """All duals 0 or more, and of the same objective; every share that is 0 would cost something; and the rows with a dual above 0
        leave the other shares no choice."""
        assert dot(PRICES, CAPACITY) == sum(worths(SPEEDS, OPTIMUM)) and min(PRICES + list(ENVY.values())) > 0
        places = [(user, kind) for user in range(3) for kind in range(3)]
        for user, kind in places:
            own = SPEEDS[user][kind] * (1 + sum(dual for (by, _), dual in ENVY.items() if by == user))
            cost = PRICES[kind] - own + sum(dual * SPEEDS[by][kind] for (by, envied), dual in ENVY.items() if envied == user)
            assert cost == 0 if OPTIMUM[user][kind] else cost > 0
        held = [place for place in places if OPTIMUM[place[0]][place[1]]]
        capacity = [[F(place[1] == kind) for place in held] for kind in range(3)]
        envy = [[SPEEDS[by][kind] * ((user == by) - (user == envied)) for user, kind in held] for by, envied in ENVY]
        assert rank(capacity + envy) == len(held) == 6
        for (by, envied), row in zip(ENVY, envy, strict=True):
            assert dot(row, [OPTIMUM[user][kind] for user, kind in held]) == 0, (by, envied)

    def test_everybody_could_have_more(self) -> None:
        assert uses_exactly(BETTER, CAPACITY)
        assert worths(SPEEDS, BETTER) == [F(65, 12), F(182, 9), F(24)]
        assert all(more > less for more, less in zip(worths(SPEEDS, BETTER), worths(SPEEDS, OPTIMUM), strict=True))

    def test_but_then_the_first_would_envy_the_second(self) -> None:
        assert dot(SPEEDS[0], BETTER[1]) == F(91, 12) > F(65, 12)

    def test_the_policy_returns_it(self) -> None:
        speeds, capacity = np.array(SPEEDS, dtype=float), np.array(CAPACITY, dtype=float)
        view = simple(speeds.tolist(), (1, 3, 4))
        for name in ("oef_coop", "oef_coop_plus_no_adjacency"):
            shares = devices(system(name).allocate(view, None)[0], view)
            np.testing.assert_allclose(shares, np.array(OPTIMUM, dtype=float), atol=1e-6)
            assert pareto_gap(speeds, capacity, shares) == pytest.approx(15 / 8, rel=1e-5)


def test_one_optimum_may_be_dominated_and_another_not() -> None:
    """Speeds (1, 5, 6), (1, 4, 4), (1, 1, 2) on 1, 4 and 3 devices: two envy-free divisions of total 30, the most there is. One leaves
    everybody less than a third division does; the other is Pareto efficient. Which one a solver returns is its choice."""
    speeds, capacity = [[F(1), F(5), F(6)], [F(1), F(4), F(4)], [F(1), F(1), F(2)]], [F(1), F(4), F(3)]
    pooled = [[F(0), F(2), F(5, 6)], [F(0), F(2), F(5, 6)], [F(1), F(0), F(4, 3)]]
    traded = [[F(0), F(19, 17), F(25, 17)], [F(0), F(49, 17), F(0)], [F(1), F(0), F(26, 17)]]
    better = [[F(0), F(9, 8), F(8, 5)], [F(0), F(23, 8), F(0)], [F(1), F(0), F(7, 5)]]
    for shares in (pooled, traded):
        assert uses_exactly(shares, capacity) and is_envy_free(speeds, shares) and sum(worths(speeds, shares)) == 30
    assert best_envy_free_total(np.array(speeds, float), np.array(capacity, float), np.ones(3)) == pytest.approx(30)
    assert uses_exactly(better, capacity)
    assert all(more > less for more, less in zip(worths(speeds, better), worths(speeds, pooled), strict=True))
    gaps = [pareto_gap(np.array(speeds, float), np.array(capacity, float), np.array(shares, float)) for shares in (pooled, traded)]
    assert gaps == pytest.approx([5 / 6, 0], abs=1e-6)


def test_two_kinds_and_four_users_suffice() -> None:
    """(1, 1), (1, 2), (1, 2.2), (1, 8) on 2 and 1 devices: the two in the middle are pooled, though one gains more from the fast kind than
    the other; their trade would add 2.5 %."""
    speeds = np.array([[1, 1], [1, 2], [1, 2.2], [1, 8]])
    shares = bundles(system("oef_coop"), {"speeds": speeds.tolist(), "capacity": [2, 1]})
    np.testing.assert_allclose(shares[1], shares[2], atol=1e-6)
    assert pareto_gap(speeds, np.array([2.0, 1.0]), shares) / (speeds * shares).sum() == pytest.approx(0.02502, rel=1e-3)


def test_rows_between_neighbours_do_not_suffice_for_three_kinds() -> None:
    """Speeds rise with the kind and with the user, and yet: 20 without the row between the first and the last, 17 with it."""
    instance = (np.array([[1.0, 1, 1], [1, 2, 7], [1, 4, 6]]), np.array([1.0, 3, 1]), np.ones(3))
    assert neighbours_only(instance) == pytest.approx(20)
    assert best_envy_free_total(*instance) == pytest.approx(17)
    assert utilities("oef_coop", instance[0].tolist(), (1, 3, 1)).sum() == pytest.approx(17)


def test_rows_between_neighbours_do_not_suffice_for_ties_that_are_not_merged() -> None:
    """Two kinds, two equal users in the middle: they may hold different bundles of equal worth, and pass envy on to nobody. As one class
    they suffice."""
    instance = (np.array([[1.0, 0.5], [1, 1], [1, 1], [1, 2]]), np.ones(2), np.ones(4))
    assert neighbours_only(instance) == pytest.approx(23 / 9)
    assert best_envy_free_total(*instance) == pytest.approx(43 / 17)
    merged = (np.array([[1.0, 0.5], [1, 1], [1, 2]]), np.ones(2), np.array([1.0, 2, 1]))
    assert neighbours_only(merged) == pytest.approx(43 / 17)


def test_cooperative_rewards_an_overreport() -> None:
    """(1, 2), (1, 3), (1, 4) on one device of each kind: the first has 1, and 35/29 if it reports 2.9 for its 2."""
    case = {"speeds": [[1, 2], [1, 3], [1, 4]], "capacity": [1, 1], "liar": 0, "report": [1, 2.9]}
    assert worth(system("oef_coop"), case, 0) == pytest.approx(1)
    assert worth(system("oef_coop"), case, 0, lying=True) == pytest.approx(35 / 29)


def test_noncooperative_rewards_an_underreport() -> None:
    """(1, 4) and (1, 2): the first has 2. While it reports more than 2 it takes fast devices first, 3 / (2 + r) of them."""
    case = {"speeds": [[1, 4], [1, 2]], "capacity": [1, 1], "liar": 0, "report": [1, 2.01]}
    assert worth(system("oef_noncoop"), case, 0) == pytest.approx(2)
    assert worth(system("oef_noncoop"), case, 0, lying=True) == pytest.approx(1200 / 401)
    assert worth(system("oef_noncoop_plus"), {**case, "measured": True}, 0, lying=True) == pytest.approx(2, rel=2e-3)


@pytest.mark.parametrize(("report", "truly"), [(1.1, 18.045), (2, 20.794), (5, 25.668), (10, 28.25), (20, 30.444)])
def test_virtual_users_reward_an_overreport_and_tenants_rows_do_not(report: float, truly: float) -> None:
    """A tenant with types (1, 1.1) and (1, 10) beside one with (1, 10), on 1 and 10 devices, reports another speed for its slow type."""
    case = {"speeds": [[[1, 1.1], [1, 10]], [1, 10]], "capacity": [1, 10], "liar": 0, "report": [[1, report], [1, 10]], "jobs": [20, 40]}
    assert worth(system("oef_noncoop"), case, 0, lying=True) == pytest.approx(truly, abs=1e-3)
    one_row = system("oef_noncoop_plus_no_adjacency")
    assert worth(one_row, case, 0, lying=True) <= worth(one_row, case, 0) * (1 + 1e-6)
    assert worth(one_row, case, 0) > 2 * worth(system("oef_noncoop"), case, 0)


class TestEdgesOfThePrograms:
    @pytest.mark.parametrize("name", ["oef_coop", "oef_noncoop", "oef_coop_plus", "oef_noncoop_plus"])
    def test_alone_one_has_all(self, name: str) -> None:
        np.testing.assert_allclose(bundles(system(name), {"speeds": [[1, 2, 3]], "capacity": [2, 1, 4]}), [[2, 1, 4]], atol=1e-6)

    @pytest.mark.parametrize("name", ["oef_coop", "oef_noncoop", "oef_coop_plus", "oef_noncoop_plus"])
    def test_equal_users_have_equal_bundles(self, name: str) -> None:
        """Not merely bundles of equal worth."""
        shares = bundles(system(name), {"speeds": [[1, 2, 3], [1, 3, 3], [1, 2, 3]], "capacity": [2, 1, 4]})
        np.testing.assert_allclose(shares[0], shares[2], atol=1e-9)

    def test_a_zero_on_the_fast_kind(self) -> None:
        """(1, 0) and (1, 5) on one device of each kind. Equality: one each, 0.8 fast devices to nobody. Lexicographic: 1 and 5.
        Cooperative: 6 in total, of which the first may have from a half to 1, and the other the rest, without envy."""
        case = {"speeds": [[1, 0], [1, 5]], "capacity": [1, 1]}
        plain, raised = (bundles(system(name), case) for name in ("oef_noncoop", "oef_noncoop_plus"))
        assert plain[0] @ [1, 0] == pytest.approx(plain[1] @ [1, 5]) == pytest.approx(1)
        assert plain.sum() == pytest.approx(1.2)
        assert (raised[0] @ [1, 0], raised[1] @ [1, 5]) == pytest.approx((1, 5))
        first, second = (share @ speed for share, speed in zip(bundles(system("oef_coop"), case), ([1, 0], [1, 5]), strict=True))
        assert first + second == pytest.approx(6) and 0.5 - 1e-6 <= first <= 1 + 1e-6

    def test_three_levels(self) -> None:
        np.testing.assert_allclose(utilities("oef_noncoop_plus", [[1, 0, 0], [1, 2, 0], [1, 2, 9]], (1, 1, 1)), (1, 2, 9), rtol=1e-5)

    @pytest.mark.parametrize("name", ["oef_coop", "oef_noncoop", "oef_coop_plus", "oef_noncoop_plus"])
    def test_a_zero_on_the_unit_kind(self, name: str) -> None:
        """The slowest kind that it supports is the unit; the other keeps the kind that only it can use."""
        shares = bundles(system(name), {"speeds": [[0, 2, 4], [1, 2, 4]], "capacity": [3, 1, 1]})
        assert shares[1, 0] == pytest.approx(3, rel=1e-5) or name == "oef_noncoop"
        assert shares[0, 0] == 0

    def test_a_user_that_runs_nowhere_is_refused_at_the_door(self) -> None:
        with pytest.raises(ConfigError, match="runs on no kind; park it"):
            system("oef_noncoop").allocate(simple([[0, 0], [1, 5]], (1, 1)), None)

    @pytest.mark.parametrize("name", ["oef_coop", "oef_noncoop", "oef_coop_plus", "oef_noncoop_plus"])
    def test_units_do_not_matter(self, name: str) -> None:
        """Steps per second of 100 and 200 beside 1 and 4 are (1, 2) and (1, 4)."""
        units = bundles(system(name), {"speeds": [[100, 200], [1, 4]], "capacity": [3, 2]})
        np.testing.assert_allclose(units, bundles(system(name), {"speeds": [[1, 2], [1, 4]], "capacity": [3, 2]}), atol=1e-9)

    def test_two_gangs_of_one_type_are_two_users_with_one_speed(self) -> None:
        tenants = [simple([[1, 2]], (4, 4)).tenants[0]]
        jobs = (job("a", "u", (1, 2), gang=2), job("b", "u", (1, 2), gang=4))
        view = view_of([*tenants, type(tenants[0])("u", 1.0, jobs)], (4, 4))
        shares = devices(system("oef_coop").allocate(view, None)[0], view)
        np.testing.assert_allclose(shares.sum(axis=1), [4, 4], rtol=1e-6)
