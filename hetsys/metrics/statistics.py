"""Paired statistics: systems share seeds, so what is compared is the difference within a seed, never two unpaired averages.

Per-seed log-ratio to the baseline, geometric mean, 95 % paired t interval, Holm's correction within a table or figure. Numbers
that can be 0 or signed are compared by their difference instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isclose, isfinite, log, sqrt

from hetsys.core.errors import check_choice

CONFIDENCE = 0.95
MARGIN = 0.02
"""A loss smaller than this is "no loss": 2 % of the baseline, or 0.02 of a fraction."""
MIN_SEEDS = {"simulated": 20, "measured": 5, "emulated": 20}
"""Below this many seeds an interval is descriptive only. Emulated runs equal the simulated ones of their seeds: two show that, and the
simulated seeds of the same frame judge."""

LEAST_SEEDS_OF_AN_INTERVAL = 3
"""Of fewer seeds no interval is shown: it would be wider than anything it could say."""


@dataclass(frozen=True)
class Effect:
    """A paired effect over `n` seeds. `scale` "ratio": `value` is the geometric mean of system / baseline, 1 means equal;
    "difference": the mean of system - baseline, 0 means equal. `low`, `high`: 95 % paired t interval (None for one seed); `p`:
    two-sided, of equality."""

    scale: str
    n: int
    value: float
    low: float | None
    high: float | None
    p: float | None

    @property
    def neutral(self) -> float:
        return 1.0 if self.scale == "ratio" else 0.0


def choose_scale(preferred: str, values: Sequence[float]) -> str:
    """ "ratio" where it is preferred and every value is above 0, else "difference"."""
    check_choice("scale", preferred, ("ratio", "difference"))
    return preferred if preferred == "difference" or all(value > 0 for value in values) else "difference"


def paired_effect(pairs: Sequence[tuple[float, float]], scale: str) -> Effect | None:
    """The effect of `(system, baseline)` pairs, one a seed; None of nothing.

    For "ratio", pairs (2, 1), (8, 4) and (8, 1): log2-ratios 1, 1 and 3, geometric mean 2^(5/3).
    """
    if not pairs:
        return None
    inside = [log(a) - log(b) if scale == "ratio" else a - b for a, b in pairs]
    mean, low, high, p = _t_interval(inside)
    if scale == "difference":
        return Effect(scale, len(inside), mean, low, high, p)
    return Effect(scale, len(inside), exp(mean), None if low is None else exp(low), None if high is None else exp(high), p)


def mean_interval(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Mean of one system's values over its seeds and the ends of its 95 % t interval (None for one seed)."""
    return _t_interval(values)[:3]


def _t_interval(values: Sequence[float]) -> tuple[float, float | None, float | None, float | None]:
    n = len(values)
    mean = sum(values) / n
    if n < 2:
        return mean, None, None, None
    error = sqrt(sum((value - mean) ** 2 for value in values) / (n - 1) / n)
    if error <= 1e-15 * max(1.0, abs(mean)):  # all equal up to rounding
        return mean, mean, mean, 1.0 if isclose(mean, 0.0, abs_tol=1e-12) else 0.0
    from scipy import special

    half = float(special.stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * error
    p = 2.0 * float(special.stdtr(n - 1, -abs(mean / error)))
    return mean, mean - half, mean + half, p


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction within one family; None (untestable) stays None and does not count.

    (0.01, 0.04, 0.03) -> (0.03, 0.06, 0.06): 3 x 0.01, then 2 x 0.03, then max(0.06, 1 x 0.04).
    """
    adjusted: list[float | None] = [None] * len(p_values)
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    least = 0.0
    for rank, (p, i) in enumerate(known):
        least = max(least, min(1.0, (len(known) - rank) * p))
        adjusted[i] = least
    return adjusted


def verdict(effect: Effect, p_adjusted: float | None, *, better: str, margin: float, min_seeds: int) -> str:
    """One word for an effect.

    "better" / "worse" ("higher" / "lower" where neither direction is good): p after Holm's correction is below 5 %. "no loss":
    not so, but the whole interval lies above a loss of `margin` (non-inferior). "inconclusive": neither. "descriptive only":
    fewer than `min_seeds`.
    """
    if effect.n < min_seeds or p_adjusted is None or effect.low is None or effect.high is None:
        return "descriptive only"
    up = effect.value > effect.neutral
    if p_adjusted < 1.0 - CONFIDENCE:
        return ("higher" if up else "lower") if not better else "better" if up == (better == "higher") else "worse"
    if better:
        lost = effect.neutral - effect.low if better == "higher" else effect.high - effect.neutral
        return "no loss" if isfinite(lost) and lost < margin else "inconclusive"
    return "inconclusive"
