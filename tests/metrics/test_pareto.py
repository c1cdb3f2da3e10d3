"""The distance from Pareto efficiency: by hand, on OEF's counterexample, and what must hold for any division."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsys.metrics import pareto
from hetsys.metrics.fairness import bundle_value
from hetsys.metrics.pareto import pareto_gap
from tests.metrics.records import user

share = st.floats(0.0, 4.0, allow_subnormal=False)


def test_an_exchange_by_hand() -> None:
    """(1, 2) and (1, 4) with half of each kind have 1.5 and 2.5. For its slow half the first asks a quarter of a fast one; the second
    would give an eighth: 0.25 fast ones (worth 1 to it) change hands for half a slow one (0.5), so 0.5 is gained, of 4."""
    owners = [user("a", (0.5, 0.5)), user("b", (0.5, 0.5), speeds=(1, 4))]
    assert pareto_gap(owners, (1, 1)) == pytest.approx(0.5 / 4)
    assert pareto_gap([user("a", (1, 0.25)), user("b", (0, 0.75), speeds=(1, 4))], (1, 1)) == pytest.approx(0.0)


def test_the_optimum_without_envy_that_something_dominates() -> None:
    """Speeds (1, 5, 6), (1, 4, 4), (1, 1, 2) on 1, 4, 3 devices: cooperative OEF reaches 30 in total, 5/6 more hurts nobody."""
    rows = {"a": ((0, 2, 5 / 6), (1, 5, 6)), "b": ((0, 2, 5 / 6), (1, 4, 4)), "c": ((1, 0, 4 / 3), (1, 1, 2))}
    owners = [user(name, devices, speeds=speeds) for name, (devices, speeds) in rows.items()]
    assert pareto_gap(owners, (1, 4, 3)) == pytest.approx(5 / 6 / 30)


def test_what_cannot_be_used_is_not_missed() -> None:
    """One job each: the fast device is used by a, b cannot hold a second one. Idle devices that somebody could use are a gap."""
    owners = [user("a", (0, 1), demand=1), user("b", (1, 0), demand=1)]
    assert pareto_gap(owners, (2, 1)) == pytest.approx(0.0)
    assert pareto_gap(owners, (2, 2)) == pytest.approx(1 / 3)  # b on a fast one: 1 more, of 3
    assert pareto_gap([user("a", (5, 0), demand=1)], (5, 0)) == pytest.approx(0.0)


def test_no_number_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pareto_gap([], (1, 1)) is None and pareto_gap([user("a", (0, 0))], (0, 0)) is None
    monkeypatch.setattr(pareto, "MOST_OWNERS", 1)
    assert pareto_gap([user("a", (1, 0)), user("b", (0, 1))], (1, 1)) is None


@given(st.data())
def test_the_gap_is_at_most_what_the_whole_cluster_is_worth_to_the_fastest(data: st.DataObject) -> None:
    speeds = data.draw(st.lists(st.tuples(st.just(1.0), st.floats(0.2, 9), st.floats(0.2, 9)), min_size=1, max_size=5))
    owners = [user(f"u{i}", data.draw(st.tuples(share, share, share)), speeds=row) for i, row in enumerate(speeds)]
    capacity = np.sum([owner.devices for owner in owners], axis=0)
    gap = pareto_gap(owners, capacity.tolist())
    total = sum(float(bundle_value(np.array(o.devices), np.array(o.speeds), np.array(o.demand))) for o in owners)
    if gap is None:
        assert total == 0
    else:
        most = float((np.max(speeds, axis=0) * capacity).sum())
        assert -1e-9 <= gap <= most / total - 1 + 1e-6
