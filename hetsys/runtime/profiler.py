"""Measures native devices as a run will use them: every device of the cluster busy at once, each resting as its sheet says, and what is to
be measured taking turns, so that a drift of the machine hits all alike."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hetsys.core.cluster import Cluster
from hetsys.runtime.devices import check_busy, enter_device, worker_env
from hetsys.runtime.launch import Launcher, Link, Worker
from hetsys.runtime.operations import Timed, dtypes_of, grid, time_op
from hetsys.runtime.pacer import Pacer

REPLY_S = 120.0


class Job(Protocol):
    """One rank of a training job."""

    def step(self) -> object: ...

    def save(self, path: Path | str) -> None: ...

    def load(self, path: Path | str) -> None: ...


class Jobs(Protocol):
    """How a worker comes by training jobs; picklable, because it is sent to the workers."""

    def open(self, program: str, device: str, rank: int, world_size: int) -> Job: ...

    def join(self, device: str, rank: int, world_size: int, rendezvous: str) -> None:
        """Enter a gang; jobs of its size may then be opened."""
        ...

    def leave(self) -> None: ...


@dataclass(frozen=True)
class Seat:
    """The device that a worker is: see `DeviceSheet`."""

    name: str
    kind: str
    native: str
    cuda_index: int
    busy_fraction: float


@dataclass(frozen=True)
class Open:
    """Make ready to train; where `save` names a file, put a checkpoint there."""

    program: str
    save: str = ""


@dataclass(frozen=True)
class Train:
    """Make steps until the system-wide monotonic clock shows `until_ns`, or exactly `steps` where that is above 0."""

    program: str
    until_ns: int = 0
    steps: int = 0


@dataclass(frozen=True)
class Join:
    """Enter a gang: what is opened from now on is trained by all its ranks together. `world_size` 1 leaves the gang."""

    rank: int
    world_size: int
    rendezvous: str


@dataclass(frozen=True)
class TimeOps:
    """Time the grid of operations, `budget_s` each."""

    budget_s: float
    quick: bool


@dataclass(frozen=True)
class Stretch:
    """`steps` made in `wall_s`, rests included, with `thread_s` of the thread's CPU time."""

    steps: int
    wall_s: float
    thread_s: float

    def steps_per_s(self, seat: Seat, gang: int = 1) -> float:
        """A CPU worker's speed comes from its CPU time, which others on the machine do not lengthen; a GPU's or a gang's from the wall."""
        if gang == 1 and seat.native.startswith("cpu"):
            return self.steps * seat.busy_fraction / self.thread_s
        return self.steps / self.wall_s


def seats_of(cluster: Cluster) -> list[Seat]:
    """One seat a device, in the cluster's order."""
    sheets, index_of = cluster.sheets, cluster.cuda_indices
    return [
        Seat(one.name, one.kind, sheets[one.kind].native, index_of.get(one.name, 0), sheets[one.kind].busy_fraction)
        for one in cluster.devices
    ]


def serve(link: Link, seat: Seat, jobs: Jobs) -> None:
    """A worker: becomes its device and carries out one order after the other until the driver closes the connection."""
    device = enter_device(seat.native, seat.cuda_index)
    opened: dict[str, Job] = {}
    rank, world_size = 0, 1
    link.send(dtypes_of(seat.native))
    while True:
        try:
            order = link.recv()
        except EOFError:
            return
        answer: Any = None
        match order:
            case Join():
                opened.clear()
                jobs.leave()
                rank, world_size = order.rank, order.world_size
                if world_size > 1:
                    jobs.join(device, rank, world_size, order.rendezvous)
            case Open():
                job = opened[order.program] = jobs.open(order.program, device, rank, world_size)
                job.step()
                if order.save:
                    job.save(order.save)
            case Train():
                answer = _train(opened[order.program], order, seat.busy_fraction)
            case TimeOps():
                pacer = Pacer(seat.busy_fraction)
                answer = [time_op(op, shape, device, order.budget_s, pacer.rest) for op, shape in grid(dtypes_of(seat.native), order.quick)]
        link.send(answer)


def first_step(link: Link, seat: Seat, jobs: Jobs, program: str, checkpoint: str) -> None:
    """A worker that goes on from a checkpoint for one step, as a job does that is started anew; reports the time when that step ended."""
    job = jobs.open(program, enter_device(seat.native, seat.cuda_index), 0, 1)
    job.load(checkpoint)
    job.step()
    link.send(time.monotonic_ns())


def _train(job: Job, order: Train, busy_fraction: float) -> Stretch:
    job.step()
    pacer = Pacer(busy_fraction)
    began, began_thread, steps = time.perf_counter(), time.thread_time(), 0
    while steps == 0 or (steps < order.steps if order.steps else time.monotonic_ns() < order.until_ns):
        job.step()
        steps += 1
        pacer.rest()
    return Stretch(steps, time.perf_counter() - began, time.thread_time() - began_thread)


