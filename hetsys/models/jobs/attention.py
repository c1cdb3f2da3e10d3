"""The parts of a transformer that `transformer` and `small_lm` share."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

HEADS = 2


def attend(query: Tensor, key: Tensor, value: Tensor, causal: bool = False) -> Tensor:
    """Multi-head attention of [n, places, width] tensors, heads side by side in `width`."""

    def split(x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], HEADS, -1).transpose(1, 2)

    return F.scaled_dot_product_attention(split(query), split(key), split(value), is_causal=causal).transpose(1, 2).flatten(2)


class FeedForward(nn.Module):
    """Normalise, go through `inner` channels, back; added to its input."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.down(F.gelu(self.up(self.norm(x))))
        return x + change


class SelfBlock(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, width: int, inner: int, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.feed = FeedForward(width, inner)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(self.norm(x)).chunk(3, dim=2)
        mixed = attend(query, key, value, self.causal)
        result: Tensor = self.feed(x + self.out(mixed))
        return result


class CrossBlock(nn.Module):
    """Attention of `x` to a memory, then feed-forward."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.feed = FeedForward(width, inner)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        key, value = self.key_value(memory).chunk(2, dim=2)
        mixed = attend(self.query(self.norm(x)), key, value)
        result: Tensor = self.feed(x + self.out(mixed))
        return result
