"""Fairness measures: numbers worked out by hand, and what must hold for any allocation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hetsys.metrics import fairness
from hetsys.metrics.fairness import (
    ENVY_CAP,
    bundle_value,
    envy_matrix,
    finish_time_fairness,
    jain_index,
    merge_tenants,
    noncontiguous_users_fraction,
    share_fairness,
    sharing_incentives,
    stacked,
    tenant_rates,
)
from tests.metrics.records import job, round_, user

share = st.floats(0.0, 8.0, allow_subnormal=False)
positive = st.floats(0.1, 8.0)


def test_jain_by_hand() -> None:
    assert jain_index([1.0, 3.0]) == pytest.approx(16 / 20)  # (1 + 3)^2 / (2 (1 + 9))
    assert jain_index([2.0, 2.0, 2.0]) == pytest.approx(1.0)
    assert jain_index([5.0, 0.0, 0.0, 0.0]) == pytest.approx(1 / 4)
    assert jain_index([]) is None and jain_index([0.0, 0.0]) is None


@given(st.lists(st.floats(0.0, 1e300), min_size=1, max_size=9))
def test_jain_lies_between_one_nth_and_one(values: list[float]) -> None:
    assume(max(values) > 1e-300)
    index = jain_index(values)
    assert index is not None and 1 / len(values) - 1e-9 <= index <= 1 + 1e-9


def test_a_tenant_uses_its_fastest_devices_first_and_no_more_than_it_needs() -> None:
    value = bundle_value(np.array([2.0, 2.0, 1.0]), np.array([1.0, 2.0, 4.0]), np.array(4.0))
    assert value == pytest.approx(9.0)  # demand 4: one at speed 4, two at 2, one at 1
    not_monotone = bundle_value(np.array([2.0, 2.0]), np.array([3.0, 1.0]), np.array(2.5))
    assert not_monotone == pytest.approx(6.5)  # the "slow" kind is the faster one for this tenant: 2 x 3 + 0.5 x 1
    assert bundle_value(np.ones(2), np.array([[1.0, 2.0], [0.0, 5.0]]), np.array(9.0)) == pytest.approx([3.0, 5.0])


def test_envy_by_hand() -> None:
    """a holds 1 slow (worth 1), b holds 1 fast (worth 2 to a): a envies by 2 / 1 - 1 = 1; b, at speed 4, does not envy."""
    record = round_(users=[user("a", (1, 0)), user("b", (0, 1), speeds=(1, 4))])
    (shares,) = stacked([record])
    assert shares.envy()[0] == pytest.approx(np.array([[0.0, 1.0], [0.0, 0.0]]))
    found = share_fairness([record])
    assert found.envy_max == pytest.approx(1.0)
    assert found.envy_mean == pytest.approx(0.5)  # largest envy of a: 1, of b: 0
    assert found.sharing_incentive_min == pytest.approx(1 / 1.5)  # a: 1 against half of each, 0.5 + 0.5 x 2


def test_weights_scale_what_is_envied() -> None:
    """b has weight 2: its bundle of (2, 2) counts as (1, 1) for a, which a has itself."""
    fair = round_(users=[user("a", (1, 1)), user("b", (2, 2), weight=2.0)], capacity=(3, 3))
    assert share_fairness([fair]).envy_max == pytest.approx(0.0)
    assert share_fairness([fair]).sharing_incentive_min == pytest.approx(1.0)
    equal = round_(users=[user("a", (1.5, 1.5)), user("b", (1.5, 1.5), weight=2.0)], capacity=(3, 3))
    assert share_fairness([equal]).envy_max == pytest.approx(1.0)  # to b, a's bundle counts twice: 9 / 4.5 - 1
    assert share_fairness([equal]).sharing_incentive_min == pytest.approx(0.75)  # b is owed (2, 2) worth 6, has 4.5


def test_nobody_envies_more_than_it_can_use() -> None:
    """a can use one device; b's four slow ones are worth 1 to it, as its own one is. a's fair slice of 2.5 is worth 1 as well."""
    record = round_(users=[user("a", (1, 0), demand=1), user("b", (4, 0))], capacity=(5, 0))
    assert share_fairness([record]).envy_max == pytest.approx(0.0)
    assert share_fairness([record]).sharing_incentive_min == pytest.approx(1.0)


def test_shares_are_averaged_over_time_before_the_worst_is_taken() -> None:
    """a: ratio 1 / 1.5 for 100 s, then 3 / 1.5 for 300 s: (2/3 + 3 x 2) / 4 = 5/3. b, speeds 1 and 4: 4 / 2.5 and 0 for 300 s: 0.4."""
    first = round_(0, users=[user("a", (1, 0)), user("b", (0, 1), speeds=(1, 4))])
    second = round_(1, users=[user("a", (1, 1)), user("b", (0, 0), speeds=(1, 4))], length_s=300.0)
    assert sharing_incentives([first, second]) == pytest.approx({"a": 5 / 3, "b": 0.4})
    found = share_fairness([first, second])
    assert found.sharing_incentive_min == pytest.approx(0.4)
    assert found.envy_max == pytest.approx((0 * 100 + ENVY_CAP * 300) / 400)  # b towards a; a towards b: 1 for 100 s


def test_a_tenant_left_with_nothing_envies_to_the_cap_and_weight_zero_does_not_count() -> None:
    starved = round_(users=[user("a", (0, 0)), user("b", (1, 1))])
    assert share_fairness([starved]).envy_max == ENVY_CAP and share_fairness([starved]).sharing_incentive_min == 0.0
    scavenger = round_(users=[user("a", (0, 0), weight=0.0), user("b", (1, 1))])
    assert share_fairness([scavenger]).envy_max == 0.0 and share_fairness([scavenger]).sharing_incentive_min == 1.0


def test_no_tenant_no_number() -> None:
    nothing = share_fairness([round_()])
    assert set(vars(nothing).values()) == {None}
    useless = share_fairness([round_(users=[user("a", (0, 0))], capacity=(0, 0))])
    assert useless.sharing_incentive_min is None and useless.envy_max == 0.0


def test_the_users_of_a_tenant_divide_its_weight_and_are_compared_one_by_one() -> None:
    """Tenant a, weight 1, runs two types: one happy with 1 slow (speeds 1, 1), one that owns 1 fast; b owns the rest of (2, 2). To the
    users of a, b's (1, 1) counts half: worth 1 and 1.5, they own 1 and 2. To b, the fast device of half its weight counts twice: 4 / 3.
    """
    flat, steep = user("a", (1, 0), speeds=(1, 1), weight=0.5), user("a", (0, 1), weight=0.5)
    users = [replace(flat, user="a/flat"), replace(steep, user="a/steep")]
    record = round_(users=[*users, user("b", (1, 1))], progress={"a": 300.0, "b": 200.0}, capacity=(2, 2))
    names, matrix = envy_matrix([record], "user")
    assert names == ("a/flat", "a/steep", "b")
    assert matrix[:2] == pytest.approx(np.zeros((2, 3))) and matrix[2] == pytest.approx([0.0, 1 / 3, 0.0])
    assert tenant_rates([record]) == {"a": 3.0, "b": 2.0}


def test_a_tenant_is_judged_by_all_it_holds_and_the_best_it_can_make_of_it() -> None:
    """a's users hold 1 slow (speeds 1, 1) and 1 fast (1, 4), one device being all that each can use; b holds (1, 2) of (2, 3).

    Tenant a: (1, 1) at speeds (1, 4) for 2 devices is worth 5; b's bundle, two fast ones of it, 8: envy 8 / 5 - 1. Its slice (1, 1.5) is
    worth 1.5 x 4 + 0.5 = 6.5. Its users envy nobody, and have 1 of 1 and 4 of 0.75 x 4 + 0.25. To b, a's bundle is worth 3 of its own 5,
    its slice 4.
    """
    flat, steep = user("a", (1, 0), speeds=(1, 1), weight=0.5, demand=1), user("a", (0, 1), speeds=(1, 4), weight=0.5, demand=1)
    record = round_(users=[replace(flat, user="a/flat"), replace(steep, user="a/steep"), user("b", (1, 2))], capacity=(2, 3))
    assert merge_tenants(record.users)[0] == user("a", (1, 1), speeds=(1, 4), demand=2)
    names, matrix = envy_matrix([record])
    assert names == ("a", "b") and matrix == pytest.approx(np.array([[0.0, 0.6], [0.0, 0.0]]))
    assert sharing_incentives([record]) == pytest.approx({"a": 10 / 13, "b": 5 / 4})
    assert sharing_incentives([record], "user") == pytest.approx({"a/flat": 1.0, "a/steep": 4 / 3.25, "b": 5 / 4})
    assert vars(share_fairness([record])) == pytest.approx(
        {"envy_max": 0.6, "envy_mean": 0.3, "sharing_incentive_min": 10 / 13, "user_envy_max": 0.0, "user_sharing_incentive_min": 1.0}
    )


def test_with_one_user_a_tenant_both_levels_are_the_same_and_over_time_they_need_not_be() -> None:
    """a: first a job of one type that envies by 1 for 100 s, then one of another type that has enough for 300 s; together 0.25."""
    poor, rich = replace(user("a", (1, 0)), user="a/1"), replace(user("a", (0, 1)), user="a/2")
    first = round_(0, users=[poor, user("b", (0, 1), speeds=(1, 4))])
    second = round_(1, users=[rich, user("b", (0, 1), speeds=(1, 4))], length_s=300.0)
    one = share_fairness([first])
    assert (one.envy_max, one.sharing_incentive_min) == pytest.approx((1.0, 1 / 1.5))
    assert (one.user_envy_max, one.user_sharing_incentive_min) == (one.envy_max, one.sharing_incentive_min)
    both = share_fairness([first, second])
    assert (both.envy_max, both.user_envy_max) == pytest.approx((0.25, 1.0))


def test_envy_between_too_many_users_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = [replace(user("a", (1, 0), weight=0.5), user=name) for name in ("a/1", "a/2")]
    record = round_(users=[*pair, user("b", (0, 2))])
    monkeypatch.setattr(fairness, "MOST_PAIRS", 9)
    assert share_fairness([record]).user_envy_max == pytest.approx(1.0)
    monkeypatch.setattr(fairness, "MOST_PAIRS", 8)
    many = share_fairness([record])
    assert many.user_envy_max is None and many.envy_max == pytest.approx(1.0) and many.user_sharing_incentive_min is not None


def test_gaps_between_kinds_by_hand() -> None:
    """Of the two that hold anything, a skips a kind for 100 s; for 300 s nobody does: 0.5 x 100 / 400. A kind that a does not run on, or
    of which no device is up, is no gap; nor are traces of the solver's tolerance a holding."""
    speeds = (1.0, 2.0, 4.0)
    gap, whole = user("a", (1, 0, 1), speeds=speeds), user("a", (0, 1, 1), speeds=speeds)
    others = [user("b", (0, 1, 0), speeds=speeds), user("c", (0, 0, 0), speeds=speeds)]
    first = round_(0, users=[gap, *others], capacity=(1, 1, 1))
    second = round_(1, users=[whole, *others], capacity=(1, 1, 1), length_s=300.0)
    assert noncontiguous_users_fraction([first, second]) == pytest.approx(0.125)
    assert noncontiguous_users_fraction([replace(first, capacity=(1, 0, 1))]) == 0.0
    assert noncontiguous_users_fraction([round_(users=[replace(gap, speeds=(1.0, 0.0, 4.0))], capacity=(1, 1, 1))]) == 0.0
    assert noncontiguous_users_fraction([round_(users=[replace(gap, devices=(1e-9, 0.0, 1.0))], capacity=(1, 1, 1))]) == 0.0
    assert noncontiguous_users_fraction([round_(users=others[1:], capacity=(1, 1, 1))]) is None


