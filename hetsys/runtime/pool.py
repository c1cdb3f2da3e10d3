"""A few worker processes that work through a list of tasks: no orphan, no hang, a death is named and costs only its own task."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hetsys.core.errors import EngineError
from hetsys.runtime.launch import Launcher, Link, Worker
from hetsys.runtime.local import LocalLauncher

_POLL_S = 1.0
_GRACE_S = 3.0


@dataclass(frozen=True)
class TaskResult:
    """What became of task `index`: its `value`, or the `error` (one line) and its `traceback`."""

    index: int
    value: Any = None
    error: str | None = None
    traceback: str = ""


def run_tasks(tasks: Sequence[Any], work: Callable[[Any], Any], num_workers: int) -> Generator[TaskResult]:
    """Yield a result for every task as it ends, in order of completion. `work` and the tasks must be picklable.

    With one worker everything runs in this process. A worker that dies is replaced and its task fails with a line that names it. However
    this generator ends (exhausted, closed, interrupted), no worker is left; and workers end by themselves if this process is killed.
    """
    num_workers = min(num_workers, len(tasks))
    if num_workers <= 1:
        for index, task in enumerate(tasks):
            yield attempt(index, task, work)
        return
    launcher = LocalLauncher(preload=())  # new interpreters: a simulation needs no torch, and a process can have one server only
    workers: dict[str, Worker] = {}
    running: dict[str, int] = {}
    queue = list(range(len(tasks)))[::-1]
    try:
        workers |= {str(number): launcher.start(str(number), _serve, (work,)) for number in range(num_workers)}
        remaining = len(tasks)
        while remaining:
            for name, worker in workers.items():
                if name not in running and queue:
                    running[name] = queue.pop()
                    with suppress(EngineError):  # it died while idle: _collect sees that and gives the task back as failed
                        worker.send((running[name], tasks[running[name]]))
            for result in _collect(launcher, work, workers, running):
                remaining -= 1
                yield result
    finally:
        _stop(launcher, workers, running)


def _collect(launcher: Launcher, work: Callable[[Any], Any], workers: dict[str, Worker], running: dict[str, int]) -> list[TaskResult]:
    """Whatever has ended within the poll time; replaces the workers that died."""
    results = []
    for worker in launcher.wait(list(workers.values()), _POLL_S):
        index = running.pop(worker.name, None)
        try:
            results.append(worker.recv(_GRACE_S))
        except EngineError as death:
            workers[worker.name] = launcher.start(worker.name, _serve, (work,))
            if index is not None:
                results.append(TaskResult(index, error=f"{death} while it ran this task; the others went on"))
    return results


def _stop(launcher: Launcher, workers: dict[str, Worker], running: dict[str, int]) -> None:
    """Interrupt those that work, so that they can put away what they have begun; let the others end; kill what is left."""
    for name in running:
        if workers[name].alive:
            with suppress(ProcessLookupError):
                os.kill(workers[name].pid, signal.SIGTERM)
    for worker in workers.values():
        worker.stop(_GRACE_S)
    launcher.close()


def attempt(index: int, task: Any, work: Callable[[Any], Any]) -> TaskResult:
    """`work` of `task`, its exception turned into a line and a traceback."""
    try:
        return TaskResult(index, work(task))
    except Exception as error:
        return TaskResult(index, error=f"{type(error).__name__}: {error}", traceback=traceback.format_exc())


def _serve(link: Link, work: Callable[[Any], Any]) -> None:
    signal.signal(signal.SIGTERM, _leave)
    with suppress(EOFError):  # the driver has nothing more
        while True:
            index, task = link.recv()
            link.send(attempt(index, task, work))


def _leave(signum: int, frame: object) -> None:
    signal.signal(signum, signal.SIG_IGN)
    raise SystemExit(128 + signum)
