"""A program with a choice of faults, and what the tests of both executing machines share."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hetsys.core.cluster import Cluster, NodeGroup
from hetsys.core.devicetime.collectives import COLLECTIVES
from hetsys.core.devicetime.machine import Machine, Ticket, Work
from hetsys.runtime.machines.program import Books, Program
from tests.devicetime.frames import cluster_of, drain, op

WIDTH, BYTES_PER_ROW = 2, 100
D0, D1, D2 = "d-0-0", "d-1-0", "d-2-0"


def three_hosts(native: str = "") -> Cluster:
    return cluster_of(NodeGroup("d", 1, 3), native=native)


@dataclass(frozen=True)
class Faulty:
    """Makes programs of which the one on `device` has `fault` in every operation whose number is `at`."""

    fault: str = ""
    device: str = D1
    at: int = 1

    def __call__(self, device: str, torch_device: str) -> Program:
        return Rows(self.fault if device == self.device else "", self.at)


class Rows(Program):
    """Works on tensors of some rows. The model that runs is thinner than the one that is charged: a row weighs BYTES_PER_ROW."""

    def __init__(self, fault: str, at: int) -> None:
        self.fault, self.at = fault, at

    def bytes_of(self, name: str, value: Any) -> int:
        return int(value.shape[0]) * BYTES_PER_ROW

    def begin(self, books: Books, rows: int, fill: float = 1.0) -> Any:
        import torch

        books.note("begin", rows=rows)
        return torch.full((rows, WIDTH), fill, dtype=torch.float64)

    def ramp(self, books: Books, rows: int, fill: float) -> Any:
        """Row i is filled with `fill` + 10 i."""
        import torch

        books.note("ramp", rows=rows)
        return (fill + 10.0 * torch.arange(rows, dtype=torch.float64))[:, None].expand(rows, WIDTH).contiguous()

    def show(self, books: Books, rows: Any) -> list[float]:
        books.note("show", rows=rows.shape[0])
        return [float(value) for value in rows[:, 0]]

    def double(self, books: Books, rows: Any, number: int) -> Any:
        fault = self.fault if number == self.at else ""
        if fault == "skips":
            return rows
        if fault == "raises":
            raise ValueError("these weights\nare broken")
        if fault == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "hangs":
            time.sleep(600)
        for _ in range(2 if fault == "doubles" else 1):
            rows = self._double(books, rows[:-1] if fault == "loses a row" else rows)
        return rows

    def _double(self, books: Books, rows: Any) -> Any:
        books.note("double", rows=rows.shape[0])
        return rows * 2

    def total(self, books: Books, rows: Any) -> float:
        books.note("total", rows=rows.shape[0])
        return float(rows.sum())

    def nothing(self, books: Books) -> None:
        books.note("nothing")


def chain(machine: Machine, rounds: int, devices: Sequence[str] = (D0, D1, D2), rows: int = 3) -> Ticket:
    """Rows are doubled on one device after the other, `rounds` times; the ticket of their total. Doublings count from 0 on each device."""
    last = machine.compute(devices[0], op(rows, "begin"), Work("begin", (rows,), gives=("x",)))
    for number in range(rounds):
        for index, device in enumerate(devices):
            there = devices[(index + 1) % len(devices)]
            work = Work("double", (number,), ("x",), ("x",))
            done = machine.compute(device, op(rows, "double"), work, after=[last])
            last = machine.send(device, there, rows * BYTES_PER_ROW, Work(takes=("x",)), after=[done])
    return machine.compute(devices[0], op(rows, "total"), Work("total", takes=("x",), returns=True), after=[last])


def total_of(rounds: int, devices: int = 3, rows: int = 3) -> float:
    return float(rows * WIDTH * 2 ** (rounds * devices))


def collectives(machine: Machine, devices: Sequence[str]) -> dict[str, list[list[float]]]:
    """Every collective once: the k-th of `devices` hands in k, k + 10, k + 20 ... (from 1). The first column of each one's result."""
    size = len(devices)
    for fill, name in enumerate(devices, 1):
        machine.compute(name, op(size, "ramp"), Work("ramp", (size, float(fill)), gives=("x",)))
    for kind in COLLECTIVES:
        machine.collective(kind, devices, size * BYTES_PER_ROW, Work(takes=("x",), gives=(kind,)))
    rows = {"all_gather": size * size, "reduce_scatter": 1}
    shown = {
        kind: [machine.compute(name, op(rows.get(kind, size), "show"), Work("show", takes=(kind,), returns=True)) for name in devices]
        for kind in COLLECTIVES
    }
    drain(machine)
    return {kind: [machine.value(ticket) for ticket in tickets] for kind, tickets in shown.items()}


def expected_collectives(size: int) -> dict[str, list[list[float]]]:
    """What `collectives` finds, by the definitions."""
    given = [[k + 10.0 * row for row in range(size)] for k in range(1, size + 1)]
    total = [sum(column) for column in zip(*given, strict=True)]
    return {
        "all_reduce": [total] * size,
        "all_gather": [[value for part in given for value in part]] * size,
        "reduce_scatter": [[value] for value in total],
        "broadcast": [given[0]] * size,
        "all_to_all": [[part[index] for part in given] for index in range(size)],
    }
