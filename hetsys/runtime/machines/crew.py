"""The driver's side of a machine's workers: starting them, giving orders, taking in reports, naming who was lost, settling the books."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self

from hetsys.core.cluster import Cluster
from hetsys.core.devicetime.ledger import Entry, Ledger, mismatches
from hetsys.core.devicetime.machine import Ticket
from hetsys.core.errors import EngineError
from hetsys.runtime.devices import worker_env
from hetsys.runtime.launch import Launcher, Worker
from hetsys.runtime.machines import wire, worker
from hetsys.runtime.machines.program import ProgramFactory

TIMEOUT_S = 300.0
"""How long a driver waits for any one answer, and a worker for its peers, before the run is given up."""
_LOOK_EVERY_S = 0.25
_BLAME_S = 1.0


def spread(cluster: Cluster, num_workers: int) -> dict[str, str]:
    """Device -> name of its worker: the devices, in the cluster's order, in `num_workers` shares as equal as can be. A worker is named
    after its first and last device, so that an error names them."""
    names = [device.name for device in cluster.devices]
    num_workers = min(num_workers, len(names))
    shares: list[list[str]] = [[] for _ in range(num_workers)]
    for index, name in enumerate(names):
        shares[index * num_workers // len(names)].append(name)
    return {name: share[0] if len(share) == 1 else f"{share[0]}..{share[-1]}" for share in shares for name in share}


class Crew:
    """The workers of one machine and what they have reported. Any method may raise EngineError, naming the worker that was lost; after that
    the machine is over and all of its workers are ended."""

    def __init__(
        self,
        launcher: Launcher,
        hosts: Mapping[str, str],
        places: Sequence[wire.Place],
        program: ProgramFactory,
        reports: bool,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`hosts`: device -> worker. `reports`: workers tell of every operation, and `absorb` hands that on."""
        self._launcher, self._timeout_s = launcher, timeout_s
        self._workers: dict[str, Worker] = {}
        self._hosts = dict(hosts)
        self._values: dict[Ticket, Any] = {}
        self._news: list[tuple[str, wire.Finished]] = []
        self._present: dict[str, wire.Present] = {}
        self._ready: set[str] = set()
        self._settled: dict[str, list[Entry]] = {}
        self._done = Ledger()
        self._settlements = 0
        self._looked_s = time.monotonic()
        self._reports = reports
        with self._to_the_end(BaseException):
            self._start(places, program)

    def _start(self, places: Sequence[wire.Place], program: ProgramFactory) -> None:
        names = tuple(dict.fromkeys(self._hosts.values()))
        secret = secrets.token_bytes(32)
        rank_of = {device: names.index(name) for device, name in self._hosts.items()}
        on_cuda = frozenset(place.device for place in places if place.native == "cuda")
        for rank, name in enumerate(names):
            own = tuple(place for place in places if self._hosts[place.device] == name)
            charter = wire.Charter(name, rank, names, own, rank_of, on_cuda, program, secret, self._timeout_s, self._reports)
            env = {key: value for place in own for key, value in worker_env(place.native).items()}
            self._workers[name] = self._launcher.start(name, worker.main, (charter,), env)
        self._wait_until(lambda: len(self._present) == len(names), "to start")
        addresses = {rank: self._present[name].address for rank, name in enumerate(names)}
        for name in names:
            self._worker(name).send(wire.Meet(addresses, self._present[names[0]].store_port))
        self._wait_until(lambda: len(self._ready) == len(names), "to meet each other")

    def order(self, device: str, command: wire.Command) -> None:
        """Send `command` to the worker that hosts `device`; it does not wait."""
        with self._to_the_end():
            self._worker(self._hosts[device]).send(command)

    def look(self) -> None:
        """Notice, a few times a second and without waiting, who has died."""
        if time.monotonic() - self._looked_s > _LOOK_EVERY_S:
            with self._to_the_end():
                self._take_in(0)

    def absorb(self, timeout_s: float) -> list[tuple[str, wire.Finished]]:
        """What workers (by name) have finished, as soon as there is something, at the latest after `timeout_s`; by its end on the clock."""
        if not self._news:
            with self._to_the_end():
                self._take_in(timeout_s)
        news, self._news = self._news, []
        return sorted(news, key=lambda item: item[1].end_ns)

    def value(self, ticket: Ticket) -> Any:
        """The result of `ticket`, waited for; once."""
        with self._to_the_end():
            self._wait_until(lambda: ticket in self._values, f"for the result of operation {ticket}")
        return self._values.pop(ticket)

    def settle(self, ordered: Ledger) -> None:
        """Let every worker finish what it was told, and compare its books with `ordered`, whose open lines are settled thereby.

        Raises EngineError with the lines that differ."""
        with self._to_the_end():
            for line in self._collect_books():
                self._done.write(line)
            wrong = mismatches(ordered, self._done)
            ordered.take()
            self._done.take()
            if wrong:
                raise EngineError("the books do not balance: " + "\n".join(wrong))

    def _collect_books(self) -> list[Entry]:
        self._settlements += 1
        self._settled.clear()
        for name in list(self._workers):
            self._worker(name).send(wire.Settle(self._settlements))
        self._wait_until(lambda: len(self._settled) == len(self._workers), "for the books")
        return [line for lines in self._settled.values() for line in lines]

    def close(self) -> None:
        """End the workers, who have nothing left to do. Safe to call twice."""
        with suppress(EngineError):
            for process in self._workers.values():
                process.send(wire.Stop())
            for process in self._workers.values():
                process.stop()
        self.abandon()

    def abandon(self) -> None:
        """End the workers at once, whatever they do."""
        for process in self._workers.values():
            process.kill()
        self._workers.clear()

    @property
    def closed(self) -> bool:
        return not self._workers

    def _worker(self, name: str) -> Worker:
        self.require_life()
        return self._workers[name]

    def require_life(self) -> None:
        """Raise EngineError once the machine is over."""
        if self.closed:
            raise EngineError("this machine is over: its workers have ended")

    @contextmanager
    def _to_the_end(self, errors: type[BaseException] = EngineError) -> Iterator[None]:
        """What fails once ends it all: the others may wait for what will never come."""
        try:
            yield
        except errors:
            self.abandon()
            raise

    def _wait_until(self, reached: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + self._timeout_s
        while not reached():
            if self._take_in(max(0.0, deadline_s - time.monotonic())):
                deadline_s = time.monotonic() + self._timeout_s
            elif time.monotonic() >= deadline_s:
                raise EngineError(f"no worker of {', '.join(self._workers)} said anything for {self._timeout_s:g} s; waited {what}")

    def _take_in(self, timeout_s: float) -> bool:
        """Read what has come, after waiting up to `timeout_s` for something; whether there was anything."""
        self.require_life()
        self._looked_s = time.monotonic()
        ready = self._launcher.wait(list(self._workers.values()), timeout_s)
        for process in ready:
            self._handle(process, process.recv(self._timeout_s))
        return bool(ready)

    def _handle(self, process: Worker, message: Any) -> None:
        if isinstance(message, wire.Finished):
            self._news += [(process.name, message)] if self._reports else []
            if message.result:
                (self._values[message.ticket],) = message.result
        elif isinstance(message, wire.Settled):
            assert message.number == self._settlements
            self._settled[process.name] = message.lines
        elif isinstance(message, wire.Present):
            self._present[process.name] = message
        elif isinstance(message, wire.Ready):
            self._ready.add(process.name)
        else:
            self._blame(message)

    def _blame(self, report: wire.PeerLost) -> None:
        """A transfer broke off: raise the error of the worker that died, which the others only noticed; else what was reported."""
        deadline_s = time.monotonic() + _BLAME_S
        while (left_s := deadline_s - time.monotonic()) > 0:
            for process in self._launcher.wait(list(self._workers.values()), left_s):
                process.recv(self._timeout_s)
        raise EngineError(report.text)


class Crewed:
    """What the machines that have workers share: leaving a `with` block closes the machine, or ends its workers at once where an exception
    passes."""

    ledger: Ledger
    _crew: Crew
    _returns: set[Ticket]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self.close()
        else:
            self._crew.abandon()

    def settle(self) -> None:
        self._crew.settle(self.ledger)

    def close(self) -> None:
        if self._crew.closed:
            return
        try:
            self.settle()
        finally:
            self._crew.close()

    def _result(self, ticket: Ticket) -> Any:
        """What the operation `ticket`, which is done, returned; once."""
        assert ticket in self._returns, f"operation {ticket} returns nothing, or was asked before"
        self._returns.remove(ticket)
        return self._crew.value(ticket)