@given(st.data())
def test_merging_changes_no_total_and_nothing_about_tenants_of_one_user(data: st.DataObject) -> None:
    users = [
        replace(user(data.draw(st.sampled_from("abc")), data.draw(st.tuples(share, share)), weight=data.draw(positive)), user=f"u{i}")
        for i in range(data.draw(st.integers(1, 6)))
    ]
    merged = merge_tenants(users)
    for name in ("weight", "demand"):
        assert sum(getattr(one, name) for one in merged) == pytest.approx(sum(getattr(one, name) for one in users))
    assert np.sum([one.devices for one in merged], axis=0) == pytest.approx(np.sum([one.devices for one in users], axis=0))
    alone = [one for one in users if sum(other.tenant == one.tenant for other in users) == 1]
    assert all(one in merged for one in alone)


def test_envy_matrix_averages_over_the_time_two_tenants_met() -> None:
    """100 s with envy 1 of a towards b, 300 s with none: 0.25. c comes alone later: never met."""
    unfair = round_(0, users=[user("a", (1, 0)), user("b", (0, 1), speeds=(1, 4))])
    equal = round_(1, users=[user("b", (1, 1)), user("a", (1, 1))], length_s=300.0)
    names, matrix = envy_matrix([unfair, equal, round_(4, users=[user("c", (1, 1))])])
    assert names == ("a", "b", "c")
    assert matrix[:2, :2] == pytest.approx(np.array([[0.0, 0.25], [0.0, 0.0]]))
    assert np.isnan(matrix[0, 2]) and np.isnan(matrix[2, 1]) and matrix[2, 2] == 0.0


