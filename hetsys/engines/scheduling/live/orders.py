"""What the scheduling executor and the processes of a training job say to each other. One process a gang rank a lease."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Start:
    """Begin rank `rank` of a lease. `program`: family/size. `checkpoint`: the file to go on from; empty: from the first step.

    `rendezvous`: a file, fresh for this lease, by which the ranks of a gang find each other. `native`, `cuda_index`, `busy_fraction`: see
    `DeviceSheet`; on an emulated device `native` is "" and the process computes on the CPU as it is.
    """

    job: str
    program: str
    seed: int
    rank: int
    world_size: int
    device: str
    kind: str
    checkpoint: str
    rendezvous: str
    native: str = ""
    cuda_index: int = 0
    busy_fraction: float = 1.0


@dataclass(frozen=True)
class RunSteps:
    """Make `steps` optimiser steps; then, where `save` names a file, rank 0 writes a checkpoint there (whole or not at all)."""

    steps: int
    save: str = ""


@dataclass(frozen=True)
class RunUntil:
    """Make steps until the system-wide monotonic clock shows `deadline_ns`, the step under way included, or `max_steps` are made."""

    deadline_ns: int
    max_steps: int
    save: str = ""


@dataclass(frozen=True)
class Report:
    """What a rank really did since the last order, counted where it was done.

    `first_step`: the index in the job of the first of `steps` steps; `losses[i]`: the loss of the gang's whole batch at step
    `first_step + i` (rank 0; other ranks leave it empty). `reduced_bytes`: gradient bytes that went into reductions. `saved_step`: the step
    that the checkpoint written holds, -1 for none. `began_ns`, `ended_ns`: monotonic clock, first step begun to last step ended;
    `cpu_ns`: processor time of this process between them. `last_step`: where the job stands, by the trainer's own count. `computed_on`:
    torch's name of where its parameters lie; `capability`: of the instructions that torch uses on the CPU.
    """

    job: str
    rank: int
    device: str
    kind: str
    steps: int
    first_step: int
    losses: tuple[float, ...]
    reduced_bytes: int
    saved_step: int
    began_ns: int
    ended_ns: int
    last_step: int
    computed_on: str = ""
    capability: str = ""
    cpu_ns: int = 0


@dataclass(frozen=True)
class Beat:
    """A rank at work says, several times a second, how many steps of its order are made: so one that hangs is told from one that is busy,
    and of one that dies it is known what was lost."""

    steps: int


class Training(Protocol):
    """What a process does its steps with: `hetsys.models.jobs.trainer.Trainer`."""

    step_index: int

    @property
    def reduced_bytes(self) -> int: ...

    def step(self) -> float: ...

    def save(self, path: Path | str) -> None: ...
