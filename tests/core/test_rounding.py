"""Gang credits: exact capacity in every round, and over many rounds everybody gets what was allotted."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsys.core.scheduling.plan import Allocation, Claim
from hetsys.core.scheduling.rounding import Credits, round_gangs
from hetsys.core.scheduling.view import ClusterView
from tests.engines.builders import EqualShares, view


def allot(shares: list[list[float]], snapshot: ClusterView, fill: bool = True) -> Allocation:
    return Allocation(
        tuple(Claim(t.name, t.name, tuple(j.name for j in t.jobs), tuple(s)) for t, s in zip(snapshot.tenants, shares, strict=True)),
        fill=fill,
    )


def received(allocation: Allocation, snapshot: ClusterView, rounds: int) -> tuple[list[float], dict[str, int]]:
    """Devices a round that each tenant got on average, and the longest run of rounds in which it got nothing."""
    credits: Credits = {}
    total = {t.name: 0 for t in snapshot.tenants}
    wait, longest = dict(total), dict(total)
    for _ in range(rounds):
        grants, credits = round_gangs(allocation, snapshot, credits, {}, 0.0)
        used = [0] * len(snapshot.kinds)
        for grant in grants:
            used[grant.kind] += grant.gang
            total[grant.job.split(".")[0]] += grant.gang
        assert used == list(snapshot.capacity), "saturated users leave nothing idle and never take too much"
        served = {grant.job.split(".")[0] for grant in grants}
        for name in wait:
            wait[name] = 0 if name in served else wait[name] + 1
            longest[name] = max(longest[name], wait[name])
    return [count / rounds for count in total.values()], longest


@given(st.lists(st.floats(0.05, 1.0), min_size=2, max_size=8), st.integers(2, 9))
def test_unit_gangs_receive_their_shares(weights: list[float], capacity: int) -> None:
    shares = [capacity * w / sum(weights) for w in weights]
    snapshot = view([[1.0]] * len(shares), [capacity], [1] * len(shares), capacity)
    got, _ = received(allot([[s] for s in shares], snapshot), snapshot, 500)
    assert got == pytest.approx(shares, abs=0.01)


def test_large_gangs_receive_their_entitlement_and_wait_a_bounded_time() -> None:
    gangs = [1, 1, 2, 4, 8]
    snapshot = view([[1.0]] * 5, [8], gangs, 8)
    got, longest = received(allot([[8 / 5]] * 5, snapshot), snapshot, 2000)
    assert min(got) >= 0.95 * 8 / 5
    for gang, name in zip(gangs, longest, strict=True):
        assert longest[name] <= 8 * ceil(gang / (8 / 5))


def test_nobody_starves_where_the_fractions_cannot_be_met() -> None:
    """A gang of 8 and a single share 8 devices: one of them always waits, and both are owed more and more. They still take turns: a
    round for the single costs the gang 7/8 of a gang, a round for the gang costs the single 1."""
    gangs = [8, 1]
    snapshot = view([[1.0], [1.0]], [8], gangs, 1)
    allocation = allot([[7.0], [1.0]], snapshot)
    credits: Credits = {}
    held: dict[str, int] = {}
    rounds = dict.fromkeys(("u0.0", "u1.0"), 0)
    for _ in range(1000):
        grants, credits = round_gangs(allocation, snapshot, credits, held, 20 / 360)
        held = {grant.job: grant.kind for grant in grants}
        for name in held:
            rounds[name] += 1
    assert 400 <= rounds["u0.0"] <= 600 and 400 <= rounds["u1.0"] <= 600


def test_idle_devices_are_filled_and_not_held_against_the_claim() -> None:
    snapshot = view([[1.0, 2.0], [1.0, 2.0]], [1, 1], [1, 1], 1)
    allocation = allot([[1.0, 0.0], [0.0, 0.0]], snapshot)
    grants, credits = round_gangs(allocation, snapshot, {}, {}, 0.0)
    assert {(g.job, g.kind) for g in grants} == {("u0.0", 0), ("u1.0", 1)}
    assert credits == {"u0": [0.0, 0.0], "u1": [0.0, 0.0]}
    grants, _ = round_gangs(allot([[1.0, 0.0], [0.0, 0.0]], snapshot, fill=False), snapshot, {}, {}, 0.0)
    assert [g.job for g in grants] == ["u0.0"]


def test_holding_on_is_worth_a_restart_and_no_more() -> None:
    snapshot = view([[1.0], [1.0]], [1], [1, 1], 1)
    allocation = allot([[0.5], [0.5]], snapshot)
    grants, credits = round_gangs(allocation, snapshot, {"u0": [0.0], "u1": [0.05]}, {"u0.0": 0}, 0.1)
    assert grants[0].job == "u0.0"
    grants, _ = round_gangs(allocation, snapshot, credits, {"u0.0": 0}, 0.1)
    assert grants[0].job == "u1.0"


@given(st.data())
def test_capacity_is_never_exceeded_whatever_the_shares(data: st.DataObject) -> None:
    gangs = data.draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=6))
    capacity = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
    row = st.lists(st.floats(0, 9), min_size=len(capacity), max_size=len(capacity))
    speeds = data.draw(st.lists(row, min_size=len(gangs), max_size=len(gangs)))
    snapshot = view(speeds, capacity, gangs, 2)
    allocation = allot(data.draw(st.lists(row, min_size=len(gangs), max_size=len(gangs))), snapshot)
    credits: Credits = {}
    for _ in range(5):
        grants, credits = round_gangs(allocation, snapshot, credits, {}, 0.05)
        assert len({g.job for g in grants}) == len(grants)
        for kind, count in enumerate(capacity):
            assert sum(g.gang for g in grants if g.kind == kind) <= count
        by_name = {job.name: job for job in snapshot.jobs}
        assert all(by_name[g.job].steps_per_s[g.kind] > 0 for g in grants)
        assert all(abs(c) <= 8 * 8 for row in credits.values() for c in row)


def test_a_snapshot_without_jobs_gives_nothing() -> None:
    snapshot = ClusterView(0.0, 360.0, ("k0",), (4,), ())
    allocation, _ = EqualShares().allocate(snapshot, None) if snapshot.tenants else (Allocation(()), None)
    assert round_gangs(allocation, snapshot, {}, {}, 0.0) == ([], {})
