"""Sweeps from the outside: resume, Ctrl-C and kill -9 in the middle, failures beside successes, replay, plans without execution."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from hetsys.config import compose_experiments
from hetsys.core.errors import EngineError
from hetsys.core.scheduling.load import load_factor
from hetsys.core.scheduling.record import RoundRecord
from hetsys.runner import execute, plan_sweep, replay, run_sweep
from hetsys.tracking.folder import StoredRun, find_runs
from tests.tracking.read_wandb import read_wandb

SMALL = ["experiment=oef_mix", "workload.duration_scale=0.05", "workload.tenants=3", "workload.jobs_per_tenant=2"]
SWEEP = [
    "-m", "experiment=oef_mix", "system=oef_coop,equal_split", "seed=0,1,2", "tracker=files", "workload.duration_scale=0.05",
    "workload.tenants=6", "workload.jobs_per_tenant=4",
]  # fmt: skip
QUIET = Console(quiet=True)


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    """Hash and time of change of every file below `folder`."""
    return {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*")) if path.is_file()
    }  # fmt: skip


def finished(results: Path) -> list[Path]:
    return [run.path for run in find_runs(results) if run.status == "finished"] if results.exists() else []


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_an_interrupted_sweep_is_finished_by_the_same_command(how: signal.Signals, code: int, tmp_path: Path) -> None:
    env = {**os.environ, "HETSYS_RESULTS": str(tmp_path / "results")}
    command = [sys.executable, "-m", "hetsys", "run", *SWEEP]
    driver = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 60
    while not finished(tmp_path / "results") and time.monotonic() < deadline:
        time.sleep(0.02)
    family = psutil.Process(driver.pid).children(recursive=True)
    os.kill(driver.pid, how)
    assert driver.wait(20) == code
    _, alive = psutil.wait_procs(family, timeout=5)
    assert not alive, "nothing is left running"
    done = finished(tmp_path / "results")
    assert 1 <= len(done) < 6, "the interruption fell into the middle of the sweep"
    before = {path: contents(path) for path in done}

    again = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    assert len(finished(tmp_path / "results")) == 6
    assert {path: contents(path) for path in done} == before, "finished runs are untouched, byte for byte"


def test_a_second_run_of_a_sweep_does_nothing_and_never_runs_again_keeps_the_old(results_root: Path) -> None:
    experiments = compose_experiments([*SWEEP, "launch.workers=1"]).experiments
    first = run_sweep(experiments, console=QUIET)
    assert (len(first.finished), len(first.skipped), first.failed) == (6, 0, [])
    before = contents(results_root)
    assert len(run_sweep(experiments, console=QUIET).skipped) == 6
    assert contents(results_root) == before
    one = compose_experiments([SWEEP[1], "system=oef_coop", "seed=0", *SWEEP[4:], "resume=never"]).experiments
    assert len(run_sweep(one, console=QUIET).finished) == 1
    assert len(list(results_root.rglob("*.replaced-1"))) == 1


def test_replay_reproduces_every_figure_but_the_host_timings(results_root: Path) -> None:
    run_sweep(compose_experiments([*SMALL, "system=oef_coop", "seed=0", "tracker=files"]).experiments, console=QUIET)
    (run,) = find_runs(results_root)
    assert replay(run.path, QUIET)
    summary = dict(run.summary)
    summary["jct_mean_s"] += 1.0
    (run.path / "summary.json").write_text(json.dumps(summary))
    assert not replay(run.path, QUIET), "a figure that differs is found"


def test_a_run_that_fails_says_why_and_leaves_the_others_going(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hetsys.systems.baselines.equal_split import EqualSplit

    def lost(*_: object) -> None:
        raise EngineError("worker-3 was lost")

    monkeypatch.setattr(EqualSplit, "allocate", lost)
    outcome = run_sweep(compose_experiments([*SWEEP, "launch.workers=1"]).experiments, console=QUIET)
    assert len(outcome.finished) == 3 and len(outcome.failed) == 3
    assert all("worker-3 was lost" in line for _, line in outcome.failed)
    failed = StoredRun(outcome.failed[0][0])
    assert failed.status == "failed" and failed.error == "worker-3 was lost"


def test_a_full_disk_fails_that_run_and_keeps_the_finished_ones(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiments = compose_experiments([*SWEEP, "launch.workers=1"]).experiments
    run_sweep(experiments[:2], console=QUIET)
    before = contents(results_root)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("hetsys.tracking.folder.os.replace", full)
    outcome = run_sweep(experiments, console=QUIET)
    assert len(outcome.skipped) == 2 and len(outcome.failed) == 4 and "disk is full" in outcome.failed[0][1]
    assert not list(results_root.rglob(".lock")), "no run is left locked"
    after = contents(results_root)
    assert {path: after[path] for path in before if not path.endswith("index.jsonl")} == {
        path: value for path, value in before.items() if not path.endswith("index.jsonl")
    }


def test_plan_only_writes_plans_and_executes_nothing(results_root: Path) -> None:
    experiments = compose_experiments([*SWEEP, "plan_only=true"]).experiments
    paths = plan_sweep(experiments, QUIET)
    assert [path.parents[1].name for path in paths] == ["oef_coop", "equal_split"]
    plan = json.loads(paths[0].read_text())
    held = [sum(claim["devices"][kind] for claim in plan["claims"]) for kind in range(3)]
    assert all(total <= capacity + 1e-6 for total, capacity in zip(held, plan["capacity"], strict=True))
    assert plan["predicted_throughput_normalized"] > 0
    assert finished(results_root) == []
    outcome = run_sweep(compose_experiments([*SWEEP, "launch.workers=1"]).experiments, console=QUIET)
    assert len(outcome.finished) == 6 and not list(results_root.rglob("*.aborted-*")), "a planned folder is filled in, not put aside"


def test_the_order_within_a_seed_is_shuffled_and_repeats() -> None:
    from hetsys.runner.sweep import shuffled_within_seeds

    experiments = compose_experiments([*SMALL, "-m", "seed=range(8)", "system=oef_coop,gavel,equal_split"]).experiments
    orders = shuffled_within_seeds(experiments)
    assert orders == shuffled_within_seeds(experiments)
    assert [item.seed for item in orders] == sorted(item.seed for item in experiments)
    assert len({tuple(item.system for item in orders if item.seed == seed) for seed in range(8)}) > 1


def test_a_run_that_another_sweep_has_finished_meanwhile_is_not_run_again(results_root: Path) -> None:
    (experiment,) = compose_experiments([*SMALL, "system=oef_coop", "seed=0", "tracker=files"]).experiments
    first = execute(experiment)
    before = contents(results_root)
    assert execute(experiment) == first and contents(results_root) == before


def test_a_run_whose_every_answer_was_a_fallback_is_not_valid(results_root: Path) -> None:
    words = [*SMALL, "system=oef_coop", "seed=0", "tracker=files", "system.time_limit_s=1e-9"]
    summary = execute(compose_experiments(words).experiments[0])
    assert summary["solver_fallbacks"] == summary["rounds"] > 0 and summary["valid"] is False


@pytest.mark.parametrize("system", ["oef_coop", "oef_noncoop_plus", "gavel", "equal_split"])
def test_a_policy_plans_anew_only_when_somebody_comes_or_goes(results_root: Path, system: str) -> None:
    """Nobody learns speeds and nothing fails here: only arrivals and departures change what a policy is asked."""
    experiment = compose_experiments([*SMALL, f"system={system}", "seed=0", "tracker=files", "workload.duration_scale=0.5"]).experiments[0]
    summary = execute(experiment)
    trace = experiment.workload.sample(0, experiment.cluster)
    assert summary["load_factor"] == load_factor(trace, experiment.cluster)
    records = StoredRun(experiment.folder).records()
    live = [{user.user: user.demand for user in record.users} for record in records if isinstance(record, RoundRecord)]
    changes = 1 + sum(before != after for before, after in pairwise(live))
    assert 1 < changes <= summary["solves"] <= 2 * len(trace.jobs) < summary["rounds"] / 2


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="needs wandb")
def test_a_whole_run_mirrored_to_wandb_offline_is_read_back(
    results_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HOME", str(tmp_path))
    (experiment,) = compose_experiments([*SMALL, "system=oef_coop", "seed=0", "tracker=wandb"]).experiments
    summary = execute(experiment)
    deadline = time.monotonic() + 10
    while (log := read_wandb(experiment.folder)).exit_code is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert log.exit_code == 0
    assert log.config["workload"]["tenants"] == 3 and log.config["source"] == "simulated" and log.config["valid"] is True
    assert log.summary["jct_mean_s"] == summary["jct_mean_s"]
    curve = [row["scheduling/throughput_normalized"] for row in log.history if "scheduling/throughput_normalized" in row]
    assert len(curve) >= 2 and max(curve) > 0
    files = {file: json.loads(where.read_text()) for files in log.artifacts.values() for file, where in files.items()}
    assert files["plan.json"]["claims"] and files["timeline.json"]["traceEvents"]
