"""Decoder-only language model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hetsys.models.jobs.attention import SelfBlock
from hetsys.models.jobs.text import markov_text


@dataclass(frozen=True)
class Dims:
    """Sentences of `length` words out of `vocabulary`; `layers` blocks of `width`, their feed-forward parts of `inner`."""

    batch: int
    vocabulary: int
    length: int
    width: int
    inner: int
    layers: int


class Net(nn.Module):
    """words [n, length] and the words that follow -> mean cross entropy."""

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.embedding = nn.Embedding(dims.vocabulary, dims.width)
        self.places = nn.Parameter(0.02 * torch.randn(dims.length, dims.width))
        self.blocks = nn.Sequential(*(SelfBlock(dims.width, dims.inner, causal=True) for _ in range(dims.layers)))
        self.norm = nn.LayerNorm(dims.width)
        self.head = nn.Linear(dims.width, dims.vocabulary)

    def forward(self, words: Tensor, following: Tensor) -> Tensor:
        scores = self.head(self.norm(self.blocks(self.embedding(words) + self.places)))
        return F.cross_entropy(scores.flatten(0, 1), following.flatten())


def make_data(dims: Dims, rng: np.random.Generator, samples: int) -> tuple[Tensor, Tensor]:
    """Words, following words."""
    return markov_text(dims.vocabulary, dims.length, rng, samples)
