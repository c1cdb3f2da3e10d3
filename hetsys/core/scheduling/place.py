"""Which devices a granted gang gets: the same placer for every system, so that policies differ in what they decide and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hetsys.core.cluster import Device
from hetsys.core.scheduling.turns import GrantedGang


def place(
    grants: Sequence[GrantedGang], devices: Iterable[Device], kinds: Sequence[str], previous: Mapping[str, tuple[Device, ...]]
) -> dict[str, tuple[Device, ...]]:
    """Devices for each granted job, of its kind, or of each kind as many as its `mix` says; `devices` are those that are up.

    Per kind, large gangs first. A gang that sits on one host stays there. Any other goes to the host that it fills best; where only the
    devices of smaller gangs make room for it on one host, those move, as few as can be (our choice: they restart once, a gang that spans
    hosts is slower in every round). Where no host has room it stays on the devices it had, or else takes the fewest hosts. Gangs of
    several kinds come last.
    """
    hosts = {kind: _Hosts() for kind in kinds}
    for device in devices:
        hosts[device.kind].add(device)
    for grant in grants:
        for device in previous.get(grant.job, ()):  # what is up of it
            if grant.mix or device.kind == kinds[grant.kind]:
                hosts[device.kind].reserve(device, grant.job)
    placed: dict[str, tuple[Device, ...]] = {}
    for grant in sorted(grants, key=lambda grant: (bool(grant.mix), -grant.gang, not _stays(previous.get(grant.job, ()), grant.gang))):
        had = previous.get(grant.job, ())
        parts = grant.mix or tuple(grant.gang * (kind == grant.kind) for kind in range(len(kinds)))
        taken: list[Device] = []
        for kind, count in zip(kinds, parts, strict=True):
            if count:
                taken += hosts[kind].take(grant.job, count, [device for device in had if device.kind == kind])
        placed[grant.job] = had if set(had) == set(taken) else tuple(taken)
    return placed


def _stays(had: Sequence[Device], gang: int) -> bool:
    return len(had) == gang and all(device.node == had[0].node for device in had)


class _Hosts:
    """The devices of one kind that are up and free, by host; some are reserved for a gang that held them and is still to be placed."""

    def __init__(self) -> None:
        self._free: dict[str, dict[str, Device]] = {}
        self._holder: dict[str, str] = {}
        self._reserved: dict[str, list[Device]] = {}
        self._num_reserved: dict[str, int] = {}

    def add(self, device: Device) -> None:
        self._free.setdefault(device.node, {})[device.name] = device
        self._num_reserved.setdefault(device.node, 0)

    def reserve(self, device: Device, job: str) -> None:
        """Nothing happens where `device` is not up."""
        if device.name in self._free.get(device.node, ()):
            self._holder[device.name] = job
            self._reserved.setdefault(job, []).append(device)
            self._num_reserved[device.node] += 1

    def take(self, job: str, gang: int, had: Sequence[Device]) -> Sequence[Device]:
        """`gang` free devices for `job`, which held `had`; whose reserved devices are among them loses its other reservations."""
        kept = len(had) == gang and all(self._holder.get(device.name) == job for device in had)
        if not (kept and _stays(had, gang)):
            self._release(job)
            if (host := self._one_host(gang)) is not None:
                had = self._of(host, gang)
            elif not kept:
                had = self._few_hosts(gang)
        for device in had:
            self._release(self._holder.get(device.name, job))
            del self._free[device.node][device.name]
        return had

    def _one_host(self, gang: int) -> str | None:
        """The host with room for `gang` on which the fewest reserved devices must be taken, of these the one that it fills best."""
        best: tuple[int, int, str] | None = None
        for node, free in self._free.items():
            if len(free) >= gang:
                taken = max(0, gang - (len(free) - self._num_reserved[node]))
                if best is None or (taken, len(free) - self._num_reserved[node]) < best[:2]:
                    best = (taken, len(free) - self._num_reserved[node], node)
        return best[2] if best else None

    def _few_hosts(self, gang: int) -> list[Device]:
        taken: list[Device] = []
        for node in sorted(self._free, key=lambda node: (-len(self._free[node]), self._num_reserved[node])):
            taken += self._of(node, min(gang - len(taken), len(self._free[node])))
            if len(taken) == gang:
                return taken
        raise AssertionError("the rounding granted more devices than are up")

    def _of(self, node: str, count: int) -> list[Device]:
        """`count` free devices of `node`: those that nobody holds first, then those of the smallest gangs."""
        free = list(self._free[node].values())
        if self._num_reserved[node]:
            free.sort(key=lambda device: len(self._reserved[self._holder[device.name]]) if device.name in self._holder else 0)
        return free[:count]

    def _release(self, job: str) -> None:
        for device in self._reserved.pop(job, ()):
            del self._holder[device.name]
            self._num_reserved[device.node] -= 1
