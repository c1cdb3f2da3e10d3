"""A server whose attention comes back late: the tokens of the plain loop whatever the timing, and the very step of each boarding."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hetsys.core.cluster import Cluster, NodeGroup
from hetsys.core.costs import Op
from hetsys.core.devicetime.machine import Done
from hetsys.runtime.local import LocalLauncher
from hetsys.runtime.machines.crew import spread
from hetsys.runtime.machines.emulated import EmulatedMachine
from hetsys.runtime.machines.native import NativeMachine
from tests.devicetime.frames import US, Linear, cluster_of
from tests.devicetime.toys import Served, Server, plain_tokens, serve

GPU, CPU, THIRD = "gpu-0-0", "cpu-0-0", "old-0-0"
STEPS = 12


@dataclass(frozen=True)
class Serving(Linear):
    """A step takes 10 us, attention 23 on the processor and `third_us` on the third device; a row's message takes 1."""

    third_us: float = 37

    def duration_s(self, device_kind: str, op: Op) -> float:
        return 1e-6 * (10 if op.kind == "step" else {"cpu": 23, "old": self.third_us}[device_kind])


def cluster(native: str = "") -> Cluster:
    return cluster_of(NodeGroup("old", 1), NodeGroup("cpu", 1), NodeGroup("gpu", 1), native=native)


def emulated(launcher: LocalLauncher, server: Server, third_us: float = 37, num_workers: int = 3) -> Served:
    placed = spread(cluster(), num_workers)
    with EmulatedMachine(cluster(), Serving(third_us=third_us), launcher, server, placed, debug=True) as machine:
        return serve(machine, server, STEPS)


def assert_plain(served: Served) -> None:
    for row, tokens in served.tokens.items():
        assert tokens == plain_tokens(row, len(tokens))


def test_a_late_result_comes_on_board_at_the_first_step_after_its_time(launcher: LocalLauncher) -> None:
    """Row 2: out of step 1 at 10, sent 10-11, attended 11-34, back 34-35, so it boards the step that begins at 40; and every fourth one
    after. Row 3 waits for row 2 at the NIC: 11-12, attended until 49, back at 50: exactly when step 6 begins, and so in time. Out of it at
    60 it is sent at once, is back at 60 + 1 + 37 + 1 = 99, and boards step 11."""
    served = emulated(launcher, Server(GPU, (GPU, GPU, CPU, THIRD)))
    assert served.boarded == {2: [5, 9], 3: [6, 11]}
    assert [len(served.tokens[row]) for row in range(4)] == [STEPS - 1, STEPS - 1, 2, 2]
    assert_plain(served)
    steps = [done for done in served.dones if done.where == GPU]
    assert [(done.start_ns, done.end_ns) for done in steps] == [(10 * i * US, 10 * (i + 1) * US) for i in range(STEPS)]


@pytest.mark.parametrize(("third_us", "boards"), [(37, 6), (37.001, 7), (27, 5), (27.001, 6)])
def test_one_nanosecond_too_late_is_too_late(launcher: LocalLauncher, third_us: float, boards: int) -> None:
    served = emulated(launcher, Server(GPU, (GPU, GPU, CPU, THIRD)), third_us)
    assert served.boarded[3][0] == boards
    assert_plain(served)


def test_the_workers_real_speed_and_number_make_no_difference(launcher: LocalLauncher) -> None:
    plain = emulated(launcher, Server(GPU, (GPU, CPU, CPU, THIRD)))
    for up_to_s, num_workers in ((0.02, 3), (0.005, 2), (0.0, 1)):
        again = emulated(launcher, Server(GPU, (GPU, CPU, CPU, THIRD), up_to_s), num_workers=num_workers)
        assert again == plain


def test_natively_the_same_code_gives_the_same_tokens(launcher: LocalLauncher) -> None:
    """On the wall clock the steps of the boardings are what they are; but what comes on board has arrived, and rows that stay have a token
    a step."""
    server = Server(GPU, (GPU, GPU, CPU, THIRD), up_to_s=0.004)
    with NativeMachine(cluster(native="cpu"), launcher, server) as machine:
        served = serve(machine, server, 40)
    assert_plain(served)
    assert [len(served.tokens[row]) for row in (0, 1)] == [39, 39]
    assert all(served.boarded[row] for row in (2, 3))
    assert_boarded_after_arrival(served)


def assert_boarded_after_arrival(served: Served) -> None:
    steps = [done for done in served.dones if done.where == GPU]
    for row, where in ((2, CPU), (3, THIRD)):
        arrivals: list[Done] = [done for done in served.dones if done.where == f"{where}->{GPU}"]
        for step, arrival in zip(served.boarded[row], arrivals, strict=False):
            assert arrival.end_ns <= steps[step - 1].start_ns
