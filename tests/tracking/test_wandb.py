"""The wandb mirror: what an offline run holds, and that nothing of wandb can hurt a run."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from hetsys.core.errors import ConfigError
from hetsys.core.experiment import Experiment
from hetsys.tracking import wandb as mirror
from hetsys.tracking.folder import StoredRun
from hetsys.tracking.tracker import NullTracker, make_tracker
from hetsys.tracking.wandb import WandbTracker, wandb_mode
from tests.tracking.builders import append_all, begin, experiment, records, summary
from tests.tracking.read_wandb import WandbLog, read_wandb

ROOT = Path(__file__).resolve().parents[2]
needs_wandb = pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="needs wandb")


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setattr(WandbTracker, "_off", False)
    monkeypatch.setattr(WandbTracker, "_offline", False)
    mirror._warn.cache_clear()
    yield


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    ours = [record for record in caplog.records if record.name.startswith("hetsys")]
    return [record.message for record in ours if record.levelno >= logging.WARNING]


def tracked_run(run: Experiment, *, points: int = 5) -> Path:
    """A whole run as the runner does it; returns its folder."""
    folder = begin(run)
    tracker = make_tracker(run, folder)
    tracker.start(StoredRun(folder.path).config, {"code_id": "c0de"})
    for index in range(points):
        tracker.log({"waiting_jobs": float(index), "jain_index": 0.5}, 360.0 * index)
    append_all(folder, records())
    folder.write_timeline({"traceEvents": [{"name": "lease"}]})
    tracker.finish(summary(run), folder.path / "plan.json", folder.path / "timeline.json")
    folder.finish(summary(run))
    return folder.path


def closed_log(folder: Path) -> WandbLog:
    """The run's log once wandb's service has closed it, which it does some milliseconds after `finish` returns."""
    deadline_s = time.monotonic() + 10.0
    while (log := read_wandb(folder)).exit_code is None:
        assert time.monotonic() < deadline_s, "the run was never closed"
        time.sleep(0.02)
    return log


def content(folder: Path) -> dict[str, str]:
    return {str(file): sha256(file.read_bytes()).hexdigest() for file in sorted(folder.rglob("*")) if file.is_file()}


@needs_wandb
def test_an_offline_run_holds_everything(results_root: Path) -> None:
    run = experiment(results_root, tracker="wandb")
    path = tracked_run(run)
    log = closed_log(path)
    assert (log.group, log.job_type, log.project) == ("oef_mix@f00d", "oef_coop", "hetsys")
    assert log.run_id == "oef_mix-oef_coop-3-abc123"
    assert log.tags == ["simulated", "valid"]
    assert log.config["system"] == {"name": "oef_coop", "round_s": 360.0}
    assert (log.config["source"], log.config["valid"], log.config["env"]) == ("simulated", True, {"code_id": "c0de"})
    curve = [(row["device_s"], row["scheduling/waiting_jobs"]) for row in log.history]
    assert curve == [(360.0 * index, float(index)) for index in range(5)]
    assert log.step_metrics == {"scheduling/*": "device_s"}
    assert summary(run).items() <= log.summary.items()
    artifacts = {file: json.loads(where.read_text()) for files in log.artifacts.values() for file, where in files.items()}
    assert artifacts == {
        "plan.json": StoredRun(path).plan,
        "timeline.json": {"traceEvents": [{"name": "lease"}]},
    }
    assert log.exit_code == 0


@needs_wandb
def test_a_finished_folder_does_not_change_again(results_root: Path) -> None:
    path = tracked_run(experiment(results_root, tracker="wandb"))
    closed_log(path)
    time.sleep(0.1)
    before = content(path)
    time.sleep(1.0)
    assert content(path) == before


@needs_wandb
def test_a_crash_is_shown_as_crash(results_root: Path) -> None:
    run = experiment(results_root, tracker="wandb", source="measured")
    folder = begin(run)
    tracker = make_tracker(run, folder)
    tracker.start({}, {})
    tracker.log({"waiting_jobs": 1.0}, 10.0)
    tracker.log({"waiting_jobs": 2.0}, 20.0)
    folder.fail("worker k80-0 died")
    tracker.fail("worker k80-0 died")
    tracker.log({"waiting_jobs": 3.0}, 30.0)
    log = closed_log(folder.path)
    assert log.exit_code == 1
    assert [row["wall_s"] for row in log.history] == [10.0, 20.0], "measured runs are drawn against the wall"
    assert (log.summary["status"], log.summary["error"]) == ("failed", "worker k80-0 died")
    assert (log.config["valid"], log.tags) == (False, ["measured", "invalid"])
    assert [list(files) for files in log.artifacts.values()] == [["plan.json"]]


@needs_wandb
def test_a_long_curve_is_thinned_and_keeps_its_end(results_root: Path) -> None:
    log = closed_log(tracked_run(experiment(results_root, tracker="wandb"), points=30_000))
    steps = [row["scheduling/waiting_jobs"] for row in log.history]
    assert steps[:1000] == [float(index) for index in range(1000)]
    assert steps[-1] == 29_999.0
    assert steps == sorted(set(steps))
    assert len(steps) < 3_000


@needs_wandb
def test_nothing_is_written_outside_the_run_but_wandbs_own_logs(results_root: Path, tmp_path: Path) -> None:
    tracked_run(experiment(results_root, tracker="wandb"))
    strays = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(results_root)]
    assert [path for path in strays if path.suffix != ".log"] == []


@pytest.mark.parametrize("broken", ["init", "log", "log_artifact", "finish"])
def test_whatever_wandb_raises_the_run_goes_on(
    results_root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    class Wandb:
        """Stands in for the module, a run and an artifact; one of its methods raises."""

        Error = RuntimeError
        Settings = type("Settings", (), {"model_fields": (), "__init__": lambda self, **names: None})

        def __init__(self, *_: Any, **__: Any) -> None:
            self.config: dict[str, Any] = {}
            self.summary: dict[str, Any] = {}
            self.tags: tuple[str, ...] = ()

        def __getattr__(self, name: str) -> Any:
            def call(*_: Any, **__: Any) -> Any:
                if name == broken:
                    raise OSError(f"{name} is broken\nsecond line")
                return Wandb()

            return call

    monkeypatch.setitem(sys.modules, "wandb", Wandb())
    for seed in (0, 1):
        run = experiment(results_root, seed=seed, tracker="wandb")
        assert StoredRun(tracked_run(run)).status == "finished"
    assert warnings(caplog) == [f"wandb failed, the run goes on and its folder holds everything: OSError: {broken} is broken"]


def test_without_the_package_everything_else_works(
    results_root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    for seed in (0, 1):
        stored = StoredRun(tracked_run(experiment(results_root, seed=seed, tracker="wandb")))
        assert (stored.status, stored.records()) == ("finished", records())
    (only,) = warnings(caplog)
    assert only.startswith("wandb cannot be imported, results are in the run folders alone")


CHILD = """
import os, sys, time, psutil, signal
from pathlib import Path
from tests.tracking.builders import experiment, begin, summary
from tests.tracking.test_wandb import tracked_run
from hetsys.tracking.tracker import make_tracker
results, kill = Path(sys.argv[1]), sys.argv[2] == "service"
run = experiment(results, tracker="wandb")
folder = begin(run)
tracker = make_tracker(run, folder)
tracker.start({}, {})
tracker.log({"x": 1.0}, 0.0)
services = [child for child in psutil.Process().children(recursive=True)]
print(*[child.pid for child in services], flush=True)
if not kill:
    time.sleep(60)
