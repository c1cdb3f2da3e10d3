"""Workers as processes of this machine, forked from one small server that has loaded torch before: a start costs milliseconds, a death is
noticed at once and named, and no worker outlives its driver."""

from __future__ import annotations

import atexit
import fcntl
import multiprocessing as mp
import os
import pickle
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait as wait_for
from multiprocessing.process import BaseProcess
from typing import Any, cast

from hetsys.core.errors import EngineError
from hetsys.runtime.devices import keep_freed_memory
from hetsys.runtime.launch import Launcher, Link, Worker

PRELOAD = ("torch", "torch.distributed", "torch._dynamo", "accelerate", "hetsys.models.jobs.trainer")
"""What training processes import. The first optimizer that a process makes loads `torch._dynamo`, which takes most of a second."""

_HEADER_BYTES = 8
_CHUNK_BYTES = 1 << 16
_REAP_S = 1.0  # from the end of a worker's work to the end of its process; after that it is killed
_WATCH_S = 0.5
_SERVER_DIED = 255  # what multiprocessing gives as exit code of a process whose server cannot say it any more


@dataclass(frozen=True)
class _Failure:
    """The last message of a worker whose `main` raised."""

    line: str
    trace: str


def _pack(message: Any) -> bytes:
    """Plain pickle, so that a tensor travels by value: multiprocessing's own would leave it in shared memory that dies with its sender."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(_HEADER_BYTES, "big") + body


class _Incoming:
    """Bytes as they arrive, messages as they are complete."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, chunk: bytes) -> Iterator[Any]:
        self._bytes += chunk
        while len(self._bytes) >= _HEADER_BYTES:
            end = _HEADER_BYTES + int.from_bytes(self._bytes[:_HEADER_BYTES], "big")
            if len(self._bytes) < end:
                return
            with memoryview(self._bytes) as whole, whole[_HEADER_BYTES:end] as body:
                message = pickle.loads(body)
            del self._bytes[:end]
            yield message


