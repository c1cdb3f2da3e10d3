"""The dimensions of a decoder-only language model, and what follows from them: parameters, FLOPs and bytes.

Everything is arithmetic over integers, so that a plan's memory and time can be priced without loading a weight.
"""

from __future__ import annotations

from dataclasses import dataclass

from hetsys.core.errors import ConfigError, check_choice

DTYPE_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
"""Bytes of one stored value of each number format."""


def dtype_bytes(dtype: str) -> int:
    """Bytes of one value of `dtype`. Raises ConfigError, with the known formats, for any other name."""
    check_choice("dtype", dtype, DTYPE_BYTES)
    return DTYPE_BYTES[dtype]


@dataclass(frozen=True)
class NoModel:
    """The model of a workload that brings jobs of its own (scheduling): nothing to describe."""


@dataclass(frozen=True)
class ModelSpec:
    """A decoder-only transformer with grouped-query attention, described by its integers.

    `head_dim` is `hidden_size / num_heads` where it is not given. `gated_ffn`: three matrices (SwiGLU) in place of two.
    `attention_bias`: "none", "qkv" (Qwen2) or "all" (OPT); `mlp_bias` adds one to each feed-forward matrix. `norm`: "rms" holds
    one vector, "layer" two. `learned_positions` is the number of rows of a position table (0 with rotary positions).
    Raises ConfigError for counts below 1 and for heads that do not divide.
    """

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    ffn_size: int
    vocab_size: int
    max_context: int
    head_dim: int | None = None
    tied_embeddings: bool = False
    gated_ffn: bool = True
    attention_bias: str = "none"
    mlp_bias: bool = False
    norm: str = "rms"
    learned_positions: int = 0

    def __post_init__(self) -> None:
        for name in ("num_layers", "hidden_size", "num_heads", "num_kv_heads", "ffn_size", "vocab_size", "max_context"):
            if getattr(self, name) < 1:
                raise ConfigError(f"model.{name}", getattr(self, name), "must be 1 or more")
        if self.head_dim is not None and self.head_dim < 1:
            raise ConfigError("model.head_dim", self.head_dim, "must be 1 or more, or null for hidden_size / num_heads")
        if self.learned_positions < 0:
            raise ConfigError("model.learned_positions", self.learned_positions, "must be 0 (rotary positions) or more")
        if self.head_dim is None and self.hidden_size % self.num_heads:
            raise ConfigError("model.num_heads", self.num_heads, f"must divide hidden_size {self.hidden_size}, or give head_dim")
        if self.num_heads % self.num_kv_heads:
            raise ConfigError("model.num_kv_heads", self.num_kv_heads, f"must divide num_heads {self.num_heads}")
        check_choice("model.attention_bias", self.attention_bias, ("none", "qkv", "all"))
        check_choice("model.norm", self.norm, ("rms", "layer"))

    @property
    def size_per_head(self) -> int:
        """Length of one head's vector."""
        return self.head_dim if self.head_dim is not None else self.hidden_size // self.num_heads

    @property
    def q_size(self) -> int:
        """Length of a token's query: all heads together."""
        return self.num_heads * self.size_per_head

    @property
    def kv_size(self) -> int:
        """Length of a token's key (and of its value): all KV heads together."""
        return self.num_kv_heads * self.size_per_head

    @property
    def matmul_parameters_per_layer(self) -> int:
        """Weights that multiply every token in one layer: attention projections and feed-forward matrices, without biases."""
        attention = self.hidden_size * (2 * self.q_size + 2 * self.kv_size)
        return attention + (3 if self.gated_ffn else 2) * self.hidden_size * self.ffn_size

    @property
    def parameters_per_layer(self) -> int:
        """All parameters of one layer: matrices, biases and its two norms."""
        qkv_bias = self.q_size + 2 * self.kv_size if self.attention_bias in ("qkv", "all") else 0
        output_bias = self.hidden_size if self.attention_bias == "all" else 0
        ffn_bias = ((2 if self.gated_ffn else 1) * self.ffn_size + self.hidden_size) if self.mlp_bias else 0
        return self.matmul_parameters_per_layer + qkv_bias + output_bias + ffn_bias + 2 * self._norm_parameters

    @property
    def embedding_parameters(self) -> int:
        """The table of token vectors and, where positions are learned, that of positions."""
        return (self.vocab_size + self.learned_positions) * self.hidden_size

    @property
    def head_parameters(self) -> int:
        """What the output head adds: nothing where it shares the embedding's table."""
        return 0 if self.tied_embeddings else self.vocab_size * self.hidden_size

    @property
    def parameters(self) -> int:
        """Exact count: embeddings, layers, final norm, head."""
        layers = self.num_layers * self.parameters_per_layer
        return self.embedding_parameters + layers + self._norm_parameters + self.head_parameters

    @property
    def _norm_parameters(self) -> int:
        return self.hidden_size * (2 if self.norm == "layer" else 1)

    def attention_flops(self, context: float) -> float:
        """FLOPs of one token's attention over `context` tokens, all layers: scores and weighted sum, 2 a multiply-add each."""
        return 4.0 * self.num_layers * self.q_size * context

    def forward_flops(self, context: float = 0) -> float:
        """FLOPs of one token through all layers and the head, attending to `context` tokens; norms and softmax are left out."""
        weights = self.num_layers * self.matmul_parameters_per_layer + self.vocab_size * self.hidden_size
        return 2.0 * weights + self.attention_flops(context)

    def backward_flops(self, context: float = 0) -> float:
        """FLOPs of one token's backward pass: twice the forward's (one product for inputs, one for weights), no recomputation."""
        return 2.0 * self.forward_flops(context)

    def weight_bytes(self, dtype: str) -> int:
        """Bytes of all parameters in `dtype`."""
        return self.parameters * dtype_bytes(dtype)

    def layer_weight_bytes(self, dtype: str) -> int:
        """Bytes of one layer's parameters in `dtype`."""
        return self.parameters_per_layer * dtype_bytes(dtype)

    def kv_bytes_per_token(self, dtype: str) -> int:
        """Bytes of keys and values that one token leaves in the cache, all layers."""
        return 2 * self.num_layers * self.kv_size * dtype_bytes(dtype)
