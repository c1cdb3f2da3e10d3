"""Word-level language model with a long short-term memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F

from hetsys.models.jobs.text import markov_text


@dataclass(frozen=True)
class Dims:
    """Sentences of `length` words out of `vocabulary`; words are vectors of `width`, the memory has `width` cells."""

    batch: int
    vocabulary: int
    length: int
    width: int


class Net(nn.Module):
    """words [n, length] and the words that follow -> mean cross entropy."""

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.embedding = nn.Embedding(dims.vocabulary, dims.width)
        self.memory = nn.LSTM(dims.width, dims.width, batch_first=True)
        self.head = nn.Linear(dims.width, dims.vocabulary)

    def forward(self, words: Tensor, following: Tensor) -> Tensor:
        scores = self.head(self.memory(self.embedding(words))[0])
        return F.cross_entropy(scores.flatten(0, 1), following.flatten())


def make_data(dims: Dims, rng: np.random.Generator, samples: int) -> tuple[Tensor, Tensor]:
    """Words, following words."""
    return markov_text(dims.vocabulary, dims.length, rng, samples)