class LocalLink(Link):
    """The worker's end. `send` waits until the driver has taken the message; BrokenPipeError where it has closed the connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._incoming = _Incoming()
        self._inbox: deque[Any] = deque()

    def send(self, message: Any) -> None:
        self._socket.sendall(_pack(message))

    def recv(self, timeout_s: float | None = None) -> Any:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._inbox:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not wait_for([self._socket], left_s):
                raise TimeoutError(f"the driver sent nothing for {timeout_s:g} s")
            try:
                chunk = self._socket.recv(_CHUNK_BYTES)
            except ConnectionResetError:  # closed by a driver that had not read everything
                chunk = b""
            if not chunk:
                raise EOFError("the driver has closed the connection")
            self._inbox.extend(self._incoming.add(chunk))
        return self._inbox.popleft()


class LocalWorker(Worker):
    """The driver's end, made by `LocalLauncher.start`.

    `send` never waits: what the connection does not take at once goes out while the driver is in `recv`, `wait` or `stop` of any worker of
    the same launcher, so that two sides with large messages for each other cannot block each other. `recv` hands out what a worker had
    sent before it died, then raises.
    """

    def __init__(self, name: str, process: BaseProcess, connection: socket.socket, launcher: LocalLauncher) -> None:
        self.name = name
        self.pid = cast(int, process.pid)
        self._process = process
        self._socket = connection
        self._launcher = launcher
        self._incoming = _Incoming()
        self._inbox: deque[Any] = deque()
        self._outbox = bytearray()
        self._closed = False  # by the other side
        self._failure: _Failure | None = None
        self._end: str | None = None

    @property
    def alive(self) -> bool:
        return self._end is None and self._process.is_alive()

    @property
    def ready(self) -> bool:
        """Whether `recv` would answer at once, with a message or with an error."""
        return bool(self._inbox) or self._end is not None

    def send(self, message: Any) -> None:
        self.send_packed(_pack(message))

    def send_packed(self, data: bytes) -> None:
        if self._end is None:
            self._outbox += data
            self._flush()
            if self._closed:
                self._finish()
        if self._end is not None:
            raise self._error()

    def recv(self, timeout_s: float) -> Any:
        deadline = time.monotonic() + timeout_s
        left_s = timeout_s
        while not self.ready:
            if left_s < 0:
                raise EngineError(f"{self} sent nothing for {timeout_s:g} s")
            self._launcher.exchange(left_s)
            left_s = deadline - time.monotonic()
        if self._inbox:
            return self._inbox.popleft()
        raise self._error()

    def kill(self) -> None:
        if self._end is None:
            self._process.kill()
            self._finish("was killed by its driver")

    def stop(self, grace_s: float = 3.0) -> None:
        deadline = time.monotonic() + grace_s
        while self._outbox and self._end is None and (left_s := deadline - time.monotonic()) > 0:
            self._launcher.exchange(left_s)
        if self._end is None:
            self._launcher.forget(self)
            self._socket.close()
            self._process.join(max(0.0, deadline - time.monotonic()))
            if self._process.is_alive():
                self._process.kill()
            self._finish("was stopped by its driver")

    def __str__(self) -> str:
        return f"worker {self.name} (pid {self.pid})"

    def handle(self, events: int, process_ended: bool) -> None:
        """Called by the launcher when something may be read or written, or when the process has ended."""
        if self._end is not None:
            return
        if events & selectors.EVENT_WRITE:
            self._flush()
        if events & selectors.EVENT_READ and not process_ended:
            self._read()
        if process_ended or self._closed or self._failure is not None:
            self._finish()

    def _flush(self) -> None:
        try:
            del self._outbox[: self._socket.send(self._outbox)]
        except BlockingIOError:
            pass
        except OSError:
            self._closed = True
            self._outbox.clear()
        self._launcher.watch(self, self._socket, bool(self._outbox))

    def _read(self) -> bool:
        """Take what has arrived. False where nothing has."""
        try:
            chunk = self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            chunk = b""
        self._closed = not chunk
        for message in self._incoming.add(chunk):
            if isinstance(message, _Failure):
                self._failure = message
            else:
                self._inbox.append(message)
        return bool(chunk)

    def _finish(self, how: str | None = None) -> None:
        """Reap it, and note how it ended: by itself, with its last messages to be read; or as `how` says, with nothing more to be read."""
        self._process.join(_REAP_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(_REAP_S)
        if how is None:
            while self._read():
                pass
        else:
            self._inbox.clear()
        code = self._process.exitcode
        if code is not None:
            self._process.close()
        self._launcher.forget(self)
        self._socket.close()
        self._end = f"{self} {how or self._how_it_ended(code)}"

    def _how_it_ended(self, code: int | None) -> str:
        if self._failure is not None:
            return f"failed: {self._failure.line}"
        if code is None:
            return "closed its connection and could not be ended"
        if code == 0:
            return "ended by itself, with exit code 0"
        if code == _SERVER_DIED:
            return "died with exit code 255, or the server that started it died"
        return f"died with signal {-code}" if code < 0 else f"died with exit code {code}"

    def _error(self) -> EngineError:
        error = EngineError(self._end)
        if self._failure is not None:
            error.add_note(self._failure.trace)
        return error


class LocalLauncher(Launcher):
    """Workers on this machine. One launcher serves a whole sweep: the first start waits about 2 s, until the server has imported `preload`;
    every later one takes about 15 ms until the worker is in its `main`.

    A process has one server. It starts with the first worker of a launcher that preloads, and keeps the modules of that launcher; a later
    launcher with others gets workers that import the rest themselves. Where the server has died the next start makes a new one. Without
    `preload` there is nothing to share, and each worker is a new interpreter. Preloaded modules must not run an operation of torch when
    imported, or caps on the instruction set in `env` come too late.
    """

    def __init__(self, preload: Sequence[str] = PRELOAD) -> None:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # else a look for GPUs in the server spoils CUDA in workers
        self._context: Any = mp.get_context("forkserver" if preload else "spawn")
        if preload:
            self._context.set_forkserver_preload(list(preload))
        self._selector = selectors.DefaultSelector()
        self._workers: list[LocalWorker] = []
        atexit.register(self.close)

    def start(self, name: str, main: Callable[..., None], args: tuple[Any, ...] = (), env: Mapping[str, str] | None = None) -> LocalWorker:
        orders = _pack(dict(env or {})) + _pack((main, args))
        ours, theirs = socket.socketpair()
        process = self._context.Process(target=_enter, args=(theirs,), name=name, daemon=True)
        try:
            with theirs, _sigint_blocked(), _no_false_main_file():
                process.start()
        except (OSError, EOFError) as error:
            ours.close()
            raise EngineError(f"worker {name} could not be started; the server that starts workers may have died: {error!r}") from error
        ours.setblocking(False)
        worker = LocalWorker(name, process, ours, self)
        self._workers.append(worker)
        self._selector.register(ours, selectors.EVENT_READ, (worker, False))
        self._selector.register(process.sentinel, selectors.EVENT_READ, (worker, True))
        worker.send_packed(orders)
        return worker

    def wait(self, workers: Sequence[Worker], timeout_s: float) -> list[Worker]:
        deadline = time.monotonic() + timeout_s
        self.exchange(0)
        while True:
            ready = [worker for worker in workers if cast(LocalWorker, worker).ready]
            left_s = deadline - time.monotonic()
            if ready or left_s <= 0:
                return ready
            self.exchange(left_s)

    def close(self) -> None:
        atexit.unregister(self.close)
        for worker in self._workers:
            worker._process.kill()
        for worker in list(self._workers):
            worker.kill()
        self._selector.close()

    def exchange(self, timeout_s: float) -> None:
        """Wait until some worker has something for us or takes something of ours, then read and write what can be; used by its workers."""
        for key, events in self._selector.select(timeout_s):
            worker, process_ended = key.data
            worker.handle(events, process_ended)

    def watch(self, worker: LocalWorker, connection: socket.socket, for_writing: bool) -> None:
        """Whether `exchange` shall also see when `worker` can take more."""
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if for_writing else 0)
        if self._selector.get_key(connection).events != wanted:
            self._selector.modify(connection, wanted, (worker, False))

    def forget(self, worker: LocalWorker) -> None:
        """Watch `worker` no more. Safe to call twice."""
        if worker in self._workers:
            self._workers.remove(worker)
            for key in [key for key in self._selector.get_map().values() if key.data[0] is worker]:
                self._selector.unregister(key.fileobj)


def end_server() -> None:
    """End the server that forks workers, if this process has started one, and reap it: left to itself it outlives its driver by most of a
    second. The next start makes a new one."""
    server: Any = forkserver._forkserver
    if server._forkserver_pid is not None:
        with suppress(ProcessLookupError):
            os.kill(server._forkserver_pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            server._stop()


atexit.register(end_server)


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """What is started meanwhile never sees Ctrl-C, which is for the driver to answer."""
    resource_tracker.ensure_running()  # starting it, multiprocessing would unblock the signal again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _no_false_main_file() -> Iterator[None]:
    """A driver that is read from standard input says that its file is "<stdin>", which no worker could import."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is None or os.path.exists(path):
        yield
        return
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = path


