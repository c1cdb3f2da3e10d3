"""Rounding, whatever the rule: exact capacity, whose turn it is, and what is filled; numbers by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsys.core.errors import ConfigError
from hetsys.core.scheduling.plan import ROUNDINGS, Allocation, Claim
from hetsys.core.scheduling.rounding import round_gangs
from hetsys.core.scheduling.turns import LATE_TURNS, Carried, GrantedGang
from hetsys.core.scheduling.view import ClusterView, JobView, TenantView
from tests.core.rounds import allot
from tests.engines.builders import view


@given(st.data())
def test_capacity_is_never_exceeded_whatever_the_shares(data: st.DataObject) -> None:
    gangs = data.draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=6))
    capacity = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
    row = st.lists(st.floats(0, 9), min_size=len(capacity), max_size=len(capacity))
    speeds = data.draw(st.lists(row, min_size=len(gangs), max_size=len(gangs)))
    snapshot = view(speeds, capacity, gangs, 2)
    shares = data.draw(st.lists(row, min_size=len(gangs), max_size=len(gangs)))
    allocation = allot(shares, snapshot, data.draw(st.sampled_from(ROUNDINGS)), fill=data.draw(st.booleans()))
    allocation = replace(allocation, cross_kind=data.draw(st.booleans()))
    carried, held, mixes = Carried(), {}, {}
    by_name = {job.name: job for job in snapshot.jobs}
    for _ in range(5):
        grants, after = round_gangs(allocation, snapshot, carried, held, 0.05, mixes)
        assert round_gangs(allocation, snapshot, carried, held, 0.05, mixes) == (grants, after)
        carried = after
        assert len({g.job for g in grants}) == len(grants)
        used = [g.mix or tuple(g.gang * (kind == g.kind) for kind in range(len(capacity))) for g in grants]
        assert all(sum(column) <= most for column, most in zip(zip(*used, strict=True), capacity, strict=True)) if used else True
        for grant, parts in zip(grants, used, strict=True):
            assert sum(parts) == grant.gang == by_name[grant.job].gang
            assert all(by_name[grant.job].steps_per_s[kind] > 0 for kind, count in enumerate(parts) if count)
            assert not grant.mix or (allocation.cross_kind and allocation.fill and grant.filled and parts[grant.kind])
        assert all(abs(c) <= 8 * 8 for row in carried.owed.values() for c in row)
        held = {g.job: g.kind for g in grants}
        mixes = {g.job: g.mix for g in grants if g.mix}


def test_nobody_starves_where_the_fractions_cannot_be_met_and_all_lose_the_same_part() -> None:
    """A gang of 8 and a single share 8 devices, 7 : 1: one of them always waits, and both are owed more and more. They take turns; 7/15 of
    the rounds are 7 x 8/15 devices for the one, the other 8/15 are 8/15 of a device for the other: each has 8/15 of its share."""
    snapshot = view([[1.0], [1.0]], [8], [8, 1], 1)
    allocation = allot([[7.0], [1.0]], snapshot)
    carried, held = Carried(), {}
    rounds = dict.fromkeys(("u0.0", "u1.0"), 0)
    for _ in range(1500):
        grants, carried = round_gangs(allocation, snapshot, carried, held, 20 / 360)
        held = {grant.job: grant.kind for grant in grants}
        for name in held:
            rounds[name] += 1
    assert rounds == {"u0.0": pytest.approx(700, abs=25), "u1.0": pytest.approx(800, abs=25)}


def test_a_debtor_with_a_sliver_of_a_kind_does_not_decide_between_the_others() -> None:
    """As above with a third claim that took what was left once and pays it back with a thousandth of a device a round."""
    snapshot = view([[1.0]] * 3, [8], [8, 1, 1], 1)
    allocation = allot([[6.5], [1.0], [0.001]], snapshot)
    carried, rounds = Carried(owed={"u2": [-1.0]}), dict.fromkeys(("u0.0", "u1.0", "u2.0"), 0)
    for _ in range(600):
        grants, carried = round_gangs(allocation, snapshot, carried, {}, 0.0)
        for grant in grants:
            rounds[grant.job] += 1
    assert min(rounds["u0.0"], rounds["u1.0"]) > 200


def test_idle_devices_are_filled_and_not_held_against_the_claim() -> None:
    snapshot = view([[1.0, 2.0], [1.0, 2.0]], [1, 1], [1, 1], 1)
    allocation = allot([[1.0, 0.0], [0.0, 0.0]], snapshot)
    grants, carried = round_gangs(allocation, snapshot, Carried(), {}, 0.0)
    assert grants == [GrantedGang("u0.0", 1, 0), GrantedGang("u1.0", 1, 1, filled=True)]
    assert carried.owed == {"u0": [0.0, 0.0], "u1": [0.0, 0.0]}
    grants, _ = round_gangs(allot([[1.0, 0.0], [0.0, 0.0]], snapshot, fill=False), snapshot, Carried(), {}, 0.0)
    assert [g.job for g in grants] == ["u0.0"]


def test_holding_on_is_worth_a_restart_and_no_more() -> None:
    snapshot = view([[1.0], [1.0]], [1], [1, 1], 1)
    allocation = allot([[0.5], [0.5]], snapshot)
    grants, carried = round_gangs(allocation, snapshot, Carried({"u0": [0.0], "u1": [0.05]}), {"u0.0": 0}, 0.1)
    assert grants[0].job == "u0.0"
    grants, _ = round_gangs(allocation, snapshot, carried, {"u0.0": 0}, 0.1)
    assert grants[0].job == "u1.0"


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_a_snapshot_without_jobs_gives_nothing(rounding: str) -> None:
    snapshot = ClusterView(0.0, 360.0, ("k0",), (4,), ())
    assert round_gangs(Allocation((), rounding=rounding), snapshot, Carried(), {}, 0.0) == ([], Carried())


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ConfigError, match="rounding"):
        round_gangs(Allocation((), rounding="credits"), ClusterView(0.0, 360.0, ("k0",), (4,), ()), Carried(), {}, 0.0)


def one_device(jobs: dict[str, int]) -> tuple[Allocation, ClusterView]:
    """A claim on the one device there is; `jobs`: the rounds that each job has had."""
    views = tuple(JobView(name, "t", "type", 1, (1.0,), 10**9, 0.0, rounds) for name, rounds in jobs.items())
    return Allocation((Claim("c", "t", tuple(jobs), (1.0,)),)), ClusterView(0.0, 360.0, ("k0",), (1,), (TenantView("t", 1.0, views),))


def test_jobs_take_turns_by_rounds_and_who_holds_on_may_be_two_ahead() -> None:
    jobs, held, order = {"x": 0, "y": 0}, {}, ""
    carried = Carried()
    for _ in range(10):
        (grant,), carried = round_gangs(*one_device(jobs), carried, held, 0.0)
        jobs[grant.job] += 1
        held, order = {grant.job: 0}, order + grant.job
    assert order == "xxxyyyyyxx"


@pytest.mark.parametrize("rounding", ROUNDINGS)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_newcomers_cannot_keep_an_old_job_waiting(rounding: str, lives: list[int]) -> None:
    """Each of n - 1 jobs is replaced by a new one after some rounds; the old one has had 1,000, so any newcomer has had fewer. It still
    runs once while the claim grants `LATE_TURNS` n gangs to others, and one more for each that is late as well."""
    count = len(lives) + 1
    jobs, left, waited, longest, carried, born = {"old": 1000}, {}, 0, 0, Carried(), 0
    held: dict[str, int] = {}
    for _ in range(30 * count):
        while len(jobs) < count:
            jobs[f"new{born}"], left[f"new{born}"], born = 0, lives[born % len(lives)], born + 1
        allocation, snapshot = one_device(jobs)
        (grant,), carried = round_gangs(replace(allocation, rounding=rounding), snapshot, carried, held, 0.05)
        jobs[grant.job] += 1
        held = {grant.job: 0}
        waited = 0 if grant.job == "old" else waited + 1
        longest = max(longest, waited)
        if grant.job in left:
            left[grant.job] -= 1
            if not left[grant.job]:
                del jobs[grant.job]
    assert LATE_TURNS * count <= longest <= (LATE_TURNS + 1) * count


def mixed_view(
    speeds: tuple[float, ...], capacity: tuple[int, ...], spread: tuple[float, ...] = (), gangs: tuple[int, ...] = (4,)
) -> ClusterView:
    jobs = tuple(JobView(f"j{i}", "t", "type", gang, speeds, 9, float(i), spread_steps_per_s=spread) for i, gang in enumerate(gangs))
    return ClusterView(0.0, 360.0, ("a", "b", "c")[: len(capacity)], capacity, (TenantView("t", 1.0, jobs),))


NOBODY = Allocation((), cross_kind=True)


def test_a_gang_that_fits_no_kind_takes_several_so_that_the_slowest_is_as_fast_as_can_be() -> None:
    grants, _ = round_gangs(NOBODY, mixed_view((1.0, 2.0, 3.0), (3, 3, 3)), Carried(), {}, 0.0)
    assert grants == [GrantedGang("j0", 4, 1, filled=True, mix=(0, 3, 1))]  # not on kind a; of c, the fastest, as few as need be
    assert round_gangs(replace(NOBODY, cross_kind=False), mixed_view((1.0, 2.0, 3.0), (3, 3, 3)), Carried(), {}, 0.0)[0] == []
    assert round_gangs(replace(NOBODY, fill=False), mixed_view((1.0, 2.0, 3.0), (3, 3, 3)), Carried(), {}, 0.0)[0] == []


def test_a_kind_on_which_the_gang_stands_still_is_no_part_of_a_mix() -> None:
    """What counts is the speed of a gang that spans hosts, as one of several kinds does."""
    view = mixed_view((1.0, 2.0, 3.0), (3, 3, 3), spread=(0.5, 0.0, 0.4))
    assert round_gangs(NOBODY, view, Carried(), {}, 0.0)[0] == [GrantedGang("j0", 4, 2, filled=True, mix=(1, 0, 3))]
    assert round_gangs(NOBODY, mixed_view((1.0, 2.0), (3, 3), spread=(0.0, 1.0)), Carried(), {}, 0.0)[0] == []


def test_one_kind_comes_before_several_and_older_gangs_first() -> None:
    view = mixed_view((1.0, 1.0), (5, 3), gangs=(6, 4, 4))
    grants, _ = round_gangs(NOBODY, view, Carried(), {}, 0.0)
    assert grants == [GrantedGang("j1", 4, 0, filled=True), GrantedGang("j2", 4, 0, filled=True, mix=(1, 3))]
    grants, _ = round_gangs(NOBODY, mixed_view((1.0, 1.0), (5, 4), gangs=(6, 6)), Carried(), {}, 0.0)
    assert [g.job for g in grants] == ["j0"]


def test_a_mixed_gang_keeps_what_it_held_unless_others_are_faster() -> None:
    kept = {"j0": (2, 1, 1)}
    grants, _ = round_gangs(NOBODY, mixed_view((2.0, 2.0, 2.0), (3, 3, 3)), Carried(), {"j0": 0}, 0.0, kept)
    assert grants[0].mix == (2, 1, 1)
    grants, _ = round_gangs(NOBODY, mixed_view((1.0, 2.0, 2.0), (3, 3, 3)), Carried(), {"j0": 0}, 0.0, kept)
    assert grants[0].mix == (0, 1, 3)
    grants, _ = round_gangs(NOBODY, mixed_view((2.0, 2.0, 2.0), (1, 3, 3)), Carried(), {"j0": 0}, 0.0, kept)
    assert grants[0].mix == (1, 3, 0)
