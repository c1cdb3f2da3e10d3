"""Policy and value learnt together from frames of a toy world, in the manner of A3C with the sum over actions taken exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

ENTROPY_WEIGHT = 0.01


@dataclass(frozen=True)
class Dims:
    """Frames of `pixels` x `pixels` (a multiple of 4); `width` channels, twice as many after the second layer."""

    batch: int
    pixels: int
    width: int
    hidden: int
    actions: int = 4


class Net(nn.Module):
    """frames [n, 2, pixels, pixels] and rewards [n, actions] -> mean of regret, value error and entropy.

    The toy world tells the reward of every action, so nothing has to be drawn: the gradient is the expected one (mean actor-critic).
    """

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, dims.width, 4, stride=2, padding=1)
        self.second = nn.Conv2d(dims.width, 2 * dims.width, 4, stride=2, padding=1)
        self.hidden = nn.Linear(2 * dims.width * (dims.pixels // 4) ** 2, dims.hidden)
        self.heads = nn.Linear(dims.hidden, dims.actions + 1)

    def forward(self, frames: Tensor, rewards: Tensor) -> Tensor:
        features = F.silu(self.second(F.silu(self.first(frames)))).flatten(1)
        heads = self.heads(F.silu(self.hidden(features)))
        log_policy = heads[:, 1:].log_softmax(1)
        policy = log_policy.exp()
        expected = (policy * rewards).sum(1)
        value_error = (heads[:, 0] - expected.detach()).square()
        negative_entropy = (policy * log_policy).sum(1)
        loss: Tensor = (rewards.amax(1) - expected + 0.5 * value_error + ENTROPY_WEIGHT * negative_entropy).mean()
        return loss


def make_data(dims: Dims, rng: np.random.Generator, samples: int) -> tuple[Tensor, Tensor]:
    """A ball in one place of a noisy frame, seen twice; each corner wants one action: frames, rewards."""
    frames = 0.1 * rng.standard_normal((samples, 2, dims.pixels, dims.pixels), dtype=np.float32)
    corner = rng.integers(4, size=samples)
    half = dims.pixels // 2
    place = rng.integers(half - 1, size=(samples, 2)) + half * np.stack([corner // 2, corner % 2], axis=1)
    each = np.arange(samples)
    for row in (0, 1):
        for column in (0, 1):
            frames[each, :, place[:, 0] + row, place[:, 1] + column] += 1.0
    rewards = np.zeros((samples, dims.actions), dtype=np.float32)
    rewards[each, rng.permutation(dims.actions)[corner]] = 1.0
    return torch.from_numpy(frames), torch.from_numpy(rewards)
