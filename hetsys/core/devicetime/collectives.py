"""What a collective costs: named ring and tree formulas over the cluster's links, or a table of measured ones.

`num_bytes` is always what one device hands in: its whole tensor for all_reduce, reduce_scatter, broadcast and all_to_all, its own share for
all_gather.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from math import ceil, log2
from typing import Protocol

from hetsys.core.cluster import Cluster, Device, Link
from hetsys.core.costs import ProfileTable, Provenance
from hetsys.core.errors import ConfigError, check_choice

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
ALL_REDUCE = ("ring", "tree")


class CollectiveCost(Protocol):
    """What simulators and planners ask for a collective's duration."""

    @property
    def hash(self) -> str:
        """Hash of everything that decides a duration."""
        ...

    @property
    def provenance(self) -> Provenance: ...

    def duration_s(self, kind: str, devices: Sequence[Device], num_bytes: float) -> float:
        """Seconds of one collective `kind` of COLLECTIVES among `devices`; 0 for a single device. Raises ConfigError for another kind."""
        ...


@dataclass(frozen=True)
class Formulas:
    """Textbook costs with n devices, B bytes a device, bandwidth W and latency L of the slowest link that is crossed.

    - all_reduce "ring": 2 (n-1) (B/n/W + L); "tree" (binomial, reduce then broadcast, one after the other): twice a broadcast
    - all_gather: (n-1) (B/W + L), ring; reduce_scatter: (n-1) (B/n/W + L), ring
    - broadcast: binomial tree, first between nodes, then inside them: for each level its ceil(log2) rounds of B/W + L
    - all_to_all: pairwise; (n-1) L plus the time of the busiest wire: the k devices of a node send k (n-k) B/n through its NIC, and each of
      them (k-1) B/n through its own link

    After Thakur, Rabenseifner and Gropp (2005), "Optimization of Collective Communication Operations in MPICH".
    """

    intra_node: Link
    inter_node: Link
    all_reduce: str = "ring"

    def __post_init__(self) -> None:
        check_choice("collectives.all_reduce", self.all_reduce, ALL_REDUCE)

    @staticmethod
    def of(cluster: Cluster, all_reduce: str = "ring") -> Formulas:
        return Formulas(cluster.intra_node, cluster.inter_node, all_reduce)

    @property
    def hash(self) -> str:
        return hashlib.sha256(repr(astuple(self)).encode()).hexdigest()[:16]

    @property
    def provenance(self) -> Provenance:
        return Provenance("derived", f"ring and tree formulas over the cluster's links (all_reduce: {self.all_reduce})")

    def duration_s(self, kind: str, devices: Sequence[Device], num_bytes: float) -> float:
        check_choice("collective", kind, COLLECTIVES)
        if len(devices) < 2:
            return 0.0
        formulas: dict[str, Callable[[Sequence[Device], float], float]] = {
            "all_reduce": self._tree_all_reduce if self.all_reduce == "tree" else self._ring_all_reduce,
            "all_gather": self._all_gather,
            "reduce_scatter": self._reduce_scatter,
            "broadcast": self._broadcast,
            "all_to_all": self._all_to_all,
        }
        return formulas[kind](devices, num_bytes)

    def _ring_step_s(self, devices: Sequence[Device], num_bytes: float) -> float:
        """Every device passes `num_bytes` to the next; devices of one node sit side by side, so that each NIC carries one message a way."""
        return self._slowest(devices).duration_s(num_bytes)

    def _ring_all_reduce(self, devices: Sequence[Device], num_bytes: float) -> float:
        return 2 * self._reduce_scatter(devices, num_bytes)

    def _reduce_scatter(self, devices: Sequence[Device], num_bytes: float) -> float:
        return (len(devices) - 1) * self._ring_step_s(devices, num_bytes / len(devices))

    def _all_gather(self, devices: Sequence[Device], num_bytes: float) -> float:
        return (len(devices) - 1) * self._ring_step_s(devices, num_bytes)

    def _broadcast(self, devices: Sequence[Device], num_bytes: float) -> float:
        counts = _devices_by_node(devices)
        between = _rounds(len(counts)) * self.inter_node.duration_s(num_bytes)
        return between + _rounds(max(counts)) * self.intra_node.duration_s(num_bytes)

    def _tree_all_reduce(self, devices: Sequence[Device], num_bytes: float) -> float:
        return 2 * self._broadcast(devices, num_bytes)

    def _all_to_all(self, devices: Sequence[Device], num_bytes: float) -> float:
        n, counts = len(devices), _devices_by_node(devices)
        through_nic_s = max(k * (n - k) for k in counts) * num_bytes / n / self.inter_node.bandwidth_bytes_per_s
        inside_node_s = (max(counts) - 1) * num_bytes / n / self.intra_node.bandwidth_bytes_per_s
        return (n - 1) * self._slowest(devices).latency_s + max(through_nic_s, inside_node_s)

    def _slowest(self, devices: Sequence[Device]) -> Link:
        """The link that sets the pace: between nodes where there are several."""
        return self.inter_node if len(_devices_by_node(devices)) > 1 else self.intra_node


@dataclass(frozen=True)
class Measured:
    """A table with keys (cluster, collective, num_workers, devices_per_node) and the axis num_bytes, read for one of its clusters.

    Raises ConfigError where the table has no row for as many devices a node, InfeasiblePlan beyond its range; nothing is made up.
    """

    table: ProfileTable
    cluster: str

    def __post_init__(self) -> None:
        wanted = ("cluster", "collective", "num_workers", "devices_per_node"), ("num_bytes",)
        if (self.table.key_names, self.table.axis_names) != wanted:
            raise ConfigError("collectives.table", (self.table.key_names, self.table.axis_names), f"must have keys and axes {wanted}")
        check_choice("collectives.cluster", self.cluster, {key[0] for key in self.table.keys})

    @property
    def hash(self) -> str:
        return hashlib.sha256(f"{self.table.hash} {self.cluster}".encode()).hexdigest()[:16]

    @property
    def provenance(self) -> Provenance:
        return self.table.provenance

    def duration_s(self, kind: str, devices: Sequence[Device], num_bytes: float) -> float:
        check_choice("collective", kind, COLLECTIVES)
        if len(devices) < 2:
            return 0.0
        per_node = max(_devices_by_node(devices))
        return self.table.at((self.cluster, kind, str(len(devices)), str(per_node)), num_bytes).seconds


def _devices_by_node(devices: Sequence[Device]) -> list[int]:
    nodes = [device.node for device in devices]
    return [nodes.count(node) for node in dict.fromkeys(nodes)]


def _rounds(participants: int) -> int:
    """Rounds of a binomial tree, in each of which everyone who has the data passes it on once."""
    return ceil(log2(participants))
