"""Emulated machines: values by live workers on simulated time; books that balance or say what is wrong; deaths that are named."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from hetsys.core.cluster import NodeGroup
from hetsys.core.devicetime.machine import Work
from hetsys.core.devicetime.simulated import SimMachine
from hetsys.core.errors import EngineError
from hetsys.runtime.local import LocalLauncher
from hetsys.runtime.machines import wire
from hetsys.runtime.machines.crew import spread
from hetsys.runtime.machines.emulated import EmulatedMachine
from tests.devicetime.frames import Linear, cluster_of, drain, op
from tests.devicetime.workers import BYTES_PER_ROW, D0, D1, D2, Faulty, chain, collectives, expected_collectives, three_hosts, total_of

SOUND = Faulty()
FAULTS = {
    "skips": "d-1-0, line 5: ordered double rows=3, done send bytes=300 with d-2-0; [double rows=3] ordered 4 times, done 3 times",
    "doubles": "d-1-0, line 6: ordered send bytes=300 with d-2-0, done double rows=3; [double rows=3] ordered 4 times, done 5 times",
    "loses a row": "d-1-0, line 5: ordered double rows=3, done double rows=2",
}


def machine(launcher: LocalLauncher, program: Faulty = SOUND, workers: int = 3, debug: bool = False) -> EmulatedMachine:
    cluster = three_hosts()
    return EmulatedMachine(cluster, Linear(), launcher, program, spread(cluster, workers), debug=debug, timeout_s=60)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_values_are_real_and_times_are_the_simulated_ones(launcher: LocalLauncher, workers: int) -> None:
    simulated = SimMachine(three_hosts(), Linear())
    chain(simulated, 4)
    with machine(launcher, workers=workers) as m:
        total = chain(m, 4)
        assert drain(m) == drain(simulated)
        assert m.value(total) == total_of(4)
        for device in (D0, D1, D2):
            assert list(m.ledger.lines(device)) == list(simulated.ledger.lines(device))


def test_a_value_is_asked_for_once_and_never_before_its_time(launcher: LocalLauncher) -> None:
    with machine(launcher, workers=1) as m:
        begun = m.compute(D0, op(1, "begin"), Work("begin", (1,), gives=("x",)))
        total = m.compute(D0, op(1, "total"), Work("total", takes=("x",), returns=True))
        m.next()
        with pytest.raises(AssertionError, match=f"operation {total} does not exist yet at 1000 ns"):
            m.value(total)
        with pytest.raises(AssertionError, match=f"operation {begun} returns nothing"):
            m.value(begun)
        m.next()
        assert m.value(total) == 2.0
        with pytest.raises(AssertionError, match="was asked before"):
            m.value(total)


def test_what_is_charged_has_to_be_done(launcher: LocalLauncher) -> None:
    with machine(launcher, workers=1) as m, pytest.raises(AssertionError, match="compute on d-0-0 is charged; its work is missing"):
        m.compute(D0, op(1))


def test_a_device_without_a_worker_cannot_be_used(launcher: LocalLauncher) -> None:
    with EmulatedMachine(three_hosts(), Linear(), launcher, SOUND, {D0: "only"}) as m, pytest.raises(AssertionError, match="no worker"):
        m.compute(D1, op(1, "nothing"), Work("nothing"))


def test_a_message_can_be_seen_when_it_has_arrived_and_not_before(launcher: LocalLauncher) -> None:
    """The new x is under way from 2 to 302 us (100 bytes a row, 1 byte a ns, 3 rows: 0.3 us); what runs meanwhile sees the old one."""
    with machine(launcher) as m:
        m.compute(D1, op(3, "begin"), Work("begin", (3, 5.0), gives=("old",)))
        made = m.compute(D0, op(3, "begin"), Work("begin", (3, 7.0), gives=("new",)))
        message = m.send(D0, D1, 300, Work(takes=("new",), gives=("old",)), after=[made])
        m.compute(D1, op(0, "nothing"), Work("nothing"))
        after = m.compute(D1, op(3, "total"), Work("total", takes=("old",), returns=True), after=[message])
        drain(m)
        assert m.value(after) == 3 * 2 * 7.0


@pytest.mark.parametrize("hosts", [("a", "b", "c", "d"), ("d", "c", "a", "b"), ("a", "b", "a", "b"), ("a", "a", "a", "a")])
def test_collectives_are_right_however_devices_are_hosted(launcher: LocalLauncher, hosts: tuple[str, ...]) -> None:
    cluster = cluster_of(NodeGroup("d", 2, 2))
    names = [device.name for device in cluster.devices]
    order = [names[2], names[0], names[3], names[1]]
    with EmulatedMachine(cluster, Linear(), launcher, SOUND, dict(zip(names, hosts, strict=True))) as m:
        assert collectives(m, order) == expected_collectives(4)


@pytest.mark.parametrize("fault", FAULTS)
def test_books_that_do_not_balance_say_what_is_wrong(launcher: LocalLauncher, fault: str) -> None:
    with pytest.raises(EngineError, match="the books do not balance") as caught, machine(launcher, Faulty(fault)) as m:
        chain(m, 4)
        drain(m)
    assert FAULTS[fault] in str(caught.value)


def test_in_debug_mode_the_fault_is_found_at_its_own_step(launcher: LocalLauncher) -> None:
    with pytest.raises(EngineError) as caught, machine(launcher, Faulty("skips"), debug=True) as m:
        chain(m, 4)
        drain(m)
    assert "d-1-0, line 5: ordered double rows=3, done nothing more" in str(caught.value)
    assert m.now_ns == 3_000 + 3 * 3_300 + 3_300  # begin, a round of three, and the first device of the next one


def test_long_runs_settle_now_and_then_so_that_books_stay_short(launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetsys.runtime.machines.emulated._SETTLE_EVERY", 10)
    with machine(launcher, workers=1) as m:
        for _ in range(95):
            m.compute(D0, op(1, "begin"), Work("begin", (1,), gives=("x",)))
        drain(m)
        assert m.ledger.settled(D0) >= 85
        assert len(m.ledger.lines(D0)) <= 10


def test_work_on_the_wrong_device_is_named_at_both(launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError) as caught, machine(launcher, workers=2) as m:
        order = m._crew.order

        def misled(device: str, command: wire.Command) -> None:
            if isinstance(command, wire.Perform) and command.work.call == "nothing":
                command = wire.Perform(command.ticket, D2, command.work)
            order(D2 if isinstance(command, wire.Perform) else device, command)

        monkeypatch.setattr(m._crew, "order", misled)
        m.compute(D0, op(0, "nothing"), Work("nothing"))
        drain(m)
    assert "d-0-0, line 1: ordered nothing, done nothing more; [nothing] ordered 1 times, done 0 times" in str(caught.value)
    assert "d-2-0, line 1: ordered nothing more, done nothing; [nothing] ordered 0 times, done 1 times" in str(caught.value)


def test_a_message_with_other_rows_than_were_charged_is_named_at_both_ends(launcher: LocalLauncher) -> None:
    with pytest.raises(EngineError) as caught, machine(launcher, workers=2) as m:
        made = m.compute(D0, op(3, "begin"), Work("begin", (3,), gives=("x",)))
        m.send(D0, D2, 4 * BYTES_PER_ROW, Work(takes=("x",)), after=[made])
        drain(m)
    assert "d-0-0, line 2: ordered send bytes=400 with d-2-0, done send bytes=300 with d-2-0" in str(caught.value)
    assert "d-2-0, line 1: ordered receive bytes=400 with d-0-0, done receive bytes=300 with d-0-0" in str(caught.value)


def run_until_it_fails(m: EmulatedMachine) -> tuple[str, float]:
    """The error, and the seconds that it took to come."""
    began_s = time.monotonic()
    with pytest.raises(EngineError) as caught:
        total = chain(m, 4)
        drain(m)
        m.value(total)
    return str(caught.value), time.monotonic() - began_s


def test_a_worker_that_dies_is_named_and_not_those_who_wait_for_it(launcher: LocalLauncher) -> None:
    with machine(launcher, Faulty("dies")) as m:
        error, seconds = run_until_it_fails(m)
        assert "worker d-1-0 (pid " in error
        assert "died with signal 9" in error
        assert seconds < 2


def test_a_program_that_raises_is_named_with_its_error(launcher: LocalLauncher) -> None:
    with machine(launcher, Faulty("raises")) as m:
        error, _ = run_until_it_fails(m)
        assert "worker d-1-0" in error
        assert "ValueError: these weights" in error


def test_an_idle_worker_that_dies_is_noticed_though_nobody_asks_it(launcher: LocalLauncher) -> None:
    with machine(launcher) as m:
        os.kill(m._crew._workers[D2].pid, signal.SIGKILL)
        began_s = time.monotonic()
        with pytest.raises(EngineError, match=r"worker d-2-0 .* died with signal 9"):
            while True:
                m.compute(D0, op(0, "nothing"), Work("nothing"))
                m.next()
        assert time.monotonic() - began_s < 2


def test_a_worker_that_hangs_is_given_up(launcher: LocalLauncher) -> None:
    cluster = three_hosts()
    with EmulatedMachine(cluster, Linear(), launcher, Faulty("hangs", D0), {D0: "slow"}, timeout_s=1.5) as m:
        m.compute(D0, op(1, "begin"), Work("begin", (1,), gives=("x",)))
        m.compute(D0, op(1, "double"), Work("double", (1,), ("x",), ("x",)))
        with pytest.raises(EngineError, match=r"no worker of slow said anything for 1.5 s; waited for the books"):
            drain(m)
            m.settle()


def test_a_value_that_nobody_made_is_named(launcher: LocalLauncher) -> None:
    with machine(launcher, workers=1) as m:
        m.compute(D0, op(1, "begin"), Work("begin", (1,), gives=("x",)))
        m.compute(D0, op(1, "total"), Work("total", takes=("y",), returns=True))
        drain(m)
        with pytest.raises(EngineError, match="d-0-0 has no value 'y' for total; it holds x"):
            m.value(1)


def test_a_result_with_fewer_parts_than_promised_is_named(launcher: LocalLauncher) -> None:
    with pytest.raises(EngineError, match="begin results in 3 things; its work promises 2"), machine(launcher, workers=1) as m:
        m.compute(D0, op(3, "begin"), Work("begin", (3,), gives=("x",), returns=True))
        drain(m)


def test_closing_twice_and_leaving_by_an_error_leave_nothing_behind(launcher: LocalLauncher) -> None:
    with machine(launcher) as m:
        pids = [worker.pid for worker in m._crew._workers.values()]
        m.close()
        m.close()
    with pytest.raises(KeyError), machine(launcher) as m:
        pids += [worker.pid for worker in m._crew._workers.values()]
        raise KeyError
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_devices_are_spread_in_equal_shares() -> None:
    names = ["d-0-0..d-0-1", "d-0-0..d-0-1", "d-0-2..d-0-3", "d-0-2..d-0-3", "d-0-4"]
    assert list(spread(cluster_of(NodeGroup("d", 5)), 3).values()) == names
    assert list(spread(cluster_of(NodeGroup("d", 2)), 8).values()) == ["d-0-0", "d-0-1"]
