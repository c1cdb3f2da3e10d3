"""One run from an experiment to a finished folder, whatever its domain and source."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from hetsys.core.experiment import Experiment
from hetsys.runner.scheduling import run_scheduling
from hetsys.runtime.launch import Launcher
from hetsys.tracking.env import code_id
from hetsys.tracking.folder import RunFolder, StoredRun
from hetsys.tracking.tracker import make_tracker

Watch = Callable[[float], None]
"""Told now and then how much of a run is done, from 0 to 1."""


def execute(experiment: Experiment, launcher: Launcher | None = None, watch: Watch | None = None) -> dict[str, Any]:
    """One run from start to summary; its folder is complete when this returns. Returns the summary.

    A live run starts its workers through `launcher`, or through one of its own. On any error the folder holds `error.txt`; on an
    interruption it is left without a summary, to be run again.
    """
    began = time.perf_counter()
    if is_done(experiment):  # by another sweep, since this one was planned
        return StoredRun(experiment.folder).summary
    folder = RunFolder.open(experiment.folder)
    tracker = make_tracker(experiment, folder)
    try:
        folder.write_config(experiment.config_yaml)
        with ExitStack() as stack:
            if experiment.live and launcher is None:
                launcher = own_launcher()
                stack.callback(launcher.close)
            summary = run_scheduling(experiment, folder, tracker, launcher, watch)
        summary["wall_s"] = time.perf_counter() - began
        tracker.finish(summary, folder.path / "plan.json", folder.path / "timeline.json")
        folder.finish(summary)
    except Exception as error:
        folder.fail(error)
        tracker.fail(str(error))
        raise
    except BaseException:
        folder.close()
        tracker.fail("interrupted")
        raise
    return summary


def own_launcher() -> Launcher:
    """Processes of this machine, warm after the first."""
    from hetsys.runtime.local import LocalLauncher

    return LocalLauncher()


def is_done(experiment: Experiment) -> bool:
    """Whether the run stands finished in the sense of `resume`."""
    if not (experiment.folder / "summary.json").exists():
        return False
    if experiment.resume == "commit":
        return StoredRun(experiment.folder).code_id == code_id()
    return experiment.resume == "any"
