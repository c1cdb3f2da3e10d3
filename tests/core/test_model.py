"""ModelSpec against the parameter counts of published weights, and its FLOPs and bytes against arithmetic by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hetsys.core.errors import ConfigError
from hetsys.core.model import ModelSpec, NoModel, dtype_bytes
from hetsys.core.paths import shipped

TOY = ModelSpec(num_layers=3, hidden_size=8, num_heads=4, num_kv_heads=2, ffn_size=16, vocab_size=10, max_context=32)


def shipped_model(name: str) -> ModelSpec:
    content = yaml.safe_load((shipped("conf") / "model" / f"{name}.yaml").read_text(encoding="utf-8"))
    return ModelSpec(**{key: value for key, value in content.items() if key not in ("defaults", "_target_", "about")})


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama_7b", 6_738_415_616),
        ("llama_13b", 13_015_864_320),
        ("llama_70b", 68_976_648_192),
        ("opt_30b", 29_974_540_288),
        ("yi_34b", 34_388_917_248),
        ("smollm2_135m", 134_515_008),
    ],
)
def test_parameters_of_published_models(name: str, parameters: int) -> None:
    assert shipped_model(name).parameters == parameters


def test_own_models_have_the_size_they_claim() -> None:
    tiny, small = shipped_model("tiny"), shipped_model("small")
    assert (tiny.num_heads, tiny.num_kv_heads) == (8, 4) and 1.9e6 < tiny.parameters < 2.2e6
    assert (small.num_layers, small.hidden_size) == (6, 512) and 19e6 < small.parameters < 22e6


def test_qwen2_biases_and_wide_heads() -> None:
    """Qwen2.5-0.5B: 24 layers, width 896, 14 heads in 2 groups, biases on q, k and v only, tied: 494,032,768 parameters."""
    qwen = ModelSpec(24, 896, 14, 2, 4864, 151936, 32768, tied_embeddings=True, attention_bias="qkv")
    assert qwen.parameters == 494_032_768
    wide = replace(TOY, hidden_size=10, head_dim=4)
    assert (wide.q_size, wide.kv_size) == (16, 8)
    assert wide.matmul_parameters_per_layer == 10 * 2 * 16 + 10 * 2 * 8 + 3 * 10 * 16


def test_toy_by_hand() -> None:
    """Width 8, heads of 2, two KV heads: attention 8x8 twice and 8x4 twice = 192; feed-forward 3x8x16 = 384."""
    assert TOY.matmul_parameters_per_layer == 192 + 384
    assert TOY.parameters_per_layer == 576 + 2 * 8
    assert TOY.parameters == 80 + 3 * 592 + 8 + 80
    assert TOY.kv_bytes_per_token("fp16") == 2 * 3 * 4 * 2
    assert TOY.weight_bytes("fp32") == 4 * TOY.parameters
    assert TOY.layer_weight_bytes("int8") == 592
    assert TOY.attention_flops(5) == 3 * 4 * 8 * 5
    assert TOY.forward_flops() == 2 * (3 * 576 + 80)
    assert TOY.forward_flops(5) == TOY.forward_flops() + TOY.attention_flops(5)
    assert TOY.backward_flops(5) == 2 * TOY.forward_flops(5)


def test_options_change_counts_by_what_they_add() -> None:
    base = TOY.parameters
    assert replace(TOY, tied_embeddings=True).parameters == base - 80
    assert replace(TOY, gated_ffn=False).parameters == base - 3 * 8 * 16
    assert replace(TOY, attention_bias="qkv").parameters == base + 3 * (8 + 4 + 4)
    assert replace(TOY, attention_bias="all").parameters == base + 3 * (8 + 4 + 4 + 8)
    assert replace(TOY, mlp_bias=True).parameters == base + 3 * (16 + 16 + 8)
    assert replace(TOY, norm="layer").parameters == base + (2 * 3 + 1) * 8
    assert replace(TOY, learned_positions=7).parameters == base + 7 * 8


def test_published_kv_bytes_per_token() -> None:
    """Keys and values in half precision: 2 x layers x KV width x 2 bytes."""
    assert shipped_model("llama_13b").kv_bytes_per_token("fp16") == 819_200
    assert shipped_model("opt_30b").kv_bytes_per_token("fp16") == 1_376_256
    assert shipped_model("llama_70b").kv_bytes_per_token("fp16") == 327_680


@given(st.integers(1, 12), st.integers(1, 8), st.integers(1, 16), st.integers(1, 64), st.integers(1, 99))
def test_layers_add_up(layers: int, heads: int, size: int, ffn: int, vocab: int) -> None:
    spec = ModelSpec(layers, heads * size, heads, heads, ffn, vocab, 8)
    rest = spec.embedding_parameters + spec.head_parameters + heads * size
    assert spec.parameters == layers * spec.parameters_per_layer + rest
    assert spec.forward_flops() >= 2 * layers * spec.matmul_parameters_per_layer
    assert spec.kv_bytes_per_token("fp32") == 2 * spec.kv_bytes_per_token("bf16")


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"num_layers": 0}, "model.num_layers"),
        ({"vocab_size": -1}, "model.vocab_size"),
        ({"num_heads": 3, "num_kv_heads": 3}, "model.num_heads"),
        ({"num_kv_heads": 3}, "model.num_kv_heads"),
        ({"head_dim": 0}, "model.head_dim"),
        ({"learned_positions": -1}, "model.learned_positions"),
        ({"attention_bias": "qk"}, "model.attention_bias"),
        ({"norm": "rmsnorm"}, "model.norm"),
    ],
)
def test_impossible_models_are_refused(change: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as error:
        replace(TOY, **change)
    assert error.value.key == key


def test_unknown_dtype_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'fp16'"):
        dtype_bytes("fp116")


def test_no_model_needs_nothing() -> None:
    assert NoModel() == NoModel()
