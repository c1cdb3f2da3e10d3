"""Both rules side by side, and deviation carrying by hand: what counting in devices costs, and what of the published rule is held."""

from __future__ import annotations

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
    bound = {"credit": [1, 1, 1, 3, 4], "deviation": [4, 4, 4, 4, 6]}[rounding]
    assert got.longest == bound


def assert_all(grants: list[GrantedGang], devices: int) -> None:
    assert sum(grant.gang for grant in grants) == devices


def test_counting_in_devices_lets_large_gangs_go_before_small_ones_for_long() -> None:
    """29 users on one kind, as they may be drawn: under deviation carrying the largest debts in devices are those of large gangs."""
    gangs = [(1, 2, 4, 8)[user % 4] for user in range(20)]
    shares = [[16 / 20]] * 20
    snapshot = saturated(gangs, [16])
    waits = {name: received(allot(shares, snapshot, name), snapshot, 600).longest for name in ROUNDINGS}
    assert max(waits["credit"][::4]) * 4 <= max(waits["deviation"][::4])


@pytest.mark.parametrize(
    ("targets", "capacity", "real"),
    [
        ([1.6, 1.6, 1.6, 1.6, 1.6], 8, [2, 2, 2, 1, 1]),  # ties: the first
        ([0.3, 2.9, 0.8], 4, [0, 3, 1]),
        ([0.3, 0.3], 8, [1, 0]),  # 0.6 devices in all
        ([3.2, 3.2, 3.2, 4.8], 8, [3, 1, 0, 4]),  # 13 whole ones: the largest first
        ([9.0, 8.0], 8, [8, 0]),
        ([], 3, []),
    ],
)
def test_largest_remainders(targets: list[float], capacity: int, real: list[int]) -> None:
    assert whole_devices(targets, capacity) == real


@given(st.lists(st.floats(0, 20), max_size=8), st.integers(0, 20))
def test_whole_devices_are_as_many_as_there_are_and_never_more(targets: list[float], capacity: int) -> None:
    real = whole_devices(targets, capacity)
    assert sum(real) <= capacity and all(0 <= count < target + 1 for count, target in zip(real, targets, strict=True))
    if sum(targets) >= capacity:
        assert sum(real) == capacity or sum(int(t) for t in targets) > capacity


def test_what_a_gang_does_not_get_is_carried_until_it_fits() -> None:
    """A pair and a single share 2 devices. The pair's share of 1 counts as zero until it is 2; the single then has to wait."""
    snapshot = view([[1.0], [1.0]], [2], [2, 1], 1)
    allocation = Allocation((Claim("pair", "u0", ("u0.0",), (1.0,)), Claim("one", "u1", ("u1.0",), (1.0,))), rounding="deviation")
    carried, seen = Carried(), []
    for _ in range(4):
        grants, carried = round_gangs(allocation, snapshot, carried, {}, 0.0)
        seen.append(([grant.job for grant in grants], carried.owed["pair"], carried.owed["one"]))
    assert seen == [(["u1.0"], [1.0], [0.0]), (["u0.0"], [0.0], [1.0]), (["u1.0"], [1.0], [1.0]), (["u0.0"], [0.0], [2.0])]
