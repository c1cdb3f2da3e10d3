"""A tiny results folder, written by the real writer: three systems of one frame, each with two tenants on four devices."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from hetsys.core.scheduling.record import Grant, JobRecord, ParkedRecord, RoundRecord, SchedulingRecord, UserShare, encode
from hetsys.tracking.folder import RunFolder

LABELS = {"equal_split": "Equal split", "gavel": "Gavel (re-implemented)", "oef_coop": "OEF cooperative (re-implemented)"}


def records(rounds: int = 6, fail_at: int | None = 3) -> list[SchedulingRecord]:
    """a holds the slow devices; b holds the fast ones, one of which fails in round `fail_at` after 40 of 100 s; one job waits."""
    users = (UserShare("a", "a", 1.0, (2.0, 0.0), (1.0, 2.0), 3), UserShare("b", "b", 1.0, (0.0, 2.0), (1.0, 4.0), 2))
    rows: list[SchedulingRecord] = []
    for index in range(rounds):
        fails = index == fail_at
        grants = (
            Grant("a.0", "a", "slow", ("slow-0-0", "slow-0-1"), 10, 100.0, restarted=index == 0),
            Grant("b.0", "b", "fast", ("fast-0-0",), 0 if fails else 40, 40.0 if fails else 100.0, 9 * fails, index == 0, fails),
            *([Grant("b.1", "b", "fast", ("fast-0-10",), 40, 100.0, restarted=index == 1)] if index else []),
        )
        idle = (0, 0) if index else (0, 1)
        rows.append(
            RoundRecord(
                index, 100.0 * index, 100.0, (2, 2), users, grants, {"a": 200.0, "b": 500.0}, idle, idle, 1, "rule", "", 0.001
            )
        )  # fmt: skip
    for name, tenant, finish in (("a.0", "a", 590.0), ("b.0", "b", None), ("b.1", "b", 600.0)):
        status = "finished" if finish else "unfinished"
        rows.append(JobRecord(name, tenant, f"type {tenant}", 1, status, 0.0, 0.0, finish, finish or 600.0, 10, 0, 1, 0, 500.0))
    return rows


def write_run(
    root: Path, system: str, seed: int, *, figures: dict[str, Any] | None = None, done: bool = True, name: str = "demo",
    variant: str = "0", parked: Sequence[ParkedRecord] = (), config: dict[str, Any] | None = None,
    rows: Sequence[SchedulingRecord] | None = None, **env: Any,
) -> Path:  # fmt: skip
    """One run under `root`; `figures` go into its summary, `env` over the defaults of its environment, `config` into its configuration;
    `parked` come first, then `rows` (default: `records()`)."""
    path = root / name / system / f"{seed}-{variant}abc"
    said = {
        "domain": "scheduling", "source": "simulated", "frame_hash": "f00d", "commit": "c0ffee", "code_id": "c0ffee",
        "label": LABELS.get(system, system), "experiment": name, "system": system, "seed": seed,
    } | env  # fmt: skip
    folder = RunFolder.open(path)
    folder.write_config(yaml.safe_dump({"name": name, "seed": seed, "baseline": "gavel", **(config or {})}))
    folder.write_env(said)
    folder.write_plan({"kinds": ["slow", "fast"]})
    for row in encode([*parked, *(records() if rows is None else rows)]):
        folder.append(row)
    if done:
        same = {key: said[key] for key in ("system", "experiment", "seed", "source", "frame_hash")}
        summary = {**same, "status": "finished", "valid": True, "provenance": "published"}
        folder.finish({**summary, **made_up(system, seed), **(figures or {})})
    else:
        folder.close()
    return path


def made_up(system: str, seed: int) -> dict[str, Any]:
    """Numbers of the right size: the same noise of a seed for all systems, and a little of each system's own."""
    level = {"equal_split": 0.9, "gavel": 1.0, "oef_coop": 1.04}.get(system, 1.0)
    common, own = random.Random(seed).gauss(0, 0.1), random.Random(f"{system}{seed}").gauss(0, 0.005)
    throughput = 40.0 * level * (1 + common + own)
    return {
        "throughput_normalized": throughput, "jct_mean_s": 3600 * 800 / throughput, "finish_time_fairness_p95": 1.6 / level,
        "jain_index": 0.8 + common / 10, "envy_max": 0.4 if system == "gavel" else 0.0, "sharing_incentive_min": 0.9 * level + own,
        "idle_device_fraction": 0.02, "restarts_per_round": 3.0, "plan_s": 0.5 + random.Random(f"x{system}{seed}").random(),
    }  # fmt: skip


def write_results(root: Path, seeds: int = 3, **env: Any) -> Path:
    """`seeds` runs of each of the three systems; returns the experiment's folder."""
    for system in LABELS:
        for seed in range(seeds):
            write_run(root, system, seed, **env)
    return root / env.get("name", "demo")


def write_sweep(
    root: Path, key: str, values: Sequence[Any], *, seeds: int = 3, name: str = "study", systems: Sequence[str] = tuple(LABELS),
    figures: Callable[[str, Any, int], dict[str, Any]] = lambda system, value, seed: {}, config: dict[str, Any] | None = None,
    rows: Callable[[str, Any, int], Sequence[SchedulingRecord]] | None = None, **env: Any,
) -> Path:  # fmt: skip
    """Runs of `systems` at each value of `key` (like `workload.spread`), each value a frame; `figures`, `rows` of (system, value, seed)."""
    part, _, leaf = key.partition(".")
    for number, value in enumerate(values):
        parts = {"cluster": {"nodes": 1}, "workload": {"tenants": 2, "about": {"label": f"not a fact {number}"}}} | (config or {})
        parts[part] = {**parts.get(part, {}), leaf: value}
        for system in systems:
            for seed in range(seeds):
                write_run(
                    root, system, seed, name=name, variant=str(number), frame_hash=f"f{number}00d", config=parts,
                    figures=figures(system, value, seed), rows=None if rows is None else rows(system, value, seed), **env,
                )  # fmt: skip
    return root / name
