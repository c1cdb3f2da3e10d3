"""Workers of this machine keep the contract of `hetsys.runtime.launch`: messages both ways, deaths noticed and named, nothing left."""

from __future__ import annotations

import multiprocessing.forkserver
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from hetsys.core.errors import EngineError
from hetsys.runtime.launch import Link
from hetsys.runtime.local import LocalLauncher
from tests.runtime.leftovers import PROC, becomes_true, marked_environment, processes_of, shared_memory

PATIENCE_S = 60.0
NOTICED_S = 2.0
ROOT = Path(__file__).resolve().parents[2]
BIG = 20_000_000


@pytest.fixture(scope="module")
def launcher() -> Iterator[LocalLauncher]:
    one = LocalLauncher()
    yield one
    one.close()


@pytest.fixture(params=["server", "interpreters"])
def each(request: pytest.FixtureRequest, launcher: LocalLauncher) -> Iterator[LocalLauncher]:
    if request.param == "server":
        yield launcher
        return
    one = LocalLauncher(preload=())
    yield one
    one.close()


def echo(link: Link) -> None:
    try:
        while True:
            link.send(link.recv())
    except EOFError:
        return


def swap_big(link: Link) -> None:
    link.send(b"x" * BIG)
    link.send(len(link.recv()))


def tell(link: Link, what: Callable[..., Any], *args: Any) -> None:
    link.send(what(*args))


def sleep(link: Link, seconds: float) -> None:
    link.send("asleep")
    time.sleep(seconds)


def bid_farewell(link: Link, how: Callable[..., Any], *args: Any) -> None:
    link.send("farewell")
    how(*args)


def fail() -> None:
    raise ValueError("three\n  and four")


def kill_itself(with_signal: int) -> None:
    os.kill(os.getpid(), with_signal)


def leave_a_thread() -> None:
    threading.Thread(target=time.sleep, args=(60,)).start()


def wait_for_the_driver(link: Link) -> None:
    try:
        link.recv(0.05)
    except TimeoutError as error:
        link.send(str(error))
    echo(link)


def busy_pair(link: Link) -> None:
    """Hands its connection to a process of its own, then dies: the connection stays open."""
    sleeper = subprocess.Popen(["sleep", "60"], pass_fds=[link._socket.fileno()])  # type: ignore[attr-defined]
    link.send(sleeper.pid)
    os.kill(os.getpid(), signal.SIGKILL)


def test_messages_go_both_ways_in_order(each: LocalLauncher) -> None:
    workers = [each.start(f"echo {number}", echo) for number in range(2)]
    for number in range(50):
        for worker in workers:
            worker.send((worker.name, number))
    for worker in workers:
        assert [worker.recv(PATIENCE_S) for _ in range(50)] == [(worker.name, number) for number in range(50)]
        assert worker.alive
        worker.stop()
        worker.stop()
        assert not worker.alive


def test_two_big_messages_pass_each_other(launcher: LocalLauncher) -> None:
    worker = launcher.start("big", swap_big)
    worker.send(b"y" * BIG)
    assert worker.recv(PATIENCE_S) == b"x" * BIG
    assert worker.recv(PATIENCE_S) == BIG


def test_big_messages_go_out_while_the_driver_waits_for_another_worker(launcher: LocalLauncher) -> None:
    first, second = launcher.start("first", echo), launcher.start("second", echo)
    first.send(b"y" * BIG)
    second.send("small")
    assert second.recv(PATIENCE_S) == "small"
    while not (ready := launcher.wait([first], PATIENCE_S)):
        pass
    assert ready == [first] and len(first.recv(PATIENCE_S)) == BIG


def test_a_last_big_message_arrives_although_its_sender_ends(launcher: LocalLauncher) -> None:
    worker = launcher.start("sender", tell, (bytes, BIG))
    assert len(worker.recv(PATIENCE_S)) == BIG


def test_a_tensor_outlives_its_sender_without_shared_memory(launcher: LocalLauncher) -> None:
    torch = pytest.importorskip("torch")
    before = shared_memory()
    worker = launcher.start("sender", tell, (torch.arange, 100_000))
    assert launcher.wait([worker], PATIENCE_S) == [worker]
    assert becomes_true(lambda: not worker.alive, PATIENCE_S)
    assert torch.equal(worker.recv(PATIENCE_S), torch.arange(100_000))
    assert becomes_true(lambda: shared_memory() <= before, PATIENCE_S)


def exit_with(code: int) -> None:
    """`sys.exit` itself may have been wrapped by a library, and then cannot be sent."""
    sys.exit(code)


ENDS: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (fail, (), "failed: ValueError: three and four"),
    (exit_with, (3,), "died with exit code 3"),
    (os._exit, (4,), "died with exit code 4"),
    (kill_itself, (signal.SIGKILL,), "died with signal 9"),
    (kill_itself, (signal.SIGTERM,), "died with signal 15"),
    (int, (), "ended by itself, with exit code 0"),
    (leave_a_thread, (), "died with signal 9"),
]