def test_rounds_that_share_an_allocation_count_once_with_their_whole_time() -> None:
    users = (user("a", (1, 0)), user("b", (0, 1)))
    apart = [round_(i, users=[user("a", (1, 0)), user("b", (0, 1))]) for i in range(3)]
    together = [round_(i, users=users) for i in range(3)]
    assert [shares.length_s.tolist() for shares in stacked(together)] == [[300.0]]
    assert [shares.length_s.tolist() for shares in stacked(apart)] == [[100.0] * 3]
    assert vars(share_fairness(together)) == pytest.approx(vars(share_fairness(apart)))


def test_rates_and_rho_by_hand() -> None:
    """a: 100 and 300 in 200 s -> 2; b, weight 2, lives in the second round only: 400 / 100 / 2 = 2; z owns nothing."""
    first = round_(0, users=[user("a", (1, 0))], progress={"a": 100.0})
    second_users = [user("a", (1, 0)), user("b", (0, 1), weight=2.0), user("z", (0, 0), weight=0.0)]
    second = round_(1, users=second_users, progress={"a": 300.0, "b": 400.0, "z": 9.0})
    assert tenant_rates([first, second]) == {"a": 2.0, "b": 2.0}
    jobs = [job("x", 30.0, alone_s=20.0), job("y", 30.0), job("z", 30.0, alone_s=0.0)]
    assert finish_time_fairness(jobs, [30.0, 30.0, 30.0]) == [1.5]


