"""What a decision costs on the clock that a run keeps: a constant, for runs that repeat to the byte, or the host's own seconds."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from hetsys.core.errors import ConfigError, check_choice


@dataclass(frozen=True)
class Charge:
    """`policy` "constant" charges `constant_s` for each decision, "measured" the seconds that it took on the host."""

    policy: str = "constant"
    constant_s: float = 0.0

    def __post_init__(self) -> None:
        check_choice("backend.charge_policy", self.policy, ("constant", "measured"))
        if not (isfinite(self.constant_s) and self.constant_s >= 0):
            raise ConfigError("backend.charge_s", self.constant_s, "must be a finite number of seconds, 0 or more")

    def seconds(self, measured_s: float) -> float:
        return self.constant_s if self.policy == "constant" else measured_s
