"""One run, fully described: what `config.build` makes of a composed configuration and everything after it works with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hetsys.core.cluster import Cluster
from hetsys.core.devicetime.charge import Charge


@dataclass(frozen=True)
class About:
    """The words around a configuration option: what it is, where it comes from, how well we know it."""

    domain: str = ""
    label: str = ""
    summary: str = ""
    paper: str = ""
    arxiv: str = ""
    knowledge: str = ""
    source: str = ""
    minutes: float | None = None
    chosen: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """A picklable, Hydra-free description of one run.

    `config_yaml`: the resolved configuration, enough to build this object again. `frame_hash`: hash of it without system, seed,
    tracker, launch and paths: runs with equal frames may be compared. `run_hash`: hash of it without tracker, launch and paths.
    `source`: where its numbers will come from (measured, emulated, simulated). `charge`: what a decision costs on the run's clock.
    `overrides`: what the user typed.
    `resume`: "commit" (skip what is finished at this commit), "any" (at any commit) or "never" (run again).
    """

    name: str
    system: str
    seed: int
    domain: str
    cluster: Cluster
    model: Any
    workload: Any
    policy: Any
    backend: str
    source: str
    tracker: str
    workers: int | None
    results: Path
    frame_hash: str
    run_hash: str
    config_yaml: str
    charge: Charge = field(default_factory=Charge)
    system_about: About = About()
    overrides: tuple[str, ...] = ()
    resume: str = "commit"
    baseline: str | None = None
    options: dict[str, str] = field(default_factory=dict)

    @property
    def live(self) -> bool:
        """Whether real work is done, measured or emulated: such runs have the machine to themselves."""
        return self.source in ("measured", "emulated")

    @property
    def folder(self) -> Path:
        """`results/<experiment>/<system>/<seed>-<hash>`."""
        return self.results / self.name / self.system / f"{self.seed}-{self.run_hash}"
