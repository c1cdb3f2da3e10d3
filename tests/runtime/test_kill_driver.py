"""However a driver ends, its workers end within 5 s, whatever they are busy with, and leave no shared memory."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hetsys.runtime.launch import Link
from tests.runtime.leftovers import PROC, becomes_true, marked_environment, processes_of, shared_memory

pytestmark = pytest.mark.skipif(not PROC.is_dir(), reason="needs /proc to find a driver's processes")
GONE_S = 5.0
ROOT = Path(__file__).resolve().parents[2]

DRIVER = """
import sys, time
from hetsys.runtime.local import LocalLauncher
from tests.runtime.test_kill_driver import WORK
if __name__ == "__main__":
    launcher = LocalLauncher(preload=("torch", "torch.distributed"))
    workers = [launcher.start(work.__name__, work, (sys.argv[1],)) for work in WORK]
    for worker in workers:
        print(worker.name, worker.recv(60), worker.pid, flush=True)
    time.sleep(0.3)
    print("all busy", flush=True)
    launcher.wait(workers, 600)
    print("a worker has ended", flush=True)
"""


def multiply(link: Link, folder: str) -> None:
    import torch

    matrix = torch.ones(6000, 6000, dtype=torch.float64)  # one product takes some ten seconds
    link.send("busy")
    while True:
        matrix @ matrix


def reduce_with_a_peer(link: Link, folder: str) -> None:
    import torch

    _join(folder, rank=0)
    link.send("busy")
    torch.distributed.all_reduce(torch.ones(1000))


def be_the_peer_that_never_comes(link: Link, folder: str) -> None:
    _join(folder, rank=1)
    link.send("busy")
    while True:
        pass


def let_no_thread_run(link: Link, folder: str) -> None:
    link.send("busy")
    sum(itertools.repeat(1))


def _join(folder: str, rank: int) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)


WORK: list[Any] = [multiply, reduce_with_a_peer, be_the_peer_that_never_comes]
if sys.platform == "linux":
    WORK.append(let_no_thread_run)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_its_driver(how: signal.Signals, tmp_path: Path) -> None:
    environment = marked_environment()
    before = shared_memory()
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment, start_new_session=True,
    )  # fmt: skip
    assert driver.stdout is not None
    said = [driver.stdout.readline() for _ in range(len(WORK) + 1)]
    assert said[-1] == "all busy\n", said
    assert len(processes_of(environment)) >= len(WORK) + 2  # the driver and the server
    if how == signal.SIGINT:
        os.killpg(driver.pid, how)  # as Ctrl-C does: everybody gets it
    else:
        driver.send_signal(how)
    driver.wait(GONE_S)
    assert becomes_true(lambda: not processes_of(environment), GONE_S), (said, processes_of(environment))
    assert becomes_true(lambda: shared_memory() <= before, GONE_S), shared_memory() - before
    errors = driver.communicate(timeout=GONE_S)[1]
    assert "KeyboardInterrupt" in errors if how == signal.SIGINT else errors == ""