for service in services:
    service.kill()
for index in range(10):
    time.sleep(0.03)
    tracker.log({"x": 2.0}, float(index))
tracker.finish(summary(run), folder.path / "plan.json", None)
folder.finish(summary(run))
tracked_run(experiment(results, seed=4, tracker="wandb"))
print("done", flush=True)
"""


def child(results: Path, kill: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(results), kill]
    env = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}  # a service of its own, not this process's
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@needs_wandb
def test_a_service_that_dies_costs_one_warning(results_root: Path) -> None:
    process = child(results_root, "service")
    output, errors = process.communicate(timeout=30)
    assert output.splitlines()[0] and output.splitlines()[1:] == ["done"]
    assert sum(line.startswith("wandb failed, the run goes on") for line in errors.splitlines()) == 1
    assert [StoredRun(experiment(results_root, seed=seed).folder).status for seed in (3, 4)] == ["finished", "finished"]


@needs_wandb
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_nothing_is_left_running_when_the_run_is_killed(results_root: Path) -> None:
    process = child(results_root, "parent")
    assert process.stdout is not None and process.stderr is not None
    services = [int(pid) for pid in process.stdout.readline().split()]
    assert services
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stderr.close()
    deadline_s = time.monotonic() + 15.0
    while any(is_running(pid) for pid in services):
        assert time.monotonic() < deadline_s, "wandb's service outlives its run"
        time.sleep(0.1)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@needs_wandb
def test_a_server_that_does_not_answer_leaves_the_run_offline(
    results_root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setitem(mirror._SETTINGS, "base_url", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setitem(mirror._SETTINGS, "init_timeout", 1.0)
    for seed in (0, 1):
        assert closed_log(tracked_run(experiment(results_root, seed=seed, tracker="wandb"))).exit_code == 0
    (only,) = warnings(caplog)
    assert only.startswith("wandb does not answer, runs are kept offline")


def test_the_mode_is_the_users_else_offline_unless_logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "dryrun")
    assert wandb_mode() == "offline"
    monkeypatch.setenv("WANDB_MODE", "online")
    assert wandb_mode() == "online"
    monkeypatch.delenv("WANDB_MODE")
    assert wandb_mode() == "offline"
    keys = tmp_path / ".netrc"
    keys.write_text("machine elsewhere.example:8080 login user password secret\n")
    keys.chmod(0o600)
    assert wandb_mode() == "offline"
    monkeypatch.setenv("WANDB_BASE_URL", "https://elsewhere.example:8080")
    assert wandb_mode() == "online"
    keys.write_text("nonsense")
    assert wandb_mode() == "offline"
    monkeypatch.setenv("WANDB_API_KEY", "k")
    assert wandb_mode() == "online"


def test_files_or_a_disabled_wandb_mean_no_mirror(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(make_tracker(experiment(results_root, tracker="files"), results_root), NullTracker)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert isinstance(make_tracker(experiment(results_root, tracker="wandb"), results_root), NullTracker)
    with pytest.raises(ConfigError, match="did you mean 'wandb'"):
        make_tracker(experiment(results_root, tracker="wandbb"), results_root)


def test_a_run_id_fits_and_keeps_seed_and_hash(results_root: Path) -> None:
    run = experiment(results_root, name="n" * 90 + "/ä")
    assert mirror._run_id(run).endswith("__-oef_coop-3-abc123")
    assert len(mirror._run_id(run)) == 64


