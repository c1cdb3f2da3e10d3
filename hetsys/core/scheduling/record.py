"""What a scheduling run leaves behind: one record a round, one a job. Metrics and figures read nothing else.

In `records.jsonl` each line is `{"record": "round" | "job" | "parked", ...fields}`. To stay small, a round leaves out the fields of
`SAME_AS_BEFORE` that equal the round before; a user that was written before goes by its number, in order of first appearance, and leaves
out what it had then; `levels` of exactly the users are a list; a grant leaves out what equals its default, its round's length or the
place of its job's grant before; a job its `crashes` and `reason` where it has none. `decode` puts all of it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from hetsys.core.scheduling.plan import Binding


@dataclass(frozen=True, slots=True)
class Grant:
    """One lease of a round, with what it achieved. `crashed`: it failed because a process of the job itself died. `mix`: see `Lease`."""

    job: str
    tenant: str
    kind: str
    devices: tuple[str, ...]
    steps: int
    held_s: float
    lost_steps: int = 0
    restarted: bool = False
    failed: bool = False
    spans_nodes: bool = False
    crashed: bool = False
    mix: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class UserShare:
    """What the allocation of a round gave one user (a tenant's jobs of one type and gang, see `users_of`), in devices a kind, fractional.

    `weight`: the user's part of its tenant's weight; `speeds[j]`: normalised speed of a device of kind j (the slowest kind that it supports
    = 1), as devices really run its first job, whatever the scheduler believes; `demand`: the devices that its live jobs can hold at once.
    Tenants of weight 0 are allotted nothing and do not appear.
    """

    user: str
    tenant: str
    weight: float
    devices: tuple[float, ...]
    speeds: tuple[float, ...]
    demand: float


@dataclass(frozen=True)
class RoundRecord:
    """One round. `capacity[j]` counts devices of kind j that were up; `progress[tenant]` is the progress made in the round in
    device-seconds of the slowest kind that each job supports; `stranded[j]`: devices idle while jobs waited. `prices`, `levels` and
    `binding` are the allocation's."""

    index: int
    start_s: float
    length_s: float
    capacity: tuple[int, ...]
    users: tuple[UserShare, ...]
    grants: tuple[Grant, ...]
    progress: dict[str, float]
    idle: tuple[int, ...]
    stranded: tuple[int, ...]
    waiting_jobs: int
    status: str
    note: str
    policy_s: float
    prices: tuple[float, ...] | None = None
    levels: Mapping[str, float] = field(default_factory=dict)
    binding: tuple[Binding, ...] = ()


@dataclass(frozen=True)
class JobRecord:
    """One job, when it left. `status`: finished, withdrawn (its tenant left), unfinished (the run reached `max_rounds`) or parked (its own
    processes crashed too often: `reason`); `left_s`: when that was. `restarts`: starts on devices that it did not hold, after its first
    start. `crashes`: leases lost because a process of the job died.

    `isolated_jct_s`: how long it would have taken on its tenant's own share of the cluster (see `core.scheduling.isolated`).
    """

    job: str
    tenant: str
    job_type: str
    gang: int
    status: str
    arrival_s: float
    start_s: float | None
    finish_s: float | None
    left_s: float
    steps: int
    lost_steps: int
    restarts: int
    preemptions: int
    isolated_jct_s: float | None
    crashes: int = 0
    reason: str = ""


@dataclass(frozen=True)
class ParkedRecord:
    """A tenant or job that was refused at the door, with the reason; nobody else is affected."""

    tenant: str
    job: str | None
    reason: str


NAMES = {RoundRecord: "round", JobRecord: "job", ParkedRecord: "parked"}
SchedulingRecord = RoundRecord | JobRecord | ParkedRecord
_DEFAULTS = {"lost_steps": 0, "restarted": False, "failed": False, "spans_nodes": False, "crashed": False, "mix": ()}
_ONLY_WHERE_SET = ("crashes", "reason")
_PLACE = ("tenant", "kind", "devices", "spans_nodes", "mix")
_OF_GRANT = tuple(one.name for one in fields(Grant))
_OF_USER = tuple(one.name for one in fields(UserShare) if one.name != "user")

SAME_AS_BEFORE = ("length_s", "capacity", "users", "idle", "stranded", "waiting_jobs", "status", "note", "prices", "levels", "binding")


def encode(records: Iterable[SchedulingRecord]) -> Iterator[dict[str, Any]]:
    """The JSON object of each record, in order, its type under the key "record"."""
    before: dict[str, Any] = {}
    last: dict[str, Grant] = {}
    users = _Users()
    for record in records:
        row = {"record": NAMES[type(record)], **vars(record)}
        if isinstance(record, RoundRecord):
            same = {key for key in SAME_AS_BEFORE if key in before and row[key] == before[key]}
            before = {key: row[key] for key in SAME_AS_BEFORE}
            row = {key: value for key, value in row.items() if key not in same}
            row["grants"] = [_grant_row(grant, record.length_s, last) for grant in record.grants]
            if "users" in row:
                row["users"] = [users.row(user) for user in record.users]
            if "levels" in row and [*record.levels] == [user.user for user in record.users]:
                row["levels"] = [*record.levels.values()]
            if "binding" in row:
                number = users.number
                row["binding"] = [(number.get(b.claim, b.claim), number.get(b.envied, b.envied), b.dual) for b in record.binding]
        elif isinstance(record, JobRecord):
            row = {key: value for key, value in row.items() if value or key not in _ONLY_WHERE_SET}
        yield row


def decode(rows: Iterable[dict[str, Any]]) -> list[SchedulingRecord]:
    """The inverse of `encode`, for rows read back from `records.jsonl`."""
    before: dict[str, Any] = {}
    last: dict[str, Grant] = {}
    users = _Users()
    records: list[SchedulingRecord] = []
    for row in rows:
        values = _tuples({key: value for key, value in row.items() if key != "record"})
        if row["record"] == "round":
            if "users" in values:
                values["users"] = tuple(users.read(user) for user in values["users"])
            if "binding" in values:
                values["binding"] = tuple(Binding(users.name(a), users.name(b), dual) for a, b, dual in values["binding"])
            values = before | values
            if isinstance(values.get("levels"), tuple):
                values["levels"] = dict(zip((user.user for user in values["users"]), values["levels"], strict=True))
            before = {key: values[key] for key in SAME_AS_BEFORE if key in values}
            values["grants"] = tuple(_grant(grant, values["length_s"], last) for grant in values["grants"])
            records.append(RoundRecord(**values))
        else:
            records.append(JobRecord(**values) if row["record"] == "job" else ParkedRecord(**values))
    return records


class _Users:
    """The users that were written or read so far: `number` in order of first appearance, `known` by number, each as it was last."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}
        self.known: list[UserShare] = []

    def row(self, user: UserShare) -> dict[str, Any]:
        """What must be written of `user`."""
        number = self.number.setdefault(user.user, len(self.known))
        if number == len(self.known):
            self.known.append(user)
            return {"user": user.user, **{key: getattr(user, key) for key in _OF_USER}}
        before, self.known[number] = self.known[number], user
        return {"user": number, **{key: value for key in _OF_USER if (value := getattr(user, key)) != getattr(before, key)}}

    def read(self, row: dict[str, Any]) -> UserShare:
        """The inverse of `row`."""
        values = _tuples(row)
        if isinstance(row["user"], int):
            before = self.known[row["user"]]
            values = {key: getattr(before, key) for key in _OF_USER} | values | {"user": before.user}
        user = UserShare(**values)
        number = self.number.setdefault(user.user, len(self.known))
        self.known[number : number + 1] = [user]
        return user

    def name(self, known: str | int) -> str:
        return self.known[known].user if isinstance(known, int) else known


def _grant_row(grant: Grant, length_s: float, last: dict[str, Grant]) -> dict[str, Any]:
    """What must be written of `grant`; `last` holds, by job, the grant before, which says where it sits as long as that does not change."""
    before = last.get(grant.job)
    last[grant.job] = grant
    known: dict[str, Any] = {**_DEFAULTS, "held_s": length_s}
    if before is not None and before.tenant == grant.tenant:
        known |= {key: getattr(before, key) for key in _PLACE}
    row = ((key, getattr(grant, key)) for key in _OF_GRANT)
    return {key: value for key, value in row if key not in known or value != known[key]}


def _grant(row: dict[str, Any], length_s: float, last: dict[str, Grant]) -> Grant:
    before = None if "tenant" in row else last.get(row["job"])
    known = {**_DEFAULTS, "held_s": length_s}
    if before is not None:
        known |= {key: getattr(before, key) for key in _PLACE}
    last[row["job"]] = grant = Grant(**{**known, **_tuples(row)})
    return grant


def _tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
