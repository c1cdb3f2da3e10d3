"""Carrier and target: a small model that really runs in place of a large one that is charged, splittable in exactly the same ways.

The carrier has the target's integers, so that every plan for the target is a plan for the carrier; only its widths are thinner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, lcm

from hetsys.core.errors import ConfigError, check_choice
from hetsys.core.model import ModelSpec, dtype_bytes

MESSAGES = ("activations", "query", "kv_layer", "kv", "logits")
"""What a row (a token) puts into a message: its hidden vector; its queries, or equally long attention results, of one layer; its keys
and values of one layer; of all layers; its scores over the vocabulary."""

_KEPT = (
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "max_context",
    "learned_positions",
    "tied_embeddings",
    "gated_ffn",
    "attention_bias",
    "mlp_bias",
    "norm",
)
_THINNED = ("hidden_size", "ffn_size", "vocab_size")


def thin(target: ModelSpec, *, hidden_size: int, ffn_size: int, vocab_size: int | None = None, head_dim: int | None = None) -> ModelSpec:
    """A carrier for `target` with these widths; `vocab_size`: the target's where it is not given (tokens must lie below it).

    `head_dim`: `hidden_size / num_heads` where it is not given. Raises ConfigError, with the remedy, where the carrier could not be
    split as the target can.
    """
    if head_dim is None and hidden_size % target.num_heads:
        raise ConfigError("carrier.hidden_size", hidden_size, f"must be divisible by num_heads {target.num_heads}, or give head_dim")
    vocab_size = target.vocab_size if vocab_size is None else vocab_size
    carrier = replace(target, hidden_size=hidden_size, ffn_size=ffn_size, vocab_size=vocab_size, head_dim=head_dim)
    check_carrier(target, carrier)
    return carrier


def check_carrier(target: ModelSpec, carrier: ModelSpec) -> None:
    """Raise ConfigError, naming the first number at fault, unless every plan for `target` is one for `carrier`.

    Layers, heads, KV groups, context and structure are equal. A width or vocabulary of the carrier is divisible by a tensor-parallel
    degree exactly where the target's is: by 2, 4 and 8 and every divisor of the number of heads. No width is larger, and heads
    that rotary positions turn have an even length.
    """
    if carrier == target:
        return
    for name in _KEPT:
        mine, theirs = getattr(carrier, name), getattr(target, name)
        if mine != theirs:
            raise ConfigError(f"carrier.{name}", mine, f"must equal the target's {theirs}, or plans for one do not fit the other")
    for name in _THINNED:
        mine = getattr(carrier, name)
        if not _fits(target, name, mine):
            raise ConfigError(f"carrier.{name}", mine, _remedy(target, name, mine))
    if carrier.size_per_head > target.size_per_head:
        raise ConfigError("carrier.head_dim", carrier.size_per_head, f"must be at most the target's {target.size_per_head}")
    if carrier.learned_positions == 0 and carrier.size_per_head % 2:
        raise ConfigError("carrier.head_dim", carrier.size_per_head, "must be even, as rotary positions turn pairs of values")


def bytes_per_row(spec: ModelSpec, what: str, dtype: str) -> int:
    """Bytes that one row (token) of `spec` puts into a message of kind `what` (one of MESSAGES) in `dtype`."""
    check_choice("what", what, MESSAGES)
    values = {
        "activations": spec.hidden_size,
        "query": spec.q_size,
        "kv_layer": 2 * spec.kv_size,
        "kv": 2 * spec.num_layers * spec.kv_size,
        "logits": spec.vocab_size,
    }
    return values[what] * dtype_bytes(dtype)


@dataclass(frozen=True)
class Pair:
    """`target` is charged, in `dtype`; `carrier` runs. Both are the same model where it is small enough. Raises as `check_carrier`."""

    target: ModelSpec
    carrier: ModelSpec
    dtype: str = "fp16"

    def __post_init__(self) -> None:
        dtype_bytes(self.dtype)
        check_carrier(self.target, self.carrier)

    @property
    def natural(self) -> bool:
        """Whether what runs is what is charged."""
        return self.carrier == self.target

    def target_bytes(self, rows: int, what: str) -> int:
        """Bytes to charge for a message of `rows` tokens of kind `what`, whatever the carrier's message weighs."""
        assert rows >= 0, f"a message of {rows} rows"
        return rows * bytes_per_row(self.target, what, self.dtype)


def _degrees(target: ModelSpec) -> int:
    """A number whose divisors are the tensor-parallel degrees that count: those that divide the heads, and 2, 4, 8."""
    return lcm(target.num_heads, 8)


def _fits(target: ModelSpec, name: str, width: int) -> bool:
    """Divisible by exactly those degrees by which the target's is divisible, and no larger."""
    full = getattr(target, name)
    return 1 <= width <= full and gcd(width, _degrees(target)) == gcd(full, _degrees(target))


def _remedy(target: ModelSpec, name: str, width: int) -> str:
    full = getattr(target, name)
    step = gcd(full, _degrees(target))
    near = min((w for w in range(step, full + 1, step) if _fits(target, name, w)), key=lambda w: abs(w - width))
    shared = ", ".join(str(d) for d in range(2, step + 1) if step % d == 0) or "none"
    return f"must be at most the target's {full} and divisible by exactly its tensor-parallel degrees ({shared}); the nearest is {near}"
