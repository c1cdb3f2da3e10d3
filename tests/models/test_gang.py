"""Gangs: what 2 or 4 processes train together is what one trains alone, and a lost peer ends the others' waiting."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hetsys.models.jobs import gang
from hetsys.models.jobs.families import FAMILIES
from hetsys.models.jobs.trainer import Trainer, step_reduced_bytes
from tests.models import children

PROGRAMS = [f"{name}/tiny" for name in FAMILIES]
STEPS, STOP = 5, 3
STRANGE_SETTINGS = {"ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_USE_FSDP": "true", "PMI_SIZE": "7", "RANK": "9", "WORLD_SIZE": "1"}


def lease(program: str, rank: int, world_size: int, folder: Path, steps: int, load: str = "", save: str = "") -> dict[str, Any]:
    """Join, go on from `load`, make steps, write `save`, leave: one lease of one rank."""
    gang.join(rank, world_size, str(folder / f"{program.replace('/', '-')}-{load}-{save}"), timeout_s=60)
    trainer = Trainer(program, 7, rank, world_size)
    if load:
        trainer.load(folder / load)
    losses = [trainer.step() for _ in range(steps)]
    if save and rank == 0:
        trainer.save(folder / save)
    found = {"losses": losses, "gradients": trainer.gradients().tolist(), "reduced": trainer.reduced_bytes, "steps": trainer.step_index}
    trainer.close()
    return found


def train(rank: int, world_size: int, folder: Path, gathered_bytes: int) -> dict[str, Any]:
    """Every program: one step, all steps, and all steps again in two leases. Larger gradients than `gathered_bytes` go round the ring."""
    found = {}
    gang.GATHERED_BYTES = gathered_bytes
    for program in PROGRAMS:
        name = program.replace("/", "-")
        once = lease(program, rank, world_size, folder, 1)
        whole = lease(program, rank, world_size, folder, STEPS, save=f"{name}-whole")
        first = lease(program, rank, world_size, folder, STOP, save=f"{name}-first")
        second = lease(program, rank, world_size, folder, STEPS - STOP, load=f"{name}-first")
        found[program] = {"once": once, "whole": whole, "first": first, "second": second}
    return found


def relative_error(found: list[float], expected: torch.Tensor) -> float:
    return float((torch.tensor(found) - expected).norm() / expected.norm())


@pytest.mark.parametrize(("world_size", "gathered_bytes"), [(2, gang.GATHERED_BYTES), (4, gang.GATHERED_BYTES), (4, 0)])
def test_a_gang_trains_as_one_process_and_resumes_bit_for_bit(world_size: int, gathered_bytes: int, tmp_path: Path) -> None:
    calls = ((rank, world_size, tmp_path, gathered_bytes) for rank in range(world_size))
    ranks = children.values(train, *calls, env=STRANGE_SETTINGS)
    for program in PROGRAMS:
        alone = Trainer(program, 7)
        first_loss = alone.step()
        first_gradients = alone.gradients()
        losses = [first_loss, *(alone.step() for _ in range(STEPS - 1))]
        for found in (rank[program] for rank in ranks):
            assert relative_error(found["once"]["gradients"], first_gradients) < 2e-6
            assert found["whole"]["losses"] == pytest.approx(losses, rel=1e-5)
            assert found["first"]["losses"] + found["second"]["losses"] == found["whole"]["losses"]
            assert found["second"]["gradients"] == found["whole"]["gradients"] == ranks[0][program]["whole"]["gradients"]
            assert (found["first"]["steps"], found["second"]["steps"]) == (STOP, STEPS)
            assert found["whole"]["reduced"] == STEPS * step_reduced_bytes(program)
            assert found["second"]["reduced"] == (STEPS - STOP) * step_reduced_bytes(program)
        resumed = Trainer(program, 7)
        resumed.load(tmp_path / f"{program.replace('/', '-')}-whole")
        assert resumed.step() == pytest.approx(alone.step(), rel=1e-5), "one process can go on from a gang's checkpoint"


def skip_own_slice(rank: int, rendezvous: str) -> tuple[float, list[float]]:
    """Rank 1 trains on rank 0's samples."""
    gang.join(rank, 2, rendezvous, timeout_s=60)
    trainer = Trainer("conv/tiny", 7, rank, 2)
    trainer._batches = FAMILIES["conv"].bank("tiny", 7).slices(0, 2, trainer.device)
    return trainer.step(), trainer.gradients().tolist()


def be_left_alone(rank: int, rendezvous: str, how: str) -> str:
    """Rank 1 stays away, or dies or freezes after two steps; rank 0 says what it got instead of a third."""
    if rank == 1 and how == "absent":
        return ""
    gang.join(rank, 2, rendezvous, timeout_s=4 if how in ("absent", "frozen") else 60)
    trainer = Trainer("conv/tiny", 7, rank, 2)
    for _ in range(2):
        trainer.step()
    if rank == 1:
        if how == "dead":
            os._exit(1)
        os.kill(os.getpid(), signal.SIGSTOP)
    try:
        trainer.step()
    except RuntimeError as error:
        return f"RuntimeError: {error}"
    return "it went on"


def test_a_rank_that_skips_its_slice_is_seen_in_the_gradients(tmp_path: Path) -> None:
    alone = Trainer("conv/tiny", 7)
    loss = alone.step()
    (found, gradients), _ = children.values(skip_own_slice, (0, str(tmp_path / "r")), (1, str(tmp_path / "r")))
    assert relative_error(gradients, alone.gradients()) > 0.01
    assert found != pytest.approx(loss, rel=1e-4)


def test_a_dead_peer_raises_at_once(tmp_path: Path) -> None:
    left, dead = children.run(be_left_alone, *((rank, str(tmp_path / "r"), "dead") for rank in (0, 1)))
    assert dead.error == "died"
    assert left.value.startswith("RuntimeError") and left.seconds < 40, "long before the gang's timeout of 60 s"


@pytest.mark.parametrize("how", ["frozen", "absent"])
def test_a_peer_that_does_not_come_or_freezes_raises_after_the_timeout(how: str, tmp_path: Path) -> None:
    [left] = children.run(be_left_alone, *((rank, str(tmp_path / "r"), how) for rank in (0, 1)), awaited=1)
    text = left.value or left.error
    assert "Error" in text and re.search("timed out|timeout", text, re.IGNORECASE)


def see_one_process(rank: int, rendezvous: str) -> list[str]:
    """What happens where accelerate does not see the gang, or leaves the net as it is."""
    gang.join(rank, 2, rendezvous, timeout_s=60)
    real, caught = gang.Accelerator, []
    blind = SimpleNamespace(num_processes=1, process_index=0, device=torch.device("cpu"))
    lazy = SimpleNamespace(num_processes=dist.get_world_size(), process_index=rank, device=blind.device, prepare_model=lambda net: net)
    for fake in (blind, lazy):
        gang.Accelerator = lambda fake=fake, **settings: fake
        try:
            Trainer("conv/tiny", 7, rank, 2)
        except AssertionError as error:
            caught.append(str(error))
    gang.Accelerator = real
    return caught


def test_accelerate_going_on_alone_is_noticed(tmp_path: Path) -> None:
    for caught in children.values(see_one_process, (0, str(tmp_path / "r")), (1, str(tmp_path / "r"))):
        assert len(caught) == 2
        assert caught[0].startswith("accelerate sees (processes, rank, device) (1, 0, 'cpu'), the gang is (2, ")
        assert caught[1] == "accelerate made _WithLoss of the net, not data parallelism"
