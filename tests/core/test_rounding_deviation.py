"""Both rules side by side, and deviation carrying by hand: what counting in devices costs, and what of the published rule is held."""

from __future__ import annotations

from itertools import permutations
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsys.core.scheduling.deviation import whole_devices
from hetsys.core.scheduling.plan import ROUNDINGS, Allocation, Claim
from hetsys.core.scheduling.rounding import round_gangs
from hetsys.core.scheduling.turns import Carried, GrantedGang
from tests.core.rounds import allot, parts, received, saturated
from tests.engines.builders import view


@given(st.lists(st.floats(0.05, 1.0), min_size=2, max_size=6), st.lists(st.integers(2, 6), min_size=1, max_size=2))
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_unit_gangs_receive_their_shares_to_a_hundredth(rounding: str, weights: list[float], capacity: list[int]) -> None:
    shares = [[count * w / sum(weights) for count in capacity] for w in weights]
    snapshot = saturated([1] * len(shares), capacity)

    def nothing_is_idle(grants: list[GrantedGang]) -> None:
        assert len(grants) == sum(capacity)

    got = received(allot(shares, snapshot, rounding), snapshot, 500, nothing_is_idle)
    for have, share in zip(got.devices, shares, strict=True):
        assert have == pytest.approx(share, abs=0.01)


FIVE = [1, 1, 2, 4, 8]


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_five_users_with_gangs_from_1_to_8_on_8_devices(rounding: str) -> None:
    shares = [[8 / 5]] * 5
    snapshot = saturated(FIVE, [8])
    got = received(allot(shares, snapshot, rounding), snapshot, 2000, lambda grants: assert_all(grants, 8))
    assert min(parts(got, FIVE, shares, 2000).values()) >= 0.99
    bound = {"credit": [1, 1, 1, 3, 4], "deviation": [1, 1, 1, 3, 5]}[rounding]
    assert got.longest == bound


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("gangs", list(permutations([8, 8, 4, 1]))[::5], ids=str)
def test_more_devices_than_the_largest_gang(rounding: str, gangs: tuple[int, ...]) -> None:
    """A quarter of 12 devices each, in any order: gangs of 8 take turns beside others, and all are served."""
    shares = [[3.0]] * 4
    snapshot = saturated(list(gangs), [12])
    got = received(allot(shares, snapshot, rounding), snapshot, 2000)
    assert min(parts(got, list(gangs), shares, 2000).values()) >= 0.99
    assert all(wait <= 3 * ceil(gang / 3.0) for wait, gang in zip(got.longest, gangs, strict=True))


def test_where_entitlements_cannot_be_met_all_are_served() -> None:
    """Of 12 devices a gang of 8 leaves 4 idle, so all four receive two thirds; the first is entitled to more than a gang a round."""
    shares = [[60 / 7], [9 / 14], [15 / 7], [9 / 14]]
    snapshot = saturated([8] * 4, [12])
    for rounding in ROUNDINGS:
        got = parts(received(allot(shares, snapshot, rounding), snapshot, 2000), [8] * 4, shares, 2000)
        assert all(part == pytest.approx(2 / 3, abs=0.02) for part in got.values())


def assert_all(grants: list[GrantedGang], devices: int) -> None:
    assert sum(grant.gang for grant in grants) == devices


@pytest.mark.parametrize(
    ("targets", "capacity", "real"),
    [
        ([1.6, 1.6, 1.6, 1.6, 1.6], 8, [2, 2, 2, 1, 1]),  # ties: the first
        ([0.3, 2.9, 0.8], 4, [0, 3, 1]),
        ([0.3, 0.3], 8, [1, 0]),  # 0.6 devices in all
        ([3.2, 3.2, 3.2, 4.8], 8, [0, 0, 0, 0]),  # 13 whole ones
        ([9.0, 8.0], 8, [0, 0]),
        ([], 3, []),
    ],
)
def test_largest_remainders(targets: list[float], capacity: int, real: list[int]) -> None:
    assert whole_devices(targets, capacity) == real


@given(st.lists(st.floats(0, 20), max_size=8), st.integers(0, 20))
def test_whole_devices_are_as_many_as_there_are_and_never_more(targets: list[float], capacity: int) -> None:
    real = whole_devices(targets, capacity)
    assert sum(real) <= capacity and all(0 <= count < target + 1 for count, target in zip(real, targets, strict=True))
    assert sum(real) == min(capacity, int(sum(targets) + 0.5)) or (not any(real) and sum(int(t + 1e-9) for t in targets) > capacity)


def test_what_a_gang_does_not_get_is_carried_until_it_fits() -> None:
    """A pair and a single share 2 devices. The pair's share of 1 counts as zero until it is 2; the single then has to wait."""
    snapshot = view([[1.0], [1.0]], [2], [2, 1], 1)
    allocation = Allocation((Claim("pair", "u0", ("u0.0",), (1.0,)), Claim("one", "u1", ("u1.0",), (1.0,))), rounding="deviation")
    carried, seen = Carried(), []
    for _ in range(4):
        grants, carried = round_gangs(allocation, snapshot, carried, {}, 0.0)
        seen.append(([grant.job for grant in grants], carried.owed["pair"], carried.owed["one"]))
    assert seen == [(["u1.0"], [1.0], [0.0]), (["u0.0"], [0.0], [1.0]), (["u1.0"], [0.0], [0.0]), (["u1.0"], [1.0], [0.0])]
