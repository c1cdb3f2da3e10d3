"""Stand-ins for what makes live scheduling slow: workers that are threads, and training that is arithmetic, behind the same interfaces."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from hetsys.core.errors import EngineError
from hetsys.engines.scheduling.live.child import obey
from hetsys.engines.scheduling.live.orders import RunSteps, Start

BYTES_A_STEP = 12
_DEAD = object()
FALLS_OF_10000 = 8
"""How many of 10,000 steps kill a process of their job, once: about 5 % of all leases then crash."""


class ThreadLink:
    def __init__(self, wake: threading.Condition) -> None:
        self.to_driver: Queue[Any] = Queue()
        self.to_worker: Queue[Any] = Queue()
        self._wake = wake

    def send(self, message: Any) -> None:
        self.to_driver.put(message)
        with self._wake:
            self._wake.notify_all()

    def recv(self, timeout_s: float | None = None) -> Any:
        try:
            message = self.to_worker.get(timeout=timeout_s)
        except Empty:
            raise TimeoutError from None
        if message is _DEAD:
            raise EOFError
        return message


class ThreadWorker:
    """A worker of the launcher's interface that lives in a thread; what its `main` raises is its death."""

    pid = 0

    def __init__(self, name: str, main: Callable[..., None], args: tuple[Any, ...], wake: threading.Condition) -> None:
        self.name, self.link, self.error = name, ThreadLink(wake), ""
        self._main, self._args = main, args
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._main(self.link, *self._args)
        except Exception as error:
            self.error = f"worker {self.name} failed: {type(error).__name__}: {error}"
            self.link.send(_DEAD)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def send(self, message: Any) -> None:
        if self.error:
            raise EngineError(self.error)
        self.link.to_worker.put(message)

    def recv(self, timeout_s: float) -> Any:
        message = self.link.to_driver.get(timeout=timeout_s)
        if message is _DEAD:
            raise EngineError(self.error)
        return message

    def kill(self) -> None:
        self.link.to_worker.put(_DEAD)

    def stop(self, grace_s: float = 3.0) -> None:
        self.kill()


class ThreadLauncher:
    """`started`: the names of all workers and their environments."""

    def __init__(self) -> None:
        self.started: list[tuple[str, dict[str, str]]] = []
        self._workers: list[ThreadWorker] = []
        self._wake = threading.Condition()

    def start(self, name: str, main: Callable[..., None], args: tuple[Any, ...] = (), env: Mapping[str, str] | None = None) -> ThreadWorker:
        self.started.append((name, dict(env or {})))
        self._workers.append(ThreadWorker(name, main, args, self._wake))
        return self._workers[-1]

    def wait(self, workers: Sequence[ThreadWorker], timeout_s: float) -> list[ThreadWorker]:
        with self._wake:
            self._wake.wait_for(lambda: any(not worker.link.to_driver.empty() for worker in workers), timeout_s)
        return [worker for worker in workers if not worker.link.to_driver.empty()]

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()


class FakeTraining:
    """Each step makes the next of a chain of numbers, drawn from the job's seed, and calls it a loss."""

    def __init__(self, start: Start) -> None:
        self.start, self.step_index, self.reduced_bytes = start, 0, 0
        self._state = f"{start.program}/{start.seed}"
        if start.checkpoint:
            saved = json.loads(Path(start.checkpoint).read_text())
            self.step_index, self._state = saved["step"], saved["state"]

    def step(self) -> float:
        self._state = hashlib.sha256(f"{self._state}/{self.step_index}".encode()).hexdigest()
        self.step_index += 1
        self.reduced_bytes += BYTES_A_STEP * (self.start.world_size > 1)
        return float(struct.unpack("<I", bytes.fromhex(self._state[:8]))[0])

    def save(self, path: Path | str) -> None:
        Path(path).write_text(json.dumps({"step": self.step_index, "state": self._state}))


def undisturbed(program: str, seed: int, steps: int) -> list[float]:
    """The losses of a job that runs through in one piece."""
    training = FakeTraining(Start("", program, seed, 0, 1, "", "", "", ""))
    return [training.step() for _ in range(steps)]


def _alone(go: bool) -> bool:
    return go


def fake_train(link: Any, start: Start) -> None:
    obey(link, start, FakeTraining(start), _alone)


def slow_train(link: Any, start: Start) -> None:
    """Takes its time, another each time, before it begins and in some steps."""

    class Slow(FakeTraining):
        def step(self) -> float:
            if random.random() < 0.02:
                time.sleep(random.uniform(0, 0.01))
            return super().step()

    time.sleep(random.uniform(0, 0.03))
    obey(link, start, Slow(start), _alone)


class Altered:
    """A link that changes every order on its way, by `change`."""

    def __init__(self, link: Any, change: Callable[[RunSteps], RunSteps]) -> None:
        self._link, self._change = link, change

    def send(self, message: Any) -> None:
        self._link.send(message)

    def recv(self, timeout_s: float | None = None) -> Any:
        return self._change(self._link.recv(timeout_s))


def _is_victim(start: Start) -> bool:
    return start.job == "victim" and start.rank == start.world_size - 1


