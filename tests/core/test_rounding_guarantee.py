"""What rounding guarantees over many rounds: entitlements and waits."""

from __future__ import annotations

from math import ceil
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsys.core.scheduling.credit import OVERDUE
from hetsys.core.scheduling.plan import ROUNDINGS
from hetsys.core.scheduling.rounding import round_gangs
from hetsys.core.scheduling.turns import Carried
from tests.core.rounds import allot, parts, received, saturated
from tests.engines.builders import view

NUM_LONG = 100 if settings.default.max_examples > 100 else 6
Case = tuple[list[int], list[int], list[list[float]]]


def packable(random: Random, most: int = 17) -> Case:
    """Capacities from 8 to `most`, gangs and shares of 2 to 6 users: averages of up to three ways to pack their whole gangs into the kinds,
    so that nothing forbids that everybody has its share; some of the shares tiny. Averages of packings are all that can be delivered."""
    gangs = [random.choice([1, 2, 4, 8]) for _ in range(random.randint(2, 6))]
    capacity = [random.randint(8, most) for _ in range(random.randint(1, 2))]
    shares = [[0.0] * len(capacity) for _ in gangs]
    for kind, left in enumerate(capacity):
        weights = [random.randint(1, 20) for _ in range(random.randint(1, 3))]
        for weight in weights:
            free = left
            for user in random.sample(range(len(gangs)), len(gangs)):
                devices = random.randint(0, free // gangs[user]) * gangs[user]
                free -= devices
                shares[user][kind] += devices * weight / sum(weights)
    return capacity, gangs, shares


def check_entitlements(case: Case, rounding: str, rounds: int) -> None:
    """Users have jobs enough. What is filled on top counts neither as received nor as served; capacity is checked in every round."""
    capacity, gangs, shares = case
    snapshot = saturated(gangs, capacity)
    got = received(allot(shares, snapshot, rounding), snapshot, rounds)
    for user, part in parts(got, gangs, shares, rounds).items():
        assert part >= 0.95, (user, gangs[user], shares[user], part)
        assert got.longest[user] <= 8 * ceil(gangs[user] / sum(shares[user]))


@pytest.mark.parametrize("rounding", ROUNDINGS)
@given(st.integers(0, 1 << 40))
def test_gangs_receive_their_entitlement_and_wait_a_bounded_time(rounding: str, seed: int) -> None:
    check_entitlements(packable(Random(seed)), rounding, 500)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("seed", range(NUM_LONG))
def test_so_they_do_over_two_thousand_rounds(rounding: str, seed: int) -> None:
    check_entitlements(packable(Random(seed), 17 if seed % 2 else 48), rounding, 2000)


@given(st.data())
def test_every_claim_is_granted_a_gang_within_the_proven_bound(data: st.DataObject) -> None:
    """From any memory, even where the shares cannot be met and jobs are few: OVERDUE max(1, g/x) + n rounds."""
    capacity = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=2))
    gangs = data.draw(st.lists(st.sampled_from([gang for gang in (1, 2, 4, 8) if gang <= min(capacity)]), min_size=1, max_size=5))
    weights = [[data.draw(st.integers(0, 9)) for _ in capacity] for _ in gangs]
    sums = [max(1, sum(column)) for column in zip(*weights, strict=True)]
    shares = [[count * w / total for count, w, total in zip(capacity, row, sums, strict=True)] for row in weights]
    snapshot = view([[1.0] * len(capacity)] * len(gangs), capacity, gangs, data.draw(st.integers(1, 3)))
    allocation = allot(shares, snapshot)
    carried = Carried(
        owed={f"u{user}": [data.draw(st.integers(-8, 8)) * gang for _ in capacity] for user, gang in enumerate(gangs)},
        waits={f"u{user}": data.draw(st.sampled_from([0.0, 3.0, 5.9])) for user in range(len(gangs))},
    )
    held: dict[str, int] = {}
    since = [0] * len(gangs)
    bounds = [
        ceil(OVERDUE * max(1.0, gang / sum(row))) + len(gangs) if any(row) else 10**9 for gang, row in zip(gangs, shares, strict=True)
    ]
    for _ in range(100):
        grants, carried = round_gangs(allocation, snapshot, carried, held, data.draw(st.sampled_from([0.0, 0.3])))
        held = {grant.job: grant.kind for grant in grants}
        served = {int(grant.job[1 : grant.job.index(".")]) for grant in grants if not grant.filled}
        since = [0 if user in served else wait + 1 for user, wait in enumerate(since)]
        assert all(wait <= most for wait, most in zip(since, bounds, strict=True)), (since, bounds)


def test_a_claim_in_deep_debt_is_still_granted_a_gang_when_it_is_overdue() -> None:
    """8 gangs in debt at 1/20 of a gang a round it would pay back for 160 rounds; it is overdue after OVERDUE x 20 = 120."""
    snapshot = view([[1.0], [1.0]], [1], [1, 1], 1)
    allocation = allot([[0.05], [0.95]], snapshot)
    carried, order = Carried({"u0": [-8.0], "u1": [8.0]}), []
    for _ in range(200):
        grants, carried = round_gangs(allocation, snapshot, carried, {}, 0.0)
        order.append(grants[0].job)
    assert order.index("u0.0") == 120
