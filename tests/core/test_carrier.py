"""Carriers of every shipped model: as many layers, heads and splits as the target, a thousandth of its parameters, the target's bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hetsys.core.carrier import MESSAGES, Pair, bytes_per_row, check_carrier, thin
from hetsys.core.errors import ConfigError
from hetsys.core.model import ModelSpec
from hetsys.core.paths import shipped

CARRIERS = {
    "llama_7b": ((128, 256, 2048), 5_775_488),
    "llama_13b": ((160, 256, 2000), 9_664_160),
    "llama_70b": ((128, 128, 2048), 7_426_176),
    "yi_34b": ((112, 128, 2048), 4_773_104),
    "opt_30b": ((112, 224, 2048), 5_335_232),
    "smollm2_135m": ((72, 96, 1536), 1_151_784),
    "small": ((64, 128, 512), 254_784),
    "tiny": ((64, 128, 512), 180_800),
}
"""Hidden size, feed-forward size, vocabulary; and the parameters of a carrier with these."""


def shipped_model(name: str) -> ModelSpec:
    content = yaml.safe_load((shipped("conf") / "model" / f"{name}.yaml").read_text(encoding="utf-8"))
    return ModelSpec(**{key: value for key, value in content.items() if key not in ("defaults", "_target_", "about")})


def carrier_of(name: str) -> ModelSpec:
    hidden, ffn, vocab = CARRIERS[name][0]
    return thin(shipped_model(name), hidden_size=hidden, ffn_size=ffn, vocab_size=vocab)


LLAMA = shipped_model("llama_70b")


def test_every_shipped_model_is_tried_here() -> None:
    names = {path.stem for path in (shipped("conf") / "model").glob("*.yaml")} - {"none"}
    assert names == set(CARRIERS)


@pytest.mark.parametrize("name", CARRIERS)
def test_a_carrier_is_small_and_splits_as_its_target(name: str) -> None:
    target, carrier = shipped_model(name), carrier_of(name)
    assert carrier.parameters == CARRIERS[name][1] < 10e6
    assert (carrier.num_layers, carrier.num_heads, carrier.num_kv_heads) == (target.num_layers, target.num_heads, target.num_kv_heads)
    assert carrier.max_context == target.max_context
    for tp in {2, 4, 8} | {d for d in range(1, target.num_heads + 1) if target.num_heads % d == 0}:
        for width in ("hidden_size", "ffn_size", "vocab_size"):
            assert (getattr(carrier, width) % tp == 0) == (getattr(target, width) % tp == 0), f"{width} by {tp}"
    assert carrier.learned_positions or carrier.size_per_head % 2 == 0


@pytest.mark.parametrize("name", CARRIERS)
def test_a_model_carries_itself_whatever_its_numbers(name: str) -> None:
    target = shipped_model(name)
    pair = Pair(target, target)
    assert pair.natural and not Pair(target, carrier_of(name)).natural
    odd = replace(target, head_dim=3)
    check_carrier(odd, odd)


def test_seventy_billion_parameters_ride_on_seven_million() -> None:
    """By hand: a layer has 128 x (2 x 128 + 2 x 16) + 3 x 128 x 128 weights and 2 x 128 of norms; 80 of them, 2 x 2048 x 128, one norm."""
    carrier = carrier_of("llama_70b")
    assert LLAMA.parameters == 68_976_648_192
    assert carrier.parameters == 80 * (36_864 + 49_152 + 256) + 2 * 262_144 + 128 == 7_426_176
    assert carrier.size_per_head == 2


@pytest.mark.parametrize(
    ("change", "key", "remedy"),
    [
        ({"num_layers": 79}, "num_layers", "must equal the target's 80"),
        ({"num_heads": 32, "head_dim": 4}, "num_heads", "must equal the target's 64"),
        ({"num_kv_heads": 4}, "num_kv_heads", "must equal the target's 8"),
        ({"max_context": 128}, "max_context", "must equal the target's 4096"),
        ({"learned_positions": 4096}, "learned_positions", "must equal the target's 0"),
        ({"tied_embeddings": True}, "tied_embeddings", "must equal the target's False"),
        ({"gated_ffn": False}, "gated_ffn", "must equal the target's True"),
        ({"attention_bias": "qkv"}, "attention_bias", "must equal the target's none"),
        ({"mlp_bias": True}, "mlp_bias", "must equal the target's False"),
        ({"norm": "layer"}, "norm", "must equal the target's rms"),
        ({"vocab_size": 2000}, "vocab_size", "2, 4, 8, 16, 32, 64.*nearest is 1984"),
        ({"ffn_size": 100}, "ffn_size", "nearest is 128"),
        ({"hidden_size": 100, "head_dim": 2}, "hidden_size", "nearest is 128"),
        ({"hidden_size": 8256, "head_dim": 2}, "hidden_size", "at most the target's 8192.*nearest is 8192"),
        ({"hidden_size": 64, "head_dim": 1}, "head_dim", "must be even"),
        ({"head_dim": 256}, "head_dim", "at most the target's 128"),
    ],
)
def test_the_number_at_fault_is_named(change: dict[str, Any], key: str, remedy: str) -> None:
    carrier = replace(carrier_of("llama_70b"), **change)
    for check in (check_carrier, Pair):
        with pytest.raises(ConfigError, match=remedy) as error:
            check(LLAMA, carrier)
        assert error.value.key == f"carrier.{key}"


def test_more_splits_than_the_target_has_are_refused_too() -> None:
    """13,824 cannot be split by 5 as the 40 heads can; a carrier that could would run a plan that the target refuses."""
    target = shipped_model("llama_13b")
    with pytest.raises(ConfigError, match=r"\(2, 4, 8\); the nearest is 152"):
        thin(target, hidden_size=160, ffn_size=160)
    assert thin(target, hidden_size=160, ffn_size=152).vocab_size == target.vocab_size


def test_two_four_and_eight_count_though_nine_heads_do_not_divide() -> None:
    target = shipped_model("smollm2_135m")
    with pytest.raises(ConfigError, match=r"\(2, 3, 4, 6, 8, 12, 24\); the nearest is 1536"):
        thin(target, hidden_size=72, ffn_size=96, vocab_size=1533)


def test_heads_of_their_own_length() -> None:
    with pytest.raises(ConfigError, match=r"carrier\.hidden_size=100: must be divisible by num_heads 64, or give head_dim"):
        thin(LLAMA, hidden_size=100, ffn_size=128)
    with pytest.raises(ConfigError, match=r"carrier\.head_dim=1: must be even"):
        thin(LLAMA, hidden_size=64, ffn_size=128)
    narrow = thin(LLAMA, hidden_size=64, ffn_size=128, vocab_size=2048, head_dim=2)
    assert (narrow.hidden_size, narrow.q_size) == (64, 128)


def test_no_vocabulary_is_no_wish_for_the_targets() -> None:
    with pytest.raises(ConfigError, match="vocab_size=0"):
        thin(LLAMA, hidden_size=128, ffn_size=128, vocab_size=0)


def test_bytes_of_a_row_by_hand() -> None:
    """Llama-2 70B in half precision: 8,192 values of two bytes; KV 8 heads x 128 x 2; 80 layers; 32,000 logits."""
    expected = {"activations": 16_384, "query": 16_384, "kv_layer": 4_096, "kv": 327_680, "logits": 64_000}
    assert {what: bytes_per_row(LLAMA, what, "fp16") for what in MESSAGES} == expected
    assert bytes_per_row(LLAMA, "kv", "bf16") == LLAMA.kv_bytes_per_token("bf16")
    assert bytes_per_row(carrier_of("llama_70b"), "activations", "fp32") == 512


def test_messages_weigh_what_the_targets_would() -> None:
    pair = Pair(LLAMA, carrier_of("llama_70b"))
    assert pair.target_bytes(10, "activations") == 163_840
    assert Pair(LLAMA, carrier_of("llama_70b"), "fp32").target_bytes(10, "activations") == 327_680
    assert pair.target_bytes(0, "kv") == 0
    with pytest.raises(ConfigError, match="did you mean 'activations'"):
        pair.target_bytes(1, "activation")
    with pytest.raises(ConfigError, match="did you mean 'fp16'"):
        Pair(LLAMA, LLAMA, "fp116")
    with pytest.raises(AssertionError):
        pair.target_bytes(-1, "kv")


@given(heads=st.integers(1, 24), group=st.integers(1, 4), size=st.integers(1, 16), ffn=st.integers(1, 300), data=st.data())
def test_the_nearest_width_named_is_one_that_works(heads: int, group: int, size: int, ffn: int, data: st.DataObject) -> None:
    width = heads * group * size * 2
    target = ModelSpec(2, width, heads * group, heads, ffn, 100, 32)
    try:
        thin(target, hidden_size=width, ffn_size=data.draw(st.integers(1, ffn)))
    except ConfigError as error:
        thin(target, hidden_size=width, ffn_size=int(error.remedy.rsplit(" ", 1)[1]))