def _enter(connection: socket.socket) -> None:
    """The worker's process: receives its environment, then its work, and does it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _end_with_the_driver()
    link = LocalLink(connection)
    try:
        os.environ.update(link.recv())
        if "torch" in sys.modules:  # it read the environment when the server imported it
            sys.modules["torch"].set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
            keep_freed_memory()
        main, args = link.recv()
        main(link, *args)
    except Exception as error:
        with suppress(OSError):  # a driver that has closed the connection does not ask how it ended
            link.send(_Failure(" ".join(f"{type(error).__name__}: {error}".split()), traceback.format_exc()))
        sys.exit(1)
    finally:
        connection.close()


def _end_with_the_driver() -> None:
    """End this process when the driver dies, or the server that forked it, whatever it is doing: a thread sees that while the work is in
    C code that lets threads run, as torch's is; elsewhere Linux' SIGIO, sent when the driver's end of a pipe closes, ends it."""
    driver = mp.parent_process()
    assert driver is not None
    started_by = os.getppid()

    def watch() -> None:
        while os.getppid() == started_by and not wait_for([driver.sentinel], _WATCH_S):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    if sys.platform == "linux":
        fcntl.fcntl(driver.sentinel, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(driver.sentinel, fcntl.F_SETFL, fcntl.fcntl(driver.sentinel, fcntl.F_GETFL) | os.O_ASYNC)