@pytest.mark.parametrize(("how", "args", "words"), ENDS)
def test_an_end_is_named_after_the_last_message(launcher: LocalLauncher, how: Any, args: tuple[Any, ...], words: str) -> None:
    worker = launcher.start("seven", bid_farewell, (how, *args))
    assert worker.recv(PATIENCE_S) == "farewell"
    for ask in (lambda: worker.recv(PATIENCE_S), lambda: worker.recv(0), lambda: worker.send(1)):
        with pytest.raises(EngineError) as lost:
            ask()
        assert str(lost.value) == f"worker seven (pid {worker.pid}) {words}"
    assert ("in fail" in "".join(lost.value.__notes__)) if how is fail else not hasattr(lost.value, "__notes__")
    assert launcher.wait([worker], 0) == [worker] and not worker.alive


def test_a_failure_is_named_to_a_driver_that_only_sends(launcher: LocalLauncher) -> None:
    worker = launcher.start("eight", bid_farewell, (fail,))
    assert becomes_true(lambda: not psutil.pid_exists(worker.pid), PATIENCE_S)
    with pytest.raises(EngineError, match=r"worker eight .* failed: ValueError: three and four"):
        worker.send(1)
    assert worker.recv(PATIENCE_S) == "farewell"


@pytest.mark.parametrize("asked", ["recv", "wait", "send"])
def test_a_kill_is_noticed_within_two_seconds(each: LocalLauncher, asked: str) -> None:
    worker, other = each.start("victim", sleep, (600,)), each.start("other", echo)
    assert worker.recv(PATIENCE_S) == "asleep"
    killed_at: list[float] = []

    def kill() -> None:
        killed_at.append(time.monotonic())
        os.kill(worker.pid, signal.SIGKILL)

    threading.Timer(0.2, kill).start()
    if asked == "wait":
        assert each.wait([other, worker], PATIENCE_S) == [worker]
    with pytest.raises(EngineError, match=rf"worker victim \(pid {worker.pid}\) died with signal 9"):
        while asked == "send":
            worker.send("are you there?")
            time.sleep(0.02)
        worker.recv(PATIENCE_S)
    assert time.monotonic() - killed_at[0] < NOTICED_S
    other.send("goes on")
    assert other.recv(PATIENCE_S) == "goes on"
    assert each.start("next", tell, (int, "7")).recv(PATIENCE_S) == 7


def test_a_death_is_noticed_although_somebody_holds_the_connection_open(launcher: LocalLauncher) -> None:
    worker = launcher.start("pair", busy_pair)
    sleeper = psutil.Process(worker.recv(PATIENCE_S))
    with pytest.raises(EngineError, match="died with signal 9"):
        worker.recv(NOTICED_S)
    sleeper.kill()


def test_silence_is_named_after_its_timeout(launcher: LocalLauncher) -> None:
    worker = launcher.start("silent", echo)
    with pytest.raises(EngineError, match=rf"worker silent \(pid {worker.pid}\) sent nothing for 0\.1 s"):
        worker.recv(0.1)
    assert worker.alive and launcher.wait([worker], 0.1) == []
    worker.send(1)
    assert worker.recv(PATIENCE_S) == 1


def test_a_worker_may_wait_with_a_timeout_and_lose_nothing(launcher: LocalLauncher) -> None:
    worker = launcher.start("waits", wait_for_the_driver)
    assert worker.recv(PATIENCE_S) == "the driver sent nothing for 0.05 s"
    worker.send("late")
    assert worker.recv(PATIENCE_S) == "late"


def test_what_cannot_be_unpickled_there_is_named(launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "only_here", type("only_here", (), {"__module__": "__main__"}), raising=False)
    worker = launcher.start("lost", tell, (sys.modules["__main__"].only_here,))  # type: ignore[attr-defined]
    with pytest.raises(EngineError, match=r"worker lost .* failed: AttributeError: .*only_here"):
        worker.recv(PATIENCE_S)


def test_ctrl_c_is_the_drivers_alone(each: LocalLauncher) -> None:
    worker = each.start("calm", echo)
    for number in range(3):
        os.kill(worker.pid, signal.SIGINT)
        worker.send(number)
        assert worker.recv(PATIENCE_S) == number


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_worker_is_ended_although_it_does_not_listen(launcher: LocalLauncher, end: str) -> None:
    worker = launcher.start("deaf", sleep, (600,))
    assert worker.recv(PATIENCE_S) == "asleep"
    worker.send(b"y" * BIG)
    worker.kill() if end == "kill" else worker.stop(grace_s=0.2)
    assert not worker.alive and not psutil.pid_exists(worker.pid)
    with pytest.raises(EngineError, match=r"worker deaf .* was (killed|stopped) by its driver"):
        worker.send(1)


