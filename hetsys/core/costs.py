"""How long an operation takes on a kind of device: from a device's published peaks, or from a table of measured times.

`Roofline` serves where no rows exist and is marked `derived`; `ProfileTable` interpolates rows that somebody measured.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from math import isfinite
from statistics import mean, stdev
from typing import Protocol

import numpy as np

from hetsys.core.cluster import DeviceSheet
from hetsys.core.errors import ConfigError, InfeasiblePlan, check_choice, did_you_mean
from hetsys.core.model import dtype_bytes

PROVENANCES = ("measured", "published", "derived")
"""Where durations come from, best first: a device of ours, somebody's published rows, arithmetic over data sheets."""


@dataclass(frozen=True)
class Op:
    """One operation as a device sees it.

    `rows`: tokens (rows of the left matrix, queries); `kv_tokens`: cached tokens read, over all rows; `num_bytes`: memory
    traffic; `flops`: 2 a multiply-add. `labels` are (name, value) pairs by which a table finds its rows: model, phase, tp, ...
    """

    kind: str
    rows: float = 0
    kv_tokens: float = 0
    num_bytes: float = 0.0
    flops: float = 0.0
    dtype: str = "fp16"
    labels: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name in ("rows", "kv_tokens", "num_bytes", "flops"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0):
                raise ConfigError(f"op.{self.kind}.{name}", value, "must be a finite number, 0 or more")


def linear(rows: float, in_features: int, out_features: int, dtype: str = "fp16") -> Op:
    """A linear layer: [rows, in_features] x [in_features, out_features]; reads inputs and weights, writes outputs, once each."""
    values = rows * in_features + in_features * out_features + rows * out_features
    return Op("linear", rows, 0, values * dtype_bytes(dtype), 2.0 * rows * in_features * out_features, dtype)


def decode_attention(
    rows: float, kv_tokens: float, num_heads: int, num_kv_heads: int, head_dim: int, dtype: str = "fp16"
) -> Op:
    """One new token in each of `rows` sequences, which hold `kv_tokens` tokens together; one layer."""
    values = 2.0 * kv_tokens * num_kv_heads * head_dim + 2.0 * rows * num_heads * head_dim
    flops = 4.0 * num_heads * head_dim * kv_tokens
    return Op("decode_attention", rows, kv_tokens, values * dtype_bytes(dtype), flops, dtype)


def prefill_attention(
    rows: float, past_tokens: float, num_heads: int, num_kv_heads: int, head_dim: int, dtype: str = "fp16"
) -> Op:
    """`rows` consecutive prompt tokens of one sequence after `past_tokens` cached ones, causal; one layer."""
    kv_tokens = past_tokens + rows
    pairs = rows * past_tokens + rows * (rows + 1) / 2
    values = 2.0 * kv_tokens * num_kv_heads * head_dim + 2.0 * rows * num_heads * head_dim
    return Op("prefill_attention", rows, kv_tokens, values * dtype_bytes(dtype), 4.0 * num_heads * head_dim * pairs, dtype)


def copy(payload_bytes: float) -> Op:
    """A copy inside a device's memory: every byte is read once and written once."""
    return Op("copy", num_bytes=2.0 * payload_bytes)


@dataclass(frozen=True)
class Provenance:
    """Where durations come from. `kind`: one of PROVENANCES; `n`: rows behind them; `sd_fraction`: spread of repeated rows."""

    kind: str
    source: str
    commit: str = ""
    licence: str = ""
    n: int = 0
    sd_fraction: float | None = None

    def __post_init__(self) -> None:
        check_choice("provenance.kind", self.kind, PROVENANCES)


def worst(kinds: Iterable[str]) -> str:
    """The least trustworthy of several kinds of provenance; "measured" for none."""
    return max(kinds, key=PROVENANCES.index, default=PROVENANCES[0])


class CostModel(Protocol):
    """What planners, simulators and emulated devices ask for a duration."""

    @property
    def hash(self) -> str:
        """Hash of everything that decides a duration: equal hashes give equal answers."""
        ...

    @property
    def provenance(self) -> Provenance: ...

    def duration_s(self, device_kind: str, op: Op) -> float:
        """Seconds of `op` on one device. Raises ConfigError for an unknown kind, InfeasiblePlan where no answer is honest."""
        ...


@dataclass(frozen=True)
class Roofline:
    """launch floor + the longer of arithmetic and memory traffic, each at the sheet's fraction of the published peak."""

    sheets: Mapping[str, DeviceSheet]

    @cached_property
    def hash(self) -> str:
        return _hash({kind: asdict(sheet) for kind, sheet in self.sheets.items()})

    @property
    def provenance(self) -> Provenance:
        return Provenance("derived", "device sheets: " + ", ".join(sorted(self.sheets)), n=len(self.sheets))

    def duration_s(self, device_kind: str, op: Op) -> float:
        if device_kind not in self.sheets:
            raise ConfigError("device_kind", device_kind, did_you_mean(device_kind, self.sheets))
        return sheet_duration_s(self.sheets[device_kind], op)