@dataclass(frozen=True)
class Bench:
    """The workers of a cluster, all of them at work together. Make one with `Bench.of`."""

    launcher: Launcher
    seats: Sequence[Seat]
    workers: Sequence[Worker]
    jobs: Jobs
    folder: Path

    @staticmethod
    @contextmanager
    def of(cluster: Cluster, launcher: Launcher, jobs: Jobs) -> Iterator[Bench]:
        """Start one worker a device. Raises ConfigError where this machine cannot be the cluster, EngineError if a worker is lost."""
        check_busy(cluster)
        seats = seats_of(cluster)
        workers: list[Worker] = []
        with tempfile.TemporaryDirectory(prefix="hetsys-profile-") as folder:
            try:
                for seat in seats:
                    workers.append(launcher.start(f"profile {seat.name}", serve, (seat, jobs), worker_env(seat.native)))
                for worker in workers:
                    worker.recv(REPLY_S)
                yield Bench(launcher, seats, workers, jobs, Path(folder))
            finally:
                for worker in workers:
                    worker.stop()

    def ask(self, orders: Sequence[Any]) -> list[Any]:
        """Give each worker its order, all at once, and wait for every answer."""
        for worker, order in zip(self.workers, orders, strict=True):
            worker.send(order)
        return [worker.recv(REPLY_S) for worker in self.workers]

    def open(self, program: str) -> None:
        """Make every worker ready for `program`, and keep a checkpoint of it for `restarts`."""
        self.ask([Open(program, str(self._checkpoint(program)) if i == 0 else "") for i in range(len(self.workers))])

    def train(self, programs: Sequence[str], seconds: float) -> list[Stretch]:
        """Every worker trains its own one of `programs` for `seconds`, all at once; one stretch a worker."""
        until_ns = time.monotonic_ns() + int(seconds * 1e9)
        answers: list[Stretch] = self.ask([Train(program, until_ns) for program in programs])
        return answers

    def time_ops(self, budget_s: float, quick: bool) -> list[list[Timed]]:
        """For each worker the operations that its device was made for, timed."""
        answers: list[list[Timed]] = self.ask([TimeOps(budget_s, quick)] * len(self.workers))
        return answers

    def restarts(self, program: str) -> dict[str, float]:
        """For each kind the seconds from asking for a process to the end of its first step, with a checkpoint loaded; one of each kind at
        once, as at the beginning of a round, while the other workers wait."""
        firsts = {seat.kind: seat for seat in reversed(self.seats)}
        arguments = (self.jobs, program, str(self._checkpoint(program)))
        began: dict[str, int] = {}
        started: dict[str, Worker] = {}
        try:
            for kind, seat in firsts.items():
                began[kind] = time.monotonic_ns()
                started[kind] = self.launcher.start(f"restart {seat.name}", first_step, (seat, *arguments), worker_env(seat.native))
            return {kind: (worker.recv(REPLY_S) - began[kind]) / 1e9 for kind, worker in started.items()}
        finally:
            for worker in started.values():
                worker.stop()

    def train_gangs(
        self, size: int, rates: Mapping[str, Mapping[str, float]], seconds: float, turns: int
    ) -> dict[tuple[str, str], list[Stretch]]:
        """Train each program of `rates` (program -> kind -> steps/s of one device) with one gang of `size` on every kind that has so many
        devices, all gangs at once, in `turns` stretches of about `seconds`. Returns the stretches of rank 0 by (program, kind)."""
        ranks: dict[str, list[int]] = {}
        for i, seat in enumerate(self.seats):
            ranks.setdefault(seat.kind, []).append(i)
        gangs = {kind: members[:size] for kind, members in ranks.items() if len(members) >= size}
        place = {i: (kind, rank) for kind, members in gangs.items() for rank, i in enumerate(members)}
        self._ask_some({i: Join(rank, size, str(self.folder / f"gang-{size}-{kind}")) for i, (kind, rank) in place.items()})
        for program in rates:
            self._ask_some({i: Open(program) for i in place})
        made: dict[tuple[str, str], list[Stretch]] = {(program, kind): [] for program in rates for kind in gangs}
        for program, by_kind in list(rates.items()) * turns:
            orders = {i: Train(program, steps=max(2, int(by_kind[kind] * seconds))) for i, (kind, _) in place.items()}
            answers = self._ask_some(orders)
            for kind, members in gangs.items():
                made[program, kind].append(answers[members[0]])
        self._ask_some({i: Join(0, 1, "") for i in place})
        return made

    def _ask_some(self, orders: Mapping[int, Any]) -> dict[int, Any]:
        for i, order in orders.items():
            self.workers[i].send(order)
        return {i: self.workers[i].recv(REPLY_S) for i in orders}

    def _checkpoint(self, program: str) -> Path:
        return self.folder / f"{program.replace('/', '-')}.pt"
