"""Who is told of a run while it goes on, beside its folder: nobody, or wandb."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from hetsys.core.errors import check_choice
from hetsys.core.experiment import Experiment
from hetsys.tracking.folder import RunFolder

TRACKERS = ("files", "wandb")


class Tracker(Protocol):
    """A mirror of one run. No method raises because of the mirror: the folder is the truth, and the run goes on.

    Order: `start`, any number of `log`, then `finish` or `fail`. Call `finish` when `plan.json` and `timeline.json` are
    written and before `RunFolder.finish`, so that what lies in a finished folder is complete.
    """

    def start(self, config: dict[str, Any], env: dict[str, Any]) -> None:
        """The run begins: its resolved configuration and the content of `env.json`."""

    def log(self, metrics: Mapping[str, float], time_s: float) -> None:
        """Figures at `time_s` of device time (of the wall where that is the clock)."""

    def finish(self, summary: Mapping[str, Any], plan_path: Path | None, timeline_path: Path | None) -> None:
        """The run is done."""

    def fail(self, message: str) -> None:
        """The run ended early; it is shown as crashed."""


class NullTracker:
    """Tells nobody; the folder says it all."""

    def start(self, config: dict[str, Any], env: dict[str, Any]) -> None: ...

    def log(self, metrics: Mapping[str, float], time_s: float) -> None: ...

    def finish(self, summary: Mapping[str, Any], plan_path: Path | None, timeline_path: Path | None) -> None: ...

    def fail(self, message: str) -> None: ...


def make_tracker(experiment: Experiment, folder: RunFolder | Path) -> Tracker:
    """The tracker that `experiment.tracker` names. Raises ConfigError for an unknown name; imports wandb only when it starts."""
    check_choice("tracker", experiment.tracker, TRACKERS)
    if experiment.tracker == "files":
        return NullTracker()
    from hetsys.tracking.wandb import WandbTracker, wandb_mode

    path = folder.path if isinstance(folder, RunFolder) else folder
    return WandbTracker(experiment, path) if wandb_mode() != "disabled" else NullTracker()
