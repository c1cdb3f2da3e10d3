"""Live runs from the outside: what lies in their folders, that they equal simulated ones, kills, failures, replay, prediction."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hetsys.config import compose_experiments
from hetsys.core.errors import ConfigError, EngineError
from hetsys.core.experiment import Experiment
from hetsys.engines.scheduling.live.emulated import EmulatedExecutor
from hetsys.report.agreement import Agreement, agreement
from hetsys.runner import execute, replay, run_sweep
from hetsys.runner.command import run_command
from hetsys.runner.scheduling import predictions
from hetsys.tracking.folder import StoredRun, find_runs
from tests.figures.results import write_run
from tests.runtime.leftovers import PROC, becomes_true, marked_environment, processes_of, shared_memory

QUIET = Console(quiet=True)
TINY = ["experiment=oef_smoke", "tracker=files", "workload.tenants=2", "workload.jobs_per_tenant=2"]
CHECKPOINTS = ("checkpoints", "rendezvous")


def compose(*words: str) -> list[Experiment]:
    return compose_experiments([*TINY, *words]).experiments


def finished(results: Path) -> list[Path]:
    return [run.path for run in find_runs(results) if run.status == "finished"] if results.exists() else []


def test_emulated_runs_equal_simulated_ones_and_their_folders_say_what_was_really_done(results_root: Path) -> None:
    live = run_sweep(compose("system=gavel,equal_split", "seed=1"), console=QUIET)
    assert len(live.finished) == 2 and live.failed == []
    simulated = run_sweep(compose("system=gavel,equal_split", "seed=1", "backend=sim", "name=sim", "launch.workers=1"), console=QUIET)
    runs = [StoredRun(path) for path in live.finished]
    assert agreement(runs, [StoredRun(path) for path in simulated.finished]) == Agreement(2, 2)
    for run in runs:
        steps: Counter[str] = Counter()
        for line in (run.path / "ledger.jsonl").read_text().splitlines():
            entry = json.loads(line)
            steps[entry["job"]] += entry["steps"] * (entry["rank"] == 0)
        done = {record.job: record.steps for record in run.records() if hasattr(record, "job_type")}
        assert dict(steps) == done, "every step that was charged was made"
        digests = json.loads((run.path / "losses.json").read_text())
        assert digests.keys() == done.keys() and all(len(digest) == 64 for digest in digests.values())
        summary = run.summary
        assert (summary["source"], summary["ledger_mismatches"], summary["crashes"]) == ("emulated", 0, 0)
        assert summary["executed_steps"] >= sum(done.values()) and summary["checkpoints"] > 0 and summary["loss_final_mean"] > 0
        assert not any((run.path / name).exists() for name in CHECKPOINTS)
        assert json.loads((run.path / "timeline.json").read_text())["traceEvents"]
    assert json.loads((runs[0].path / "losses.json").read_text()) == json.loads((runs[1].path / "losses.json").read_text())
    assert replay(runs[0].path, QUIET), "emulated runs repeat"


@pytest.mark.skipif(not PROC.is_dir(), reason="needs /proc to find a driver's processes")
def test_a_killed_driver_leaves_nothing_and_the_same_command_finishes(tmp_path: Path) -> None:
    results, before = tmp_path / "results", shared_memory()
    env = marked_environment() | {"HETSYS_RESULTS": str(results), "WANDB_MODE": "disabled"}
    command = [sys.executable, "-m", "hetsys", "run", *TINY, "system=gavel,equal_split", "seed=0,1"]
    driver = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        assert becomes_true(lambda: bool(finished(results)) and len(list(results.rglob("ledger.jsonl"))) > 1, 150)
        assert len(processes_of(env)) > 1, "it is in the middle of a run"
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait(20)
    assert becomes_true(lambda: not processes_of(env), 5.0), processes_of(env)
    assert shared_memory() <= before
    stood = {path: (path / "summary.json").stat().st_mtime_ns for path in finished(results)}
    assert 1 <= len(stood) < 4
    again = subprocess.run(command, env=env, capture_output=True, text=True, timeout=170)
    assert again.returncode == 0, again.stderr
    assert len(finished(results)) == 4 and not processes_of(env)
    assert {path: (path / "summary.json").stat().st_mtime_ns for path in stood} == stood, "what was finished is left alone"


def test_a_live_run_that_fails_says_why_and_leaves_the_others_going(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[str] = []

    def round_(self: EmulatedExecutor, plan: Any) -> Any:
        lost.append("once")
        if len(lost) == 1:
            raise EngineError("the books do not balance: job a, rank 0 on v100-0-0, round 0: steps ordered 3, counted 4")
        return original(self, plan)

    original = EmulatedExecutor.round
    monkeypatch.setattr(EmulatedExecutor, "round", round_)
    outcome = run_sweep(compose("system=gavel,equal_split", "seed=0"), console=QUIET)
    assert len(outcome.finished) == len(outcome.failed) == 1
    failed = StoredRun(outcome.failed[0][0])
    assert failed.status == "failed" and "v100-0-0, round 0: steps ordered 3, counted 4" in failed.error
    assert not any((failed.path / name).exists() for name in CHECKPOINTS)


def test_ctrl_c_in_a_live_run_ends_its_processes_and_keeps_the_sweep(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hetsys.runtime.local import LocalLauncher

    closed: list[str] = []
    monkeypatch.setattr(EmulatedExecutor, "round", lambda *_: _interrupt())
    close = LocalLauncher.close
    monkeypatch.setattr(LocalLauncher, "close", lambda self: closed.append("closed") or close(self))
    outcome = run_sweep(compose("system=gavel,equal_split", "seed=0"), console=QUIET)
    assert outcome.interrupted and outcome.finished == [] and closed == ["closed"]
    (run,) = find_runs(results_root)
    assert run.status == "unfinished" and not (run.path / ".lock").exists()


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_progress_moves_within_a_run(results_root: Path) -> None:
    (experiment,) = compose("system=gavel", "seed=0", "backend=sim")
    seen: list[float] = []
    execute(experiment, watch=seen.append)
    assert len(seen) >= 2 and seen == sorted(seen) and seen[0] < 1.0 and seen[-1] == pytest.approx(1.0)


def test_live_runs_are_not_handed_to_a_launcher_of_hydras(results_root: Path) -> None:
    said = "emulated runs, which hetsys itself runs one after the other"
    with pytest.raises(ConfigError, match=said):
        run_sweep(compose("system=gavel", "seed=0"), console=QUIET, launch=lambda todo, function: map(function, todo))
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs the extra `sweep`")
    with pytest.raises(ConfigError, match=said):
        run_command(["experiment=oef_live", "hydra/launcher=joblib"], QUIET)
    assert not results_root.exists(), "refused before the simulated runs beside it began"


def test_predictions_are_compared_as_fractions_of_what_was_measured() -> None:
    (experiment,) = compose_experiments(["experiment=oef_native", "system=gavel", "seed=0"]).experiments
    trace = experiment.workload.sample(0, experiment.cluster)
    exact = predictions(experiment, trace, {"throughput_normalized": 1.0, "jct_mean_s": 1.0})
    throughput, jct_s = exact["predicted_throughput_normalized"], exact["predicted_jct_mean_s"]
    assert throughput and jct_s and throughput > 0 and jct_s > 0
    found = predictions(experiment, trace, {"throughput_normalized": throughput / 1.25, "jct_mean_s": jct_s * 2})
    assert found["throughput_prediction_error_fraction"] == pytest.approx(0.25) == found["prediction_error_fraction"]
    assert found["jct_prediction_error_fraction"] == pytest.approx(0.5)
    assert predictions(experiment, trace, {"throughput_normalized": None, "jct_mean_s": 0.0})["prediction_error_fraction"] is None


@pytest.mark.parametrize(
    ("source", "changed", "same"),
    [
        ("measured", {"jct_mean_s": 21.0, "rounds": 9}, True),
        ("measured", {"jobs_finished": 5}, False),
        ("emulated", {"jct_mean_s": 21.0}, False),
        ("emulated", {"wall_s": 99.0}, True),
    ],
)
def test_a_replay_forgives_the_wall_clock_to_measured_runs_only(
    source: str, changed: dict[str, Any], same: bool, results_root: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    figures = {"jct_mean_s": 20.0, "rounds": 8, "jobs_finished": 6, "wall_s": 1.0}
    stored = StoredRun(write_run(results_root, "gavel", 0, figures=figures, source=source))
    monkeypatch.setattr("hetsys.runner.again.rerun", lambda path: {**stored.summary, **changed})
    assert replay(stored.path, Console(width=120)) is same
    out = capsys.readouterr().out
    assert ("+5.0 %" in out) == ("jct_mean_s" in changed)
    assert ("measured on the wall clock" in out) == (source == "measured" and same)


def test_what_is_to_train_is_known_before_anything_starts(tmp_path: Path, results_root: Path) -> None:
    from hetsys.runner import check_machine

    (tmp_path / "t.yaml").write_text(
        "tenants: [{name: a, jobs: [{job_type: x, num_steps: 3, steps_per_s: {v100: 1}, program: convv/tiny}]}]"
    )
    words = ["workload=tenants_file", f"workload.path={tmp_path / 't.yaml'}", "backend=torch", "system=gavel", "seed=0"]
    with pytest.raises(ConfigError, match=r"workload\.jobs\.a-0\.program='convv/tiny': did you mean 'conv/tiny'"):
        check_machine(compose_experiments(words).experiments)
