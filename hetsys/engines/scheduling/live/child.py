"""The process of one rank of a training job under a lease: it makes the steps that it is ordered to make, and counts them itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from hetsys.engines.scheduling.live.orders import Beat, Report, RunSteps, RunUntil, Start, Training
from hetsys.runtime.launch import Link
from hetsys.runtime.pacer import Pacer

ORDER_TIMEOUT_S = 900.0
"""A process that hears nothing for so long is forgotten, and ends."""
BEAT_NS = 100_000_000

Agree = Callable[[bool], bool]


@dataclass(frozen=True)
class Where:
    """What torch says of where a process computes: see Report."""

    computed_on: str = ""
    capability: str = ""


def nothing(link: Link) -> None:
    """The main of a process that is started so that the next one starts fast."""


def train(link: Link, start: Start) -> None:
    """Build the job, go on from its checkpoint, join its gang; then obey orders until the driver closes the connection."""
    import torch

    from hetsys.models.jobs import gang
    from hetsys.models.jobs.trainer import Trainer

    device = torch.device(f"cuda:{start.cuda_index}" if start.native == "cuda" else "cpu")
    if start.world_size > 1:
        gang.join(start.rank, start.world_size, start.rendezvous, device)
    trainer = Trainer(start.program, start.seed, start.rank, start.world_size, device)
    try:
        if start.checkpoint:
            trainer.load(start.checkpoint)
        agree = _agree_on(device) if start.world_size > 1 else _decide_alone
        where = Where(str(next(trainer.net.parameters()).device), torch.backends.cpu.get_cpu_capability())
        obey(link, start, trainer, agree, where)
    finally:
        trainer.close()


def obey(link: Link, start: Start, training: Training, agree: Agree, where: Where = Where()) -> None:
    """Carry out orders as they come and report on each. `agree(go)`: rank 0's `go`, the same on all ranks of the gang."""
    pacer = Pacer(start.busy_fraction)
    while True:
        try:
            order = link.recv(ORDER_TIMEOUT_S)
        except EOFError:
            return
        link.send(_carry_out(order, link, start, training, agree, pacer, where))


def _carry_out(
    order: RunSteps | RunUntil, link: Link, start: Start, training: Training, agree: Agree, pacer: Pacer, where: Where
) -> Report:
    first_step, reduced_before = training.step_index, training.reduced_bytes
    losses: list[float] = []
    pacer.restart()
    began_ns = ended_ns = time.monotonic_ns()
    cpu_before_ns = time.process_time_ns()
    beat_ns = began_ns + BEAT_NS
    while _goes_on(order, len(losses), agree):
        losses.append(training.step())
        pacer.rest()
        ended_ns = time.monotonic_ns()
        if ended_ns >= beat_ns:
            link.send(Beat(len(losses)))
            beat_ns = ended_ns + BEAT_NS
    cpu_ns = time.process_time_ns() - cpu_before_ns
    saved_step = -1
    if order.save and start.rank == 0:
        training.save(order.save)
        saved_step = training.step_index
    return Report(
        job=start.job, rank=start.rank, device=start.device, kind=start.kind, steps=len(losses), first_step=first_step,
        losses=tuple(losses) if start.rank == 0 else (), reduced_bytes=training.reduced_bytes - reduced_before, saved_step=saved_step,
        began_ns=began_ns, ended_ns=ended_ns, last_step=training.step_index, computed_on=where.computed_on, capability=where.capability,
        cpu_ns=cpu_ns,
    )  # fmt: skip


def _goes_on(order: RunSteps | RunUntil, steps: int, agree: Agree) -> bool:
    """Whether one more step is to be made. Against the clock rank 0 decides for its gang, so that no rank waits for one that stopped."""
    if isinstance(order, RunSteps):
        return steps < order.steps
    return agree(steps < order.max_steps and time.monotonic_ns() < order.deadline_ns)


def _decide_alone(go: bool) -> bool:
    return go


def _agree_on(device: object) -> Agree:
    import torch
    import torch.distributed as dist

    word = torch.zeros(1, dtype=torch.int32, device=torch.device(device))  # type: ignore[call-overload]

    def agree(go: bool) -> bool:
        word.fill_(int(go))
        dist.broadcast(word, src=0)
        return bool(word.item())

    return agree
