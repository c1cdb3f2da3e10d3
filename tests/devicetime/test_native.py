"""Native machines: the same calls on the wall clock, with the same books, values and errors; no assertion on how fast anything is."""

from __future__ import annotations

import os
import signal
import time

import pytest

from hetsys.core.cluster import NodeGroup
from hetsys.core.devicetime.machine import Work
from hetsys.core.errors import ConfigError, EngineError
from hetsys.runtime.local import LocalLauncher
from hetsys.runtime.machines.native import NativeMachine
from tests.devicetime.frames import cluster_of, drain, op
from tests.devicetime.workers import BYTES_PER_ROW, D0, D1, D2, Faulty, chain, collectives, expected_collectives, three_hosts, total_of

SOUND = Faulty()
MS = 1_000_000


def machine(launcher: LocalLauncher, program: Faulty = SOUND) -> NativeMachine:
    return NativeMachine(three_hosts("cpu"), launcher, program, timeout_s=60)


def test_values_travel_and_everything_is_done_after_its_causes(launcher: LocalLauncher) -> None:
    with machine(launcher) as m:
        total = chain(m, 4)
        dones = {done.ticket: done for done in drain(m)}
        assert m.value(total) == total_of(4)
        assert len(dones) == total + 1
        for ticket in range(total):  # every operation of the chain comes after the one before it
            assert 0 <= dones[ticket].start_ns <= dones[ticket].end_ns <= dones[ticket + 1].end_ns
        assert dones[total].end_ns <= m.now_ns
        assert m.source == "measured"


@pytest.mark.parametrize("devices", [(D0, D1, D2), (D2, D0), (D1, D2, D0), (D1,)])
def test_collectives_are_right_in_the_order_of_their_devices(launcher: LocalLauncher, devices: tuple[str, ...]) -> None:
    with machine(launcher) as m:
        assert collectives(m, devices) == expected_collectives(len(devices))


def test_the_clock_is_the_wall_s_and_until_is_kept(launcher: LocalLauncher) -> None:
    with machine(launcher) as m:
        began_s, began_ns = time.monotonic(), m.now_ns
        assert m.next(until_ns=began_ns + 30 * MS) is None
        assert time.monotonic() - began_s >= 0.03
        assert m.now_ns >= began_ns + 30 * MS
        assert m.next() is None
        ticket = m.compute(D0, op(0, "nothing"), Work("nothing"))
        done = m.next(until_ns=m.now_ns + 60_000 * MS)
        assert done is not None
        assert (done.ticket, done.where) == (ticket, D0)
        assert done.start_ns >= began_ns + 30 * MS


def test_a_long_row_behind_a_late_operation_is_no_deep_call(launcher: LocalLauncher) -> None:
    with machine(launcher) as m:
        late = m.compute(D1, op(0, "nothing"), Work("nothing"))
        for _ in range(2000):
            m.compute(D0, op(0, "nothing"), Work("nothing"), after=(late,))
        assert len(drain(m)) == 2001


def test_a_decision_of_the_host_has_passed_already(launcher: LocalLauncher) -> None:
    with machine(launcher) as m:
        decided = m.host("planner", 3_600_000_000_000)
        done = m.next()
        assert done is not None
        assert (done.ticket, done.start_ns) == (decided, done.end_ns)
        step = m.compute(D0, op(0, "nothing"), Work("nothing"))
        after_it = m.host("planner", 1, after=[step])
        assert [done.ticket for done in drain(m)] == [step, after_it]


def test_a_waiting_operation_holds_up_its_device_only(launcher: LocalLauncher) -> None:
    with machine(launcher, Faulty("hangs", D1)) as m:
        for device in (D0, D1):
            m.compute(device, op(1, "begin"), Work("begin", (1,), gives=("x",)))
        stuck = m.compute(D1, op(1, "double"), Work("double", (1,), ("x",), ("x",)))
        waits = m.compute(D0, op(0, "nothing"), Work("nothing"), after=[stuck])
        behind = m.compute(D0, op(0, "nothing"), Work("nothing"))
        free = m.compute(D2, op(0, "nothing"), Work("nothing"))
        found = {done.ticket for done in (m.next(), m.next(), m.next()) if done}
        assert found == {0, 1, free}
        assert m.next(until_ns=m.now_ns + 50 * MS) is None
        for ticket in (stuck, waits, behind):
            with pytest.raises(AssertionError, match="does not exist yet"):
                m.value(ticket)
        m._crew.abandon()


@pytest.mark.parametrize(
    ("fault", "wrong"),
    [
        ("skips", "[double rows=3] ordered 4 times, done 3 times"),
        ("doubles", "[double rows=3] ordered 4 times, done 5 times"),
        ("loses a row", "d-1-0, line 5: ordered double rows=3, done double rows=2"),
    ],
)
def test_books_that_do_not_balance_say_what_is_wrong(launcher: LocalLauncher, fault: str, wrong: str) -> None:
    with pytest.raises(EngineError, match="the books do not balance") as caught, machine(launcher, Faulty(fault)) as m:
        chain(m, 4)
        drain(m)
    assert wrong in str(caught.value)


@pytest.mark.parametrize(("fault", "how"), [("dies", "died with signal 9"), ("raises", "ValueError: these weights")])
def test_a_lost_worker_is_named_and_not_those_who_wait_for_it(launcher: LocalLauncher, fault: str, how: str) -> None:
    with machine(launcher, Faulty(fault)) as m:
        chain(m, 4)
        began_s = time.monotonic()
        with pytest.raises(EngineError, match=rf"worker d-1-0 \(pid \d+\) .*{how}"):
            drain(m)
        assert time.monotonic() - began_s < 2
        with pytest.raises(EngineError, match="this machine is over"):
            m.next()


def test_a_worker_that_dies_in_a_collective_is_named(launcher: LocalLauncher) -> None:
    with machine(launcher) as m:
        for name in (D0, D1, D2):
            m.compute(name, op(2, "begin"), Work("begin", (2,), gives=("x",)))
        drain(m)
        os.kill(m._crew._workers[D2].pid, signal.SIGSTOP)
        m.collective("all_reduce", (D0, D1, D2), 2 * BYTES_PER_ROW, Work(takes=("x",), gives=("y",)))
        assert m.next(until_ns=m.now_ns + 100 * MS) is None
        os.kill(m._crew._workers[D2].pid, signal.SIGKILL)
        began_s = time.monotonic()
        with pytest.raises(EngineError, match=r"worker d-2-0 .* died with signal 9"):
            drain(m)
        assert time.monotonic() - began_s < 2


def test_what_never_ends_is_named(launcher: LocalLauncher) -> None:
    with NativeMachine(three_hosts("cpu"), launcher, Faulty("hangs", D0), timeout_s=1.5) as m:
        m.compute(D0, op(1, "begin"), Work("begin", (1,), gives=("x",)))
        m.compute(D0, op(1, "double"), Work("double", (1,), ("x",), ("x",)))
        with pytest.raises(EngineError, match=r"compute on d-0-0 did not end within 1.5 s"):
            drain(m)
        m._crew.abandon()


def test_only_native_devices_that_fit_this_machine_are_taken(launcher: LocalLauncher) -> None:
    with pytest.raises(ConfigError, match="has devices that are not of this machine"):
        NativeMachine(three_hosts(), launcher, SOUND)
    with pytest.raises(ConfigError, match=r"CPU workers.*cores busy"):
        NativeMachine(cluster_of(NodeGroup("d", 2000), native="cpu"), launcher, SOUND)
