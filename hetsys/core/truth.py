"""The three cost objects that keep a check from proving itself: what devices charge, what a planner may know, what a simulator uses.

A prediction that is made from the very numbers that devices charge is right by construction; so planners get noisy samples of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, isfinite
from statistics import NormalDist

from hetsys.core.costs import CostModel, Op, ProfileTable, Provenance, Row
from hetsys.core.errors import ConfigError

_WORK = ("rows", "kv_tokens", "num_bytes")
_STANDARD_NORMAL = NormalDist()


@dataclass(frozen=True)
class Residual:
    """`base` times what no table knows: a lognormal factor with mean 1 for each device kind and operation.

    `sigma`: standard deviation of the factor's logarithm; 0 gives exactly `base`, hash included. A factor depends on (seed, device
    kind, operation) and on nothing else: the same in every process, order and run. Operations that differ in any field, one row
    more included, have factors that are independent of each other.
    """

    base: CostModel
    sigma: float
    seed: int

    def __post_init__(self) -> None:
        _require_spread("costs.sigma", self.sigma)

    @cached_property
    def hash(self) -> str:
        return _digest("residual", self.base.hash, float(self.sigma), int(self.seed)).hex() if self.sigma else self.base.hash

    @property
    def provenance(self) -> Provenance:
        """That of `base`."""
        return self.base.provenance

    def factor(self, device_kind: str, op: Op) -> float:
        """What the duration of `base` is multiplied by; above 0."""
        return _lognormal(self.sigma, "residual", int(self.seed), device_kind, _identity(op))

    def duration_s(self, device_kind: str, op: Op) -> float:
        """Seconds. Raises what `base` raises."""
        return self.base.duration_s(device_kind, op) * self.factor(device_kind, op)


def sample_profile(truth: CostModel, kinds: Iterable[str], ops: Sequence[Op], repeats: int, noise: float, seed: int) -> ProfileTable:
    """What a profiler would find: every operation of the grid `ops` timed `repeats` times on each of `kinds`, with errors of its own.

    `noise`: standard deviation of the logarithm of one measurement's error, which has mean 1 and depends on (seed, kind, operation,
    repeat) alone; repeats are averaged. The table finds an operation by device, kind, dtype and labels, and lies between grid points
    by its rows and kv_tokens; a kind with neither (a copy) by its num_bytes. So layers of different shapes need a label each, and two
    axes a full grid: the same kv_tokens at every number of rows.
    Raises ConfigError for a grid that cannot become one table, and what `truth` raises.
    """
    _require_spread("profile.noise", noise)
    if repeats < 1:
        raise ConfigError("profile.repeats", repeats, "must be 1 or more")
    names = _key_names(ops)
    axes = _axes(names, ops)
    rows = []
    for kind in kinds:
        for op in ops:
            key, seconds = _key(names, op), truth.duration_s(kind, op)
            at = tuple(float(getattr(op, axis)) if axis in axes[key] else 0.0 for axis in _WORK)
            errors = (_lognormal(noise, "sample", int(seed), kind, _identity(op), repeat) for repeat in range(repeats))
            rows += [Row((kind, *key), at, seconds * error) for error in errors]
    known = truth.provenance
    origin = Provenance(known.kind, f"{repeats} samples a point of {known.source}", known.commit, known.licence)
    return ProfileTable(("device", *names), _WORK, tuple(rows), origin)


@dataclass(frozen=True)
class Costs:
    """`truth`: what emulated devices charge. `profile`: what planners may know of it. `sim_cost`: what the simulator uses.

    Raises ConfigError where `profile` is the truth.
    """

    truth: CostModel
    profile: CostModel
    sim_cost: CostModel

    def __post_init__(self) -> None:
        if self.profile is self.truth or self.profile.hash == self.truth.hash:
            remedy = (
                "is the truth itself: a plan or prediction made from the numbers that devices charge cannot be wrong, so that it proves "
                "nothing; give samples of the truth (sample_profile) or a table that somebody else measured"
            )
            raise ConfigError("costs.profile", self.profile.hash, remedy)

    @property
    def sim_predicts(self) -> bool:
        """Whether simulated times are a prediction of what devices charge; otherwise they are the charges, and equal them exactly."""
        return self.sim_cost.hash != self.truth.hash


def _require_spread(key: str, value: float) -> None:
    if not (isfinite(value) and value >= 0):
        raise ConfigError(key, value, "must be a finite number, 0 or more")


def _labels(op: Op) -> dict[str, str]:
    return {"kind": op.kind, "dtype": op.dtype} | dict(op.labels)


def _key_names(ops: Sequence[Op]) -> tuple[str, ...]:
    """Kind, dtype and the labels, which all operations must share by name."""
    if not ops:
        raise ConfigError("profile.ops", [], "name at least one operation")
    names = dict.fromkeys(name for op in ops for name in _labels(op))
    for op in ops:
        if missing := [name for name in names if name not in _labels(op)]:
            raise ConfigError(f"profile.ops.{op.kind}.labels", op.labels, f"others have {', '.join(missing)}: give all the same labels")
    return tuple(names)


def _key(names: Sequence[str], op: Op) -> tuple[str, ...]:
    labels = _labels(op)
    return tuple(labels[name] for name in names)


def _axes(names: Sequence[str], ops: Sequence[Op]) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """By key: the amounts of work between which the table interpolates."""
    grids: dict[tuple[str, ...], dict[tuple[float, ...], Op]] = {}
    axes: dict[tuple[str, ...], tuple[str, ...]] = {}
    for op in ops:
        key, used = _key(names, op), tuple(axis for axis in ("rows", "kv_tokens") if getattr(op, axis) > 0) or ("num_bytes",)
        if axes.setdefault(key, used) != used:
            raise ConfigError(f"profile.ops.{op.kind}", op, f"has {used} where others of its kind have {axes[key]}: label them apart")
        at = tuple(float(getattr(op, axis)) for axis in used)
        if (other := grids.setdefault(key, {}).setdefault(at, op)) != op:
            raise ConfigError(f"profile.ops.{op.kind}", op, f"and {other} differ in no label and in none of {used}: label them apart")
    return axes


def _identity(op: Op) -> tuple[object, ...]:
    """Equal for equal operations, whatever types their numbers have and however their labels are ordered."""
    amounts = (float(amount) + 0.0 for amount in (op.rows, op.kv_tokens, op.num_bytes, op.flops))
    return (op.kind, op.dtype, *amounts, *sorted(op.labels))


def _digest(*what: object) -> bytes:
    return hashlib.blake2b(repr(what).encode(), digest_size=8).digest()


def _lognormal(sigma: float, *what: object) -> float:
    """A lognormal number with mean 1, drawn by the hash of `what`: strings, ints, floats and tuples of them."""
    uniform = ((int.from_bytes(_digest(*what), "big") >> 12) + 0.5) / 2**52
    return exp(sigma * _STANDARD_NORMAL.inv_cdf(uniform) - sigma * sigma / 2)