def skips_a_step(link: Any, start: Start) -> None:
    crooked = Altered(link, lambda order: replace(order, steps=max(0, order.steps - 1))) if _is_victim(start) else link
    obey(crooked, start, FakeTraining(start), _alone)


def doubles_a_step(link: Any, start: Start) -> None:
    crooked = Altered(link, lambda order: replace(order, steps=order.steps + 1)) if _is_victim(start) else link
    obey(crooked, start, FakeTraining(start), _alone)


def runs_elsewhere(link: Any, start: Start) -> None:
    fake_train(link, replace(start, device="fast-9-9") if _is_victim(start) else start)


def writes_no_checkpoint(link: Any, start: Start) -> None:
    training = FakeTraining(start)
    if start.job == "victim":
        training.save = lambda path: None  # type: ignore[method-assign]
    obey(link, start, training, _alone)


def never_saves(link: Any, start: Start) -> None:
    crooked = Altered(link, lambda order: replace(order, save="")) if start.job == "victim" else link
    obey(crooked, start, FakeTraining(start), _alone)


def starts_over(link: Any, start: Start) -> None:
    """Forgets its checkpoint, so that a resumed job repeats steps that stand already."""
    fake_train(link, replace(start, checkpoint="") if start.job == "victim" else start)


def pretends_a_step(link: Any, start: Start) -> None:
    """Counts a step, its 5th, that it does not make."""

    class Pretender(FakeTraining):
        pretended = False

        def step(self) -> float:
            if self.step_index == 4 and not self.pretended and start.job == "victim":
                self.pretended = True
                return 0.0
            return super().step()

    obey(link, start, Pretender(start), _alone)


def reduces_nothing(link: Any, start: Start) -> None:
    training = FakeTraining(start)
    training.start = replace(start, world_size=1) if _is_victim(start) else start
    obey(link, start, training, _alone)


def crashes_once(link: Any, start: Start) -> None:
    """Kills itself (SIGKILL) in the last rank of "victim", at the 8th step of its life, the first time; a file beside its checkpoints says
    that it did."""
    obey(link, start, _crasher(start, lambda: os.kill(os.getpid(), signal.SIGKILL)), _alone)


def raises_once(link: Any, start: Start) -> None:
    """As `crashes_once`, by an exception."""

    def fall() -> None:
        raise RuntimeError("out of memory, it says")

    obey(link, start, _crasher(start, fall), _alone)


def always_raises(link: Any, start: Start) -> None:
    if start.job == "victim":
        raise RuntimeError("cannot find its data")
    fake_train(link, start)


def _crasher(start: Start, fall: Callable[[], None]) -> FakeTraining:
    class Crasher(FakeTraining):
        def step(self) -> float:
            marker = Path(start.rendezvous).parent.parent / "crashed"
            if _is_victim(start) and self.step_index == 8 and not marker.exists():
                marker.touch()
                fall()
            return super().step()

    return Crasher(start)


class _Timed(FakeTraining):
    """Steps of 5 ms, so that a native round has some."""

    def step(self) -> float:
        time.sleep(0.005)
        return super().step()


def timed_train(link: Any, start: Start) -> None:
    obey(link, start, _Timed(start), _alone)


def timed_raising_train(link: Any, start: Start) -> None:
    """Steps of 5 ms; the first process of "victim" fails at its 40th step."""

    class Falling(_Timed):
        def step(self) -> float:
            marker = Path(start.rendezvous).parent.parent / "crashed"
            if start.job == "victim" and self.step_index == 40 and not marker.exists():
                marker.touch()
                raise RuntimeError("out of memory, it says")
            return super().step()

    obey(link, start, Falling(start), _alone)


def trains_and_kills_a_rank(link: Any, start: Start) -> None:
    """Real training, in which the last rank of "victim" kills itself at the 30th step, the first time."""
    from hetsys.engines.scheduling.live.child import train
    from hetsys.models.jobs.trainer import Trainer

    step = Trainer.step

    def step_or_die(trainer: Trainer) -> float:
        marker = Path(start.rendezvous).parent.parent / "crashed"
        if _is_victim(start) and trainer.step_index == 30 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return step(trainer)

    Trainer.step = step_or_die  # type: ignore[method-assign]
    train(link, start)


def falls(job: str, step: int) -> bool:
    """Whether a process of `job` falls before it makes `step`, the first time that it comes to it."""
    digest = hashlib.sha256(f"{job}/{step}".encode()).digest()
    return int.from_bytes(digest[:4], "little") % 10_000 < FALLS_OF_10000


def falling_train(link: Any, start: Start) -> None:
    """A process whose training is arithmetic, and whose last rank kills itself (SIGKILL) as `falls` says; files remember that it did."""

    class Falling(FakeTraining):
        def step(self) -> float:
            if start.rank == start.world_size - 1 and falls(start.job, self.step_index):
                marker = Path(start.rendezvous).parent.parent / f"fell-{start.job}-{self.step_index}"
                if not marker.exists():
                    marker.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            return super().step()

    obey(link, start, Falling(start), _alone)