def test_close_leaves_nobody() -> None:
    launcher = LocalLauncher(preload=())
    workers = [launcher.start(f"{number}", sleep, (600,)) for number in range(3)]
    assert workers[0].recv(PATIENCE_S) == "asleep"
    launcher.close()
    launcher.close()
    assert not any(worker.alive or psutil.pid_exists(worker.pid) for worker in workers)


def test_a_launcher_does_not_collect_what_its_dead_workers_held(launcher: LocalLauncher) -> None:
    open_files = []
    for _ in range(2):  # the first round may open what stays
        workers = [launcher.start("short", echo) for _ in range(4)]
        for worker in workers:
            worker.kill() if worker is workers[0] else worker.stop()
        open_files.append(psutil.Process().num_fds())
    assert open_files[1] == open_files[0]


ORDER = ("DEFAULT", "AVX2", "AVX512")


def capability() -> tuple[str, int, str | None]:
    import torch

    torch.ones(8, 8) @ torch.ones(8, 8)
    return torch.backends.cpu.get_cpu_capability(), torch.get_num_threads(), os.environ.get("ONEDNN_MAX_CPU_ISA")


@pytest.mark.parametrize(("cap", "expected"), [("default", "DEFAULT"), ("avx2", "AVX2")])
def test_the_environment_is_there_before_the_work_and_caps_the_instruction_set(launcher: LocalLauncher, cap: str, expected: str) -> None:
    full = launcher.start("full", tell, (capability,)).recv(PATIENCE_S)[0]
    if full not in ORDER or ORDER.index(full) <= ORDER.index(expected):
        pytest.skip(f"this machine's instruction set is {full}; it cannot be capped to {expected}")
    capped = launcher.start("capped", tell, (capability,), env={"ATEN_CPU_CAPABILITY": cap, "ONEDNN_MAX_CPU_ISA": "AVX2"})
    assert capped.recv(PATIENCE_S) == (expected, 1, "AVX2")
    assert launcher.start("full", tell, (capability,)).recv(PATIENCE_S)[0] == full
    assert launcher.start("wide", tell, (capability,), env={"OMP_NUM_THREADS": "2"}).recv(PATIENCE_S)[1] == 2


def test_workers_start_with_everything_loaded(launcher: LocalLauncher) -> None:
    loaded = launcher.start("loaded", tell, (sorted_modules,)).recv(PATIENCE_S)
    assert {"torch", "accelerate", "torch._dynamo"} <= set(loaded)
    assert "torch" not in LocalLauncher(preload=()).start("light", tell, (sorted_modules,)).recv(PATIENCE_S)


def sorted_modules() -> list[str]:
    return sorted(sys.modules)


def lose_the_server() -> None:
    launcher = LocalLauncher(preload=("json",))
    worker = launcher.start("orphan", sleep, (600,))
    assert worker.recv(PATIENCE_S) == "asleep"
    server = psutil.Process(worker.pid).parent()
    assert server is not None and server.pid != os.getpid()
    server.kill()
    assert becomes_true(lambda: not psutil.pid_exists(worker.pid), 5)
    with pytest.raises(EngineError, match=r"worker orphan .* or the server that started it died"):
        worker.recv(NOTICED_S)
    assert launcher.start("after", tell, (int, "7")).recv(PATIENCE_S) == 7


def test_a_dead_server_takes_its_workers_with_it_and_is_replaced() -> None:
    """In a process of its own, so that this one keeps its server."""
    command = [sys.executable, "-c", "from tests.runtime import test_local; test_local.lose_the_server()"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_server_that_cannot_start_workers_is_named(launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr(multiprocessing.forkserver, "connect_to_new_process", refuse)
    with pytest.raises(EngineError, match=r"worker unborn could not be started; the server that starts workers may have died: .*refused"):
        launcher.start("unborn", echo)
    monkeypatch.undo()
    assert launcher.start("born", tell, (int, "7")).recv(PATIENCE_S) == 7


SCRIPT = """
import signal
from hetsys.runtime.local import LocalLauncher
def double(link, value):
    link.send((2 * value, signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())))
    link.recv()
if __name__ == "__main__":
    launcher = LocalLauncher(preload=("json",))
    first, second = launcher.start("first", double, (21,)), launcher.start("second", double, (4,))
    print(first.recv(60), second.recv(60))
"""


@pytest.mark.skipif(not PROC.is_dir(), reason="needs /proc to find a driver's processes")
@pytest.mark.parametrize("how", ["script", "module", "stdin"])
def test_a_driver_may_be_anything_and_ends_without_being_told_to(how: str, tmp_path: Path) -> None:
    (tmp_path / "driver.py").write_text(SCRIPT)
    command = {"script": ["driver.py"], "module": ["-m", "driver"], "stdin": ["-"]}[how]
    text = "from driver import double\n" + SCRIPT.replace("def double", "def other") if how == "stdin" else ""
    environment = marked_environment()
    done = subprocess.run([sys.executable, *command], input=text, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("(42, True) (8, True)\n", "", 0)
    assert becomes_true(lambda: not processes_of(environment), 5), processes_of(environment)
