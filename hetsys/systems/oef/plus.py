"""OEF with what we add to it. Each addition is a field, so that each can be taken away again and its worth be measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np

from hetsys.core.errors import ConfigError, InfeasiblePlan, SolverError, check_choice
from hetsys.core.scheduling.plan import ROUNDINGS, Allocation
from hetsys.core.scheduling.users import Array, Users
from hetsys.core.scheduling.view import ClusterView
from hetsys.systems.check import require_levels, require_no_envy, require_no_idle, require_sharing_incentive
from hetsys.systems.classes import Classes
from hetsys.systems.maxmin import lexicographic_max_min
from hetsys.systems.oef.adjacency import at_levels, without_envy
from hetsys.systems.oef.cooperative import OefCooperative
from hetsys.systems.oef.guard import guarded, probed
from hetsys.systems.oef.noncooperative import OefNonCooperative
from hetsys.systems.oef.tenants import TenantRows
from hetsys.systems.shares import Rows, Shares, allocate, tenant_users
from hetsys.systems.solve import Solver

ROWS = ("tenant", "virtual")


@dataclass(frozen=True)
class Additions(Solver):
    """What both programs can have beside themselves.

    `rows`: one for each "tenant" (`TenantRows`, with its `shared_part`), or, as published, one for each "virtual" user. `rounding`: see
    `Allocation`. `guard`: the relative difference from which a measured speed replaces the one told (`guarded`); None or 0: never.
    `probe`: the part of a gang that is held on its slowest kind by who never ran there, until that was measured (`probed`); 0: none.
    `adjacency`: the part of the optimum that may be given up for users whose kinds stand next to each other; 0: whatever the solver
    returns. `cross_kind`: whether a gang that fits no single kind may run on several.
    """

    rows: str = "tenant"
    shared_part: float = 0.1
    rounding: str = "credit"
    guard: float | None = 0.05
    probe: float = 0.0
    adjacency: float = 0.001
    cross_kind: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("system.rows", self.rows, ROWS)
        check_choice("system.rounding", self.rounding, ROUNDINGS)
        if self.guard is not None and not (isfinite(self.guard) and self.guard >= 0):
            raise ConfigError("system.guard", self.guard, "must be a relative difference, 0 or more, or null")
        if not 0 <= self.probe <= 1:
            raise ConfigError("system.probe", self.probe, "must be a part of a gang, from 0 to 1")
        if not 0 <= self.shared_part <= 1:
            raise ConfigError("system.shared_part", self.shared_part, "must be a part of a tenant's bundle, from 0 to 1")
        if not 0 <= self.adjacency < 1:
            raise ConfigError("system.adjacency", self.adjacency, "must be a part of the optimum, from 0 to below 1")

    def _plan(self, view: ClusterView, memo: object, keep: str) -> tuple[Allocation, object]:
        users, found = tenant_users(view), 0
        if self.guard:
            users, found = guarded(view, users, self.guard)
        rows = TenantRows(users, self.shared_part) if self.rows == "tenant" else Rows(users)
        note = f"guard: {found} speeds as measured, not as told" if found else ""
        how: dict[str, Any] = {"keep": keep, "rounding": self.rounding, "cross_kind": self.cross_kind, "note": note}
        allocation, memo = allocate(self, rows, memo, **how)  # type: ignore[arg-type]
        return probed(view, allocation, self.probe) if self.probe else allocation, memo

    def _tidied(self, users: Users, shares: Shares, second: Callable[[Users, Shares], Shares]) -> Shares:
        """`shares` after the `second` goal, fewer gaps; as they are where the solver does not reach it, which the note then says."""
        try:
            return second(users, shares) if self.adjacency else shares
        except (SolverError, InfeasiblePlan) as error:
            return replace(shares, note=f"adjacency left out: {error}")


@dataclass(frozen=True)
class OefCooperativePlus(Additions, OefCooperative):
    """`OefCooperative` with our additions. Envy-freeness and sharing incentive hold for the rows: for tenants, where those are the rows,
    and for the best use of what they hold. `shared_part` of it is divided otherwise, so that a tenant with several types of jobs may make a
    little less than the best of its slice (0.958 in the worst instance found)."""

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        return self._plan(view, memo, "slice")

    def shares_from(self, users: Users, warm: object) -> Shares:
        return self._tidied(users, super().shares_from(users, warm), self._second)

    def _second(self, users: Users, shares: Shares) -> Shares:
        devices = without_envy(users, shares.devices, self.adjacency, self)
        require_no_envy(users, devices)
        require_sharing_incentive(users, devices)
        require_no_idle(users, devices)
        return replace(shares, devices=devices)


@dataclass(frozen=True)
class OefNonCooperativePlus(Additions, OefNonCooperative):
    """`OefNonCooperative` with our additions. `lexicographic`: once the lowest level is as high as it goes, those who can are raised
    further, so that a user that runs on few kinds does not hold the others down and nothing usable is left over."""

    lexicographic: bool = True

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        return self._plan(view, memo, "bundle")

    def shares(self, users: Users) -> Shares:
        shares = super().shares(users)
        if self.lexicographic:
            require_no_idle(users, shares.devices)
        return self._tidied(users, shares, self._second)

    def _second(self, users: Users, shares: Shares) -> Shares:
        assert shares.levels is not None
        devices, levels = at_levels(users, shares.devices, shares.levels, self.adjacency, self)
        require_levels(users, devices, levels, np.ones(users.num_users))
        if self.lexicographic:
            require_no_idle(users, devices)
        return replace(shares, devices=devices, levels=levels)

    def _levels(self, classes: Classes) -> tuple[Array, Array, Array]:
        if not self.lexicographic:
            return super()._levels(classes)
        return lexicographic_max_min(classes, classes.whole, self)
