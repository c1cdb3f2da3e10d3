"""Image classification by a small residual network. Group normalisation, so that a sample does not depend on its batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Dims:
    """Square images of `pixels` x `pixels` in three colours; `width` channels in every one of `blocks` residual blocks."""

    batch: int
    pixels: int
    width: int
    blocks: int
    classes: int = 10


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(4, width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(4, width)

    def forward(self, x: Tensor) -> Tensor:
        change = self.second_norm(self.second(F.silu(self.first_norm(self.first(x)))))
        return F.silu(x + change)


class Net(nn.Module):
    """images [n, 3, pixels, pixels] and labels [n] -> mean cross entropy."""

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, dims.width, 3, padding=1)
        self.blocks = nn.Sequential(*(_Block(dims.width) for _ in range(dims.blocks)))
        self.head = nn.Linear(dims.width, dims.classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        features = self.blocks(F.silu(self.stem(images))).mean((2, 3))
        return F.cross_entropy(self.head(features), labels)


def make_data(dims: Dims, rng: np.random.Generator, samples: int) -> tuple[Tensor, Tensor]:
    """A texture for every class, seen with noise: images, labels."""
    texture = rng.standard_normal((dims.classes, 3, 4, 4), dtype=np.float32)
    labels = rng.integers(dims.classes, size=samples)
    repeat = dims.pixels // 4
    images = np.tile(texture[labels], (1, 1, repeat, repeat))
    images += 0.5 * rng.standard_normal(images.shape, dtype=np.float32)
    return torch.from_numpy(images), torch.from_numpy(labels)
