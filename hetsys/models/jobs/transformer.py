"""Translation by an encoder and a decoder that writes all places of the target at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hetsys.models.jobs.attention import CrossBlock, SelfBlock


@dataclass(frozen=True)
class Dims:
    """Sentences of `length` words (even) out of `vocabulary`; `layers` blocks of `width` on either side,
    their feed-forward parts of `inner`."""

    batch: int
    vocabulary: int
    length: int
    width: int
    inner: int
    layers: int


class Net(nn.Module):
    """source [n, length] and target [n, length] -> mean cross entropy."""

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.embedding = nn.Embedding(dims.vocabulary, dims.width)
        self.places = nn.Parameter(torch.randn(dims.length, dims.width))
        self.asked = nn.Parameter(torch.randn(dims.length, dims.width))
        self.encoder = nn.Sequential(*(SelfBlock(dims.width, dims.inner, causal=False) for _ in range(dims.layers)))
        self.decoder = nn.ModuleList(CrossBlock(dims.width, dims.inner) for _ in range(dims.layers))
        self.head = nn.Linear(dims.width, dims.vocabulary)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.encoder(self.embedding(source) + self.places)
        x = self.asked.expand(len(source), -1, -1)
        for block in self.decoder:
            x = block(x, memory)
        return F.cross_entropy(self.head(x).flatten(0, 1), target.flatten())


def make_data(dims: Dims, rng: np.random.Generator, samples: int) -> tuple[Tensor, Tensor]:
    """Frequent and rare words; the target has every word's translation, neighbours swapped: source, target."""
    chance = 1.0 / np.arange(1, dims.vocabulary + 1)
    source = rng.choice(dims.vocabulary, size=(samples, dims.length), p=chance / chance.sum())
    dictionary = rng.permutation(dims.vocabulary)
    swapped = source.reshape(samples, -1, 2)[:, :, ::-1].reshape(samples, -1)
    return torch.from_numpy(source), torch.from_numpy(dictionary[swapped])
