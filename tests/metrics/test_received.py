"""What gangs received of their entitlement and how long they waited, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsys.core.scheduling.record import Grant, JobRecord, RoundRecord, UserShare
from hetsys.metrics.received import ENOUGH_GANGS, received, received_figures
from tests.metrics.records import KINDS, job, round_


def _user(name: str, devices: tuple[float, float], weight: float = 1.0) -> UserShare:
    return UserShare(name, name.partition("/")[0], weight, devices, (1.0, 2.0), 8)


def _jobs(**gangs: int) -> list[JobRecord]:
    return [replace(job(f"{tenant}.0", None, tenant=tenant, left_s=1.0), gang=gang) for tenant, gang in gangs.items()]


def _grant(tenant: str, kind: str, count: int, mix: tuple[int, ...] = ()) -> Grant:
    return Grant(f"{tenant}.0", tenant, kind, tuple(f"{kind}-0-{i}" for i in range(count)), 10, 100.0, mix=mix)


def _rounds(turns: str, users: tuple[UserShare, ...]) -> list[RoundRecord]:
    """A round a letter: who held two fast devices; `.` nobody."""
    grants = [[_grant(who, "fast", 2)] if who != "." else [] for who in turns]
    return [round_(index, users=users, grants=mine, capacity=(2, 2)) for index, mine in enumerate(grants)]


def test_a_gang_of_two_that_waits_its_turn() -> None:
    """b, entitled to half a device of each kind a round, holds two fast ones in rounds 1 and 4 of 6: 2 x 2 x 100 of 300 due on fast and
    nothing of 300 on slow. It waits rounds 2 and 3, then 5; its share makes a gang of two every second round."""
    users = (_user("a/type/2", (0.0, 1.5)), _user("b/type/2", (0.5, 0.5)))
    found = received(_rounds("abaaba", users), _jobs(a=2, b=2), KINDS)
    b = found["b/type/2"]
    assert (b.rounds, b.longest_wait, b.turn_rounds) == (6, 2, 2)
    assert b.held == {"fast": 400.0} and b.entitled == {"slow": 300.0, "fast": 300.0}
    assert b.fraction == pytest.approx(0.5), "more of one kind makes up for nothing on another"
    assert found["a/type/2"].fraction == pytest.approx(800 / 900) and found["a/type/2"].longest_wait == 1


def test_waits_count_only_while_a_user_is_entitled() -> None:
    here, away = (_user("a/type/2", (0.0, 1.0)),), (_user("a/type/2", (0.0, 0.0)),)
    rounds = [*_rounds("a..", here), *_rounds("...", away), *_rounds("..a.", here)]
    a = received(rounds, _jobs(a=2), KINDS)["a/type/2"]
    assert (a.longest_wait, a.rounds) == (2, 7)


def test_a_gang_of_two_kinds_holds_some_of_each_and_weight_0_is_entitled_to_nothing() -> None:
    users = (_user("a/type/2", (1.0, 1.0)), _user("z/type/2", (1.0, 1.0), weight=0.0))
    rounds = [round_(users=users, grants=[_grant("a", "slow", 2, mix=(1, 1)), _grant("z", "fast", 2)])]
    found = received(rounds, _jobs(a=2, z=2), KINDS)
    assert found.keys() == {"a/type/2"} and found["a/type/2"].held == {"slow": 100.0, "fast": 100.0}


def test_only_users_with_enough_turns_are_in_the_summary() -> None:
    users = (_user("a/type/1", (0.0, 1.0)), _user("b/type/8", (0.0, 1.0)))
    rounds = [round_(index, users=users, grants=[_grant("a", "fast", 1)] if index % 2 else []) for index in range(ENOUGH_GANGS)]
    found = received(rounds, _jobs(a=1, b=8), KINDS)
    assert received_figures(found) == {"entitlement_received_min": pytest.approx(0.5), "wait_max_turns": 1.0}
    assert received_figures(received(rounds[:10], _jobs(a=1, b=8), KINDS)) == {"entitlement_received_min": None, "wait_max_turns": None}


def test_users_of_one_type_and_gang_that_differ_in_speed_count_together() -> None:
    users = (_user("a/type/2", (0.0, 1.0)), _user("a/type/2#2", (0.0, 1.0)))
    found = received(_rounds("a", users), _jobs(a=2), KINDS)
    assert found["a/type/2"].entitled["fast"] == 200.0 and len(found) == 1
