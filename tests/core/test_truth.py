"""Truth, profile and sim_cost: residuals that repeat everywhere, and profiles that know the truth only as well as they were measured."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from math import exp, log, sqrt
from pathlib import Path
from statistics import mean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsys.core.cluster import DeviceSheet
from hetsys.core.costs import CostModel, Op, ProfileTable, Provenance, Roofline, Row, copy, decode_attention, linear, prefill_attention
from hetsys.core.errors import ConfigError, InfeasiblePlan
from hetsys.core.truth import Costs, Residual, sample_profile

ROOT = Path(__file__).resolve().parents[2]
SLOW = DeviceSheet("slow", 10**9, 1e9, {"fp16": 1e12, "fp32": 1e11}, 1e-3, 1.0, "2026-01-01", 0.5, 0.8)
FAST = replace(SLOW, label="fast", memory_bandwidth_bytes_per_s=4e9, flops_per_s={"fp16": 9e12})
RAW = Roofline({"slow": SLOW, "fast": FAST})
KINDS = ("slow", "fast")
seeds = st.integers(0, 2**40)


def many_ops(n: int) -> list[Op]:
    return [linear(rows, 64, 64) for rows in range(1, n + 1)]


# Residuals


def test_the_same_operation_has_the_same_factor_in_any_order_and_spelling() -> None:
    truth = Residual(RAW, 0.1, 7)
    ops = [*many_ops(20), copy(100), Op("layer", rows=3, labels=(("a", "1"), ("b", "2")))]
    forwards = {(kind, op): truth.factor(kind, op) for kind in KINDS for op in ops}
    backwards = {(kind, op): Residual(RAW, 0.1, 7).factor(kind, op) for kind in reversed(KINDS) for op in reversed(ops)}
    assert forwards == backwards and len(set(forwards.values())) == len(forwards)
    assert truth.factor("slow", linear(8.0, 64, 64)) == truth.factor("slow", linear(8, 64, 64))
    assert truth.factor("slow", Op("layer", rows=3, labels=(("b", "2"), ("a", "1")))) == forwards["slow", ops[-1]]


def test_every_field_of_an_operation_counts() -> None:
    op, truth = Op("layer", 3, 5, 7.0, 9.0, "fp16", (("tp", "1"),)), Residual(RAW, 0.1, 7)
    changes = {"kind": "other", "rows": 4, "kv_tokens": 6, "num_bytes": 8.0, "flops": 10.0, "dtype": "fp32", "labels": (("tp", "2"),)}
    others = [truth.factor("slow", replace(op, **{name: value})) for name, value in changes.items()]  # type: ignore[arg-type]
    others += [truth.factor("fast", op), Residual(RAW, 0.1, 8).factor("slow", op)]
    assert len({truth.factor("slow", op), *others}) == 1 + len(changes) + 2


def test_factors_repeat_in_another_process() -> None:
    """Also where Python's own hashes are salted otherwise."""
    code = (
        "from hetsys.core.truth import Residual, sample_profile\n"
        "from tests.core.test_truth import KINDS, RAW, many_ops\n"
        "truth = Residual(RAW, 0.2, 3)\n"
        "print([truth.duration_s(k, op).hex() for k in KINDS for op in many_ops(9)])\n"
        "print(sample_profile(truth, KINDS, many_ops(3), 2, 0.1, 5).hash, truth.hash)\n"
    )

    def run(salt: str) -> str:
        environment = os.environ | {"PYTHONHASHSEED": salt}
        command = [sys.executable, "-c", code]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=True).stdout

    truth = Residual(RAW, 0.2, 3)
    here = str([truth.duration_s(k, op).hex() for k in KINDS for op in many_ops(9)])
    profile = sample_profile(truth, KINDS, many_ops(3), 2, 0.1, 5).hash
    assert [run("1"), run("2")] == [f"{here}\n{profile} {truth.hash}\n"] * 2


def test_a_factor_by_hand() -> None:
    """It is exp(sigma z - sigma^2 / 2) with the same z for every sigma."""
    op = linear(5, 64, 64)
    z = log(Residual(RAW, 1.0, 4).factor("slow", op)) + 0.5
    assert Residual(RAW, 0.3, 4).factor("slow", op) == pytest.approx(exp(0.3 * z - 0.045), rel=1e-12)


@given(seed=seeds, sigma=st.floats(0.01, 0.5))
def test_factors_have_mean_one_and_the_spread_asked_for(seed: int, sigma: float) -> None:
    n = 2000
    factors = [Residual(RAW, sigma, seed).factor("slow", op) for op in many_ops(n)]
    assert min(factors) > 0
    assert mean(factors) == pytest.approx(1, abs=6 * sqrt((exp(sigma**2) - 1) / n))
    assert pstdev(log(factor) for factor in factors) == pytest.approx(sigma, rel=6 / sqrt(2 * n))


