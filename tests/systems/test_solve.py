"""The door to the solvers: answers and duals by hand, every failure as one of two errors, and silence."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from hetsys.core.errors import ConfigError, InfeasiblePlan, SolverError
from hetsys.systems.solve import SOLVERS, column, dot, maximise, solve, total, unknown, unknowns


def textbook() -> Any:
    """max 3x + 2y  s.t.  x + y <= 4, x <= 3, x - 2y >= -100: x = 3, y = 1, worth 11."""
    problem = maximise("textbook")
    x, y = unknown(problem, "x"), unknown(problem, "y")
    problem += 3 * x + 2 * y
    problem += x + y <= 4, "row_0"
    problem += x <= 3, "row_1"
    problem += x - 2 * y >= -100, "row_2"
    return problem


@pytest.mark.parametrize("solver", SOLVERS)
class TestBothSolvers:
    def test_values_and_duals(self, solver: str) -> None:
        solution = solve(textbook(), solver=solver)
        assert solution.objective == pytest.approx(11)
        assert solution.values == pytest.approx({"x": 3, "y": 1})
        np.testing.assert_allclose(solution.dual("row", 4), [2, 1, 0, 0], atol=1e-9)

    def test_dual_of_a_lower_bound_is_negative(self, solver: str) -> None:
        problem = maximise("floor")
        x, y = unknown(problem, "x"), unknown(problem, "y")
        problem += 3 * x + 2 * y
        problem += x + y <= 4, "cap_0"
        problem += y >= 1, "floor_0"
        solution = solve(problem, solver=solver)
        assert (solution.dual("cap", 1)[0], solution.dual("floor", 1)[0]) == pytest.approx((3, -1))

    def test_infeasible(self, solver: str) -> None:
        problem = textbook()
        problem += problem.objective >= 12, "too_much"
        with pytest.raises(InfeasiblePlan, match="textbook has no optimum"):
            solve(problem, solver=solver)

    def test_unbounded(self, solver: str) -> None:
        problem = maximise("free")
        problem += unknown(problem, "x") + 0
        problem += unknown(problem, "y") <= 1, "row"
        with pytest.raises(InfeasiblePlan, match="free has no optimum"):
            solve(problem, solver=solver)

    @pytest.mark.parametrize("bad", [float("nan"), float("inf")])
    def test_numbers_that_are_none(self, solver: str, bad: float) -> None:
        problem = maximise("spoilt")
        row = unknowns(problem, "x", np.array([[True, True]]))[0]
        problem += dot([1.0, 1.0], row)
        problem += dot([1.0, bad], row) <= 1, "row"
        with pytest.raises((SolverError, InfeasiblePlan)):
            solve(problem, solver=solver)


def test_out_of_time() -> None:
    """More than a thousand rows in no time at all."""
    rng = np.random.default_rng(0)
    problem = maximise("large")
    x = unknowns(problem, "x", np.ones((40, 40), bool))
    problem += total(dot(row, variables) for row, variables in zip(rng.uniform(1, 2, (40, 40)).tolist(), x, strict=True))
    for j in range(40):
        problem += column(rng.uniform(0.1, 1, 40).tolist(), x, j) <= 1, f"column_{j}"
        problem += dot(rng.uniform(0.1, 1, 40).tolist(), x[j]) <= 1, f"row_{j}"
    with pytest.raises(SolverError, match=r"did not finish large in 1e-06 s"):
        solve(problem, time_limit_s=1e-6)


def test_unknown_solver() -> None:
    with pytest.raises(ConfigError, match="did you mean 'highs'"):
        solve(textbook(), solver="higs")


def test_unknowns_where_they_are_wanted() -> None:
    problem = maximise("sparse")
    x = unknowns(problem, "x", np.array([[True, False], [True, True]]))
    problem += total([dot([2.0, 5.0], x[0]), dot([1.0, 3.0], x[1])])
    problem += column([1.0, 1.0], x, 0) <= 1, "column_0"
    problem += column([1.0, 1.0], x, 1) <= 1, "column_1"
    np.testing.assert_allclose(solve(problem).matrix(x, 2), [[1, 0], [0, 1]])


def test_silent_and_lazy() -> None:
    """Nothing on either stream, not even the banner of HiGHS; and PuLP is not imported before it is needed."""
    code = (
        "import sys; import hetsys.systems.oef.cooperative, hetsys.systems.baselines.gavel;"
        "assert not {'pulp', 'highspy', 'scipy', 'torch'} & set(sys.modules);"
        "from tests.systems.test_solve import textbook; from hetsys.systems.solve import solve;"
        "assert [solve(textbook(), solver=s).objective for s in ('highs', 'cbc', 'highs')] == [11, 11, 11]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
