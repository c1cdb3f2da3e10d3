"""Clicks predicted from what a user did before: averages over rows of a large table, so that memory is what it waits for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Dims:
    """A user is `bags` lists of `history` items each, out of `items`; an item is a vector of `width`."""

    batch: int
    items: int
    bags: int
    history: int
    width: int
    hidden: int


class Net(nn.Module):
    """items [n, bags * history] and clicked [n], 0 or 1 -> mean binary cross entropy."""

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.history = dims.history
        self.table = nn.EmbeddingBag(dims.items, dims.width, mode="mean")
        self.hidden = nn.Linear(dims.bags * dims.width, dims.hidden)
        self.head = nn.Linear(dims.hidden, 1)

    def forward(self, items: Tensor, clicked: Tensor) -> Tensor:
        users = self.table(items.view(-1, self.history)).view(len(items), -1)
        return F.binary_cross_entropy_with_logits(self.head(F.silu(self.hidden(users))).squeeze(1), clicked)


def make_data(dims: Dims, rng: np.random.Generator, samples: int) -> tuple[Tensor, Tensor]:
    """An item pleases or not, a user leans one way or the other and clicks accordingly, one time in ten otherwise: items, clicked."""
    leaning = rng.random((samples, 1)) < 0.5
    pleases = rng.random((samples, dims.bags * dims.history), dtype=np.float32) < np.where(leaning, 0.7, 0.3)
    half = dims.items // 2
    items = rng.integers(half, size=pleases.shape, dtype=np.int32) + half * pleases
    shuffled = rng.permutation(dims.items).astype(np.int32)[items]
    clicked = leaning[:, 0] ^ (rng.random(samples) < 0.1)
    return torch.from_numpy(shuffled), torch.from_numpy(clicked.astype(np.float32))
