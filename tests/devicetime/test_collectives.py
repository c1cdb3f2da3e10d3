"""Collectives priced by the formulas and by the table, worked out by hand."""

from __future__ import annotations

import pytest

from hetsys.core.cluster import Cluster, Device, Link, NodeGroup
from hetsys.core.devicetime.collectives import COLLECTIVES, Formulas, Measured
from hetsys.core.devicetime.simulated import SimMachine
from hetsys.core.errors import ConfigError, InfeasiblePlan
from hetsys.workloads.profiles import load_table
from tests.devicetime.frames import Linear, cluster_of, drain

INTRA, INTER = Link(10e9, latency_s=1e-6), Link(1e9, latency_s=10e-6)
MB = 1_000_000
US = 1e-6


def nodes(*devices: int) -> Cluster:
    """One node for each number, with so many devices."""
    return cluster_of(*(NodeGroup(f"k{i}", count) for i, count in enumerate(devices)), intra=INTRA, inter=INTER)


def price(kind: str, cluster: Cluster, algorithm: str = "ring") -> float:
    """Microseconds for a megabyte a device: 100 us inside a node, 1000 us between two."""
    return Formulas.of(cluster, algorithm).duration_s(kind, cluster.devices, MB) / US


@pytest.mark.parametrize(
    ("kind", "inside", "between"),
    [
        ("all_reduce", 6 * (25 + 1), 6 * (250 + 10)),
        ("reduce_scatter", 3 * (25 + 1), 3 * (250 + 10)),
        ("all_gather", 3 * (100 + 1), 3 * (1000 + 10)),
        ("broadcast", 2 * (100 + 1), 2 * (1000 + 10)),
        ("all_to_all", 3 * 1 + 75, 3 * 10 + 750),
    ],
)
def test_four_devices(kind: str, inside: float, between: float) -> None:
    assert price(kind, nodes(4)) == pytest.approx(inside)
    assert price(kind, nodes(1, 1, 1, 1)) == pytest.approx(between)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("all_reduce", 10 * (1000 / 6 + 10)),  # each NIC carries one message of the ring a step
        ("broadcast", (1000 + 10) + 2 * (100 + 1)),  # one round between the nodes, two among the four devices of the larger
        ("all_to_all", 5 * 10 + 4 * 2 * 1000 / 6),  # the 4 devices of one node send to 2 others through one NIC
    ],
)
def test_six_devices_on_two_nodes(kind: str, expected: float) -> None:
    assert price(kind, nodes(4, 2)) == pytest.approx(expected)


def test_the_tree_is_a_reduction_and_a_broadcast_and_wins_for_small_messages_only() -> None:
    eight = nodes(*[1] * 8)
    assert price("all_reduce", eight, "tree") == pytest.approx(2 * 3 * (1000 + 10))
    ring, tree = (Formulas.of(eight, name).duration_s("all_reduce", eight.devices, 100) for name in ("ring", "tree"))
    assert tree < ring
    assert price("all_reduce", eight) < price("all_reduce", eight, "tree")


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_one_device_needs_nobody(kind: str) -> None:
    cluster = nodes(1)
    assert Formulas.of(cluster).duration_s(kind, cluster.devices, MB) == 0


def test_an_unknown_collective_or_algorithm_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'all_reduce'"):
        price("allreduce", nodes(2))
    with pytest.raises(ConfigError, match=r"collectives.all_reduce='rings': did you mean 'ring'"):
        Formulas.of(nodes(2), "rings")


def test_equal_links_have_equal_hashes_and_others_do_not() -> None:
    assert Formulas.of(nodes(4)).hash == Formulas.of(nodes(2)).hash
    assert Formulas.of(nodes(4)).hash != Formulas.of(nodes(4), "tree").hash
    assert Formulas.of(nodes(4)).hash != Formulas.of(cluster_of(NodeGroup("d", 4))).hash


def measured() -> Measured:
    return Measured(load_table("vidur_network"), "a100_dgx")


def test_the_table_s_rows_are_charged_as_they_are() -> None:
    """vidur: all_reduce of 64 MiB among 4 A100s of one host, 0.603 ms; among 2, 0.43 ms; of 2 kB, 0.01 ms."""
    cluster = nodes(4)
    machine = SimMachine(cluster, Linear(), measured())
    names = [device.name for device in cluster.devices]
    machine.collective("all_reduce", names, 67_108_864)
    machine.collective("all_reduce", names[:2], 67_108_864)
    machine.collective("all_reduce", names[2:], 2_048)
    durations = {done.ticket: done.end_ns - done.start_ns for done in drain(machine)}
    assert durations == {0: 603_000, 1: 430_000, 2: 10_000}


def test_between_the_table_s_rows_lies_a_straight_line() -> None:
    pair: tuple[Device, ...] = nodes(2).devices
    halfway = (10_240 + 67_108_864) // 2
    assert measured().duration_s("all_reduce", pair, halfway) == pytest.approx((0.046e-3 + 0.43e-3) / 2)


def test_the_table_makes_nothing_up() -> None:
    with pytest.raises(ConfigError, match="a100_dgx/all_reduce/2/1"):
        measured().duration_s("all_reduce", nodes(1, 1).devices, MB)
    with pytest.raises(InfeasiblePlan, match="beyond twice"):
        measured().duration_s("all_reduce", nodes(2).devices, 1 << 30)
    with pytest.raises(ConfigError, match=r"collectives.cluster='a100': did you mean 'a100_dgx'"):
        Measured(load_table("vidur_network"), "a100")
    with pytest.raises(ConfigError, match="must have keys and axes"):
        Measured(load_table("helix_layers"), "a100_40g")
