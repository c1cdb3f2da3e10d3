"""The benchmark of OEF's programs: it runs, says what it promises, and its yardsticks are right."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.oef_solve import CASES, Case, first_speeds, full_program, next_speeds, proven_bound, reached, view_of
from benchmarks.report import Row, as_object, table
from hetsys.core.paths import shipped
from hetsys.systems.oef.cooperative import OefCooperative
from hetsys.systems.oef.noncooperative import OefNonCooperative
from hetsys.systems.solve import solve

METRICS = ["cold_s", "warm_s", "objective_error_rel", "pulp_cbc_ratio"]


def test_the_smallest_case_as_json() -> None:
    command = [sys.executable, "-m", "benchmarks.oef_solve", "--json", "--case", "cooperative_n10_k6"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, cwd=shipped("conf").parent)
    found = json.loads(done.stdout)
    assert list(found) == ["benchmark", "commit", "machine", "source", "rows"]
    assert (found["benchmark"], found["source"]) == ("oef_solve", "measured")
    assert [(row["case"], row["metric"]) for row in found["rows"]] == [("cooperative_n10_k6", metric) for metric in METRICS]
    value = {row["metric"]: row["value"] for row in found["rows"]}
    assert value["cold_s"] > 0 and value["warm_s"] > 0 and value["pulp_cbc_ratio"] > 0
    assert value["objective_error_rel"] <= 1e-6
    assert "cooperative_n10_k6" in done.stderr


def test_the_names_that_stay() -> None:
    assert list(CASES) == [
        "cooperative_n10_k6", "cooperative_n100_k6", "cooperative_n1000_k3", "cooperative_n1000_k6", "noncooperative_n10000_k10",
        "cooperative_10000_of_80_types",
    ]  # fmt: skip
    assert CASES["cooperative_n1000_k6"] == Case(1000, 6, full=False, cbc=False)


@pytest.mark.parametrize("name", list(CASES))
def test_instances(name: str) -> None:
    """Seeded, growing from kind to kind, all different (or of 80 types); the next round differs in a few tenants."""
    case = CASES[name]
    speeds = first_speeds(case)
    np.testing.assert_array_equal(speeds, first_speeds(case))
    assert speeds.shape == (case.tenants, case.kinds)
    later = next_speeds(case, speeds)
    np.testing.assert_array_equal(later, next_speeds(case, speeds))
    for rows in (speeds, later):
        assert (rows[:, 0] == 1).all() and (np.diff(rows, axis=1) >= 0).all()
        different = len(np.unique(rows, axis=0))
        assert different == case.tenants if case.types is None else 75 <= different <= 190
    changed = (speeds != later).any(axis=1).sum()
    assert max(1, case.tenants // 100) <= changed <= max(3, 0.05 * case.tenants)


@pytest.mark.parametrize("cooperative", [True, False])
def test_the_yardsticks_agree(cooperative: bool) -> None:
    case = Case(12, 3, cooperative)
    view = view_of(first_speeds(case), np.ones(12), 8)
    best = solve(full_program(case, view)).objective
    policy = OefCooperative() if cooperative else OefNonCooperative()
    allocation, _ = policy.allocate(view, None)
    assert reached(case, view, allocation) == pytest.approx(best, rel=1e-6)
    if cooperative:
        assert proven_bound(view, allocation) == pytest.approx(best, rel=1e-6)
        without = replace(allocation, binding=allocation.binding[1:])
        assert proven_bound(view, without) > best * (1 + 1e-4)


def test_a_bound_for_tenants_of_few_types() -> None:
    case = Case(40, 3, types=5)
    view = view_of(first_speeds(case), np.ones(40), 8)
    allocation, _ = OefCooperative().allocate(view, None)
    assert proven_bound(view, allocation) == pytest.approx(solve(full_program(case, view)).objective, rel=1e-6)


def test_the_table_shows_what_is_missing_and_why() -> None:
    rows = [Row("a", "cold_s", 0.0123456, "here"), Row("a", "pulp_cbc_ratio", None, "too many rows")]
    assert table(rows).splitlines() == [
        "case  metric           value  note",
        "a     cold_s          0.0123  here",
        "a     pulp_cbc_ratio       -  too many rows",
    ]
    assert as_object("x", rows)["rows"][1] == {"case": "a", "metric": "pulp_cbc_ratio", "value": None, "note": "too many rows"}
