"""The worker pool: results in any order, errors as lines, a death named and survived, nothing left behind."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from hetsys.runtime.pool import run_tasks


def square(value: int) -> int:
    if value == 3:
        raise ValueError("three")
    if value == 4 and mp.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return value * value


@pytest.mark.parametrize("workers", [1, 2])
def test_every_task_has_one_result_and_errors_are_lines(workers: int) -> None:
    results = {result.index: result for result in run_tasks([0, 1, 2, 3], square, workers)}
    assert [results[i].value for i in range(3)] == [0, 1, 4]
    assert results[3].error == "ValueError: three" and "square" in results[3].traceback


def test_a_dead_worker_is_named_and_the_others_go_on() -> None:
    results = {result.index: result for result in run_tasks([4, 0, 1, 2, 5], square, 2)}
    assert "died with exit code -9" in (results[0].error or "") and "worker-" in (results[0].error or "")
    assert [results[i].value for i in (1, 2, 3, 4)] == [0, 1, 4, 25]


DRIVER = """
import sys, time
from hetsys.runtime.pool import run_tasks
if __name__ == "__main__":
    print("started", flush=True)
    for result in run_tasks([60, 60], time.sleep, 2):
        print(result)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_outlives_its_driver(how: signal.Signals) -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert driver.stdout is not None and driver.stdout.readline() == b"started\n"
    deadline = time.monotonic() + 20
    while len(family := psutil.Process(driver.pid).children(recursive=True)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(family) >= 2
    time.sleep(0.5)
    driver.send_signal(how)
    driver.wait(10)
    _, alive = psutil.wait_procs(family, timeout=5)
    assert not alive