def sheet_duration_s(sheet: DeviceSheet, op: Op) -> float:
    """Seconds of `op` by the roofline of one sheet. Raises ConfigError where the device does not compute in the op's dtype."""
    compute_s = 0.0
    if op.flops:
        if op.dtype not in sheet.flops_per_s:
            remedy = f"{sheet.label} has no rate for it; {did_you_mean(op.dtype, sheet.flops_per_s)}"
            raise ConfigError("op.dtype", op.dtype, remedy)
        compute_s = op.flops / (sheet.flops_per_s[op.dtype] * sheet.compute_fraction)
    memory_s = op.num_bytes / (sheet.memory_bandwidth_bytes_per_s * sheet.memory_fraction)
    return sheet.launch_floor_s + max(compute_s, memory_s)


def reference_durations(sheet: DeviceSheet) -> dict[str, float]:
    """Two operations everybody can picture, in seconds by the roofline: a 4096^3 half-precision GEMM and a copy of 1 GiB."""
    gemm, copied = linear(4096, 4096, 4096, "fp16"), copy(2**30)
    return {"gemm_4096_fp16_s": sheet_duration_s(sheet, gemm), "copy_1gib_s": sheet_duration_s(sheet, copied)}


@dataclass(frozen=True)
class Row:
    """One line of a profile: where it belongs (`key`), how much work (`at`, one number an axis), how long, and its file:line."""

    key: tuple[str, ...]
    at: tuple[float, ...]
    seconds: float
    where: str = ""


@dataclass(frozen=True)
class Estimate:
    """An interpolated duration; `extrapolated` tells that the work lies beyond twice the grid (or below half of it)."""

    seconds: float
    extrapolated: bool = False


@dataclass(frozen=True)
class ProfileTable:
    """Measured durations, piecewise linear between their grid points, one axis after the other.

    `key_names`: the first names the device; an op's labels give the others, "kind" and "dtype" the op itself where no label has that
    name. `axis_names`: attributes of Op (rows, kv_tokens, num_bytes); an axis on which all rows of a key are 0 does not count for that
    key, so that one table holds operations of several kinds. Rules at the edges: below the grid the smallest point's value holds
    (launch floor and weights are still paid); above it the mean slope of the upper half goes on, never falling; beyond twice the
    grid the answer is refused, or with `beyond="mark"` given and marked. Rows with no work are dropped, repeated rows averaged; a
    time of 0 (finer than the clock that took it) stays 0. Raises ConfigError for an empty table and for NaN, infinite or negative
    entries.
    """

    key_names: tuple[str, ...]
    axis_names: tuple[str, ...]
    rows: tuple[Row, ...]
    origin: Provenance
    beyond: str = "refuse"

    def __post_init__(self) -> None:
        check_choice("table.beyond", self.beyond, ("refuse", "mark"))
        for row in self.rows:
            if len(row.key) != len(self.key_names) or len(row.at) != len(self.axis_names):
                raise ConfigError(row.where or "table", row, f"needs {self.key_names} and {self.axis_names}")
            if not all(isfinite(x) and x >= 0 for x in (*row.at, row.seconds)):
                raise ConfigError(row.where or "table", (*row.at, row.seconds), "work and time must be finite numbers, 0 or more")
        if not self._points:
            raise ConfigError("table", self.origin.source, "holds no row with work above 0")

    @cached_property
    def _axes(self) -> dict[tuple[str, ...], tuple[int, ...]]:
        """Per key, the axes that count: those on which some row has work."""
        used: dict[tuple[str, ...], set[int]] = {}
        for row in self.rows:
            used.setdefault(row.key, set()).update(i for i, x in enumerate(row.at) if x > 0)
        return {key: tuple(sorted(axes)) for key, axes in used.items() if axes}

    @cached_property
    def _points(self) -> dict[tuple[str, ...], dict[tuple[float, ...], list[float]]]:
        """Per key, the times seen at each grid point of the axes that count."""
        points: dict[tuple[str, ...], dict[tuple[float, ...], list[float]]] = {}
        for row in self.rows:
            at = tuple(row.at[i] for i in self._axes.get(row.key, ()))
            if at and all(x > 0 for x in at):
                points.setdefault(row.key, {}).setdefault(at, []).append(row.seconds)
        return points

    @cached_property
    def _grids(self) -> dict[tuple[str, ...], _Grid]:
        return {key: _Grid.build({at: mean(times) for at, times in points.items()}) for key, points in self._points.items()}

    @cached_property
    def hash(self) -> str:
        return _hash([self.key_names, self.axis_names, self.beyond, sorted((*row.key, *row.at, row.seconds) for row in self.rows)])

    @cached_property
    def provenance(self) -> Provenance:
        """`origin` with the number of rows and the mean relative spread of grid points that were measured more than once."""
        repeated = [times for points in self._points.values() for times in points.values() if len(times) > 1 and mean(times) > 0]
        spread = mean(stdev(times) / mean(times) for times in repeated) if repeated else self.origin.sd_fraction
        facts = asdict(self.origin) | {"n": len(self.rows), "sd_fraction": spread}
        return Provenance(**facts)

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return tuple(self._grids)

    def knots(self, key: tuple[str, ...]) -> list[tuple[tuple[float, ...], float]]:
        """The grid points of `key` on the axes that count for it, with their (averaged) seconds, ascending."""
        return sorted((at, mean(times)) for at, times in self._points[key].items())

    def duration_s(self, device_kind: str, op: Op) -> float:
        labels = {"kind": op.kind, "dtype": op.dtype} | dict(op.labels)
        missing = [name for name in self.key_names[1:] if name not in labels]
        if missing:
            raise ConfigError("op.labels", sorted(dict(op.labels)), f"the table of {self.origin.source} also asks for {', '.join(missing)}")
        key = (device_kind, *(labels[name] for name in self.key_names[1:]))
        return self.at(key, *(getattr(op, name) for name in self.axis_names)).seconds

    def at(self, key: tuple[str, ...], *work: float) -> Estimate:
        """The duration of `work` (one number an axis).

        Raises ConfigError for an unknown key, InfeasiblePlan for no work and, unless `beyond="mark"`, beyond twice the grid.
        """
        name = "/".join(key)
        if key not in self._grids:
            raise ConfigError("/".join(self.key_names), name, did_you_mean(name, {"/".join(known) for known in self._grids}))
        assert len(work) == len(self.axis_names), f"{name}: one number for each of {self.axis_names}, not {work}"
        axes = [self.axis_names[i] for i in self._axes[key]]
        work = tuple(work[i] for i in self._axes[key])
        for axis, amount in zip(axes, work, strict=True):
            if not (isfinite(amount) and amount > 0):
                raise InfeasiblePlan(f"{name}: {axis}={amount}: only work above 0 has a duration in a table")
        grid = self._grids[key]
        extrapolated = False
        for axis, amount, (low, high) in zip(axes, work, grid.limits(work), strict=True):
            above = amount > (2 * high if low < high else high)
            if above and self.beyond == "refuse":
                limit = f"beyond twice the measured range {low:g} to {high:g} ({self.origin.source})"
                raise InfeasiblePlan(f"{name}: {axis}={amount:g} lies {limit}")
            extrapolated = extrapolated or above or amount < low / 2
        return Estimate(max(0.0, grid.value(work)), extrapolated)


