"""The native machine: the same calls on the wall clock, with this machine's own devices. What is done when is what really happened.

The driver holds an operation back until what it waits for on other workers is done; inside one worker, orders are kept in a queue ahead of
time, since it works through them in their order.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hetsys.core.cluster import Cluster
from hetsys.core.costs import Op
from hetsys.core.devicetime.ledger import Entry, Ledger, collective_lines, compute_line, message_lines
from hetsys.core.devicetime.machine import Done, Ticket, Work, given_names
from hetsys.core.errors import ConfigError, EngineError, did_you_mean
from hetsys.runtime.devices import check_busy
from hetsys.runtime.launch import Launcher
from hetsys.runtime.machines import wire
from hetsys.runtime.machines.crew import TIMEOUT_S, Crew, Crewed
from hetsys.runtime.machines.program import ProgramFactory


@dataclass
class _Task:
    """Something submitted. `queues`: the devices in whose queue of orders it stands; `blockers`: what it waits for; `reports`: how many
    workers have still to tell that it is done."""

    ticket: Ticket
    kind: str
    where: str
    devices: tuple[str, ...]
    queues: tuple[str, ...]
    work: Work | None
    lines: tuple[Entry, ...]
    blockers: set[Ticket] = field(default_factory=set)
    dependents: list[_Task] = field(default_factory=list)
    ordered: bool = False
    reports: int = 1
    start_ns: int = 0
    end_ns: int = 0


class NativeMachine(Crewed):
    """One worker process for each device of `cluster`, which has to be native. A completion is known when the driver reads of it: those
    read together come by their end, and `next` may hand out one that ended a little before one handed out earlier.

    Leaving a `with` block closes the machine, or ends its workers at once where an exception passes.
    """

    source = "measured"

    def __init__(self, cluster: Cluster, launcher: Launcher, program: ProgramFactory, timeout_s: float = TIMEOUT_S) -> None:
        """Raises ConfigError where this machine can't be the devices of `cluster`."""
        if not cluster.native:
            raise ConfigError("cluster", cluster.kinds, "has devices that are not of this machine; emulate it")
        check_busy(cluster)
        self.cluster, self.ledger = cluster, Ledger()
        self._timeout_s = timeout_s
        self._submitted = 0
        self._open: dict[Ticket, _Task] = {}
        self._queues: dict[str, deque[_Task]] = {device.name: deque() for device in cluster.devices}
        self._returns: set[Ticket] = set()
        self._out: deque[Done] = deque()
        self._to_consider: deque[_Task] = deque()
        hosts = {device.name: device.name for device in cluster.devices}
        self._crew = Crew(launcher, hosts, _places(cluster), program, reports=True, timeout_s=timeout_s)
        self._began_ns = time.monotonic_ns()

    @property
    def now_ns(self) -> int:
        return time.monotonic_ns() - self._began_ns

    def compute(self, device: str, op: Op, work: Work | None = None, after: Sequence[Ticket] = ()) -> Ticket:
        self._require_device(device)
        return self._submit("compute", device, (device,), (device,), work, (compute_line(device, op),), after)

    def send(self, source: str, target: str, num_bytes: int, work: Work | None = None, after: Sequence[Ticket] = ()) -> Ticket:
        self._require_device(source)
        self._require_device(target)
        assert source != target, f"{source} sends itself a message"
        return self._submit("send", f"{source}->{target}", (source, target), (), work, message_lines(source, target, num_bytes), after)

    def collective(
        self, kind: str, devices: Sequence[str], num_bytes: int, work: Work | None = None, after: Sequence[Ticket] = ()
    ) -> Ticket:
        names = tuple(devices)
        for name in names:
            self._require_device(name)
        assert names and len(set(names)) == len(names), f"{kind} of {names}"
        return self._submit(kind, "+".join(names), names, names, work, collective_lines(kind, names, num_bytes), after)

    def host(self, lane: str, duration_ns: int, after: Sequence[Ticket] = ()) -> Ticket:
        return self._submit("host", lane, (), (), None, (), after)

    def next(self, until_ns: int | None = None) -> Done | None:
        self._crew.require_life()
        silent_since = time.monotonic()
        while not self._out:
            left_s = self._timeout_s if until_ns is None else max(0.0, (until_ns - self.now_ns) / 1e9)
            if until_ns is None and not self._open:
                return None
            news = self._crew.absorb(min(left_s, self._timeout_s))
            self._take_in(news)
            if news:
                silent_since = time.monotonic()
            elif until_ns is not None and self.now_ns >= until_ns:
                return None
            elif until_ns is None and time.monotonic() - silent_since >= self._timeout_s:
                raise EngineError(f"{self._under_way()} did not end within {self._timeout_s:g} s")
        return self._out.popleft()

    def value(self, ticket: Ticket) -> Any:
        known = 0 <= ticket < self._submitted
        assert known and ticket not in self._open, f"the result of operation {ticket} does not exist yet"
        return self._result(ticket)

    def _require_device(self, name: str) -> None:
        if name not in self._queues:
            raise ConfigError("device", name, did_you_mean(name, self._queues))

    def _submit(
        self,
        kind: str,
        where: str,
        devices: tuple[str, ...],
        queues: tuple[str, ...],
        work: Work | None,
        lines: tuple[Entry, ...],
        after: Sequence[Ticket],
    ) -> Ticket:
        assert work is not None or kind == "host", f"{kind} on {where} is charged; its work is missing"
        task = _Task(self._submitted, kind, where, devices, queues, work, lines, reports=max(1, len(queues)))
        self._submitted += 1
        for ticket in after:
            assert 0 <= ticket < task.ticket, f"operation {task.ticket} cannot come after {ticket}"
            earlier = self._open.get(ticket)
            if earlier and not (earlier.ordered and _in_order(earlier, task)):
                earlier.dependents.append(task)
                task.blockers.add(ticket)
        self._open[task.ticket] = task
        for device in queues:
            self._queues[device].append(task)
        self._consider(task)
        return task.ticket

    def _consider(self, task: _Task) -> None:
        """Give the order for `task` if nothing stands before it, and for what it has stood before; however long that row is."""
        self._to_consider.append(task)
        if len(self._to_consider) > 1:
            return
        while self._to_consider:
            self._try(self._to_consider[0])
            self._to_consider.popleft()

    def _try(self, task: _Task) -> None:
        if task.ordered or task.blockers or any(self._queues[device][0] is not task for device in task.queues):
            return
        task.ordered = True
        self._order(task)
        for device in task.queues:
            self._queues[device].popleft()
        if task.kind == "host":
            task.start_ns = task.end_ns = self.now_ns
            self._finish(task)
            return
        self._unblock(task, [later for later in task.dependents if _in_order(task, later)])
        for device in task.queues:
            if self._queues[device]:
                self._consider(self._queues[device][0])

    def _unblock(self, task: _Task, dependents: list[_Task]) -> None:
        for later in dependents:
            later.blockers.discard(task.ticket)
            self._consider(later)

    def _order(self, task: _Task) -> None:
        if task.work is None:
            return
        if task.kind == "send":
            source, target = task.devices
            self.ledger.write(task.lines[0])
            self._crew.order(source, wire.Ship(task.ticket, source, target, task.work))
            return
        for line in task.lines:
            self.ledger.write(line)
        if task.work.returns:
            self._returns.add(task.ticket)
        for device in task.devices:
            if task.kind == "compute":
                self._crew.order(device, wire.Perform(task.ticket, device, task.work))
            else:
                self._crew.order(device, wire.Join(task.ticket, task.kind, task.devices, task.work))

    def _take_in(self, news: Sequence[tuple[str, wire.Finished]]) -> None:
        for _, report in news:
            task = self._open[report.ticket]
            task.start_ns = max(task.start_ns, report.start_ns - self._began_ns)
            task.end_ns = max(task.end_ns, report.end_ns - self._began_ns)
            task.reports -= 1
            if not task.reports:
                self._arrive(task)
                self._finish(task)

    def _arrive(self, task: _Task) -> None:
        if task.kind == "send":
            assert task.work is not None
            source, target = task.devices
            self.ledger.write(task.lines[1])
            self._crew.order(target, wire.Accept(task.ticket, source, target, given_names(task.work)))

    def _finish(self, task: _Task) -> None:
        del self._open[task.ticket]
        self._out.append(Done(task.ticket, task.where, task.start_ns, task.end_ns))
        self._unblock(task, task.dependents)

    def _under_way(self) -> str:
        return ", ".join(f"{task.kind} on {task.where}" for task in list(self._open.values())[:3])


def _in_order(earlier: _Task, later: _Task) -> bool:
    """Whether a worker that has to do `later` gets `earlier` first and works through both in its queue, so that nobody has to wait."""
    return earlier.kind != "send" and not {*_doers(earlier)}.isdisjoint(_doers(later))


def _doers(task: _Task) -> tuple[str, ...]:
    """The devices whose workers have the task in their queue; a message is taken in beside it."""
    return task.devices[:1] if task.kind == "send" else task.devices


def _places(cluster: Cluster) -> list[wire.Place]:
    sheets, index_of = cluster.sheets, cluster.cuda_indices
    return [
        wire.Place(one.name, sheets[one.kind].native, index_of.get(one.name, 0), sheets[one.kind].busy_fraction) for one in cluster.devices
    ]
