"""What users received of what they were entitled to, once fractions had become whole gangs, and how long they waited for a turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import ceil

from hetsys.core.scheduling.record import Grant, JobRecord, RoundRecord, UserShare
from hetsys.metrics.common import Number
from hetsys.metrics.gangs import devices_by_kind

ENOUGH_GANGS = 50
"""A user counts once it was entitled to so many gangs for a round: below that, whole gangs say little about fractions."""


@dataclass
class Received:
    """One user over its life. `entitled`, `held`: by kind, devices times seconds; `rounds`: in which it was entitled to something;
    `longest_wait`: of those, in a row, without any device; `devices`: its entitlement in devices, summed over rounds. Devices that nobody
    claimed count as held like others."""

    user: str
    gang: int
    entitled: dict[str, float] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    longest_wait: int = 0
    devices: float = 0.0

    @property
    def fraction(self) -> float:
        """The part of the entitlement that was held; more than it on one kind makes up for nothing on another."""
        whole = sum(self.entitled.values())
        return sum(min(self.held.get(kind, 0.0), due) for kind, due in self.entitled.items()) / whole if whole else 0.0

    @property
    def turn_rounds(self) -> int:
        """After how many rounds its share has added up to a gang: the least that it may have to wait between two turns."""
        return ceil(self.gang * self.rounds / self.devices) if self.devices else 1

    def add(self, devices: Sequence[float], rounds: int, seconds: float, kinds: Sequence[str]) -> None:
        """Its entitlement, `devices` of each kind, in `rounds` rounds that last `seconds` together."""
        self.rounds += rounds
        self.devices += rounds * sum(devices)
        for kind, due in zip(kinds, devices, strict=True):
            self.entitled[kind] = self.entitled.get(kind, 0.0) + due * seconds

    def hold(self, grant: Grant, kinds: Sequence[str]) -> None:
        """It held the devices of a lease."""
        if grant.mix:
            for kind, count in devices_by_kind(grant, kinds).items():
                self.held[kind] = self.held.get(kind, 0.0) + count * grant.held_s
        else:
            self.held[grant.kind] = self.held.get(grant.kind, 0.0) + len(grant.devices) * grant.held_s

    def waited(self, rounds: int) -> None:
        """It had no device for so many rounds in a row."""
        if rounds > self.longest_wait:
            self.longest_wait = rounds

    @property
    def counts(self) -> bool:
        return self.devices >= ENOUGH_GANGS * self.gang


def received(rounds: Sequence[RoundRecord], jobs: Sequence[JobRecord], kinds: Sequence[str]) -> dict[str, Received]:
    """By user (named as `users_of` names it), what it received in `rounds`. `jobs`: the records of all jobs, which say who uses what was
    granted."""
    user_of = {job.job: f"{job.tenant}/{job.job_type}/{job.gang}" for job in jobs}
    gang_of = {user_of[job.job]: job.gang for job in jobs}
    found: dict[str, Received] = {}
    last: dict[str, int] = {}  # by user that lives: the last round in which it had a turn, or the one before it came
    for _, group in groupby(enumerate(rounds), key=lambda pair: id(pair[1].users)):
        span = list(group)
        first, users = span[0][0], span[0][1].users
        entitled = {name: due for name, due in _entitled(users).items() if name in gang_of}
        for name in last.keys() - entitled.keys():
            found[name].waited(first - last.pop(name) - 1)
        for name, due in entitled.items():
            last.setdefault(name, first - 1)
            found.setdefault(name, Received(name, gang_of[name])).add(due, len(span), sum(record.length_s for _, record in span), kinds)
        for at, record in span:
            for grant in record.grants:
                name = user_of.get(grant.job, "")
                if (mine := found.get(name)) is not None:
                    mine.hold(grant, kinds)
                    if name in last:
                        mine.waited(at - last[name] - 1)
                        last[name] = at
    for name, at in last.items():
        found[name].waited(len(rounds) - at - 1)
    return found


def _entitled(users: Sequence[UserShare]) -> dict[str, list[float]]:
    """By user, its devices of each kind, where it has a weight and some device; those of one type and gang that differ in speed are one."""
    found: dict[str, list[float]] = {}
    for user in users:
        if user.weight > 0 and any(user.devices):
            name = user.user.partition("#")[0]
            before = found.get(name)
            found[name] = [*user.devices] if before is None else [a + b for a, b in zip(before, user.devices, strict=True)]
    return found


def received_figures(found: Mapping[str, Received]) -> dict[str, Number]:
    """`entitlement_received_min`: the least `fraction` of the users that count; `wait_max_turns`: their longest wait, in `turn_rounds`.
    None where no user counts."""
    counted = [mine for mine in found.values() if mine.counts]
    return {
        "entitlement_received_min": min((mine.fraction for mine in counted), default=None),
        "wait_max_turns": max((mine.longest_wait / mine.turn_rounds for mine in counted), default=None),
    }
