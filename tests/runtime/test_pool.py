"""The worker pool: results in any order, errors as lines, a death named and survived, nothing left behind."""

from __future__ import annotations

import multiprocessing as mp
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hetsys.runtime.pool import run_tasks
from tests.runtime.leftovers import PROC, becomes_true, marked_environment, processes_of


class Interrupted:
    """Work that notes in a file that it was interrupted, as a run's folder does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, number: int) -> None:
        (self.folder / f"begun {number}").touch()
        try:
            time.sleep(60 if number else 0)
        except SystemExit:
            (self.folder / f"interrupted {number}").touch()
            raise


def test_closing_early_interrupts_what_runs(tmp_path: Path) -> None:
    results = run_tasks([0, 1, 2], Interrupted(tmp_path), 2)
    assert next(results).index == 0
    assert becomes_true((tmp_path / "begun 1").exists, 20)
    results.close()
    assert {path.name for path in tmp_path.iterdir()} == {"begun 0", "begun 1", "interrupted 1"}


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
    assert re.fullmatch(r"worker \d \(pid \d+\) died with signal 9 while it ran this task; the others went on", results[0].error or "")
    assert [results[i].value for i in (1, 2, 3, 4)] == [0, 1, 4, 25]


DRIVER = """
import sys, time
from hetsys.runtime.pool import run_tasks
if __name__ == "__main__":
    print("started", flush=True)
    for result in run_tasks([60, 60], time.sleep, 2):
        print(result)
"""


@pytest.mark.skipif(not PROC.is_dir(), reason="needs /proc to find a driver's processes")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_its_driver(how: signal.Signals) -> None:
    environment = marked_environment()
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    assert driver.stdout is not None and driver.stdout.readline() == b"started\n"
    assert becomes_true(lambda: sum("--multiprocessing-fork" in command for command in processes_of(environment).values()) == 2, 20)
    time.sleep(0.5)
    driver.send_signal(how)
    driver.wait(10)
    assert becomes_true(lambda: not processes_of(environment), 5), processes_of(environment)
