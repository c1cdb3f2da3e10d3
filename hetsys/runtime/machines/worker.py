"""A worker's main: it does what the driver orders, in that order, for the one or several devices that it hosts, and keeps books."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hetsys.core.devicetime.ledger import Entry, Ledger
from hetsys.core.devicetime.machine import Ticket, Work
from hetsys.core.errors import EngineError
from hetsys.runtime.devices import enter_device
from hetsys.runtime.launch import Link
from hetsys.runtime.machines import wire
from hetsys.runtime.machines.mail import Mail, MailLost
from hetsys.runtime.machines.peers import PeerGone, Peers, combine, open_store
from hetsys.runtime.machines.program import Books, Program
from hetsys.runtime.pacer import Pacer


@dataclass
class _Slot:
    """A device as it lives here."""

    place: wire.Place
    torch_device: str
    program: Program
    books: Books
    pacer: Pacer
    store: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str, wanted_by: str) -> Any:
        if name not in self.store:
            held = ", ".join(sorted(self.store)) or "nothing"
            raise EngineError(f"{self.place.device} has no value {name!r} for {wanted_by}; it holds {held}")
        return self.store[name]

    def keep(self, names: tuple[str, ...], values: Sequence[Any]) -> None:
        self.store.update(zip(names, values, strict=True))

    def forget(self, names: tuple[str, ...]) -> None:
        for name in names:
            self.store.pop(name, None)


class _Inbox:
    """Messages that have come, until the machine's clock says that they have arrived."""

    def __init__(self) -> None:
        self._parcels: dict[Ticket, wire.Parcel] = {}
        self._changed = threading.Condition()

    def put(self, ticket: Ticket, parcel: wire.Parcel) -> None:
        with self._changed:
            self._parcels[ticket] = parcel
            self._changed.notify_all()

    def take(self, ticket: Ticket, timeout_s: float) -> wire.Parcel:
        """Raises PeerGone where it does not come."""
        with self._changed:
            if not self._changed.wait_for(lambda: ticket in self._parcels, timeout_s):
                raise PeerGone(f"message {ticket} did not come within {timeout_s:g} s")
            return self._parcels.pop(ticket)


def main(link: Link, charter: wire.Charter) -> None:
    """The entry of a worker process. An exception of a program ends the process and reaches the driver through the launcher."""
    worker = Worker(link, charter)
    try:
        worker.run()
    except (PeerGone, MailLost) as error:
        worker.report_lost(error)
        threading.Event().wait()  # the driver ends this process once it knows whom to blame
    except Exception:
        worker.fall_silent()
        raise


