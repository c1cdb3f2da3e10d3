"""Gavel's max-min policy (OSDI 2020): jobs, not tenants, get equal multiples of an equal part's worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetsys.core.errors import SolverError
from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import Array, Users
from hetsys.core.scheduling.view import ClusterView
from hetsys.systems.check import TOLERANCE
from hetsys.systems.classes import Classes, merge, most_for_weight
from hetsys.systems.program import Basis, Program, spread, unknowns
from hetsys.systems.shares import Shares, allocate, job_users
from hetsys.systems.solve import Solver

_NOT_ZERO = 1e-7


@dataclass(frozen=True)
class Gavel(Solver):
    """max t  s.t.  (T_i . x_i) s_i / (T_i . xprop_i) >= weight_i t (jobs i);  sum_i s_i x_ij <= m_j;  sum_j x_ij <= 1;  x >= 0.

    `x_ij` is the part of its time that job i spends on kind j, `s_i` its gang, `xprop_ij = m_j / n`. Here in devices, `s_i x_ij`.
    A job's weight is its tenant's (our choice). Where jobs could still rise above the lowest, the sum of all ratios is then made as
    large as it gets (our choice; the plain program leaves that open, and water filling is another policy). `levels`: each job's ratio
    for its weight.
    """

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        return allocate(self, job_users(view), memo, keep="all")

    def shares(self, users: Users) -> Shares:
        classes = merge(users)
        fractions, prices, basis = self._max_min(classes, None, None)
        devices = classes.devices(fractions)
        if (devices.sum(axis=1) > users.demand * (1 + TOLERANCE)).any():
            most, count = most_for_weight(users), classes.num_classes
            classes = merge(users, most)
            fractions, prices, _ = self._max_min(classes, classes.per_class(most), basis if classes.num_classes == count else None)
            devices = classes.devices(fractions)
        if (devices.sum(axis=1) > users.demand * (1 + TOLERANCE)).any():
            raise SolverError("the allocation gives a job more than all of its time")
        levels = classes.per_user((classes.value * fractions).sum(axis=1))
        return Shares(devices, "optimal", prices, levels)

    def _max_min(self, classes: Classes, most: Array | None, basis: Basis) -> tuple[Array, Array, Basis]:
        """Fractions (c, k) for each unit of weight, prices (k,), and the simplex basis. `most` (c,): devices for a unit of weight that fill
        a job's time; None leaves the row `sum_j x_ij <= 1` out, which is exact wherever the answer keeps to it. `basis`: of the same
        classes without that row."""
        f = unknowns(classes.value > 0)
        t = np.array([int(f.max()) + 1])
        capacity = classes.users.capacity
        program = Program("gavel", spread(t, 1.0))
        program.add("capacity", f.T, classes.weight, upper=1.0)
        ratios = np.column_stack([classes.value, np.full(classes.num_classes, -1.0)])
        program.add("ratio", np.column_stack([f, np.repeat(t, classes.num_classes)]), ratios, lower=0.0)
        if most is not None:
            program.add("time", f, capacity, upper=most)
        if basis is not None:
            program.start(basis[0], np.concatenate([basis[1], np.ones(classes.num_classes, dtype=bool)]))
        lowest = self.solve(program)
        answer, basis = lowest, program.basis_found()
        if (lowest.duals["ratio"] > -_NOT_ZERO).any():
            program.add("lowest", t[None], 1.0, lower=lowest.objective * (1 - self.slack))
            program.maximise(spread(f, classes.weight[:, None] * classes.value, program.num_unknowns))
            answer = self.solve(program)
        return answer.matrix(f), lowest.duals["capacity"] / np.maximum(capacity, 1e-300), basis
