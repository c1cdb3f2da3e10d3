"""The one door to PuLP. A policy writes its linear program as on paper and gets numbers, or one of two errors, back.

No single status field of a solver is trusted, and no solver writes to the terminal.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from hetsys.core.errors import ConfigError, InfeasiblePlan, SolverError, check_choice

Array = NDArray[np.float64]
Row = Mapping[int, Any]
"""The unknowns of one row of a matrix, by column; columns that are fixed at 0 have none."""

SOLVERS = ("highs", "cbc")


@dataclass(frozen=True)
class Solver:
    """Which solver a policy uses, and for how long at most; the base of every policy that needs one.

    `solver`: "highs" or "cbc"; both run on one thread, so that their answers repeat. `time_limit_s` is a limit on one program.
    """

    solver: str = "highs"
    time_limit_s: float = 10.0

    def __post_init__(self) -> None:
        check_choice("system.solver", self.solver, SOLVERS)
        if not (isfinite(self.time_limit_s) and self.time_limit_s > 0):
            raise ConfigError("system.time_limit_s", self.time_limit_s, "must be a finite number of seconds above 0")

    @property
    def slack(self) -> float:
        """The relative room to leave where an optimum becomes a bound of the next program: ten tolerances of HiGHS; CBC prints
        eight digits."""
        return 5e-8 if self.solver == "cbc" else 1e-8

    def solve(self, problem: Any) -> Solution:
        return solve(problem, solver=self.solver, time_limit_s=self.time_limit_s)


@dataclass(frozen=True)
class Solution:
    """An optimal answer. `values` by name of variable; `duals` by name of constraint: the change of the objective when the right-
    hand side grows by one, in the problem's own sense, whichever solver ran."""

    objective: float
    values: Mapping[str, float]
    duals: Mapping[str, float]

    def matrix(self, rows: Sequence[Row], columns: int) -> Array:
        """(len(rows), columns): the values of `unknowns`; 0 where there is none."""
        found = np.zeros((len(rows), columns))
        for index, row in enumerate(rows):
            for column, variable in row.items():
                found[index, column] = self.values[variable.name]
        return found

    def dual(self, name: str, count: int) -> Array:
        """(count,): the duals of the constraints `name_0`, `name_1`, ...; 0 where there is none."""
        return np.array([self.duals.get(f"{name}_{index}", 0.0) + 0.0 for index in range(count)])


def maximise(name: str) -> Any:
    """An empty linear program to be maximised: `problem += objective`, then `problem += (left <= right, "name")`."""
    import pulp

    return pulp.LpProblem(name, pulp.LpMaximize)


def unknown(problem: Any, name: str) -> Any:
    """One variable, 0 or more."""
    return problem.add_variable(name, 0)


def unknowns(problem: Any, name: str, where: NDArray[np.bool_]) -> list[Row]:
    """A matrix of variables, 0 or more, one for each True of `where` (rows, columns)."""
    return [
        {int(column): problem.add_variable(f"{name}_{index}_{column}", 0) for column in np.flatnonzero(row)}
        for index, row in enumerate(where)
    ]


def dot(coefficients: Sequence[float], row: Row) -> Any:
    """The expression sum_j coefficients[j] row[j]."""
    import pulp

    return pulp.LpAffineExpression({variable: coefficients[column] for column, variable in row.items()})


def total(terms: Iterable[Any]) -> Any:
    """The sum of expressions."""
    import pulp

    return pulp.lpSum(terms)


def column(coefficients: Sequence[float], rows: Sequence[Row], index: SupportsIndex) -> Any:
    """The expression sum_i coefficients[i] rows[i][index]."""
    import pulp

    j = index.__index__()
    return pulp.LpAffineExpression({row[j]: weight for row, weight in zip(rows, coefficients, strict=True) if j in row})


def solve(problem: Any, *, solver: str = "highs", time_limit_s: float = 10.0) -> Solution:
    """Solve the linear program `problem` (a `pulp.LpProblem`) to optimality on one thread, silently.

    Raises InfeasiblePlan where no answer exists (infeasible or unbounded), SolverError where the solver failed, ran out of time, or
    called an answer optimal that is not finite.
    """
    import pulp

    check_choice("solver", solver, SOLVERS)
    try:
        problem.solve(_backend(solver, time_limit_s))
        if solver == "highs" and problem.status == pulp.LpStatusInfeasible:  # its presolve says so of programs that barely are not
            problem.solve(_backend(solver, time_limit_s, presolve="off"))
    except Exception as error:  # solvers raise what they like (IndexError, RuntimeError, ...); all of it means the same here
        raise SolverError(f"{solver} failed on {problem.name}: {type(error).__name__}: {error}") from error
    status, answer = pulp.LpStatus[problem.status], pulp.LpSolution[problem.sol_status]
    if problem.status in (pulp.LpStatusInfeasible, pulp.LpStatusUnbounded):
        raise InfeasiblePlan(f"{problem.name} has no optimum: {solver} reports {status}, {answer}")
    if (problem.status, problem.sol_status) != (pulp.LpStatusOptimal, pulp.LpSolutionOptimal):
        raise SolverError(f"{solver} did not finish {problem.name} in {time_limit_s} s: {status}, {answer}")
    values = {variable.name: variable.varValue for variable in problem.variables()}
    objective = pulp.value(problem.objective)
    if not all(value is not None and isfinite(value) for value in (objective, *values.values())):
        raise SolverError(f"{solver} called an answer of {problem.name} optimal that is not finite")
    sign = -1.0 if solver == "highs" and problem.sense == pulp.LpMaximize else 1.0
    duals = {constraint.name: sign * (constraint.pi or 0.0) for constraint in problem.constraints()}
    return Solution(float(objective), values, duals)


def _backend(solver: str, time_limit_s: float, **options_of_highs: str) -> Any:
    import pulp

    if solver == "cbc":
        options = ["primalTolerance 1e-9", "dualTolerance 1e-9"]
        path = pulp.PULP_CBC_CMD.pulp_cbc_path  # the CBC that PuLP brings along
        return pulp.COIN_CMD(path=path, msg=False, threads=1, timeLimit=time_limit_s, options=options)
    _swallow_banner()
    tolerances = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}
    return pulp.HiGHS(msg=False, threads=1, timeLimit=time_limit_s, **tolerances, **options_of_highs)


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
