"""What is configured beside cluster, model, workload and system: the top-level keys, and backend, tracker and launch."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from hetsys.config.schema import twin
from hetsys.core.cluster import Cluster
from hetsys.core.devicetime.charge import Charge
from hetsys.core.errors import ConfigError, check_choice, did_you_mean
from hetsys.core.experiment import About

PARTS = ("cluster", "model", "workload", "system", "backend", "tracker", "launch")
SOURCES = ("measured", "emulated", "simulated", "published")


@dataclass(frozen=True)
class PresetAbout(About):
    """What a preset claims and what it is expected to show, before anybody has run it."""

    claim: str = ""
    expected: str = ""


@dataclass(frozen=True)
class Settings:
    """The top-level keys. `name`: the experiment, a folder of results. `resume`: which finished runs are skipped.

    `require_source`: refuse runs whose numbers would come from elsewhere. `baseline`: the system that tables compare with. `beside`:
    presets that run before this one where the command has no words that change what is run. `headline`: the metrics of the closing table,
    by their names in `summary.json` (none: those of the domain). `reference`: in a sweep over one key, its value at which each system is
    compared with itself, in place of the baseline.
    """

    name: str
    seed: int = 0
    plan_only: bool = False
    resume: str = "commit"
    require_source: str | None = None
    baseline: str | None = None
    beside: Sequence[str] = ()
    headline: Sequence[str] = ()
    reference: str | float | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", self.name):
            raise ConfigError("name", self.name, "names a folder; use letters, digits, '_', '-' and '.'")
        if self.seed < 0:
            raise ConfigError("seed", self.seed, "must be 0 or more")
        check_choice("resume", self.resume, ("commit", "any", "never"))
        if self.require_source is not None:
            check_choice("require_source", self.require_source, SOURCES)


@dataclass(frozen=True)
class Backend:
    """What carries plans out. `charge_policy`, `charge_s`: what a decision costs on the run's clock, see `Charge`."""

    name: ClassVar[str]

    charge_policy: str = "constant"
    charge_s: float = 0.0

    def __post_init__(self) -> None:
        _ = self.charge

    @property
    def charge(self) -> Charge:
        return Charge(self.charge_policy, self.charge_s)

    def source(self, cluster: Cluster) -> str:
        """Where the numbers of a run on `cluster` come from."""
        raise NotImplementedError


@dataclass(frozen=True)
class SimBackend(Backend):
    """The simulator: same policies, same loop, same costs, no tensors."""

    name: ClassVar[str] = "sim"

    def source(self, cluster: Cluster) -> str:
        return "simulated"


@dataclass(frozen=True)
class TorchBackend(Backend):
    """Real work in real processes: on this machine's own devices where the cluster has them, else on emulated ones."""

    name: ClassVar[str] = "torch"

    def source(self, cluster: Cluster) -> str:
        return "measured" if cluster.native else "emulated"


@dataclass(frozen=True)
class FilesTracker:
    """The run folder alone."""

    name: ClassVar[str] = "files"


@dataclass(frozen=True)
class WandbTracker:
    """The run folder, mirrored to Weights & Biases."""

    name: ClassVar[str] = "wandb"


@dataclass(frozen=True)
class LocalLaunch:
    """Runs of a sweep share this machine. `workers`: how many simulated ones at once; null = one a core."""

    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ConfigError("launch.workers", self.workers, "must be 1 or more, or null for one a core")


A = TypeVar("A", bound=About)


def describe(cls: type[A], key: str, words: Mapping[str, Any]) -> A:
    """The description that stands at `key`. Raises ConfigError for a key or a type that descriptions do not have."""
    known = {field.name: field.default for field in dataclasses.fields(cls)}
    for name, value in words.items():
        if name not in known:
            raise ConfigError(f"{key}.{name}", value, f"no such key; {did_you_mean(name, known)}")
        if isinstance(known[name], str) and not isinstance(value, str):
            raise ConfigError(f"{key}.{name}", value, "must be a text; put it in quotes")
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in words.items()}
    return cls(**values)


def register_settings() -> None:
    """Store the schema of `conf/config.yaml`: `Settings`, the groups and `about`."""
    groups: list[Any] = [(part, Any, dataclasses.field(default=MISSING)) for part in PARTS]
    groups.append(("about", dict[str, Any], dataclasses.field(default_factory=dict)))
    node = dataclasses.make_dataclass("Config", groups, bases=(twin(Settings, with_target=False),))
    store = ConfigStore.instance()
    vars(store)["__deepcopy__"] = lambda memo: store  # it hands out copies; Hydra would copy all of it for each composition
    store.store(name="config", node=node, group="schema", provider="hetsys")
