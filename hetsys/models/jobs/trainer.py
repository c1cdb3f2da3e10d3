"""One rank of a training job: steps that any process can repeat bit for bit, and checkpoints from which any process can go on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import torch
import torch._dynamo  # torch.optim loads it when first used, in about a second: better with this module, in a server that preloads it
from torch import Tensor, nn

from hetsys.core.errors import EngineError
from hetsys.core.files import whole_file
from hetsys.models.jobs import gang
from hetsys.models.jobs.families import BANK_STEPS, FAMILIES, parse_program


class Trainer:
    """Rank `rank` of `world_size` of the job of this seed and `program` ("conv/tiny"). A gang must have been joined before: `gang.join`.

    `step_index`: steps made in the job's life. `reduced_bytes`: bytes that this rank has put into reductions since it was made (gradients,
    and the loss that travels with them), counted where they are reduced; 0 for a job of one rank.
    """

    def __init__(self, program: str, seed: int, rank: int = 0, world_size: int = 1, device: torch.device | str = "cpu") -> None:
        name, size = parse_program(program)
        family = FAMILIES[name]
        self.program, self.seed, self.rank, self.world_size = program, seed, rank, world_size
        self.device = torch.device(device)
        self.step_index = 0
        _make_repeatable(self.device)
        self.net = family.build(size, seed).to(self.device)
        self._optimizer = family.optimizer(list(self.net.parameters()))
        self._batches = family.bank(size, seed).slices(rank, world_size, self.device)
        self._gang = gang.DataParallel(self.net, self.device, self._batches[0]) if world_size > 1 else None

    @property
    def reduced_bytes(self) -> int:
        return self._gang.reduced_bytes if self._gang else 0

    def step(self) -> float:
        """Make one optimiser step; the loss of the gang's whole batch before it. Raises RuntimeError when a peer is lost."""
        batch = self._batches[self.step_index % BANK_STEPS]
        self._optimizer.zero_grad(set_to_none=True)
        if self._gang:
            loss = self._gang.backward(batch)
        else:
            loss = self.net(*batch)
            loss.backward()
        self._optimizer.step()
        self.step_index += 1
        return loss.item()

    def gradients(self) -> Tensor:
        """The gradients of the last step (in a gang the mean over its ranks) as one new vector."""
        return torch.cat([cast(Tensor, parameter.grad).flatten() for parameter in self.net.parameters()])

    def save(self, path: Path | str) -> None:
        """Write a checkpoint, whole or not at all: an older file stays as it is until the new one is on the disk. Rank 0 only."""
        assert self.rank == 0, "rank 0 writes the checkpoint for its gang"
        with whole_file(Path(path)) as file:
            torch.save(self._state(), file)

    def load(self, path: Path | str) -> None:
        """Go on from a checkpoint of this program and seed, made by a gang of any size. Raises EngineError if it cannot be used."""
        try:
            state = torch.load(path, map_location=self.device, weights_only=True)
        except Exception as error:
            raise EngineError(f"checkpoint {path} cannot be read: {type(error).__name__}: {error}") from error
        if (found := (state.get("program"), state.get("seed"))) != (self.program, self.seed):
            raise EngineError(f"checkpoint {path} belongs to (program, seed) {found}, this job is {(self.program, self.seed)}")
        self.net.load_state_dict(state["net"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.step_index = state["step_index"]
        torch.set_rng_state(state["rng"].cpu())
        if self.device.type == "cuda" and "cuda_rng" in state:
            torch.cuda.set_rng_state(state["cuda_rng"].cpu(), self.device)

    def close(self) -> None:
        """Leave the gang. Safe to call twice; the trainer makes no more steps."""
        self._gang = None
        if self.world_size > 1:
            gang.leave()

    def _state(self) -> dict[str, Any]:
        state = {
            "program": self.program,
            "seed": self.seed,
            "step_index": self.step_index,
            "net": self.net.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "rng": torch.get_rng_state(),
        }
        if self.device.type == "cuda":
            state["cuda_rng"] = torch.cuda.get_rng_state(self.device)
        return state


def step_reduced_bytes(program: str) -> int:
    """What every rank of a gang puts into the reduction of one step: 4 bytes a parameter, and 4 for the loss."""
    name, size = parse_program(program)
    with torch.device("meta"):
        net: nn.Module = FAMILIES[name].net(FAMILIES[name].dims[size])
    return 4 + sum(4 * parameter.numel() for parameter in net.parameters())


def _make_repeatable(device: torch.device) -> None:
    """One thread and one order of every sum; on a GPU also full fp32, so that a job's losses hardly depend on the device it got."""
    torch.set_num_threads(1)
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.cuda.set_device(device)
