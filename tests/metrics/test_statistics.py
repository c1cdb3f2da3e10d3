"""Paired statistics against numbers by hand and against scipy's own tests."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsys.core.errors import ConfigError
from hetsys.metrics.catalog import HEADLINE, METRICS, metric
from hetsys.metrics.scheduling import summarize
from hetsys.metrics.statistics import Effect, choose_scale, holm, mean_interval, paired_effect, verdict

positive = st.floats(0.01, 100.0)


def test_a_ratio_by_hand() -> None:
    """log2-ratios 1, 1, 3: mean 5/3, sd sqrt(4/3), error 2/3, t(2, 97.5 %) = 4.3027: 5/3 -+ 2.8684."""
    effect = paired_effect([(2.0, 1.0), (8.0, 4.0), (8.0, 1.0)], "ratio")
    assert effect is not None and effect.low is not None and effect.high is not None
    assert effect.value == pytest.approx(2 ** (5 / 3))
    assert math.log2(effect.low) == pytest.approx(5 / 3 - 2.8684, abs=1e-4)
    assert math.log2(effect.high) == pytest.approx(5 / 3 + 2.8684, abs=1e-4)


def test_a_difference_by_hand() -> None:
    """Differences 1 and 3: mean 2, error 1, t(1, 97.5 %) = 12.7062, p = 2 P(T > 2) = 0.2952."""
    effect = paired_effect([(1.0, 0.0), (5.0, 2.0)], "difference")
    assert effect == Effect("difference", 2, 2.0, pytest.approx(-10.7062, abs=1e-4), pytest.approx(14.7062, abs=1e-4), effect.p)
    assert effect.p == pytest.approx(0.2952, abs=1e-4)


@given(st.lists(st.tuples(positive, positive), min_size=2, max_size=30))
def test_equals_scipy(pairs: list[tuple[float, float]]) -> None:
    from scipy import stats

    effect = paired_effect(pairs, "difference")
    assert effect is not None
    reference = stats.ttest_rel([a for a, _ in pairs], [b for _, b in pairs])
    if effect.low != effect.high:
        interval = reference.confidence_interval(0.95)
        assert (effect.low, effect.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-9)
        assert effect.p == pytest.approx(reference.pvalue, rel=1e-5, abs=1e-12)


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=9))
def test_swapping_the_sides_inverts_the_ratio(pairs: list[tuple[float, float]]) -> None:
    one, other = paired_effect(pairs, "ratio"), paired_effect([(b, a) for a, b in pairs], "ratio")
    assert one is not None and other is not None
    assert one.value * other.value == pytest.approx(1.0)


def test_equal_and_constant_pairs() -> None:
    same = paired_effect([(3.0, 3.0)] * 20, "ratio")
    assert same is not None and (same.value, same.low, same.high, same.p) == (1.0, 1.0, 1.0, 1.0)
    twice = paired_effect([(2.0, 1.0), (6.0, 3.0)], "ratio")
    assert twice is not None and twice.value == pytest.approx(2.0) and twice.low == pytest.approx(2.0) and twice.p == 0.0
    single = paired_effect([(2.0, 1.0)], "ratio")
    assert single is not None and single.value == pytest.approx(2.0) and single.low is None and single.p is None
    assert paired_effect([], "ratio") is None


def test_mean_interval_by_hand() -> None:
    mean, low, high = mean_interval([1.0, 3.0])
    assert (mean, low, high) == (2.0, pytest.approx(-10.7062, abs=1e-4), pytest.approx(14.7062, abs=1e-4))
    assert mean_interval([4.0]) == (4.0, None, None)


def test_a_zero_turns_a_ratio_into_a_difference() -> None:
    assert choose_scale("ratio", [1.0, 2.0]) == "ratio"
    assert choose_scale("ratio", [1.0, 0.0]) == "difference"
    assert choose_scale("difference", [1.0, 2.0]) == "difference"
    with pytest.raises(ConfigError):
        choose_scale("log", [1.0])


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, None, 0.9]) == [1.0, None, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0.0, 1.0), max_size=12))
def test_holm_never_lowers_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = [p for p in holm(p_values) if p is not None]
    assert all(new >= old and new <= 1.0 for new, old in zip(adjusted, p_values, strict=True))
    ranked = [new for _, new in sorted(zip(p_values, adjusted, strict=True))]
    assert ranked == sorted(ranked)


@pytest.mark.parametrize(
    ("value", "low", "high", "p", "better", "word"),
    [
        (1.05, 1.03, 1.07, 0.001, "higher", "better"),
        (1.05, 1.03, 1.07, 0.001, "lower", "worse"),
        (0.95, 0.93, 0.97, 0.001, "lower", "better"),
        (1.05, 1.03, 1.07, 0.001, "", "higher"),
        (1.00, 0.985, 1.015, 0.9, "higher", "no loss"),
        (1.00, 0.975, 1.025, 0.9, "higher", "inconclusive"),
        (1.00, 0.985, 1.030, 0.9, "lower", "inconclusive"),
        (1.00, 0.985, 1.015, 0.9, "", "inconclusive"),
        (1.05, None, None, None, "higher", "descriptive only"),
    ],
)
def test_verdicts(value: float, low: float | None, high: float | None, p: float | None, better: str, word: str) -> None:
    effect = Effect("ratio", 20, value, low, high, p)
    assert verdict(effect, p, better=better, margin=0.02, min_seeds=20) == word
    assert verdict(effect, p, better=better, margin=0.02, min_seeds=21) == "descriptive only"


def test_every_summary_name_is_described() -> None:
    names = summarize([], kinds=(), prices_usd_per_hour={})
    assert set(names) <= set(METRICS) and set(HEADLINE) <= set(names)
    assert metric("something_new").scale == "difference" and metric("jct_mean_s").text(7200.0) == "2.00"
    assert metric("jct_p95_s").text(None) == "n/a"
