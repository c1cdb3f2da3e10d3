"""Small classes that YAML files of these tests name as `_target_`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from hetsys.core.cluster import Cluster
from hetsys.core.errors import ConfigError
from hetsys.core.scheduling.trace import Job, JobTrace, Tenant


@dataclass(frozen=True)
class Inner:
    count: int
    scale: float | None = None


@dataclass(frozen=True)
class Everything:
    """One field of each sort that a class may have."""

    required: int
    number: float = 0.5
    flag: bool = False
    text: str = "abc"
    maybe: int | None = None
    mode: Literal["fast", "slow"] = "fast"
    inner: Inner = Inner(3)
    maybe_inner: Inner | None = None
    inners: Sequence[Inner] = ()
    pair: tuple[int, int] = (1, 2)
    names: tuple[str, ...] = ("a",)
    mixed: tuple[int, str] = (1, "a")
    prices: Mapping[str, float] = field(default_factory=dict)
    sheets: Mapping[str, Inner] = field(default_factory=dict)
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)
    anything: Any = None
    hidden: int = field(default=7, init=False)


@dataclass(frozen=True)
class WithPath:
    where: Path = Path(".")


@dataclass(frozen=True)
class WithAbout:
    about: str = ""


@dataclass(frozen=True)
class Policy:
    """A scheduling policy of somebody's own."""

    patience: float = 1.0

    def __post_init__(self) -> None:
        if self.patience < 0:
            raise ConfigError("patience", self.patience, "must be 0 or more")


@dataclass(frozen=True)
class ServingTrace:
    """A workload of a domain that none of the shipped systems belongs to."""

    requests: int = 10


@dataclass(frozen=True)
class Resolving:
    """A workload that finds out one of its values by itself."""

    size: int | None = None
    parts: Sequence[Inner] = (Inner(1),)

    def resolve(self) -> Resolving:
        return Resolving(self.size or 42, self.parts)

    def sample(self, seed: int, cluster: Cluster) -> JobTrace:
        return JobTrace((Tenant("a"),), (Job("a-0", "a", "any", 1, 10, 0.0, dict.fromkeys(cluster.kinds, 1.0)),))


@dataclass(frozen=True)
class Counting(Resolving):
    """A workload that notes the seeds it is asked for."""

    asked: ClassVar[list[int]] = []

    def sample(self, seed: int, cluster: Cluster) -> JobTrace:
        self.asked.append(seed)
        return super().sample(seed, cluster)

    def resolve(self) -> Counting:
        return self


class NotADataclass:
    pass
