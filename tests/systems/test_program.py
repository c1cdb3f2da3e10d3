"""Programs and the door to the solvers: answers and duals by hand on every back-end, every failure as one of two errors, and silence."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsys.core.errors import ConfigError, InfeasiblePlan, SolverError
from hetsys.systems import solve as door
from hetsys.systems.program import Program, spread, unknowns
from hetsys.systems.solve import SOLVERS, Solver, solve

BOTH = np.array([[0, 1]])


def textbook() -> Program:
    """max 3x + 2y  s.t.  x + y <= 4, x <= 3, x - 2y >= -100: x = 3, y = 1, worth 11."""
    program = Program("textbook", [3, 2])
    rows = np.array([[1, 1], [1, 0], [1, -2]])
    program.add("row", np.repeat(BOTH, 3, axis=0), rows, lower=[-np.inf, -np.inf, -100], upper=[4, 3, np.inf])
    return program


def random_program(seed: int, size: int = 40) -> Program:
    """size^2 unknowns, each in one row of each of two groups."""
    rng = np.random.default_rng(seed)
    index = unknowns(np.ones((size, size), dtype=bool))
    program = Program("large", rng.uniform(1, 2, size**2))
    program.add("column", index.T, rng.uniform(0.1, 1, (size, size)), upper=1)
    program.add("row", index, rng.uniform(0.1, 1, (size, size)), upper=1)
    return program


@pytest.mark.parametrize("solver", SOLVERS)
class TestEachSolver:
    def test_values_and_duals(self, solver: str) -> None:
        answer = solve(textbook(), solver=solver)
        assert answer.objective == pytest.approx(11)
        np.testing.assert_allclose(answer.values, [3, 1], atol=1e-9)
        np.testing.assert_allclose(answer.duals["row"], [2, 1, 0], atol=1e-9)

    def test_dual_of_a_lower_bound_is_negative(self, solver: str) -> None:
        program = Program("floor", [3, 2])
        program.add("cap", BOTH, 1, upper=4)
        program.add("floor", BOTH, [0, 1], lower=1)
        answer = solve(program, solver=solver)
        assert (answer.duals["cap"][0], answer.duals["floor"][0]) == pytest.approx((3, -1))

    def test_a_row_may_have_both_bounds_or_be_an_equation(self, solver: str) -> None:
        """x + y between 1 and 4, x - y = 1: x = 2.5, y = 1.5; a unit of the first row adds (3 + 2) / 2, of the second (3 - 2) / 2."""
        program = Program("mixed", [3, 2])
        program.add("rows", np.repeat(BOTH, 2, axis=0), np.array([[1, 1], [1, -1]]), lower=[1, 1], upper=[4, 1])
        answer = solve(program, solver=solver)
        np.testing.assert_allclose(answer.values, [2.5, 1.5], atol=1e-9)
        np.testing.assert_allclose(answer.duals["rows"], [2.5, 0.5], atol=1e-9)

    def test_rows_added_and_another_goal(self, solver: str) -> None:
        program = textbook()
        solve(program, solver=solver)
        program.add("more", BOTH, [1, 0], upper=2.5)
        program.add("row", BOTH, 1, upper=3.5)
        answer = solve(program, solver=solver)
        np.testing.assert_allclose(answer.values, [2.5, 1], atol=1e-9)
        np.testing.assert_allclose(answer.duals["row"], [0, 0, 0, 2], atol=1e-9)
        np.testing.assert_allclose(answer.duals["more"], [1], atol=1e-9)
        program.maximise([0, 1])
        answer = solve(program, solver=solver)
        assert answer.objective == pytest.approx(3.5)
        np.testing.assert_allclose(answer.values, [0, 3.5], atol=1e-9)

    def test_ceilings_and_whole_numbers(self, solver: str) -> None:
        """A knapsack of 4 for pieces of 3, 2 and 2, worth 3, 2 and 2: the two small ones, where a fraction would be worth more."""
        for whole, worth in ((True, 4), (False, 4), ([True, False, False], 4)):
            program = Program("knapsack", [3, 2, 2], ceiling=1, whole=whole)
            program.add("room", np.array([[0, 1, 2]]), [3, 2, 2], upper=4)
            assert solve(program, solver=solver).objective == pytest.approx(worth)
        program = Program("knapsack", [5, 2, 2], ceiling=1, whole=True)
        program.add("room", np.array([[0, 1, 2]]), [3, 2, 2], upper=4)
        answer = solve(program, solver=solver)
        assert answer.objective == pytest.approx(5)
        assert not answer.duals["room"].any()

    def test_infeasible(self, solver: str) -> None:
        program = textbook()
        program.add("too_much", BOTH, [3, 2], lower=12)
        with pytest.raises(InfeasiblePlan, match="textbook has no optimum"):
            solve(program, solver=solver)

    def test_unbounded(self, solver: str) -> None:
        program = Program("free", [1, 0])
        program.add("row", BOTH, [0, 1], upper=1)
        with pytest.raises(InfeasiblePlan, match="free has no optimum"):
            solve(program, solver=solver)

    @pytest.mark.parametrize("bad", [float("nan"), float("inf")])
    def test_numbers_that_are_none(self, solver: str, bad: float) -> None:
        for objective, row, upper in (([1, bad], [1, 1], 1.0), ([1, 1], [1, bad], 1.0), ([1, 1], [1, 1], float("nan"))):
            program = Program("spoilt", objective)
            program.add("row", BOTH, row, upper=upper)
            with pytest.raises(SolverError, match="spoilt holds a number that is not finite"):
                solve(program, solver=solver)

    def test_out_of_time(self, solver: str) -> None:
        with pytest.raises(SolverError, match=f"{solver} did not finish large in 1e-06 s"):
            solve(random_program(0, size=40 if solver != "pulp_cbc" else 100), solver=solver, time_limit_s=1e-6)  # CBC looks seldom


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 8))
def test_solvers_agree(seed: int, columns: int, rows: int) -> None:
    """On random programs, with zeros, that have an optimum: objective, feasibility, and duals that prove it (by weak duality)."""
    rng = np.random.default_rng(seed)
    matrix = rng.choice([0.0, 1.0, 2.0, 0.3], (rows, columns))
    upper, objective = rng.choice([1.0, 2.0, 5.0], rows), rng.choice([0.0, 1.0, 1.7], columns)
    found = []
    for solver in SOLVERS:
        program = Program("any", objective, ceiling=3.0)
        program.add("rows", np.tile(np.arange(columns), (rows, 1)), matrix, upper=upper)
        answer = solve(program, solver=solver)
        assert (matrix @ answer.values <= upper + 1e-6).all()
        duals = answer.duals["rows"]
        assert (duals >= -1e-9).all()
        bound = duals @ upper + 3.0 * np.maximum(objective - duals @ matrix, 0).sum()
        assert answer.objective == pytest.approx(bound, rel=1e-6, abs=1e-9)
        found.append(answer.objective)
    assert found == pytest.approx([found[0]] * 3, rel=1e-6)


class TestLive:
    def test_it_goes_on_from_where_it_was(self) -> None:
        program = random_program(1)
        solve(program)
        first = program.live.model.getInfo().simplex_iteration_count
        solve(program)
        assert first > 10 and program.live.model.getInfo().simplex_iteration_count == 0

    def test_an_optimal_basis_leaves_nothing_to_do(self) -> None:
        program, again = random_program(2), random_program(2)
        answer = solve(program)
        basis = program.basis_found()
        assert basis is not None
        assert sum(part.sum() for part in basis) == program.num_rows
        again.start(*basis)
        assert solve(again).objective == pytest.approx(answer.objective, rel=1e-12)
        assert again.live.model.getInfo().simplex_iteration_count == 0

    @pytest.mark.parametrize("seed", range(8))
    def test_a_bad_basis_costs_time_only(self, seed: int) -> None:
        """Any at all: too many basic ones, too few, singular."""
        rng = np.random.default_rng(seed)
        program, plain = random_program(3, size=12), random_program(3, size=12)
        part = rng.uniform(0, 1)
        program.start(rng.random(program.num_unknowns) < part, rng.random(program.num_rows) < part)
        assert solve(program).objective == pytest.approx(solve(plain).objective, rel=1e-9)

    def test_a_basis_of_another_size_is_refused(self) -> None:
        program = textbook()
        with pytest.raises(AssertionError):
            program.start(np.ones(2, bool), np.ones(2, bool))

    def test_the_time_limit_is_for_all_times_together(self) -> None:
        program = random_program(4)
        solve(program, time_limit_s=5.0)
        program.live.model.setOptionValue("time_limit", program.live.model.getRunTime())
        program.add("more", np.arange(program.num_unknowns)[None], 1.0, upper=1.0)
        with pytest.raises(SolverError, match="did not finish large"):
            solve(program, time_limit_s=5.0)

    def test_a_start_that_leads_nowhere_is_forgotten(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """HiGHS may give up from a basis that is nearly singular; then it begins anew."""
        from highspy import HighsModelStatus

        honest, begun = door._Highs.solve, []

        def lost(self: Any, program: Program, anew: bool = False) -> Any:
            begun.append(anew)
            return honest(self, program, anew) if anew else HighsModelStatus.kNotset

        monkeypatch.setattr(door._Highs, "solve", lost)
        assert solve(textbook()).objective == pytest.approx(11)
        assert begun == [False, True]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (lambda values: np.full_like(values, np.nan), "not finite"),
        (lambda values: np.full_like(values, np.inf), "not finite"),
        (lambda values: values + 1, "does not keep its rows"),
        (lambda values: -values, "does not keep its rows"),
        (lambda values: values * (1 + 1e-4), "does not keep its rows"),
    ],
)
@pytest.mark.parametrize("backend", ["_highspy", "_pulp"])
def test_an_answer_that_is_wrong_is_refused(
    backend: str, values: Callable[[Any], Any], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = getattr(door, backend)

    def lie(*arguments: Any) -> Any:
        found, duals = honest(*arguments)
        return values(found), duals

    monkeypatch.setattr(door, backend, lie)
    with pytest.raises(SolverError, match=complaint):
        solve(textbook(), solver={"_highspy": "highspy", "_pulp": "pulp_cbc"}[backend])


@pytest.mark.parametrize("error", [IndexError("list index out of range"), RuntimeError("licence"), OSError("no such program")])
def test_whatever_a_solver_raises_is_a_solver_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(door, "_highspy", broken)
    with pytest.raises(SolverError, match=f"highspy failed on textbook: {type(error).__name__}: {error}"):
        solve(textbook())


def test_unknown_solver() -> None:
    with pytest.raises(ConfigError, match="did you mean 'highspy'"):
        solve(textbook(), solver="higspy")
    with pytest.raises(ConfigError, match=r"system.solver='highs'"):
        Solver(solver="highs")


def test_unknowns_where_they_are_wanted() -> None:
    index = unknowns(np.array([[True, False], [True, True]]))
    assert index.tolist() == [[0, -1], [1, 2]]
    assert spread(index, np.array([[2, 5], [1, 3]])).tolist() == [2, 1, 3]
    assert spread(index, 1.0, 5).tolist() == [1, 1, 1, 0, 0]
    program = Program("sparse", spread(index, np.array([[2, 5], [1, 3]])))
    program.add("column", index.T, 1.0, upper=1)
    np.testing.assert_allclose(solve(program).matrix(index), [[1, 0], [0, 1]])


def test_a_row_without_entries_holds_or_does_not() -> None:
    program = textbook()
    program.add("empty", np.array([[-1, -1]]), 1.0, upper=1)
    assert solve(program).objective == pytest.approx(11)
    program.add("empty", np.array([[-1, -1]]), 1.0, lower=1)
    with pytest.raises(InfeasiblePlan):
        solve(program)


def test_silent_and_lazy() -> None:
    """Nothing on either stream, not even the banner of HiGHS; and no solver is imported before it is needed."""
    code = (
        "import sys; import hetsys.systems.oef.cooperative, hetsys.systems.baselines.gavel;"
        "assert not {'pulp', 'highspy', 'scipy', 'torch'} & set(sys.modules);"
        "from tests.systems.test_program import textbook; from hetsys.systems.solve import SOLVERS, solve;"
        "assert [round(solve(textbook(), solver=s).objective, 9) for s in (*SOLVERS, *SOLVERS)] == [11] * 6"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
