"""Small experiments, records and finished runs for the tracking tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hetsys.core.cluster import Cluster, DeviceSheet, NodeGroup
from hetsys.core.experiment import About, Experiment
from hetsys.core.scheduling.record import Grant, JobRecord, ParkedRecord, RoundRecord, SchedulingRecord, UserShare, encode
from hetsys.tracking.env import environment
from hetsys.tracking.folder import RunFolder

CONFIG = "system:\n  name: oef_coop\n  round_s: 360.0\nseed: 3\n"


def experiment(results: Path, *, system: str = "oef_coop", seed: int = 3, name: str = "oef_mix", **fields: Any) -> Experiment:
    sheet = DeviceSheet("slow", 2**30, 1e11, {"fp32": 1e12}, 1e-5, 0.5, "2026-01")
    known: dict[str, Any] = {
        "name": name, "system": system, "seed": seed, "domain": "scheduling", "model": None, "workload": None, "policy": None,
        "cluster": Cluster([NodeGroup("k80", 4, 2)], {"k80": sheet}), "backend": "sim", "source": "simulated",
        "tracker": "files", "workers": None, "results": results, "frame_hash": "f00d", "run_hash": "abc123", "config_yaml": CONFIG,
        "system_about": About(label=f"{system} (re-implemented)"), "overrides": ("seed=3",), "options": {"cluster": "k80"},
    }  # fmt: skip
    return Experiment(**{**known, **fields})


def records(rounds: int = 3) -> list[SchedulingRecord]:
    users = (UserShare("a", "a", 1.0, (2.5,), (1.0,), 4), UserShare("b", "b", 2.0, (5.5,), (1.0,), 8))
    grant = Grant(
        job="a-0", tenant="a", kind="k80", devices=("k80-0-0", "k80-0-1"), steps=7, lost_steps=0, restarted=False, failed=False,
        held_s=360.0, spans_nodes=False,
    )  # fmt: skip
    made: list[SchedulingRecord] = [ParkedRecord("c", None, "has no job")]
    first = RoundRecord(
        index=0, start_s=0.0, length_s=360.0, capacity=(8,), users=users, grants=(grant,), progress={"a": 720.0, "b": 0.0},
        idle=(6,), stranded=(0,), waiting_jobs=0, status="optimal", note="", policy_s=0.001,
    )  # fmt: skip
    made += [replace(first, index=index, start_s=360.0 * index, waiting_jobs=index) for index in range(rounds)]
    made.append(JobRecord("a-0", "a", "resnet", 2, "finished", 0.0, 0.0, 360.0 * rounds, 360.0 * rounds, 7 * rounds, 0, 0, 0, 900.0))
    return made


def summary(run: Experiment, **figures: float) -> dict[str, Any]:
    known = {"system": run.system, "experiment": run.name, "seed": run.seed, "source": run.source}
    known |= {"status": "finished", "valid": True}
    return {**known, "throughput_normalized": 2.5, "jct_mean_s": 7200.0, "jain_index": 0.75, **figures}


def begin(run: Experiment) -> RunFolder:
    folder = RunFolder.open(run.folder)
    folder.write_config(run.config_yaml)
    folder.write_env(environment(run, start_time=datetime.now(UTC)))
    folder.write_plan({"claims": [{"name": "a", "devices": [2.5]}]})
    return folder


def append_all(folder: RunFolder, made: Iterable[SchedulingRecord]) -> None:
    for row in encode(made):
        folder.append(row)


def finished(run: Experiment, **figures: float) -> Path:
    folder = begin(run)
    append_all(folder, records())
    folder.write_timeline({"traceEvents": []})
    folder.finish(summary(run, **figures))
    return folder.path
