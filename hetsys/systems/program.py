"""A linear program as arrays: rows in named groups, unknowns of 0 or more. Which solver answers it is `solve.py`'s business.

Policies state their programs here once; every back-end gets the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]
Basis = tuple[Mask, Mask] | None
"""A simplex basis: which unknowns (n,) and which rows are basic."""


@dataclass(frozen=True)
class Solution:
    """An optimal answer. `values` (n,); `duals` by group of rows, (rows,) in the order they were added: the change of the objective when
    the right-hand side grows by one, whichever solver ran; 0 for programs with whole numbers."""

    objective: float
    values: Array
    duals: Mapping[str, Array]

    def matrix(self, index: Index) -> Array:
        """The values of the unknowns with these numbers, in the shape of `index`; 0 where it is -1."""
        return np.where(index >= 0, self.values[index], 0.0)


@dataclass(frozen=True)
class Block:
    """Rows r that were added at once, as compressed sparse rows. `starts` (r + 1,); `columns`, `coefficients` (entries,)."""

    group: str
    starts: Index
    columns: Index
    coefficients: Array
    lower: Array
    upper: Array

    @property
    def num_rows(self) -> int:
        return len(self.lower)


class Program:
    """max objective . x  s.t.  lower <= rows . x <= upper,  x >= 0  (and <= `ceiling`; whole numbers where `whole`, and then the answer may
    fall short of the best by the part `gap`).

        f = unknowns(speed > 0)
        program = Program("max_efficiency", spread(f, speed))
        program.add("capacity", f.T, weight, upper=1.0)
        answer = self.solve(program)            # a policy that is a `Solver`
        fractions, prices = answer.matrix(f), answer.duals["capacity"]

    A program stays live: rows may be added and the objective replaced after it was solved, and it is solved again from where it was
    (with highspy; the other back-ends begin anew). `name` stands in messages. Numbers that are none raise SolverError when it is solved.
    """

    def __init__(self, name: str, objective: ArrayLike, *, ceiling: ArrayLike = inf, whole: ArrayLike = False, gap: float = 0.0) -> None:
        self.name = name
        self.objective: Array = np.array(objective, dtype=float)
        self.ceiling: Array = np.full(self.objective.shape, ceiling, dtype=float)
        self.whole: Mask = np.full(self.objective.shape, whole, dtype=bool)
        self.gap = gap
        self.blocks: list[Block] = []
        self.basis: Basis = None
        self.live: Any = None  # the back-end's own copy

    @property
    def num_unknowns(self) -> int:
        return len(self.objective)

    @property
    def num_rows(self) -> int:
        return sum(block.num_rows for block in self.blocks)

    def add(self, group: str, columns: Index, coefficients: ArrayLike, *, lower: ArrayLike = -inf, upper: ArrayLike = inf) -> None:
        """Add r rows  lower <= sum_q coefficients[q] x[columns[q]] <= upper  to a group, after those that it has.

        `columns` (r, q): numbers of unknowns, -1 for none; `coefficients` (r, q) or what broadcasts to it; `lower`, `upper` (r,) or one
        number. Entries with coefficient 0 are left out.
        """
        numbers = np.full(columns.shape, coefficients, dtype=float)
        there = (columns >= 0) & (numbers != 0)
        starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        bounds = (np.full(len(columns), bound, dtype=float) for bound in (lower, upper))
        self.blocks.append(Block(group, starts, columns[there], numbers[there], *bounds))

    def maximise(self, objective: ArrayLike) -> None:
        """Replace the objective: the second of two goals, say, once a row holds the first."""
        self.objective = np.array(objective, dtype=float)

    def start(self, unknowns: Mask, rows: Mask) -> None:
        """Begin from a simplex basis: which unknowns (n,) and which rows are basic. A hint: it changes the time, and among several optima
        perhaps which one is found. One that does not fit the program's size is an error of the caller."""
        assert unknowns.shape == (self.num_unknowns,) and rows.shape == (self.num_rows,)
        self.basis = (unknowns, rows)

    def basis_found(self) -> Basis:
        """The simplex basis of the last answer, in the form of `start`; None where the solver has none."""
        basis: Basis = None if self.live is None else self.live.basis()
        return basis

    def joined(self, first: int = 0) -> Block:
        """All rows from block number `first` on, as one."""
        blocks = self.blocks[first:]
        ends = np.cumsum([0, *(len(block.columns) for block in blocks)])
        starts = np.concatenate([block.starts[:-1] + end for block, end in zip(blocks, ends[:-1], strict=True)] + [ends[-1:]])
        parts = ((block.columns, block.coefficients, block.lower, block.upper) for block in blocks)
        columns, coefficients, lower, upper = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Block("", starts, columns, coefficients, lower, upper)

    def by_group(self, values: Array) -> dict[str, Array]:
        """Values of all rows in the order they were added -> by group."""
        found: dict[str, list[Array]] = {}
        begin = 0
        for block in self.blocks:
            found.setdefault(block.group, []).append(values[begin : begin + block.num_rows])
            begin += block.num_rows
        return {group: np.concatenate(parts) for group, parts in found.items()}


def unknowns(where: Mask, first: int = 0) -> Index:
    """Numbers for one unknown at each True of `where`, from `first` on; -1 elsewhere."""
    return np.where(where, np.cumsum(where).reshape(where.shape) - 1 + first, -1)


def spread(index: Index, values: ArrayLike, size: int | None = None) -> Array:
    """(size,): `values` (in the shape of `index`, or what broadcasts to it) at the unknowns that `index` names, 0 at all others.
    `size`: of the program, by default up to the last of `index`."""
    there = index >= 0
    found = np.zeros(int(index.max(initial=-1)) + 1 if size is None else size)
    found[index[there]] = np.broadcast_to(np.asarray(values, dtype=float), index.shape)[there]
    return found
