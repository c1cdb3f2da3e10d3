"""Random programs for a machine: operations, messages and collectives on two hosts of two devices, each with values that can be checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from hetsys.core.cluster import Cluster, Link, NodeGroup
from hetsys.core.devicetime.machine import Done, Machine, Ticket, Work
from hetsys.runtime.machines.program import Books, Program
from tests.devicetime.frames import cluster_of, op

DEVICES = ("slow-0-0", "slow-0-1", "fast-0-0", "fast-0-1")
SHARED = 6


def two_hosts() -> Cluster:
    return cluster_of(NodeGroup("slow", 2), NodeGroup("fast", 2), intra=Link(4e9, 1e-9), inter=Link(1e9, 5e-9))


@dataclass(frozen=True)
class Item:
    """What to submit. `steps`: completions to take in before. `after`: earlier items. `takes`: those whose values it uses (at its first
    device)."""

    kind: str
    devices: tuple[str, ...]
    rows: int
    after: tuple[int, ...]
    takes: tuple[int, ...]
    steps: int


def holds(items: list[Item], index: int) -> tuple[str, ...]:
    """Where the value of an item lies."""
    item = items[index]
    return item.devices[1:] if item.kind == "send" else item.devices


@st.composite
def programs(draw: st.DrawFn) -> list[Item]:
    """Up to 14 items after one on each device; messages carry a value that lies at their source."""
    items = [Item("compute", (device,), SHARED, (), (), 0) for device in DEVICES]
    for _ in range(draw(st.integers(0, 14))):
        kind = draw(st.sampled_from(["compute", "compute", "send", "send", "all_reduce"]))
        rows, steps = draw(st.integers(0, 5)), draw(st.sampled_from([0, 0, 0, 1, 3]))
        devices = tuple(draw(st.permutations(DEVICES))[: {"compute": 1, "send": 2}.get(kind, draw(st.integers(1, 4)))])
        earlier = range(len(items))
        near = [i for i in earlier if devices[0] in holds(items, i)]
        takes: tuple[int, ...] = ()
        if kind == "compute":
            takes = tuple(draw(st.sets(st.sampled_from(near), max_size=3)))
        elif kind == "send":
            takes = (draw(st.sampled_from(near)),)
            rows = items[takes[0]].rows
        else:
            rows = SHARED
        after = draw(st.sets(st.sampled_from(earlier), max_size=3)) | set(takes)
        after |= set(range(len(DEVICES))) if kind == "all_reduce" else set()
        items.append(Item(kind, devices, rows, tuple(sorted(after)), takes, steps))
    return items


def run(machine: Machine, items: list[Item]) -> tuple[list[Done], Mapping[int, float]]:
    """Completions in order, and what each operation made, by the number of its item."""
    dones: list[Done] = []
    tickets: list[Ticket] = []
    for item in items:
        for _ in range(item.steps):
            if (done := machine.next()) is not None:
                dones.append(done)
        tickets.append(_submit(machine, len(tickets), item, tickets))
    while (done := machine.next()) is not None:
        dones.append(done)
    return dones, {i: machine.value(tickets[i]) for i, item in enumerate(items) if item.kind == "compute"}


def _submit(machine: Machine, index: int, item: Item, tickets: list[Ticket]) -> Ticket:
    takes, gives = tuple(f"v{i}" for i in item.takes), (f"v{index}",)
    after = [tickets[i] for i in item.after]
    if index < len(DEVICES):
        return machine.compute(item.devices[0], op(item.rows, "make"), Work("begin", (index,), gives=(*gives, "shared"), returns=True))
    if item.kind == "compute":
        work = Work("make", (index, item.rows), takes, gives, returns=True)
        return machine.compute(item.devices[0], op(item.rows, "make"), work, after)
    if item.kind == "send":
        return machine.send(*item.devices, 8 * item.rows, Work(takes=takes, gives=gives), after)
    shared = Work(takes=("shared",), gives=gives)
    return machine.collective(item.kind, item.devices, 8 * SHARED, shared, after)


def expected_values(items: list[Item]) -> dict[int, float]:
    """The sum of every item's value, by plain arithmetic."""
    sums: dict[int, float] = {}
    for index, item in enumerate(items):
        if item.kind == "compute":
            sums[index] = item.rows * (sum(sums[i] for i in item.takes) % 1000 + index)
        elif item.kind == "send":
            sums[index] = sums[item.takes[0]]
        else:
            sums[index] = SHARED * sum(1 + DEVICES.index(device) for device in item.devices)
    return {index: total for index, total in sums.items() if items[index].kind == "compute"}


class Maker(Program):
    """Makes vectors of as many numbers as an operation has rows. `delay_s`: how long each takes at most, in real time."""

    def __init__(self, device: str, delay_s: float) -> None:
        import random

        self._device, self._delay_s, self._random = device, delay_s, random.Random(device)

    def begin(self, books: Books, index: int) -> Any:
        """The device's first value, and what it hands into every collective."""
        import torch

        made, total = self.make(books, index, SHARED)
        return made, torch.full((SHARED,), 1.0 + DEVICES.index(self._device), dtype=torch.float64), total

    def make(self, books: Books, *values_then_args: Any) -> Any:
        import time

        import torch

        *values, index, rows = values_then_args
        time.sleep(self._random.uniform(0, self._delay_s))
        made = torch.full((rows,), sum(float(value.sum()) for value in values) % 1000 + index, dtype=torch.float64)
        books.note("make", rows=made.shape[0])
        return made, float(made.sum())


@dataclass(frozen=True)
class Makers:
    """Makes the program of each device."""

    delay_s: float = 0.0

    def __call__(self, device: str, torch_device: str) -> Program:
        return Maker(device, self.delay_s)
