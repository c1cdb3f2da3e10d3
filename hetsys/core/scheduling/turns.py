"""Whose turn it is: what a round grants and what it remembers for the next ones, and the order in which the jobs of a claim run.

Among the jobs of a claim the one that has had the fewest rounds comes first, unless another holds on to its devices and is not far ahead;
whoever its claim has passed over too often comes before both, so that newcomers cannot keep an old job waiting for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hetsys.core.scheduling.plan import Claim
from hetsys.core.scheduling.view import JobView

PATIENCE_ROUNDS = 2
"""A job that holds devices keeps its claim's turn until it is more rounds ahead of a waiting one than this (our choice)."""

LATE_TURNS = 4.0
"""A job is late when its claim has granted others this many gangs for each of the claim's jobs since it last ran (our choice)."""

Turn = tuple[float, int, JobView]


@dataclass(frozen=True)
class GrantedGang:
    """Job `job` holds `gang` devices of kind index `kind` this round, or `mix[j]` of each kind j where `mix` is not empty; `kind` is then
    the slowest of them for it. `filled`: idle devices, not held against its claim."""

    job: str
    gang: int
    kind: int
    filled: bool = False
    mix: tuple[int, ...] = ()


@dataclass(frozen=True)
class Carried:
    """What rounding remembers from round to round; a claim or job without an entry starts at 0.

    `owed[claim][j]`: devices of kind j that the claim was allotted and not granted, so far; `waits[claim]`: how long it has gone without a
    grant, see `credit`; `passed[job]`: the gangs that its claim has granted to others since the job last ran, divided by the number of the
    claim's jobs.
    """

    owed: Mapping[str, Sequence[float]] = field(default_factory=dict)
    waits: Mapping[str, float] = field(default_factory=dict)
    passed: Mapping[str, float] = field(default_factory=dict)


class Line:
    """Jobs that stand side by side in a claim and agree in gang and speeds, in the order of their turns on each kind."""

    def __init__(self, jobs: Sequence[JobView], held: Mapping[str, int], passed: Mapping[str, float]) -> None:
        """`jobs` in the order of the claim, which decides ties."""
        self.gang = jobs[0].gang
        self.names = [job.name for job in jobs]
        self.runs = [speed > 0 for speed in jobs[0].steps_per_s]
        self._fresh: list[Turn] = sorted([(job.rounds_held, place, job) for place, job in enumerate(jobs)])
        self._kept: dict[int, list[Turn]] = {}
        self._late: list[Turn] = []
        for rounds, place, job in self._fresh:
            if job.name in held:
                self._kept.setdefault(held[job.name], []).append((rounds - PATIENCE_ROUNDS, place, job))
            if passed.get(job.name, 0.0) >= LATE_TURNS:
                self._late.append((-1e9 - passed[job.name], place, job))
        self._late.sort()
        self._at: dict[int, int] = {}

    def next(self, kind: int, waiting: Mapping[str, JobView]) -> Turn | None:
        """Of the jobs that are still `waiting`, the one whose turn it is on `kind`; the least first entry goes first."""
        best = None
        for key, turns in ((-2, self._late), (kind, self._kept.get(kind)), (-1, self._fresh)):
            if turns:
                at = self._at.get(key, 0)
                while at < len(turns) and turns[at][2].name not in waiting:
                    at += 1
                self._at[key] = at
                if at < len(turns) and (best is None or turns[at] < best):
                    best = turns[at]
        return best


class Queue:
    """The jobs of one claim, in lines of those that ask for the same."""

    def __init__(self, claim: Claim, jobs: Mapping[str, JobView], held: Mapping[str, int], passed: Mapping[str, float]) -> None:
        self.claim = claim
        groups: list[list[JobView]] = []
        for job in [jobs[name] for name in claim.jobs]:
            if groups and (job.gang, job.steps_per_s) == (groups[-1][0].gang, groups[-1][0].steps_per_s):
                groups[-1].append(job)
            else:
                groups.append([job])
        self.lines = [Line(group, held, passed) for group in groups]
        self.narrowest = min(line.gang for line in self.lines)
        self.widest = max(line.gang for line in self.lines)
        self.num_jobs = len(claim.jobs)

    def next(self, kind: int, devices: int, waiting: Mapping[str, JobView]) -> JobView | None:
        """The job whose turn it is, among those that are still `waiting` and run on `devices` devices of `kind`."""
        best: Turn | None = None
        for line in self.lines:
            if line.gang <= devices and line.runs[kind] and (turn := line.next(kind, waiting)) and (best is None or turn[0] < best[0]):
                best = turn
        return best[2] if best else None


    def room(self, kind: int, waiting: Mapping[str, JobView]) -> int:
        """How many devices of `kind` its jobs that are still `waiting` can hold."""
        return sum(line.gang * sum(name in waiting for name in line.names) for line in self.lines if line.runs[kind])


def queues_of(claims: Iterable[Claim], jobs: Mapping[str, JobView], held: Mapping[str, int], passed: Mapping[str, float]) -> list[Queue]:
    """One queue a claim, in order."""
    return [Queue(claim, jobs, held, passed) for claim in claims]


def passed_over(queues: Iterable[Queue], grants: Iterable[GrantedGang], before: Mapping[str, float]) -> dict[str, float]:
    """`Carried.passed` after a round of `grants`: all jobs of a claim that did not run are passed over alike, so they stay in the order
    in which they last ran or came."""
    ran = {grant.job for grant in grants}
    own = {grant.job for grant in grants if not grant.filled}
    passed: dict[str, float] = {}
    for queue in queues:
        jobs = queue.claim.jobs
        turns = sum(name in own for name in jobs) / queue.num_jobs
        for name in jobs:
            if name not in ran and (value := before.get(name, 0.0) + turns):
                passed[name] = value
    return passed
