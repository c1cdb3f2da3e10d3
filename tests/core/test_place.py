"""The placer: keep what is held, large gangs first, few hosts."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from hetsys.core.cluster import Device
from hetsys.core.scheduling.place import place
from hetsys.core.scheduling.turns import GrantedGang
from tests.engines.builders import cluster


def test_previous_devices_are_kept_and_the_rest_packs_tightly() -> None:
    devices = cluster(slow=(2, 4)).devices
    held = {"old": (devices[1],)}
    grants = [GrantedGang("pair", 2, 0), GrantedGang("four", 4, 0), GrantedGang("old", 1, 0)]
    placed = place(grants, devices, ("slow",), held)
    assert placed["old"] == (devices[1],)
    assert {d.node for d in placed["four"]} == {"slow-1"}
    assert {d.node for d in placed["pair"]} == {"slow-0"}


def test_a_gang_that_spans_hosts_is_gathered_and_smaller_ones_make_room() -> None:
    devices = cluster(slow=(2, 2)).devices
    held = {"pair": (devices[0], devices[2])}
    assert {d.node for d in place([GrantedGang("pair", 2, 0)], devices, ("slow",), held)["pair"]} == {"slow-0"}
    held |= {"x": (devices[1],), "y": (devices[3],)}
    crowded = place([GrantedGang("x", 1, 0), GrantedGang("y", 1, 0), GrantedGang("pair", 2, 0)], devices, ("slow",), held)
    assert crowded == {"pair": devices[:2], "x": (devices[2],), "y": (devices[3],)}  # of x and y one had to move


def test_a_gang_that_must_span_hosts_stays_on_the_devices_it_had() -> None:
    devices = cluster(slow=(3, 2)).devices
    held = {"three": (devices[0], devices[2], devices[4]), "one": (devices[1],)}
    grants = [GrantedGang("one", 1, 0), GrantedGang("three", 3, 0)]
    assert place(grants, devices, ("slow",), held) == held
    assert {d.node for d in place(grants, devices, ("slow",), {})["three"]} == {"slow-0", "slow-1"}  # the fewest hosts where it had none
    assert len({d.node for d in place(grants, devices[1:], ("slow",), held)["three"]}) == 2


def test_as_few_devices_as_can_be_are_taken_from_smaller_gangs() -> None:
    """Three hosts of 4, held by one gang of 2, by 1 and by 2 singles more: the gang of 4 that comes takes the host of the one single."""
    devices = cluster(slow=(3, 4)).devices
    held = {"pair": devices[0:2], "a": (devices[4],), "b": (devices[8],), "c": (devices[9],)}
    grants = [GrantedGang("four", 4, 0), *(GrantedGang(name, len(had), 0) for name, had in held.items())]
    placed = place(grants, devices, ("slow",), held)
    assert {d.node for d in placed["four"]} == {"slow-1"}
    assert {name: placed[name] for name in ("pair", "b", "c")} == {name: held[name] for name in ("pair", "b", "c")}


def test_a_gang_of_several_kinds_comes_last_and_keeps_what_it_had() -> None:
    machine = cluster(slow=(2, 2), fast=(1, 4))
    slow, fast = machine.devices[:4], machine.devices[4:]
    mixed = GrantedGang("mixed", 3, 0, filled=True, mix=(1, 2))
    first = place([mixed, GrantedGang("pair", 2, 0), GrantedGang("duo", 2, 1)], machine.devices, machine.kinds, {})
    assert {d.node for d in first["pair"]} == {"slow-0"} and [d.kind for d in first["mixed"]] == ["slow", "fast", "fast"]
    held = {"mixed": (fast[3], slow[1], fast[0])}
    again = place([mixed, GrantedGang("pair", 2, 0), GrantedGang("duo", 2, 1)], machine.devices, machine.kinds, held)
    assert again == {"mixed": held["mixed"], "pair": slow[2:], "duo": fast[1:3]}


@given(st.data())
def test_no_more_gangs_span_hosts_than_must(data: st.DataObject) -> None:
    """Gangs and hosts of 1, 2, 4 and 8 devices come and go; in every round as few span hosts as the best packing allows."""
    hosts, size = data.draw(st.integers(2, 4)), data.draw(st.sampled_from([2, 4, 8]))
    devices = cluster(slow=(hosts, size)).devices
    live: dict[str, int] = {}
    held: dict[str, tuple[Device, ...]] = {}
    for index in range(8):
        live = {name: gang for name, gang in live.items() if data.draw(st.booleans())}
        for place_in_line, gang in enumerate(data.draw(st.lists(st.sampled_from([1, 2, 4, 8]), max_size=6))):
            if gang + sum(live.values()) <= len(devices):
                live[f"{index}.{place_in_line}"] = gang
        held = place([GrantedGang(name, gang, 0) for name, gang in live.items()], devices, ("slow",), held)
        spanning = sum(len({device.node for device in had}) > 1 for had in held.values())
        assert spanning == fewest_spanning(tuple(sorted(live.values(), reverse=True)), (size,) * hosts)


@cache
def fewest_spanning(gangs: tuple[int, ...], free: tuple[int, ...]) -> int:
    """Of `gangs`, which fit `free` in all, how many span hosts at least, by trying everything."""
    if not gangs:
        return 0
    best = 1 + fewest_spanning(gangs[1:], free)  # on whatever the others leave
    for index, room in enumerate(free):
        if room >= gangs[0] and room not in free[:index]:
            rest = (*free[:index], room - gangs[0], *free[index + 1 :])
            best = min(best, fewest_spanning(gangs[1:], rest))
    return best


def test_a_lost_device_moves_the_gang() -> None:
    devices = cluster(slow=(1, 2)).devices
    assert place([GrantedGang("j", 1, 0)], devices[1:], ("slow",), {"j": (devices[0],)})["j"] == (devices[1],)


@given(st.lists(st.sampled_from([1, 2, 3, 4]), max_size=6), st.integers(1, 4), st.integers(1, 4), st.randoms())
def test_no_device_is_used_twice(gangs: list[int], hosts: int, size: int, random: object) -> None:
    machine = cluster(slow=(hosts, size), fast=(1, 4))
    grants, left = [], {0: hosts * size, 1: 4}
    for i, gang in enumerate(gangs):
        kind = i % 2
        if gang <= left[kind]:
            left[kind] -= gang
            grants.append(GrantedGang(f"j{i}", gang, kind))
    first = place(grants, machine.devices, machine.kinds, {})
    again = place(grants, machine.devices, machine.kinds, first)
    for placed in (first, again):
        used = [d.name for ds in placed.values() for d in ds]
        assert len(used) == len(set(used)) == sum(g.gang for g in grants)
        assert all({d.kind for d in placed[g.job]} == {machine.kinds[g.kind]} for g in grants)
