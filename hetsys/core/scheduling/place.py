"""Which devices a granted gang gets: the same placer for every system, so that policies differ in what they decide and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hetsys.core.cluster import Device
from hetsys.core.scheduling.rounding import GrantedGang


def place(
    grants: Sequence[GrantedGang], devices: Iterable[Device], kinds: Sequence[str], previous: Mapping[str, tuple[Device, ...]]
) -> dict[str, tuple[Device, ...]]:
    """Devices for each granted job, all of its kind; `devices` are those that are up.

    Per kind: a gang that sits on one host keeps its devices; then, largest first, each goes to the host that it fills best, or, where no
    host has room, stays on the devices it had, or else takes the fewest hosts.
    """
    placed: dict[str, tuple[Device, ...]] = {}
    for index, kind in enumerate(kinds):
        free: dict[str, list[Device]] = {}
        for device in devices:
            if device.kind == kind:
                free.setdefault(device.node, []).append(device)
        gangs = sorted((grant for grant in grants if grant.kind == index), key=lambda grant: -grant.gang)
        moving = []
        for grant in gangs:
            had = previous.get(grant.job, ())
            if len({device.node for device in had}) == 1 and _all_free(had, kind, free, grant.gang):
                placed[grant.job] = _take(had, free)
            else:
                moving.append(grant)
        for grant in moving:
            placed[grant.job] = _take(_choose(grant, previous.get(grant.job, ()), kind, free), free)
    return placed


def _all_free(devices: Sequence[Device], kind: str, free: Mapping[str, list[Device]], gang: int) -> bool:
    return len(devices) == gang and all(d.kind == kind and d in free.get(d.node, ()) for d in devices)


def _take(devices: Sequence[Device], free: dict[str, list[Device]]) -> tuple[Device, ...]:
    for device in devices:
        free[device.node].remove(device)
    return tuple(devices)


def _choose(grant: GrantedGang, had: Sequence[Device], kind: str, free: Mapping[str, list[Device]]) -> list[Device]:
    hosts = [node for node, idle in free.items() if len(idle) >= grant.gang]
    if hosts:
        return free[min(hosts, key=lambda node: len(free[node]))][: grant.gang]
    if _all_free(had, kind, free, grant.gang):
        return list(had)
    spread = [device for node in sorted(free, key=lambda node: -len(free[node])) for device in free[node]]
    assert len(spread) >= grant.gang, "the rounding granted more devices than are up"
    return spread[: grant.gang]
