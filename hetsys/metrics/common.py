"""Small numbers that every domain needs: means and percentiles that are null where the sample cannot carry them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Number = float | int | None


def mean(values: Sequence[float]) -> float | None:
    """Arithmetic mean; None of nothing."""
    return float(np.mean(values)) if len(values) else None


def percentile(values: Sequence[float], percent: float, at_least: int = 1) -> float | None:
    """The `percent`-th percentile, linear between neighbours; None where there are fewer than `at_least` values."""
    return float(np.percentile(values, percent)) if len(values) >= max(at_least, 1) else None


def ratio(part: float, whole: float) -> float | None:
    """`part / whole`, or None where the whole is 0."""
    return part / whole if whole else None
