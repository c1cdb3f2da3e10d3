"""The six families of training jobs, each in a tiny size (for emulated runs of thousands of steps) and a full one (for native runs)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Adagrad, Adam, Optimizer

from hetsys.core.errors import ConfigError
from hetsys.models.jobs import actor_critic, conv, lstm, recommendation, small_lm, transformer
from hetsys.models.jobs.names import FAMILY_NAMES, SIZES, parse_program

__all__ = ["BANK_STEPS", "FAMILIES", "Bank", "Family", "parse_program"]

BANK_STEPS = 16


@dataclass(frozen=True)
class Bank:
    """The data of a job: rows `(step % BANK_STEPS) * batch + i` of `tensors` are sample `i` of a step, whoever trains on it."""

    tensors: tuple[Tensor, ...]
    batch: int

    def slices(self, rank: int, world_size: int, device: torch.device) -> list[tuple[Tensor, ...]]:
        """For every step of the bank, a rank's part of the samples; together the parts are the batch, whatever the size of the gang."""
        if self.batch % world_size:
            remedy = f"the {self.batch} samples of a step do not divide by it; use a gang of 1, 2 or 4"
            raise ConfigError("job.gang", world_size, remedy)
        part = self.batch // world_size
        starts = [step * self.batch + rank * part for step in range(BANK_STEPS)]
        tensors = [tensor.to(device) for tensor in self.tensors]
        return [tuple(tensor[start : start + part] for tensor in tensors) for start in starts]


@dataclass(frozen=True)
class Family:
    """A kind of training job. `net(dims)`: a module whose call on a batch gives the mean loss of its samples, none of which depends on
    another; `dims[size].batch`: samples a step, over all ranks, a multiple of 4."""

    name: str
    dims: Mapping[str, Any]
    net: Callable[[Any], nn.Module]
    make_data: Callable[[Any, np.random.Generator, int], tuple[Tensor, ...]]
    optimizer: Callable[[Iterable[Tensor]], Optimizer]

    def build(self, size: str, seed: int) -> nn.Module:
        """The net as job `seed` begins it. Seeds torch's generator."""
        torch.manual_seed(seed)
        return self.net(self.dims[size])

    def bank(self, size: str, seed: int) -> Bank:
        """The data of job `seed`: a function of its arguments alone, so that every rank and every resumed process has the same."""
        dims = self.dims[size]
        rng = np.random.default_rng([seed, crc32(f"{self.name}/{size}".encode())])
        return Bank(self.make_data(dims, rng, BANK_STEPS * dims.batch), dims.batch)


def _adam(lr: float) -> Callable[[Iterable[Tensor]], Optimizer]:
    return partial(Adam, lr=lr, fused=True)


def _adagrad(lr: float) -> Callable[[Iterable[Tensor]], Optimizer]:
    return partial(Adagrad, lr=lr, foreach=True)


def _family(name: str, module: Any, optimizer: Callable[[Iterable[Tensor]], Optimizer], **dims: Mapping[str, int]) -> Family:
    return Family(name, {size: module.Dims(**numbers) for size, numbers in dims.items()}, module.Net, module.make_data, optimizer)


_ALL = (
    _family(
        "conv", conv, _adam(2e-3),
        tiny={"batch": 8, "pixels": 8, "width": 8, "blocks": 1},
        full={"batch": 8, "pixels": 24, "width": 24, "blocks": 3},
    ),
    _family(
        "lstm", lstm, _adam(3e-3),
        tiny={"batch": 8, "vocabulary": 32, "length": 8, "width": 16},
        full={"batch": 32, "vocabulary": 112, "length": 48, "width": 96},
    ),
    _family(
        "transformer", transformer, _adam(1e-3),
        tiny={"batch": 8, "vocabulary": 32, "length": 8, "width": 16, "inner": 32, "layers": 1},
        full={"batch": 8, "vocabulary": 96, "length": 12, "width": 96, "inner": 96, "layers": 4},
    ),
    _family(
        "recommendation", recommendation, _adagrad(0.05),
        tiny={"batch": 16, "items": 512, "bags": 2, "history": 8, "width": 8, "hidden": 16},
        full={"batch": 96, "items": 20_000, "bags": 4, "history": 512, "width": 24, "hidden": 32},
    ),
    _family(
        "small_lm", small_lm, _adam(1e-3),
        tiny={"batch": 8, "vocabulary": 32, "length": 8, "width": 16, "inner": 32, "layers": 1},
        full={"batch": 8, "vocabulary": 512, "length": 32, "width": 128, "inner": 512, "layers": 2},
    ),
    _family(
        "actor_critic", actor_critic, _adam(2e-3),
        tiny={"batch": 8, "pixels": 8, "width": 4, "hidden": 16},
        full={"batch": 128, "pixels": 40, "width": 8, "hidden": 64},
    ),
)  # fmt: skip

FAMILIES: Mapping[str, Family] = {family.name: family for family in _ALL}
assert tuple(FAMILIES) == FAMILY_NAMES and all(tuple(family.dims) == SIZES for family in _ALL)
