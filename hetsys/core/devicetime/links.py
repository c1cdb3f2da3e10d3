"""Serial resources: what a transfer passes through carries nothing else meanwhile, so three senders into one NIC take three times as long.

A transfer takes all it needs at once or waits. Whoever became ready first goes first, except that nobody waits for a resource that is free:
a transfer that can begin passes one that still waits for something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from hetsys.core.cluster import Cluster, Device, Link

Resource = str
"""One direction of one wire: "nic out <node>", "nic in <node>", "link out <device>", "link in <device>"."""


def route(cluster: Cluster, source: Device, target: Device) -> tuple[Link, tuple[Resource, ...]]:
    """The link that a message crosses and what it holds: both nodes' NICs, or inside a node both devices' own links (PCIe, NVLink)."""
    if source.node == target.node:
        return cluster.intra_node, (f"link out {source.name}", f"link in {target.name}")
    return cluster.inter_node, (f"nic out {source.node}", f"nic in {target.node}")


def shared_by(devices: Sequence[Device]) -> tuple[Resource, ...]:
    """What a collective of `devices` holds: their own links, and the NICs of their nodes where there are several; nothing for one."""
    if len(devices) < 2:
        return ()
    nodes = dict.fromkeys(device.node for device in devices)
    wires = [f"link {way} {device.name}" for device in devices for way in ("out", "in")]
    return (*wires, *(f"nic {way} {node}" for node in nodes for way in ("out", "in") if len(nodes) > 1))


class Links:
    """Who holds what, and who waits. A waiting transfer stands in the queue of one resource that is held, so that work is done only when
    that one is let go."""

    def __init__(self) -> None:
        self._holder: dict[Resource, int] = {}
        self._needs: dict[int, tuple[Resource, ...]] = {}
        self._offered: list[tuple[int, int]] = []
        self._waiting: dict[Resource, list[tuple[int, int]]] = {}
        self._freed: set[Resource] = set()

    def offer(self, ticket: int, ready_ns: int, needs: Iterable[Resource]) -> None:
        """`ticket` is ready and wants `needs`; `grant` tells when it may begin."""
        self._needs[ticket] = tuple(needs)
        heappush(self._offered, (ready_ns, ticket))

    def release(self, ticket: int) -> None:
        """`ticket` lets go of all it holds."""
        for resource in self._needs.pop(ticket):
            assert self._holder.pop(resource) == ticket
            self._freed.add(resource)

    def grant(self) -> list[int]:
        """The tickets that begin now, in the order of (time they became ready, ticket); they hold what they need from here on."""
        granted = []
        while (queue := self._first_queue()) is not None:
            ready_ns, ticket = heappop(queue)
            held = next((resource for resource in self._needs[ticket] if resource in self._holder), None)
            if held is None:
                self._holder.update(dict.fromkeys(self._needs[ticket], ticket))
                granted.append(ticket)
            else:
                heappush(self._waiting.setdefault(held, []), (ready_ns, ticket))
        return granted

    def _first_queue(self) -> list[tuple[int, int]] | None:
        """Of the new offers and the queues of resources that were let go, the one whose head is first in line; None when all are done."""
        self._freed = {resource for resource in self._freed if resource not in self._holder and self._waiting.get(resource)}
        queues = [queue for queue in (self._offered, *(self._waiting[resource] for resource in self._freed)) if queue]
        return min(queues, key=_head, default=None)


def _head(queue: list[tuple[int, int]]) -> tuple[int, int]:
    return queue[0]
