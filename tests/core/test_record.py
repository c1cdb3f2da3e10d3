"""Records on disk: what is left out comes back, and files that were written before can still be read."""

from __future__ import annotations

import json

from hetsys.core.scheduling.plan import Binding
from hetsys.core.scheduling.record import Grant, RoundRecord, UserShare, decode, encode


def _round(index: int, users: tuple[UserShare, ...], grants: tuple[Grant, ...] = (), **more: object) -> RoundRecord:
    return RoundRecord(
        index, 100.0 * index, 100.0, (4, 4), users, grants, {"a": 1.0}, (0, 0), (0, 0), 0, "rule", "", 0.0, **more  # type: ignore[arg-type]
    )  # fmt: skip


def _user(name: str, *devices: float, demand: float = 4.0) -> UserShare:
    return UserShare(f"{name}/type/1", name, 1.0, devices, (1.0, 2.0), demand)


def test_a_user_is_written_by_its_number_and_by_what_changed() -> None:
    records = [
        _round(0, (_user("a", 1.0, 2.0), _user("b", 3.0, 2.0))),
        _round(1, (_user("b", 4.0, 4.0),)),
        _round(2, (_user("c", 0.0, 1.0), _user("a", 1.0, 2.0, demand=2.0), _user("b", 4.0, 4.0))),
    ]
    rows = [json.loads(json.dumps(row)) for row in encode(records)]
    assert rows[1]["users"] == [{"user": 1, "devices": [4.0, 4.0]}]
    assert rows[2]["users"][1:] == [{"user": 0, "demand": 2.0}, {"user": 1}]
    assert decode(rows) == records


def test_levels_of_exactly_the_users_are_a_list_and_rows_go_by_number() -> None:
    users = (_user("a", 1.0, 2.0), _user("b", 3.0, 2.0))
    binding = (Binding("b/type/1", "a/type/1", 0.5), Binding("somebody else", "a/type/1", 0.25))
    levels = {"a/type/1": 1.5, "b/type/1": 2.5}
    records = [_round(0, users, levels=levels, binding=binding), _round(1, users, levels={"job": 3.0}, binding=binding)]
    records += [_round(2, users, levels={}, binding=())]
    rows = [json.loads(json.dumps(row)) for row in encode(records)]
    assert rows[0]["levels"] == [1.5, 2.5] and rows[0]["binding"] == [[1, 0, 0.5], ["somebody else", 0, 0.25]]
    assert rows[1]["levels"] == {"job": 3.0} and "binding" not in rows[1]
    assert decode(rows) == records


def test_a_grant_takes_over_where_its_job_sat_before() -> None:
    def grant(*devices: str, restarted: bool = False, spans: bool = False, mix: tuple[int, ...] = ()) -> Grant:
        return Grant("j", "a", devices[0][:4], devices, 7, 100.0, restarted=restarted, spans_nodes=spans, mix=mix)

    grants = [
        grant("slow-0-0", "slow-1-0", restarted=True, spans=True),
        grant("slow-0-0", "slow-1-0", spans=True),
        grant("slow-0-0", "slow-0-1", restarted=True),
        grant("slow-0-0", "fast-0-1", restarted=True, spans=True, mix=(1, 1)),
        grant("fast-0-0", "fast-0-1", restarted=True),
    ]
    records = [_round(i, (), (one,)) for i, one in enumerate(grants)]
    rows = [json.loads(json.dumps(row)) for row in encode(records)]
    assert rows[1]["grants"] == [{"job": "j", "steps": 7}]
    assert rows[2]["grants"] == [{"job": "j", "devices": ["slow-0-0", "slow-0-1"], "steps": 7, "restarted": True, "spans_nodes": False}]
    assert rows[4]["grants"][0]["mix"] == []
    assert decode(rows) == records


def test_files_in_which_grants_and_users_were_written_out_can_still_be_read() -> None:
    whole = {"job": "j", "tenant": "a", "kind": "slow", "devices": ["slow-0-0"], "steps": 7}
    user = {"user": "a/type/1", "tenant": "a", "weight": 1.0, "devices": [1.0, 2.0], "speeds": [1.0, 2.0], "demand": 4.0}
    head = {"record": "round", "progress": {"a": 1.0}, "policy_s": 0.0}
    rest = {"length_s": 100.0, "capacity": [4, 4], "idle": [0, 0], "stranded": [0, 0], "waiting_jobs": 0, "status": "rule", "note": ""}
    rows = [
        {**head, **rest, "index": 0, "start_s": 0.0, "users": [user], "grants": [{**whole, "restarted": True, "spans_nodes": True}]},
        {**head, "index": 1, "start_s": 100.0, "users": [{**user, "demand": 3.0}], "grants": [{"job": "j", "steps": 9}]},
        {**head, "index": 2, "start_s": 200.0, "grants": [{**whole, "restarted": True}]},  # no longer over hosts
    ]
    first, second, third = (record for record in decode(rows) if isinstance(record, RoundRecord))
    assert first.grants[0] == Grant("j", "a", "slow", ("slow-0-0",), 7, 100.0, restarted=True, spans_nodes=True)
    assert second.grants[0] == Grant("j", "a", "slow", ("slow-0-0",), 9, 100.0, spans_nodes=True)
    assert third.grants[0] == Grant("j", "a", "slow", ("slow-0-0",), 7, 100.0, restarted=True)
    assert second.users == third.users == (_user("a", 1.0, 2.0, demand=3.0),)