@given(seed=seeds, sigma=st.floats(0, 2), rows=st.integers(1, 10**6))
def test_durations_are_base_times_factor_and_never_negative(seed: int, sigma: float, rows: int) -> None:
    truth: CostModel = Residual(RAW, sigma, seed)
    for kind, op in product(KINDS, (linear(rows, 64, 64), copy(rows))):
        assert truth.duration_s(kind, op) == RAW.duration_s(kind, op) * Residual(RAW, sigma, seed).factor(kind, op) >= 0


@given(seed=seeds, rows=st.integers(1, 10**6))
def test_no_spread_is_exactly_the_base(seed: int, rows: int) -> None:
    assert Residual(RAW, 0, seed).duration_s("slow", linear(rows, 64, 64)) == RAW.duration_s("slow", linear(rows, 64, 64))
    assert Residual(RAW, 0, seed).hash == RAW.hash


def test_hash_and_provenance() -> None:
    truth = Residual(RAW, 0.1, 7)
    others = [Residual(RAW, 0.1, 8), Residual(RAW, 0.2, 7), Residual(Roofline({"slow": SLOW}), 0.1, 7), RAW]
    assert truth.hash == Residual(Roofline({"fast": FAST, "slow": SLOW}), 0.1, 7).hash
    assert len({truth.hash, *(other.hash for other in others)}) == 5
    assert truth.provenance == RAW.provenance


def test_what_the_base_refuses_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'slow'"):
        Residual(RAW, 0.1, 7).duration_s("slo", copy(1))


@pytest.mark.parametrize("sigma", [-0.1, float("nan"), float("inf")])
def test_impossible_spreads_are_refused(sigma: float) -> None:
    with pytest.raises(ConfigError, match=r"costs\.sigma"):
        Residual(RAW, sigma, 0)
    with pytest.raises(ConfigError, match=r"profile\.noise"):
        sample_profile(RAW, KINDS, many_ops(1), 1, sigma, 0)


# Profiles


def test_a_noiseless_profile_is_the_truth_on_the_grid_and_straight_between() -> None:
    truth = Residual(RAW, 0.2, 7)
    profile = sample_profile(truth, KINDS, [linear(8, 64, 64), linear(16, 64, 64)], 1, 0, 0)
    low, high = (truth.duration_s("slow", linear(rows, 64, 64)) for rows in (8, 16))
    assert [profile.duration_s("slow", linear(rows, 64, 64)) for rows in (8, 12, 16)] == pytest.approx([low, (low + high) / 2, high])


def test_one_table_answers_for_operations_of_several_kinds_between_its_grid_points() -> None:
    """Memory traffic decides all of these durations, so that straight lines meet them."""
    grid = [linear(rows, 64, 64) for rows in (1, 16, 256)] + [copy(2.0**k) for k in (10, 20)]
    grid += [decode_attention(rows, kv, 8, 4, 8) for rows in (1, 64) for kv in (256, 65536)]
    grid += [prefill_attention(rows, past, 8, 4, 8) for rows in (1, 64) for past in (64, 4096)]
    profile = sample_profile(RAW, KINDS, grid, 3, 0.0, 0)
    for kind in KINDS:
        for op in (linear(100, 64, 64), copy(5e5), decode_attention(20, 30000, 8, 4, 8), prefill_attention(30, 1000, 8, 4, 8)):
            assert profile.duration_s(kind, op) == pytest.approx(RAW.duration_s(kind, op), rel=0.02)
    with pytest.raises(InfeasiblePlan, match="rows=600"):
        profile.duration_s("slow", linear(600, 64, 64))
    with pytest.raises(ConfigError, match="slow/linear/fp32"):
        profile.duration_s("slow", linear(100, 64, 64, "fp32"))


def test_labels_keep_layers_of_other_shapes_apart() -> None:
    up = [replace(linear(rows, 64, 256), labels=(("layer", "up"),)) for rows in (1, 64)]
    down = [replace(linear(rows, 256, 64), labels=(("layer", "down"),)) for rows in (1, 64)]
    wide = [replace(linear(rows, 256, 256), labels=(("layer", "wide"),)) for rows in (1, 64)]
    profile = sample_profile(RAW, ["slow"], up + down + wide, 1, 0, 0)
    assert profile.key_names == ("device", "kind", "dtype", "layer")
    for op in (*up, *down, *wide):
        assert profile.duration_s("slow", op) == pytest.approx(RAW.duration_s("slow", op))


