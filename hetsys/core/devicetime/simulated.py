"""The simulated machine: device time kept by an event heap, with nothing executed. The emulated machine is this one, and executes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hetsys.core.cluster import Cluster, Device
from hetsys.core.costs import CostModel, Op
from hetsys.core.devicetime.collectives import CollectiveCost, Formulas
from hetsys.core.devicetime.heap import EventHeap, to_ns
from hetsys.core.devicetime.ledger import Entry, Ledger, collective_lines, compute_line, message_lines
from hetsys.core.devicetime.links import Links, Resource, route, shared_by
from hetsys.core.devicetime.machine import Done, Ticket, Work, given_names
from hetsys.core.errors import ConfigError, did_you_mean


@dataclass
class Task:
    """Something submitted: it stands in `streams`, needs `wires`, keeps both for `hold_ns`, and is done `latency_ns` after that."""

    kind: str
    where: str
    streams: tuple[str, ...]
    hold_ns: int
    wires: tuple[Resource, ...] = ()
    latency_ns: int = 0
    devices: tuple[str, ...] = ()
    work: Work | None = None
    lines_at_start: tuple[Entry, ...] = ()
    lines_at_end: tuple[Entry, ...] = ()
    ticket: Ticket = -1
    missing: int = 0
    dependents: list[Task] = field(default_factory=list)
    start_ns: int = -1


class SimMachine:
    """A machine whose durations are `cost.duration_s(kind, op)`, rounded to the nanosecond, and whose messages and collectives are priced
    from the cluster's links (`collectives`: formulas unless given).

    `ledger` holds what was ordered, line by line, in the order in which it begins (a "receive" where it has arrived); without
    `keep_ledger`, for runs of millions of operations, it stays empty.
    """

    source = "simulated"

    def __init__(self, cluster: Cluster, cost: CostModel, collectives: CollectiveCost | None = None, keep_ledger: bool = True) -> None:
        self.cluster = cluster
        self.ledger = Ledger()
        self.busy_ns: Counter[str] = Counter()
        self._cost, self._collectives = cost, collectives or Formulas.of(cluster)
        self._keep_ledger = keep_ledger
        self._devices = {device.name: device for device in cluster.devices}
        self._now_ns = 0
        self._submitted = 0
        self._open: dict[Ticket, Task] = {}
        self._making: dict[tuple[str, str], set[Ticket]] = {}
        self._streams: dict[str, deque[Task]] = {}
        self._links = Links()
        self._heap: EventHeap[tuple[Task, bool]] = EventHeap()
        self._out: deque[Done] = deque()

    @property
    def now_ns(self) -> int:
        return self._now_ns

    def compute(self, device: str, op: Op, work: Work | None = None, after: Sequence[Ticket] = ()) -> Ticket:
        hold_ns = to_ns(self._cost.duration_s(self._device(device).kind, op))
        lines = (compute_line(device, op),)
        return self._submit(Task("compute", device, (device,), hold_ns, devices=(device,), work=work, lines_at_start=lines), after)

    def send(self, source: str, target: str, num_bytes: int, work: Work | None = None, after: Sequence[Ticket] = ()) -> Ticket:
        assert source != target, f"{source} sends itself a message"
        link, wires = route(self.cluster, self._device(source), self._device(target))
        sent, received = message_lines(source, target, num_bytes)
        task = Task(
            "send",
            f"{source}->{target}",
            streams=(),
            hold_ns=to_ns(num_bytes / link.bandwidth_bytes_per_s),
            wires=wires,
            latency_ns=to_ns(link.latency_s),
            devices=(source, target),
            work=work,
            lines_at_start=(sent,),
            lines_at_end=(received,),
        )
        return self._submit(task, after)

    def collective(
        self, kind: str, devices: Sequence[str], num_bytes: int, work: Work | None = None, after: Sequence[Ticket] = ()
    ) -> Ticket:
        members = [self._device(name) for name in devices]
        names = tuple(devices)
        assert names and len(set(names)) == len(names), f"{kind} of {names}"
        hold_ns = to_ns(self._collectives.duration_s(kind, members, num_bytes))
        lines = collective_lines(kind, names, num_bytes)
        wires = shared_by(members)
        return self._submit(Task(kind, "+".join(names), names, hold_ns, wires, devices=names, work=work, lines_at_start=lines), after)

    def host(self, lane: str, duration_ns: int, after: Sequence[Ticket] = ()) -> Ticket:
        assert duration_ns >= 0, f"{lane}: {duration_ns} ns"
        return self._submit(Task("host", lane, (f"host {lane}",), duration_ns), after)

    def next(self, until_ns: int | None = None) -> Done | None:
        assert until_ns is None or until_ns >= self._now_ns, f"the clock shows {self._now_ns} ns; it does not go back to {until_ns}"
        while not self._out:
            due_ns = self._heap.next_ns
            if due_ns is None or (until_ns is not None and due_ns > until_ns):
                assert until_ns is not None or not self._open, "operations wait for each other"
                self._now_ns = self._now_ns if until_ns is None else until_ns
                return None
            self._advance()
        return self._out.popleft()

    def value(self, ticket: Ticket) -> Any:
        self._require_done(ticket)
        return None

    def settle(self) -> None:
        """Nothing was executed, so there is nothing to compare."""

    def close(self) -> None:
        """Nothing to release."""

    def _require_done(self, ticket: Ticket) -> None:
        known = 0 <= ticket < self._submitted
        assert known and ticket not in self._open, f"the result of operation {ticket} does not exist yet at {self._now_ns} ns"

    def _device(self, name: str) -> Device:
        if name not in self._devices:
            raise ConfigError("device", name, did_you_mean(name, self._devices))
        return self._devices[name]

    def _submit(self, task: Task, after: Sequence[Ticket]) -> Ticket:
        task.ticket = self._submitted
        self._submitted += 1
        for earlier in after:
            assert 0 <= earlier < task.ticket, f"operation {task.ticket} cannot come after {earlier}"
            if earlier in self._open:
                self._open[earlier].dependents.append(task)
                task.missing += 1
        for stream in task.streams:
            self._streams.setdefault(stream, deque()).append(task)
        self._open[task.ticket] = task
        for value in _made_by(task):
            self._making.setdefault(value, set()).add(task.ticket)
        self._consider(task)
        self._begin_what_can()
        return task.ticket

    def _consider(self, task: Task) -> None:
        """Offer `task` to the wires if nothing before it is missing: called whenever that may have become true, which it does once."""
        if not task.missing and all(self._streams[stream][0] is task for stream in task.streams):
            self._links.offer(task.ticket, self._now_ns, task.wires)

    def _begin_what_can(self) -> None:
        for ticket in self._links.grant():
            task = self._open[ticket]
            task.start_ns = self._now_ns
            self._require_values(task)
            for stream in task.streams:
                self.busy_ns[stream] += task.hold_ns
            self._write(task.lines_at_start)
            self._begun(task)
            end_ns = self._now_ns + task.hold_ns
            if task.latency_ns:
                self._heap.push(end_ns, ticket, (task, False))
            self._heap.push(end_ns + task.latency_ns, ticket, (task, True))

    def _require_values(self, task: Task) -> None:
        """A value that is still being made, or under way, cannot be taken: the engine forgot to say what `task` comes after."""
        for device, name in _taken_by(task):
            makers = [ticket for ticket in self._making.get((device, name), ()) if ticket < task.ticket]
            assert not makers, f"{task.kind} {task.ticket} on {task.where} takes {name!r}, still made by {makers[0]}: put that into `after`"

    def _advance(self) -> None:
        """Move the clock to the next instant: first all that ends there, then all that can begin there."""
        self._now_ns, events = self._heap.pop_instant()
        for task, arrived in events:
            if not (arrived and task.latency_ns):
                self._links.release(task.ticket)
            if arrived:
                self._finish(task)
        self._begin_what_can()

    def _finish(self, task: Task) -> None:
        del self._open[task.ticket]
        for value in _made_by(task):
            self._making[value].discard(task.ticket)
            if not self._making[value]:
                del self._making[value]
        self._write(task.lines_at_end)
        self._ended(task)
        for stream in task.streams:
            queue = self._streams[stream]
            assert queue.popleft() is task
            if queue:
                self._consider(queue[0])
        for dependent in task.dependents:
            dependent.missing -= 1
            self._consider(dependent)
        self._out.append(Done(task.ticket, task.where, task.start_ns, self._now_ns))

    def _write(self, lines: tuple[Entry, ...]) -> None:
        if self._keep_ledger:
            for line in lines:
                self.ledger.write(line)

    def _begun(self, task: Task) -> None:
        """What a machine that executes does when `task` begins on the clock."""

    def _ended(self, task: Task) -> None:
        """What a machine that executes does when `task` is done on the clock."""


def _made_by(task: Task) -> list[tuple[str, str]]:
    """(device, name) of the values that `task` makes: those of a message at its target, the others where they run."""
    if task.work is None:
        return []
    names = given_names(task.work) if task.kind == "send" else task.work.gives
    return [(device, name) for device in (task.devices[1:] if task.kind == "send" else task.devices) for name in names]


def _taken_by(task: Task) -> list[tuple[str, str]]:
    """(device, name) of the values that `task` takes: those of a message or a broadcast at the first device only."""
    if task.work is None:
        return []
    takers = task.devices[:1] if task.kind in ("send", "broadcast") else task.devices
    return [(device, name) for device in takers for name in task.work.takes]
