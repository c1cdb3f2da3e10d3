"""Laws of device time over random programs: causality, one at a time, no needless wait; and an emulated run is the simulated one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise

from hypothesis import given

from hetsys.core.devicetime.links import route, shared_by
from hetsys.core.devicetime.machine import Done
from hetsys.core.devicetime.simulated import SimMachine
from hetsys.runtime.local import LocalLauncher
from hetsys.runtime.machines.emulated import EmulatedMachine
from tests.devicetime.frames import Linear, drain
from tests.devicetime.graphs import DEVICES, Item, Makers, expected_values, programs, run, two_hosts

COST = Linear(slower=(("slow", 2.5),))


def simulate(items: list[Item]) -> tuple[SimMachine, list[Done]]:
    machine = SimMachine(two_hosts(), COST)
    return machine, run(machine, items)[0]


def held(items: list[Item], dones: dict[int, Done]) -> Iterator[tuple[str, int, int, int]]:
    """(resource, from, to, item): every device, link and NIC that an item keeps for itself."""
    cluster = two_hosts()
    devices = {device.name: device for device in cluster.devices}
    for index, item in enumerate(items):
        start_ns, end_ns = dones[index].start_ns, dones[index].end_ns
        if item.kind == "send":
            link, wires = route(cluster, *(devices[name] for name in item.devices))
            end_ns -= round(link.latency_s * 1e9)
        else:
            wires = (*item.devices, *(shared_by([devices[name] for name in item.devices]) if item.kind != "compute" else ()))
        for resource in wires:
            yield resource, start_ns, end_ns, index


@given(programs())
def test_nothing_serves_two_at_once_and_everything_is_done_once(items: list[Item]) -> None:
    _, dones = simulate(items)
    assert sorted(done.ticket for done in dones) == list(range(len(items)))
    by_resource: dict[str, list[tuple[int, int]]] = {}
    for resource, start_ns, end_ns, _ in held(items, {done.ticket: done for done in dones}):
        by_resource.setdefault(resource, []).append((start_ns, end_ns))
    for intervals in by_resource.values():
        intervals.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(intervals))


@given(programs())
def test_completions_come_in_the_order_of_time_and_after_their_causes(items: list[Item]) -> None:
    _, dones = simulate(items)
    assert [done.end_ns for done in dones] == sorted(done.end_ns for done in dones)
    by_ticket = {done.ticket: done for done in dones}
    for index, item in enumerate(items):
        assert all(by_ticket[cause].end_ns <= by_ticket[index].start_ns for cause in item.after)


@given(programs())
def test_devices_keep_the_order_of_submission_and_are_busy_for_the_sum_of_their_durations(items: list[Item]) -> None:
    machine, dones = simulate(items)
    by_ticket = {done.ticket: done for done in dones}
    for device in DEVICES:
        own = [by_ticket[i] for i, item in enumerate(items) if item.kind != "send" and device in item.devices]
        assert all(before.end_ns <= after.start_ns for before, after in pairwise(own))
        assert machine.busy_ns[device] == sum(done.end_ns - done.start_ns for done in own)
    durations = {i: by_ticket[i].end_ns - by_ticket[i].start_ns for i, item in enumerate(items) if item.kind == "compute"}
    factor = {"slow": 2500, "fast": 1000}
    assert durations == {i: items[i].rows * factor[items[i].devices[0][:4]] for i in durations}


@given(programs())
def test_nothing_waits_without_a_reason(items: list[Item]) -> None:
    """Where all is submitted at once, an item starts when its causes and its device's queue are done, or when a wire that it needs is let
    go by somebody else."""
    at_once = [Item(item.kind, item.devices, item.rows, item.after, item.takes, 0) for item in items]
    _, dones = simulate(at_once)
    by_ticket = {done.ticket: done for done in dones}
    keeping = list(held(at_once, by_ticket))
    for index, item in enumerate(at_once):
        before = [i for i in range(index) if item.kind != "send" and at_once[i].kind != "send" and {*item.devices} & {*at_once[i].devices}]
        ready_ns = max((by_ticket[i].end_ns for i in (*item.after, *before)), default=0)
        start_ns = by_ticket[index].start_ns
        needs = {resource for resource, _, _, i in keeping if i == index}
        let_go = any(to == start_ns and resource in needs and i != index for resource, _, to, i in keeping)
        assert start_ns == ready_ns or (start_ns > ready_ns and let_go)


@given(programs())
def test_a_run_repeats_and_leaves_nothing_over(items: list[Item]) -> None:
    machine, dones = simulate(items)
    assert simulate(items)[1] == dones
    assert drain(machine) == []
    assert machine.now_ns == max(done.end_ns for done in dones)


def test_an_emulated_run_is_the_simulated_one(launcher: LocalLauncher) -> None:
    """Times, order, values and books, with two processes for four devices and workers of random speed. One pair of machines runs program
    after program; after a failure there is a new pair."""
    hosts = dict(zip(DEVICES, ("left", "right", "right", "left"), strict=True))
    pairs: list[tuple[EmulatedMachine, SimMachine]] = []

    def check(emulated: EmulatedMachine, simulated: SimMachine, items: list[Item]) -> None:
        dones, values = run(emulated, items)
        assert dones == run(simulated, items)[0]
        assert values == expected_values(items)
        emulated.settle()

    @given(programs())
    def holds(items: list[Item]) -> None:
        if not pairs:
            pairs.append((EmulatedMachine(two_hosts(), COST, launcher, Makers(0.001), hosts), SimMachine(two_hosts(), COST)))
        with ExitStack() as on_failure:
            on_failure.callback(lambda: pairs.pop()[0].close())
            check(*pairs[0], items)
            on_failure.pop_all()

    holds()
    pairs.pop()[0].close()
