"""The wandb mirror of a run: configuration, live curves, summary, plan and timeline. The only door to wandb.

It lives in `<run>/wandb/`, so that it moves with its run; offline runs are uploaded with `wandb sync <run>/wandb/offline-run-*`.
Whatever goes wrong here is one warning, and the run goes on.
"""

from __future__ import annotations

import logging
import netrc
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from hetsys.core.experiment import Experiment

_SEND_PERIOD_S = 0.02
_ROWS_IN_FULL = 1000
_PUBLIC_HOSTS = ("api.wandb.ai", "api.forge.coreweave.com")
_MODES = {"dryrun": "offline", "run": "online"}
_SETTINGS: dict[str, Any] = {
    "silent": True,
    "console": "off",
    "disable_git": True,
    "disable_code": True,
    "x_disable_stats": True,
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
    "x_graphql_timeout_seconds": 10.0,
    "init_timeout": 15.0,
    "finish_timeout": 60.0,
}


def wandb_mode() -> str:
    """WANDB_MODE where it is set, else online where a key for the server is at hand and offline where none is. No network."""
    mode = os.environ.get("WANDB_MODE", "").lower()
    if mode:
        return _MODES.get(mode, mode)
    return "online" if _has_key() else "offline"


class WandbTracker:
    """One run in wandb: group = experiment@frame hash, job type = system, a steady id, so that a repeated run takes its place.

    Curves are drawn against device time, wall time for measured runs. Rows are sent at most every 20 ms; after the first
    1,000 of a run only the latest of each 20 ms, as the folder holds them all. `finish` and `fail` wait for at most a minute;
    wandb's service closes its file some milliseconds after they return.
    """

    _offline: ClassVar[bool] = False
    _off: ClassVar[bool] = False

    def __init__(self, experiment: Experiment, path: Path) -> None:
        self._experiment = experiment
        self._path = path
        self._clock = "wall_s" if experiment.source == "measured" else "device_s"
        self._id = _run_id(experiment)
        self._run: Any = None
        self._rows: list[dict[str, float]] = []
        self._num_sent = 0
        self._due_s = 0.0

    def start(self, config: dict[str, Any], env: dict[str, Any]) -> None:
        """Open the run; after one failure here, later runs of this process don't try again."""
        if WandbTracker._off:
            return
        with self._mirror():
            WandbTracker._off = True
            self._run = self._open({**config, "env": env, "source": self._experiment.source})
            self._run.define_metric(self._clock, hidden=True)
            self._run.define_metric(f"{self._experiment.domain}/*", step_metric=self._clock)
            WandbTracker._off = False

    def log(self, metrics: Mapping[str, float], time_s: float) -> None:
        if self._run is None:
            return
        self._rows.append({self._clock: time_s, **{f"{self._experiment.domain}/{name}": value for name, value in metrics.items()}})
        now_s = time.perf_counter()
        if now_s >= self._due_s:
            self._due_s = now_s + _SEND_PERIOD_S
            with self._mirror():
                self._send()

    def finish(self, summary: Mapping[str, Any], plan_path: Path | None, timeline_path: Path | None) -> None:
        if self._run is None:
            return
        with self._mirror():
            self._send()
            self._attach("plan", plan_path)
            self._attach("timeline", timeline_path)
            self._close(valid=bool(summary.get("valid", True)), summary=summary, exit_code=0)

    def fail(self, message: str) -> None:
        if self._run is None:
            return
        with self._mirror():
            self._send()
            self._attach("plan", self._path / "plan.json")
            self._close(valid=False, summary={"status": "failed", "error": message}, exit_code=1)

    def _open(self, config: dict[str, Any]) -> Any:
        import wandb

        mode = "offline" if WandbTracker._offline else wandb_mode()
        try:
            return self._init(wandb, config, mode)
        except wandb.Error as error:
            if mode == "offline":
                raise
            WandbTracker._offline = True
            _warn(f"wandb does not answer, runs are kept offline and can be uploaded with `wandb sync`: {_first_line(error)}")
            wandb.teardown()  # else the id is taken by the attempt
            return self._init(wandb, config, "offline")

    def _init(self, wandb: Any, config: dict[str, Any], mode: str) -> Any:
        run = self._experiment
        known = wandb.Settings.model_fields
        return wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "hetsys",
            group=f"{run.name}@{run.frame_hash}",
            job_type=run.system,
            id=self._id,
            name=f"{run.system}-{run.seed}",
            resume="allow",
            config=config,
            tags=[run.source],
            dir=str(self._path),
            mode=mode,
            settings=wandb.Settings(**{name: value for name, value in _SETTINGS.items() if name in known}),
        )

    def _send(self) -> None:
        room = max(0, _ROWS_IN_FULL - self._num_sent)
        rows = self._rows[:room] + self._rows[room:][-1:]
        for row in rows:
            self._run.log(row)
        self._num_sent += len(rows)
        self._rows = []

    def _attach(self, kind: str, path: Path | None) -> None:
        """Add a file of the run folder as an artifact, by reference and not as a copy in the user's home."""
        import wandb

        if path is not None and path.exists():
            artifact = wandb.Artifact(f"{kind}-{self._id}"[:128], type=kind)
            artifact.add_file(str(path), name=path.name, policy="immutable")
            self._run.log_artifact(artifact)

    def _close(self, *, valid: bool, summary: Mapping[str, Any], exit_code: int) -> None:
        self._run.config.update({"valid": valid}, allow_val_change=True)
        self._run.tags = (*(self._run.tags or ()), "valid" if valid else "invalid")
        self._run.summary.update(dict(summary))
        run, self._run = self._run, None
        run.finish(exit_code=exit_code)

    @contextmanager
    def _mirror(self) -> Iterator[None]:
        """Whatever wandb raises ends the mirror and not the run."""
        try:
            yield
        except ImportError as error:
            self._run = None
            _warn(f"wandb cannot be imported, results are in the run folders alone: {_first_line(error)}")
        except Exception as error:
            self._run = None
            _warn(f"wandb failed, the run goes on and its folder holds everything: {_first_line(error)}")


@cache
def _warn(message: str) -> None:
    """The same message once a process."""
    logging.getLogger(__name__).warning(message)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def _run_id(experiment: Experiment) -> str:
    """Letters, digits, `-` and `_`, at most 64; the end, with seed and hash, is kept."""
    name = f"{experiment.name}-{experiment.system}-{experiment.seed}-{experiment.run_hash}"
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[-64:]


def _has_key() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    base_url = os.environ.get("WANDB_BASE_URL")
    hosts = (urlsplit(base_url).netloc,) if base_url else _PUBLIC_HOSTS
    named = os.environ.get("NETRC")
    for path in [Path(named)] if named else [Path.home() / ".netrc", Path.home() / "_netrc"]:
        try:
            known = netrc.netrc(path)
        except (OSError, netrc.NetrcParseError):
            continue
        if any(known.authenticators(host) for host in hosts):
            return True
    return False