@pytest.mark.parametrize(
    ("ops", "what"),
    [
        ([], "at least one operation"),
        ([linear(1, 64, 64), linear(1, 64, 128)], "label them apart"),
        ([Op("x", rows=1), Op("x", rows=1, kv_tokens=2)], "label them apart"),
        ([linear(1, 64, 64), replace(linear(2, 64, 64), labels=(("tp", "2"),))], "others have tp"),
    ],
)
def test_grids_that_cannot_become_one_table_are_refused(ops: list[Op], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        sample_profile(RAW, KINDS, ops, 1, 0, 0)


def test_at_least_one_sample() -> None:
    with pytest.raises(ConfigError, match=r"profile\.repeats"):
        sample_profile(RAW, KINDS, many_ops(1), 0, 0, 0)


def grid_error(truth: CostModel, repeats: int, noise: float, seed: int) -> float:
    """Root mean square relative error of a profile at its own 200 grid points."""
    ops = many_ops(200)
    profile = sample_profile(truth, ["slow"], ops, repeats, noise, seed)
    return sqrt(mean((profile.duration_s("slow", op) / truth.duration_s("slow", op) - 1) ** 2 for op in ops))


@given(seed=seeds, noise=st.floats(0.01, 0.3))
def test_the_error_of_a_profile_shrinks_with_the_root_of_repeats(seed: int, noise: float) -> None:
    once, often = (grid_error(Residual(RAW, 0.1, seed), repeats, noise, seed) for repeats in (1, 16))
    assert 2.5 < once / often < 6.5


def test_what_the_grid_does_not_know_stays_unknown() -> None:
    """Between grid points the residual of the truth is left, however often they are measured."""
    truth = Residual(RAW, 0.1, 3)
    profile = sample_profile(truth, ["slow"], many_ops(400)[::2], 50, 0.05, 1)
    errors = [profile.duration_s("slow", op) / truth.duration_s("slow", op) - 1 for op in many_ops(398)[1::2]]
    assert pstdev(errors) == pytest.approx(0.1 * sqrt(1.5), rel=0.2)


@given(seed=seeds, noise=st.floats(0, 2), repeats=st.integers(1, 3))
def test_samples_are_never_negative_and_depend_on_nothing_but_the_seed(seed: int, noise: float, repeats: int) -> None:
    truth = Residual(RAW, 0.1, seed)
    profile = sample_profile(truth, KINDS, many_ops(4), repeats, noise, seed)
    assert all(row.seconds > 0 for row in profile.rows) and len(profile.rows) == 2 * 4 * repeats
    assert sample_profile(truth, reversed(KINDS), many_ops(4)[::-1], repeats, noise, seed).hash == profile.hash
    fewer = sample_profile(truth, ["fast"], many_ops(2), repeats, noise, seed)
    assert set(fewer.rows) <= set(profile.rows), "a larger grid changes no sample"


def test_every_kind_operation_and_repeat_has_an_error_of_its_own() -> None:
    rows = sample_profile(RAW, KINDS, many_ops(4), 3, 0.1, 0).rows
    assert len({round(row.seconds / RAW.duration_s(row.key[0], linear(row.at[0], 64, 64)), 12) for row in rows}) == 2 * 4 * 3


def test_errors_of_measurement_are_not_the_residuals() -> None:
    """With equal seeds and spreads, samples divided by the truth are not the truth divided by its base."""
    truth, ops = Residual(RAW, 0.1, 7), many_ops(300)
    profile = sample_profile(truth, ["slow"], ops, 1, 0.1, 7)
    x = [log(truth.factor("slow", op)) for op in ops]
    y = [log(profile.duration_s("slow", op) / truth.duration_s("slow", op)) for op in ops]
    covariance = mean((a - mean(x)) * (b - mean(y)) for a, b in zip(x, y, strict=True))
    assert abs(covariance / (pstdev(x) * pstdev(y))) < 0.25


def test_a_profile_says_where_it_comes_from() -> None:
    published = ProfileTable(
        ("device", "kind"), ("rows",), (Row(("slow", "x"), (4.0,), 1.0),), Provenance("published", "a paper", "abc", "MIT")
    )
    found = sample_profile(published, ["slow"], [Op("x", rows=4)], 5, 0.1, 0).provenance
    assert (found.kind, found.source, found.n) == ("published", "5 samples a point of a paper", 5)
    assert (found.commit, found.licence) == ("abc", "MIT")
    assert found.sd_fraction is not None and 0.02 < found.sd_fraction < 0.3


def test_seed_noise_and_truth_all_reach_the_profile() -> None:
    made = [(RAW, 0.1, 0), (RAW, 0.1, 1), (RAW, 0.2, 0), (Residual(RAW, 0.1, 0), 0.1, 0)]
    assert len({sample_profile(truth, KINDS, many_ops(3), 2, noise, seed).hash for truth, noise, seed in made}) == 4


# The triple


def test_a_profile_must_not_be_the_truth() -> None:
    truth = Residual(RAW, 0.1, 7)
    profile = sample_profile(truth, KINDS, many_ops(3), 2, 0.05, 1)
    assert not Costs(truth, profile, truth).sim_predicts
    assert Costs(truth, profile, profile).sim_predicts
    for same in (truth, Residual(RAW, 0.1, 7), Residual(truth, 0, 9)):
        with pytest.raises(ConfigError, match="proves nothing"):
            Costs(truth, same, truth)
