"""What a driver has left behind: its processes are found by a marker in their environment, whoever their parent is now."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

MARKER = "HETSYS_TEST_MARKER"
PROC = Path("/proc")
SHARED_MEMORY = Path("/dev/shm")


def marked_environment() -> dict[str, str]:
    return {**os.environ, MARKER: uuid.uuid4().hex}


def processes_of(environment: Mapping[str, str]) -> dict[int, str]:
    """Pid and command of every running process that was started, directly or not, with this environment."""
    wanted = f"{MARKER}={environment[MARKER]}".encode()
    found = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes() and ") Z " not in (folder / "stat").read_text():
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
        except OSError:  # gone meanwhile, or somebody else's
            continue
    return found


def shared_memory() -> set[str]:
    return set(os.listdir(SHARED_MEMORY)) if SHARED_MEMORY.is_dir() else set()


def becomes_true(condition: Callable[[], bool], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