@dataclass(frozen=True)
class _Grid:
    """One axis: sorted knots, and at each of them the seconds or the grid of the remaining axes."""

    knots: np.ndarray
    below: tuple[_Grid, ...] | np.ndarray

    @staticmethod
    def build(points: Mapping[tuple[float, ...], float]) -> _Grid:
        knots = sorted({at[0] for at in points})
        if len(next(iter(points))) == 1:
            return _Grid(np.array(knots), np.array([points[(x,)] for x in knots]))
        parts = [{at[1:]: seconds for at, seconds in points.items() if at[0] == x} for x in knots]
        return _Grid(np.array(knots), tuple(_Grid.build(part) for part in parts))

    def limits(self, work: tuple[float, ...]) -> list[tuple[float, float]]:
        """For each axis the range (low, high) that all grids used for `work` cover."""
        mine = [(float(self.knots[0]), float(self.knots[-1]))]
        used = [self.below[i] for i in set(self._bracket(work[0])[:2])]
        others = [grid.limits(work[1:]) for grid in used if isinstance(grid, _Grid)]
        return mine + [(max(low for low, _ in axis), min(high for _, high in axis)) for axis in zip(*others, strict=True)]

    def value(self, work: tuple[float, ...]) -> float:
        x, rest = work[0], work[1:]
        low, high = float(self.knots[0]), float(self.knots[-1])
        if x <= high or low == high:
            return self._inside(x, rest)
        middle = max(high / 2, low)
        top = self._inside(high, rest)
        return top + max(0.0, (top - self._inside(middle, rest)) / (high - middle)) * (x - high)

    def _inside(self, x: float, rest: tuple[float, ...]) -> float:
        left, right, share = self._bracket(x)
        return (1 - share) * self._knot(left, rest) + share * self._knot(right, rest)

    def _bracket(self, x: float) -> tuple[int, int, float]:
        """The knots left and right of `x` and the share of the right one; the nearest knot where `x` lies outside or on it."""
        right = min(int(np.searchsorted(self.knots, x)), len(self.knots) - 1)
        if right == 0 or x >= self.knots[right]:
            return right, right, 0.0
        left = right - 1
        return left, right, float((x - self.knots[left]) / (self.knots[right] - self.knots[left]))

    def _knot(self, index: int, rest: tuple[float, ...]) -> float:
        below = self.below[index]
        return below.value(rest) if isinstance(below, _Grid) else float(below)


def _hash(content: object) -> str:
    """First 16 hex digits of the SHA-256 of `content` as canonical JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
