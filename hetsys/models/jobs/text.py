"""Seeded text: sentences of a random Markov chain, for the language models."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

SUCCESSORS = 4


def markov_text(vocabulary: int, length: int, rng: np.random.Generator, samples: int) -> tuple[Tensor, Tensor]:
    """Words [samples, length] and, at every place, the word that follows. Every word has four successors, the first twice as likely as the
    second, and so on; so a model that knows the chain has a loss near 1.1, one that knows nothing ln(vocabulary)."""
    successors = rng.integers(vocabulary, size=(vocabulary, SUCCESSORS))
    chance = 0.5 ** np.arange(SUCCESSORS)
    choices = rng.choice(SUCCESSORS, size=(samples, length), p=chance / chance.sum())
    words = np.empty((samples, length + 1), dtype=np.int64)
    words[:, 0] = rng.integers(vocabulary, size=samples)
    for place in range(length):
        words[:, place + 1] = successors[words[:, place], choices[:, place]]
    return torch.from_numpy(words[:, :-1].copy()), torch.from_numpy(words[:, 1:].copy())
