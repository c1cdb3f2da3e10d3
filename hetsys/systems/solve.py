"""The one door to the solvers: a `Program` goes in, and numbers, or one of two errors, come out.

HiGHS is called directly where it counts; PuLP carries the same rows to HiGHS and to CBC, as a cross-check. No status field of a solver is
trusted by itself, and no solver writes to the terminal.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import Any

import numpy as np

from hetsys.core.errors import ConfigError, InfeasiblePlan, SolverError, check_choice
from hetsys.systems.program import Array, Mask, Program, Solution

SOLVERS = ("highspy", "pulp_highs", "pulp_cbc")
_TOLERANCES = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}
_VIOLATION = 1e-6
_DEVEX = 1


@dataclass(frozen=True)
class Solver:
    """Which solver a policy uses, and for how long at most; the base of every policy that needs one.

    `solver`: "highspy" (HiGHS, directly), "pulp_highs" or "pulp_cbc" (the same rows through PuLP); all run on one thread, so that their
    answers repeat. `time_limit_s` is a limit on one program, with all the times that it is solved again.
    """

    solver: str = "highspy"
    time_limit_s: float = 10.0

    def __post_init__(self) -> None:
        check_choice("system.solver", self.solver, SOLVERS)
        if not (isfinite(self.time_limit_s) and self.time_limit_s > 0):
            raise ConfigError("system.time_limit_s", self.time_limit_s, "must be a finite number of seconds above 0")

    @property
    def slack(self) -> float:
        """The relative room to leave where an optimum becomes a bound of the next program: ten tolerances of HiGHS; CBC prints
        eight digits."""
        return 5e-8 if self.solver == "pulp_cbc" else 1e-8

    def solve(self, program: Program) -> Solution:
        return solve(program, solver=self.solver, time_limit_s=self.time_limit_s)


def solve(program: Program, *, solver: str = "highspy", time_limit_s: float = 10.0) -> Solution:
    """Solve `program` to optimality on one thread, silently.

    Raises InfeasiblePlan where no answer exists (infeasible or unbounded), SolverError where the solver failed, ran out of time, or
    called an answer optimal that is not finite or does not keep the rows, and where the program holds a number that is none.
    """
    check_choice("solver", solver, SOLVERS)
    _require_numbers(program)
    backend = _highspy if solver == "highspy" else _pulp
    try:
        values, duals = backend(program, solver, time_limit_s)
    except (SolverError, InfeasiblePlan):
        raise
    except Exception as error:  # solvers raise what they like (IndexError, RuntimeError, ...); all of it means the same here
        raise SolverError(f"{solver} failed on {program.name}: {type(error).__name__}: {error}") from error
    objective = float(program.objective @ values)
    if values.shape != program.objective.shape or not (np.isfinite(values).all() and np.isfinite(duals).all() and isfinite(objective)):
        raise SolverError(f"{solver} called an answer of {program.name} optimal that is not finite")
    _require_rows(program, values, solver)
    return Solution(objective, values, program.by_group(duals))


def _require_numbers(program: Program) -> None:
    """HiGHS reports Optimal where a coefficient is NaN."""
    numbers = np.concatenate([program.objective, *(block.coefficients for block in program.blocks)])
    bounds = np.concatenate([program.ceiling, *(bound for block in program.blocks for bound in (block.lower, block.upper))])
    if not np.isfinite(numbers).all() or np.isnan(bounds).any():
        raise SolverError(f"{program.name} holds a number that is not finite")


def _require_rows(program: Program, values: Array, solver: str) -> None:
    size = 1.0 + float(np.abs(values).max(initial=0.0))
    over = -float(values.min(initial=0.0))
    for rows in program.blocks:
        terms = np.append(rows.coefficients * values[rows.columns], 0.0)
        reached = np.where(rows.starts[1:] > rows.starts[:-1], np.add.reduceat(terms, rows.starts[:-1]), 0.0)
        room = size + np.minimum(np.abs(rows.lower), np.abs(rows.upper))
        over = max(over, float((np.maximum(rows.lower - reached, reached - rows.upper) / room).max(initial=0.0)) * size)
    if over > _VIOLATION * size:
        raise SolverError(f"{solver} called an answer of {program.name} optimal that does not keep its rows")


def _highspy(program: Program, solver: str, time_limit_s: float) -> tuple[Array, Array]:
    """HiGHS itself. The model stays with the program: later calls pass what was added and go on from the last basis."""
    from highspy import HighsModelStatus as Status

    if program.live is None:
        program.live = _Highs(program, time_limit_s)
    status = program.live.solve(program)
    if status not in (Status.kOptimal, Status.kTimeLimit, Status.kUnbounded):  # the basis that it began from may lead nowhere
        status = program.live.solve(program, anew=True)
    if status in (Status.kInfeasible, Status.kUnbounded, Status.kUnboundedOrInfeasible):
        raise InfeasiblePlan(f"{program.name} has no optimum: {solver} reports {status.name[1:]}")
    if status != Status.kOptimal:
        raise SolverError(f"{solver} did not finish {program.name} in {time_limit_s} s: {status.name[1:]}")
    values, duals = program.live.answer(program)
    return values, duals


class _Highs:
    """A live HiGHS model of a program."""

    def __init__(self, program: Program, time_limit_s: float) -> None:
        import highspy

        _swallow_banner()
        self.model = highspy.Highs()
        options = {"output_flag": False, "threads": 1, "time_limit": time_limit_s, "mip_rel_gap": program.gap, **_TOLERANCES}
        for name, value in options.items():
            self.model.setOptionValue(name, value)
        self.objective = program.objective
        self.blocks = 0

    def solve(self, program: Program, anew: bool = False) -> Any:
        self._update(program)
        if anew:
            self.model.clearSolver()
        elif program.basis is not None:
            self._start(*program.basis)
            program.basis = None
        self.model.run()
        return self.model.getModelStatus()

    def _update(self, program: Program) -> None:
        """Tell the model what is new: everything, or rows and the objective."""
        if self.blocks == len(program.blocks) and self.blocks:
            self._objective(program)
            return
        rows = program.joined(self.blocks)
        starts, columns = rows.starts[:-1].astype(np.int32), rows.columns.astype(np.int32)
        size, count = program.num_unknowns, len(rows.lower)
        if self.blocks:
            self._objective(program)
            self.model.addRows(count, rows.lower, rows.upper, len(columns), starts, columns, rows.coefficients)
        else:
            self.model.passModel(
                size, count, len(columns), 2, -1, 0.0, program.objective, np.zeros(size), program.ceiling, rows.lower, rows.upper,
                starts, columns, rows.coefficients, program.whole.astype(np.int32),
            )  # fmt: skip
            self.objective = program.objective
        self.blocks = len(program.blocks)

    def _objective(self, program: Program) -> None:
        if program.objective is not self.objective:
            self.model.changeColsCost(program.num_unknowns, np.arange(program.num_unknowns, dtype=np.int32), program.objective)
            self.objective = program.objective

    def _start(self, unknowns: Mask, rows: Mask) -> None:
        import highspy

        kinds = (highspy.HighsBasisStatus.kNonbasic, highspy.HighsBasisStatus.kBasic)
        basis = highspy.HighsBasis()
        basis.col_status, basis.row_status = [kinds[basic] for basic in unknowns.tolist()], [kinds[basic] for basic in rows.tolist()]
        basis.valid, basis.alien = True, True  # not its own: it may have to be repaired
        self.model.setOptionValue("simplex_dual_edge_weight_strategy", _DEVEX)  # steepest edge would first solve once a row for its weights
        self.model.setBasis(basis)

    def answer(self, program: Program) -> tuple[Array, Array]:
        found = self.model.getSolution()
        return np.array(found.col_value), np.zeros(program.num_rows) if program.whole.any() else np.array(found.row_dual)

    def basis(self) -> tuple[Mask, Mask]:
        """Which unknowns and which rows are basic in the last answer."""
        import highspy

        basis, basic = self.model.getBasis(), highspy.HighsBasisStatus.kBasic
        unknowns, rows = (np.array([status == basic for status in part], dtype=bool) for part in (basis.col_status, basis.row_status))
        return unknowns, rows


def _pulp(program: Program, solver: str, time_limit_s: float) -> tuple[Array, Array]:
    """The same rows, written as a PuLP problem."""
    import pulp

    problem, variables, rows = _written(program)
    problem.solve(_backend(solver, time_limit_s, program.gap))
    if solver == "pulp_highs" and problem.status == pulp.LpStatusInfeasible:
        problem.solve(_backend(solver, time_limit_s, program.gap, presolve="off"))
    status, answer = pulp.LpStatus[problem.status], pulp.LpSolution[problem.sol_status]
    if problem.status in (pulp.LpStatusInfeasible, pulp.LpStatusUnbounded):
        raise InfeasiblePlan(f"{program.name} has no optimum: {solver} reports {status}, {answer}")
    if (problem.status, problem.sol_status) != (pulp.LpStatusOptimal, pulp.LpSolutionOptimal):
        raise SolverError(f"{solver} did not finish {program.name} in {time_limit_s} s: {status}, {answer}")
    sign = -1.0 if solver == "pulp_highs" else 1.0
    duals = np.zeros(program.num_rows)
    if not program.whole.any():
        for row, constraint in rows:
            duals[row] += sign * (constraint.pi or 0.0)
    return np.array([variable.varValue for variable in variables], dtype=float), duals


def _written(program: Program) -> tuple[Any, list[Any], list[tuple[int, Any]]]:
    import pulp

    problem = pulp.LpProblem(program.name, pulp.LpMaximize)
    ceilings = (None if np.isinf(most) else most for most in program.ceiling.tolist())
    sorts = ("Integer" if whole else "Continuous" for whole in program.whole.tolist())
    variables = [problem.add_variable(f"x_{i}", 0, most, sort) for i, (most, sort) in enumerate(zip(ceilings, sorts, strict=True))]
    problem += pulp.LpAffineExpression(dict(zip(variables, program.objective.tolist(), strict=True)))
    joined = program.joined()
    rows: list[tuple[int, Any]] = []
    starts, columns, numbers = joined.starts.tolist(), joined.columns.tolist(), joined.coefficients.tolist()
    for row, (lower, upper) in enumerate(zip(joined.lower.tolist(), joined.upper.tolist(), strict=True)):
        part = slice(starts[row], starts[row + 1])
        left = pulp.LpAffineExpression({variables[column]: number for column, number in zip(columns[part], numbers[part], strict=True)})
        sides = [(left.__eq__, lower)] if lower == upper else [(left.__ge__, lower), (left.__le__, upper)]
        for side, bound in sides:
            if not isfinite(bound):
                continue
            constraint = side(bound)
            problem += constraint, f"row_{row}_{len(rows)}"
            rows.append((row, constraint))
    return problem, variables, rows


def _backend(solver: str, time_limit_s: float, gap: float, **options_of_highs: str) -> Any:
    import pulp

    if solver == "pulp_cbc":
        options = ["primalTolerance 1e-9", "dualTolerance 1e-9"]
        path = pulp.PULP_CBC_CMD.pulp_cbc_path  # the CBC that PuLP brings along
        return pulp.COIN_CMD(path=path, msg=False, threads=1, timeLimit=time_limit_s, gapRel=gap, options=options)
    _swallow_banner()
    return pulp.HiGHS(msg=False, threads=1, timeLimit=time_limit_s, gapRel=gap, **_TOLERANCES, **options_of_highs)


@cache
def _swallow_banner() -> None:
    """HiGHS prints a banner when a process makes its first instance, before any option can be set; later ones are silent."""
    import highspy

    try:
        saved = os.dup(1)
    except OSError:  # the process has no standard output, so there is nothing to keep clean
        return
    hole = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(hole, 1)
        highspy.Highs()
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(hole)
