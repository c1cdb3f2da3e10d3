"""Where gangs sat, by hand."""

from __future__ import annotations

import pytest

from hetsys.core.scheduling.record import JobRecord, UserShare
from hetsys.metrics.gangs import devices_by_kind, gang_figures
from hetsys.metrics.scheduling import summarize
from tests.metrics.records import KINDS, PRICES, grant, round_


def _job(name: str, gang: int) -> JobRecord:
    return JobRecord(name, "a", "type", gang, "finished", 0.0, 0.0, 100.0, 100.0, 10, 0, 0, 0, None)


def test_the_share_of_gangs_that_sit_apart_and_what_waiting_for_the_slowest_costs() -> None:
    """Speeds (1, 3). A gang of 4 on 3 slow and 1 fast: 6 possible, 4 made. A gang of 2 on one of each: 4 possible, 2 made, for half as
    long. Loss: (2 + 2 / 2) / (6 + 4 / 2) = 3/8. Single devices are no gangs."""
    users = [UserShare(f"a/type/{gang}", "a", 0.5, (1.0, 1.0), (1.0, 3.0), 4.0) for gang in (2, 4)]
    grants = [
        grant("single", "a", ["slow-0-0"]),
        grant("four", "a", ["slow-0-1", "slow-0-2", "slow-0-3", "fast-0-0"], mix=(3, 1), spans_nodes=True),
        grant("two", "a", ["slow-1-0", "fast-0-1"], mix=(1, 1), spans_nodes=True, held_s=50.0),
        grant("apart", "a", ["fast-0-2", "fast-1-0"], spans_nodes=True),
        grant("packed", "a", ["fast-1-1", "fast-1-2"]),
    ]
    records = [round_(users=users, grants=grants, capacity=(8, 8))]
    jobs = [_job("four", 4), *(_job(name, 2) for name in ("two", "apart", "packed")), _job("single", 1)]
    figures = gang_figures(records, jobs)
    assert figures == pytest.approx({"cross_host_gangs_fraction": 0.75, "cross_kind_gangs_fraction": 0.5, "straggler_loss": 3 / 8})
    assert devices_by_kind(grants[1], KINDS) == {"slow": 3, "fast": 1} and devices_by_kind(grants[3], KINDS) == {"fast": 2}
    summary = summarize([*records, *jobs], kinds=KINDS, prices_usd_per_hour=PRICES)
    assert summary["device_hours"] == pytest.approx((9 * 100 + 2 * 50) / 3600)
    assert summary["cost_usd"] == pytest.approx((400 * 1 + 500 * 3 + 50 * (1 + 3)) / 3600)


def test_no_gang_and_none_on_several_kinds() -> None:
    nothing = {"cross_host_gangs_fraction": None, "cross_kind_gangs_fraction": None, "straggler_loss": None}
    assert gang_figures([round_(grants=[grant("single", "a", ["slow-0-0"])])], [_job("single", 1)]) == nothing
    apart = round_(grants=[grant("two", "a", ["fast-0-0", "fast-1-0"], spans_nodes=True)])
    assert gang_figures([apart], [_job("two", 2)]) == {
        "cross_host_gangs_fraction": 1.0, "cross_kind_gangs_fraction": 0.0, "straggler_loss": None
    }  # fmt: skip
