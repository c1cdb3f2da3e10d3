"""Processes of a test: started by a server that has torch loaded, awaited with a timeout, and gone when the test is over."""

from __future__ import annotations

import multiprocessing as mp
import os
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Ended:
    """What became of a child: its `value`, or `error` (the traceback, or "died"); `seconds` from the start of all children to its end."""

    value: Any
    error: str
    seconds: float


def run(work: Callable[..., Any], *calls: tuple[Any, ...], env: Mapping[str, str] | None = None, awaited: int | None = None) -> list[Ended]:
    """Call `work(*call)` in a process of its own for each of `calls`, all at the same time, `env` put into the environment first.

    The first `awaited` (all, if None) are waited for; whatever runs then is killed.
    """
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["hetsys.models.jobs.trainer"])
    started, children = time.monotonic(), []
    for call in calls:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_main, args=(theirs, dict(env or {}), work, call), daemon=True)
        process.start()
        theirs.close()
        children.append((process, ours))
    try:
        return [_result(pipe, started) for _, pipe in children[:awaited]]
    finally:
        for process, _ in children:
            process.kill()
            process.join(10)


def values(work: Callable[..., Any], *calls: tuple[Any, ...], env: Mapping[str, str] | None = None) -> list[Any]:
    """The same, where every child is to succeed."""
    ended = run(work, *calls, env=env)
    assert [one.error for one in ended] == [""] * len(calls)
    return [one.value for one in ended]


def _result(pipe: Connection, started: float) -> Ended:
    try:
        value, error = pipe.recv() if pipe.poll(max(0.0, TIMEOUT_S + started - time.monotonic())) else (None, "timed out")
    except EOFError:
        value, error = None, "died"
    return Ended(value, error, time.monotonic() - started)


def _main(pipe: Connection, env: dict[str, str], work: Callable[..., Any], call: tuple[Any, ...]) -> None:
    os.environ.update(env)
    try:
        pipe.send((work(*call), ""))
    except BaseException:
        pipe.send((None, traceback.format_exc()))
