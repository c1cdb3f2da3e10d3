"""How workers come to life: a small interface, filled by `local` (processes of this machine); `ray` will fill it for many machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class Link(Protocol):
    """A worker's end of its connection with the driver."""

    def send(self, message: Any) -> None: ...

    def recv(self, timeout_s: float | None = None) -> Any:
        """The next message. Raises EOFError when the driver has closed the connection, TimeoutError when nothing came in time."""
        ...


class Worker(Protocol):
    """The driver's hold on one worker process. `name` is what errors call it."""

    name: str
    pid: int

    @property
    def alive(self) -> bool: ...

    def send(self, message: Any) -> None:
        """Raises EngineError, naming the worker and how it ended, if it is dead."""
        ...

    def recv(self, timeout_s: float) -> Any:
        """The next message. Raises EngineError, naming the worker: within 2 s of its death, or when nothing came for `timeout_s`."""
        ...

    def kill(self) -> None:
        """End it at once (SIGKILL) and reap it."""
        ...

    def stop(self, grace_s: float = 3.0) -> None:
        """Close the connection, wait `grace_s` for it to end by itself, then kill. Safe to call twice."""
        ...


class Launcher(Protocol):
    """Starts workers and watches them. One launcher serves a whole sweep, so that starting is cheap after the first time."""

    def start(self, name: str, main: Callable[..., None], args: tuple[Any, ...] = (), env: Mapping[str, str] | None = None) -> Worker:
        """Start a process that runs `main(link, *args)`; `env` is put into its environment before `main` is entered. `main` and `args`
        must be picklable. An exception in `main` reaches the driver as EngineError with the worker's name and the traceback's last line."""
        ...

    def wait(self, workers: Sequence[Worker], timeout_s: float) -> list[Worker]:
        """Those of `workers` that have a message to read or have died, as soon as there is one; empty after `timeout_s`."""
        ...

    def close(self) -> None:
        """End every worker that is left. Safe to call twice."""
        ...
