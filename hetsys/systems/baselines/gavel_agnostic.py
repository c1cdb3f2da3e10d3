"""Gavel's max-min policy blind to speeds: what the same rounds and the same program achieve without knowing how fast jobs run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hetsys.core.scheduling.users import Users
from hetsys.systems.baselines.gavel import Gavel
from hetsys.systems.shares import Shares


@dataclass(frozen=True)
class GavelAgnostic(Gavel):
    """`Gavel` with the speed of every kind that a job supports replaced by one."""

    def shares(self, users: Users) -> Shares:
        return super().shares(replace(users, speed=(users.speed > 0).astype(float)))
