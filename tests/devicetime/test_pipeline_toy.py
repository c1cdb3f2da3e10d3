"""A three-worker pipeline: gradients of one process, whatever the machine, and the bubble of the formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from hetsys.core.cluster import Cluster, Link, NodeGroup
from hetsys.core.costs import Op
from hetsys.core.devicetime.machine import Done
from hetsys.core.devicetime.simulated import SimMachine
from hetsys.runtime.local import LocalLauncher
from hetsys.runtime.machines.crew import spread
from hetsys.runtime.machines.emulated import EmulatedMachine
from hetsys.runtime.machines.native import NativeMachine
from tests.devicetime.frames import US, Linear, cluster_of
from tests.devicetime.toys import BYTES_PER_ROW, ROWS, Stages, plain_gradients, run_pipeline

DEVICES = ("d-0-0", "d-1-0", "d-2-0")
FORWARD_US, BACKWARD_US, MICROBATCHES = 10, 20, 5


@dataclass(frozen=True)
class Training(Linear):
    """A forward takes 10 us and a backward 20, whatever the device."""

    def duration_s(self, device_kind: str, op: Op) -> float:
        return {"forward": FORWARD_US, "backward": BACKWARD_US, "gradients": 0}[op.kind] * 1e-6


def hosts(message_us: float, native: str = "") -> Cluster:
    """Three hosts, between which a microbatch's activations take `message_us`."""
    return cluster_of(NodeGroup("d", 1, 3), inter=Link(ROWS * BYTES_PER_ROW / (message_us * 1e-6)), native=native)


def simulated(schedule: str, message_us: float) -> list[Done]:
    return run_pipeline(SimMachine(hosts(message_us), Training()), DEVICES, MICROBATCHES, schedule)[1]


def emulated(launcher: LocalLauncher, schedule: str, up_to_s: float, num_workers: int) -> tuple[list[Any], list[Done]]:
    cluster = hosts(3)
    placed = spread(cluster, num_workers)
    with EmulatedMachine(cluster, Training(), launcher, Stages(DEVICES, up_to_s), placed) as machine:
        return run_pipeline(machine, DEVICES, MICROBATCHES, schedule)


def assert_equal(gradients: list[Any], expected: list[Any]) -> None:
    """Bit for bit."""
    assert [[g.tolist() for g in stage] for stage in gradients] == [[g.tolist() for g in stage] for stage in expected]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_the_bubble_is_that_of_the_formula(schedule: str) -> None:
    """(stages - 1) (forward + backward) where messages take no time: 2 x 30 us on each device."""
    machine = SimMachine(hosts(1e-6), Training())
    _, dones = run_pipeline(machine, DEVICES, MICROBATCHES, schedule)
    work_us = MICROBATCHES * (FORWARD_US + BACKWARD_US)
    assert max(done.end_ns for done in dones) == (work_us + 2 * (FORWARD_US + BACKWARD_US)) * US
    assert [machine.busy_ns[device] for device in DEVICES] == [work_us * US] * 3


def test_messages_lengthen_the_bubble_by_the_way_there_and_back() -> None:
    """GPipe: M (f + b) + (p - 1) (f + b + 2 c) = 150 + 2 (30 + 6)."""
    assert max(done.end_ns for done in simulated("gpipe", 3)) == 222 * US


@pytest.mark.parametrize(("schedule", "num_workers"), [("gpipe", 3), ("1f1b", 3), ("1f1b", 2), ("1f1b", 1)])
def test_emulated_gradients_and_times(launcher: LocalLauncher, schedule: str, num_workers: int) -> None:
    gradients, dones = emulated(launcher, schedule, 0.0, num_workers)
    assert_equal(gradients, plain_gradients(3, MICROBATCHES))
    assert dones == simulated(schedule, 3)


def test_the_workers_real_speed_makes_no_difference(launcher: LocalLauncher) -> None:
    gradients, dones = emulated(launcher, "1f1b", 0.02, 3)
    assert_equal(gradients, plain_gradients(3, MICROBATCHES))
    assert dones == simulated("1f1b", 3)


@pytest.mark.parametrize("up_to_s", [0.0, 0.02])
def test_native_gradients(launcher: LocalLauncher, up_to_s: float) -> None:
    with NativeMachine(hosts(3, native="cpu"), launcher, Stages(DEVICES, up_to_s)) as machine:
        gradients, dones = run_pipeline(machine, DEVICES, MICROBATCHES, "1f1b")
    assert_equal(gradients, plain_gradients(3, MICROBATCHES))
    assert sorted(done.ticket for done in dones) == list(range(len(dones)))
    assert all(0 <= done.start_ns <= done.end_ns for done in dones)
