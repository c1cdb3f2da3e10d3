"""The placer: keep what is held, large gangs first, few hosts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hetsys.core.scheduling.place import place
from hetsys.core.scheduling.rounding import GrantedGang
from tests.engines.builders import cluster


def test_previous_devices_are_kept_and_the_rest_packs_tightly() -> None:
    devices = cluster(slow=(2, 4)).devices
    held = {"old": (devices[1],)}
    grants = [GrantedGang("pair", 2, 0), GrantedGang("four", 4, 0), GrantedGang("old", 1, 0)]
    placed = place(grants, devices, ("slow",), held)
    assert placed["old"] == (devices[1],)
    assert {d.node for d in placed["four"]} == {"slow-1"}
    assert {d.node for d in placed["pair"]} == {"slow-0"}


def test_a_gang_that_spans_hosts_is_gathered_when_a_host_has_room() -> None:
    devices = cluster(slow=(2, 2)).devices
    spread = {"pair": (devices[0], devices[2])}
    assert {d.node for d in place([GrantedGang("pair", 2, 0)], devices, ("slow",), spread)["pair"]} == {"slow-0"}
    crowded = place(
        [GrantedGang("pair", 2, 0), GrantedGang("x", 1, 0), GrantedGang("y", 1, 0)],
        devices, ("slow",), {**spread, "x": (devices[1],), "y": (devices[3],)},
    )  # fmt: skip
    assert crowded["pair"] == spread["pair"]


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
