"""The operations that `hetsys profile` times on a device: linear layers, attention over a cache, attention of a prompt, copies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median, pstdev
from typing import Any

from hetsys.core import costs, host

HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64
"""Those of SmolLM2-135M, the model whose sizes the grid follows."""
_SHAPES = ((576, 1536), (1536, 576))
_ROWS = (1, 4, 16, 64, 256)
_DECODE = ((1, 128), (1, 512), (1, 2048), (8, 1024), (8, 4096))
_PREFILL = (32, 128, 512)
_COPY_BYTES = (2**20, 2**23, 2**26)
_LEAST_REPEATS = 5
_LEAST_TIMED_S = 2e-4


@dataclass(frozen=True)
class Timed:
    """`seconds`: median of `n` repeats of `op`; `sd`: their standard deviation. `shape`: see `core.calibration.OpRow`."""

    op: costs.Op
    shape: str
    seconds: float
    sd: float
    n: int


def dtypes_of(native: str) -> tuple[str, ...]:
    """The formats in which a device of `DeviceSheet.native` computes at the speed of its own units; asked in the worker itself."""
    if native == "cuda":
        import torch

        return ("fp32", "fp16", "bf16") if torch.cuda.get_device_capability() >= (8, 0) else ("fp32", "fp16")
    has_bf16 = native == "cpu" and {"avx512_bf16", "amx_bf16"} & set(host.instruction_sets())
    return ("fp32", "bf16") if has_bf16 else ("fp32",)


def grid(dtypes: tuple[str, ...], quick: bool = False) -> Iterator[tuple[costs.Op, str]]:
    """The operations to time, each with its shape. `quick`: a corner of the grid."""
    heads = f"{HEADS}/{KV_HEADS}x{HEAD_DIM}"
    for dtype in dtypes:
        for inputs, outputs in _SHAPES[:1] if quick else _SHAPES:
            for rows in _ROWS[::2] if quick else _ROWS:
                yield costs.linear(rows, inputs, outputs, dtype), f"{inputs}x{outputs}"
        for rows, kv_tokens in _DECODE[:2] if quick else _DECODE:
            yield costs.decode_attention(rows, kv_tokens, HEADS, KV_HEADS, HEAD_DIM, dtype), heads
        for rows in _PREFILL[:2] if quick else _PREFILL:
            yield costs.prefill_attention(rows, 0, HEADS, KV_HEADS, HEAD_DIM, dtype), heads
    for num_bytes in _COPY_BYTES[:2] if quick else _COPY_BYTES:
        yield costs.copy(num_bytes), ""


def time_op(op: costs.Op, shape: str, device: str, budget_s: float, rest: Callable[[], None]) -> Timed:
    """Repeat `op` for about `budget_s`, with `rest` after each repeat. On a CPU the thread's own time counts, on a GPU the wall clock."""
    call, clock = _call(op, shape, device), _clock(device)
    call()
    once_s = _elapsed(call, clock, 1)
    inner = max(1, int(_LEAST_TIMED_S / max(once_s, 1e-7)))
    times: list[float] = []
    until = time.perf_counter() + budget_s
    while len(times) < _LEAST_REPEATS or time.perf_counter() < until:
        times.append(_elapsed(call, clock, inner) / inner)
        rest()
    return Timed(op, shape, median(times), pstdev(times), len(times))


def _elapsed(call: Callable[[], object], clock: Callable[[], float], repeats: int) -> float:
    began = clock()
    for _ in range(repeats):
        call()
    return clock() - began


def _clock(device: str) -> Callable[[], float]:
    if device == "cpu":
        return time.thread_time
    import torch

    def synchronised() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return synchronised


def _call(op: costs.Op, shape: str, device: str) -> Callable[[], object]:
    import torch
    from torch.nn.functional import linear, scaled_dot_product_attention

    options: Any = {"dtype": {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[op.dtype], "device": device}
    rows = int(op.rows)
    if op.kind == "linear":
        inputs, outputs = map(int, shape.split("x"))
        x, weight = torch.randn(rows, inputs, **options), torch.randn(outputs, inputs, **options)
        return _without_gradients(lambda: linear(x, weight))
    if op.kind == "copy":
        source = torch.ones(int(op.num_bytes) // 2, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        return _without_gradients(lambda: target.copy_(source))
    batch, queries, keys = (rows, 1, int(op.kv_tokens) // rows) if op.kind == "decode_attention" else (1, rows, rows)
    q = torch.randn(batch, HEADS, queries, HEAD_DIM, **options)
    k, v = (torch.randn(batch, KV_HEADS, keys, HEAD_DIM, **options) for _ in range(2))
    causal = op.kind == "prefill_attention"
    return _without_gradients(lambda: scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True))


def _without_gradients(function: Callable[[], object]) -> Callable[[], object]:
    import torch

    def call() -> object:
        with torch.inference_mode():
            return function()

    return call