@given(st.integers(1, 5), st.lists(st.tuples(positive, positive, positive), min_size=5, max_size=5), share, share, share)
def test_equal_bundles_make_no_envy_and_share_exactly(
    n: int, rows: list[tuple[float, float, float]], a: float, b: float, c: float
) -> None:
    assume(a + b + c > 0.1)
    users = [user(f"u{i}", (a, b, c), speeds=rows[i]) for i in range(n)]
    found = share_fairness([round_(users=users, capacity=(8, 8, 8))])
    assert found.envy_max == pytest.approx(0.0, abs=1e-9)
    whole = [r.__class__(**{**r.__dict__, "capacity": (n * a, n * b, n * c)}) for r in [round_(users=users, capacity=(8, 8, 8))]]
    assert share_fairness(whole).sharing_incentive_min == pytest.approx(1.0)


@given(st.data())
def test_envy_equals_a_pair_by_pair_computation(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 4))
    users = [
        user(
            f"u{i}", data.draw(st.tuples(share, share)), speeds=data.draw(st.tuples(positive, positive)),
            demand=data.draw(st.integers(1, 9)), weight=data.draw(positive),
        )
        for i in range(n)
    ]  # fmt: skip
    (shares,) = stacked([round_(users=users)])

    def worth(bundle: list[float], owner: int) -> float:
        fast_first = sorted(range(2), key=lambda kind: -users[owner].speeds[kind])
        left, value = float(users[owner].demand), 0.0
        for kind in fast_first:
            used = min(left, bundle[kind])
            value, left = value + used * users[owner].speeds[kind], left - used
        return value

    for one in range(n):
        for other in range(n):
            scaled = [x * users[one].weight / users[other].weight for x in users[other].devices]
            own, theirs = worth(list(users[one].devices), one), worth(scaled, one)
            expected = (ENVY_CAP if theirs > 0 else 0.0) if own == 0 else min(max(theirs / own - 1, 0.0), ENVY_CAP)
            assert shares.envy()[0, one, other] == pytest.approx(expected, abs=1e-9)