class Worker:
    """Commands come in by a thread of their own, and so do messages from each peer: devices never wait for what they don't need."""

    def __init__(self, link: Link, charter: wire.Charter) -> None:
        self._link, self._charter = link, charter
        self._link_lock = threading.Lock()
        self._ledger, self._inbox = Ledger(), _Inbox()
        self._commands: queue.SimpleQueue[wire.Command] = queue.SimpleQueue()
        self._slots: dict[str, _Slot] = {}
        self._mail = Mail(charter.secret, self._receive, self.report_lost)
        self._peers: Peers | None = None

    def report(self, message: Any) -> None:
        with self._link_lock:
            self._link.send(message)

    def report_lost(self, error: Exception) -> None:
        self.report(wire.PeerLost(f"{self._charter.name}: {error}"))

    def fall_silent(self) -> None:
        """From here on no thread of ours writes to the driver."""
        self._link_lock.acquire()

    def run(self) -> None:
        charter = self._charter
        threading.Thread(target=self._listen, daemon=True).start()
        for place in charter.places:
            torch_device = enter_device(place.native, place.cuda_index)
            program = charter.program(place.device, torch_device)
            books, pacer = Books(place.device, self._ledger), Pacer(place.busy_fraction)
            self._slots[place.device] = _Slot(place, torch_device, program, books, pacer)
        self._meet()
        while not isinstance(command := self._commands.get(), wire.Stop):
            self._obey(command)
        if self._peers:
            self._peers.close()

    def _meet(self) -> None:
        charter = self._charter
        store = open_store(0, charter.timeout_s) if charter.rank == 0 else None
        self.report(wire.Present(self._mail.address, store.port if store else 0))
        command = self._commands.get()
        assert isinstance(command, wire.Meet)
        self._mail.meet(command.addresses)
        if len(charter.names) > 1:
            store = store or open_store(command.store_port, charter.timeout_s)
            self._peers = Peers(charter.rank, len(charter.names), store, bool(charter.on_cuda), charter.timeout_s)
        self.report(wire.Ready())

    def _obey(self, command: wire.Command) -> None:
        if isinstance(command, wire.Perform):
            self._perform(command)
        elif isinstance(command, wire.Ship):
            self._ship(command)
        elif isinstance(command, wire.Accept):
            self._accept(command)
        elif isinstance(command, wire.Join):
            self._join(command)
        else:
            assert isinstance(command, wire.Settle)
            self.report(wire.Settled(command.number, self._ledger.take()))

    def _perform(self, command: wire.Perform) -> None:
        slot, work = self._slots[command.device], command.work
        values = [slot.get(name, work.call) for name in work.takes]
        start_ns = self._begin(slot)
        result = getattr(slot.program, work.call)(slot.books, *values, *work.args)
        end_ns = self._end(slot)
        parts = _parts(work, result)
        slot.keep(work.gives, parts[: len(work.gives)])
        slot.forget(work.frees)
        if work.returns or self._charter.reports:
            self.report(wire.Finished(command.ticket, start_ns, end_ns, tuple(parts[len(work.gives) :])))

    def _begin(self, slot: _Slot) -> int:
        slot.pacer.resume()
        return time.monotonic_ns()

    def _end(self, slot: _Slot) -> int:
        """When the device is done: its GPU has finished, or its share of the processor's time is used up."""
        if self._charter.reports and slot.torch_device.startswith("cuda"):
            import torch

            torch.cuda.synchronize(slot.torch_device)
        slot.pacer.rest()
        return time.monotonic_ns()

    def _ship(self, command: wire.Ship) -> None:
        slot, work = self._slots[command.source], command.work
        start_ns = time.monotonic_ns()
        values = tuple(slot.get(name, f"a message to {command.target}") for name in work.takes)
        num_bytes = sum(slot.program.bytes_of(name, value) for name, value in zip(work.takes, values, strict=True))
        self._ledger.write(Entry(command.source, "send", num_bytes=num_bytes, peer=command.target))
        parcel = wire.pack((work.takes, values))
        slot.forget(work.frees)
        target_rank = self._charter.rank_of[command.target]
        if target_rank == self._charter.rank:
            self._inbox.put(command.ticket, parcel)
        else:
            self._mail.post(target_rank, command.ticket, start_ns, parcel)

    def _accept(self, command: wire.Accept) -> None:
        slot = self._slots[command.target]
        names, values = wire.unpack(self._inbox.take(command.ticket, self._charter.timeout_s), slot.torch_device)
        num_bytes = sum(slot.program.bytes_of(name, value) for name, value in zip(names, values, strict=True))
        self._ledger.write(Entry(command.target, "receive", num_bytes=num_bytes, peer=command.source))
        slot.keep(command.gives, values)

    def _join(self, command: wire.Join) -> None:
        work, devices, kind = command.work, command.devices, command.kind
        here = [device for device in devices if device in self._slots]
        start_ns = max(self._begin(self._slots[device]) for device in here)
        givers = [device for device in here if kind != "broadcast" or device == devices[0]]
        given = {device: self._slots[device].get(work.takes[0], kind) for device in givers}
        results = self._together(kind, devices, here, given)
        for device in here:
            slot = self._slots[device]
            num_bytes = slot.program.bytes_of(work.takes[0], given.get(device, results[device]))
            self._ledger.write(Entry(device, kind, num_bytes=num_bytes, peer="+".join(devices)))
            slot.keep(work.gives, [results[device]])
            slot.forget(work.frees)
        if self._charter.reports:
            ends_ns = [self._end(self._slots[device]) for device in here]
            self.report(wire.Finished(command.ticket, start_ns, max(ends_ns)))

    def _together(self, kind: str, devices: tuple[str, ...], here: list[str], given: dict[str, Any]) -> dict[str, Any]:
        """The result for each device that lives here: by a real collective where every device has a process of its own."""
        ranks = [self._charter.rank_of[device] for device in devices]
        workers = list(dict.fromkeys(ranks))
        if 1 < len(workers) == len(ranks):
            assert self._peers
            tensor, on_cuda = given.get(here[0]), self._charter.on_cuda.intersection(devices)
            if tensor is not None and 0 < len(on_cuda) < len(devices):
                tensor = tensor.cpu()  # GPUs and processors together: through the host's memory
            return {here[0]: self._peers.collective(kind, ranks, tensor).to(self._slots[here[0]].torch_device)}
        everything = dict(given)
        if len(workers) > 1:
            assert self._peers
            for part in self._peers.gather(workers, given):
                everything |= part
        handed_in = [everything.get(device) for device in devices]
        return {device: combine(kind, handed_in, devices.index(device)) for device in here}

    def _listen(self) -> None:
        """The driver's commands as they come; when the driver is gone, so is this process, whatever it is doing."""
        while True:
            try:
                command = self._link.recv()
            except (EOFError, OSError):
                os._exit(1)
            self._commands.put(command)
            if isinstance(command, wire.Stop):
                return

    def _receive(self, ticket: Ticket, start_ns: int, parcel: wire.Parcel) -> None:
        """A message has come (in a thread of its sender's connection)."""
        self._inbox.put(ticket, parcel)
        if self._charter.reports:
            self.report(wire.Finished(ticket, start_ns, time.monotonic_ns()))


def _parts(work: Work, result: Any) -> Sequence[Any]:
    """The result of `work`, as many things as it promised: those to keep, then the one that the driver wants."""
    promised = len(work.gives) + work.returns
    parts: Sequence[Any] = [] if promised == 0 else [result] if promised == 1 else result
    if len(parts) != promised:
        raise EngineError(f"{work.call} results in {len(parts)} things; its work promises {promised}")
    return parts
