"""A few worker processes that work through a list of tasks: no orphan, no hang, a death is named and costs only its own task."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

_POLL_S = 1.0
_GRACE_S = 3.0


@dataclass(frozen=True)
class TaskResult:
    """What became of task `index`: its `value`, or the `error` (one line) and its `traceback`."""

    index: int
    value: Any = None
    error: str | None = None
    traceback: str = ""


@dataclass
class _Worker:
    name: str
    process: BaseProcess
    pipe: Connection
    task: int | None = None


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
    context = mp.get_context("spawn")
    workers: list[_Worker] = []
    queue = list(range(len(tasks)))[::-1]
    try:
        workers += [_start(context, work, number) for number in range(num_workers)]
        remaining = len(tasks)
        while remaining:
            for worker in workers:
                if worker.task is None and queue:
                    worker.task = queue.pop()
                    with suppress(BrokenPipeError):  # it died while idle: _collect sees that and gives the task back as failed
                        worker.pipe.send((worker.task, tasks[worker.task]))
            for result in _collect(context, work, workers):
                remaining -= 1
                yield result
    finally:
        _stop(workers)


def _collect(context: Any, work: Callable[[Any], Any], workers: list[_Worker]) -> list[TaskResult]:
    """Whatever has ended within the poll time; replaces the workers that died."""
    ready = wait([worker.pipe for worker in workers], timeout=_POLL_S)
    results = []
    for number, worker in enumerate(workers):
        if worker.pipe not in ready:
            continue
        try:
            results.append(worker.pipe.recv())
            worker.task = None
        except (EOFError, ConnectionResetError):
            worker.process.join(_GRACE_S)
            if worker.task is not None:
                how = f"{worker.name} (pid {worker.process.pid}) died with exit code {worker.process.exitcode}"
                results.append(TaskResult(worker.task, error=f"{how} while it ran this task; the others went on"))
            workers[number] = _start(context, work, number)
    return results


def _start(context: Any, work: Callable[[Any], Any], number: int) -> _Worker:
    ours, theirs = context.Pipe()
    name = f"worker-{number}"
    process = context.Process(target=_serve, args=(theirs, work), name=name, daemon=True)
    process.start()
    theirs.close()
    return _Worker(name, process, ours)


def _stop(workers: list[_Worker]) -> None:
    for worker in workers:
        if worker.task is not None:
            worker.process.terminate()
        worker.pipe.close()
    for worker in workers:
        worker.process.join(_GRACE_S)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join(_GRACE_S)


def attempt(index: int, task: Any, work: Callable[[Any], Any]) -> TaskResult:
    """`work` of `task`, its exception turned into a line and a traceback."""
    try:
        return TaskResult(index, work(task))
    except Exception as error:
        return TaskResult(index, error=f"{type(error).__name__}: {error}", traceback=traceback.format_exc())


def _serve(pipe: Connection, work: Callable[[Any], Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    while True:
        try:
            index, task = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(attempt(index, task, work))


def _leave(signum: int, frame: object) -> None:
    signal.signal(signum, signal.SIG_IGN)
    raise SystemExit(128 + signum)


def _die_with_parent() -> None:
    parent = mp.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
