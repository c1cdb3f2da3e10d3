"""Clusters and costs with round numbers, so that times can be worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass

from hetsys.core.cluster import Cluster, DeviceSheet, Link, NodeGroup
from hetsys.core.costs import Op, Provenance
from hetsys.core.devicetime.machine import Done, Machine

US = 1_000


def sheet(native: str = "", busy_fraction: float = 1.0) -> DeviceSheet:
    return DeviceSheet("a device", 1 << 30, 1e9, {"fp32": 1e9}, 0.0, 0.0, "2024-01", native=native, busy_fraction=busy_fraction)


def cluster_of(*nodes: NodeGroup, intra: Link | None = None, inter: Link | None = None, native: str = "") -> Cluster:
    """1 byte a nanosecond between nodes and 10 inside them, without latency, unless given. A native CPU worker computes a fifth of the
    time, so that four of them are allowed on the smallest machine."""
    made = sheet(native, 0.2 if native else 1.0)
    return Cluster(nodes, {group.kind: made for group in nodes}, intra or Link(10e9), inter or Link(1e9))


@dataclass(frozen=True)
class Linear:
    """An operation takes a microsecond for each of its rows, times the kind's factor: `slower` for the kinds that it names."""

    slower: tuple[tuple[str, float], ...] = ()

    @property
    def hash(self) -> str:
        return repr(self.slower)

    @property
    def provenance(self) -> Provenance:
        return Provenance("derived", "made up for tests")

    def duration_s(self, device_kind: str, op: Op) -> float:
        return op.rows * 1e-6 * dict(self.slower).get(device_kind, 1.0)


def op(rows: int, kind: str = "work") -> Op:
    return Op(kind, rows=rows)


def drain(machine: Machine) -> list[Done]:
    """Every completion until nothing is under way."""
    dones = []
    while (done := machine.next()) is not None:
        dones.append(done)
    return dones


def spans(dones: list[Done]) -> dict[int, tuple[float, float]]:
    """ticket -> (start, end) in microseconds."""
    return {done.ticket: (done.start_ns / US, done.end_ns / US) for done in dones}
