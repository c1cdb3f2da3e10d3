"""From experiments to finished run folders: one run, a resumable sweep over worker processes, a plan without execution, a replay."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from hetsys.core.errors import ConfigError, HetsysError
from hetsys.core.experiment import Experiment
from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.record import RoundRecord, SchedulingRecord, encode
from hetsys.core.scheduling.view import ClusterView
from hetsys.engines.scheduling.loop import run as run_rounds
from hetsys.engines.scheduling.sim import SimExecutor
from hetsys.engines.scheduling.state import SchedulingState
from hetsys.metrics.scheduling import HOST_TIMINGS, summarize
from hetsys.report.timeline import chrome_trace
from hetsys.runtime.pool import attempt as run_task
from hetsys.runtime.pool import run_tasks
from hetsys.tracking.env import code_id, environment
from hetsys.tracking.folder import RunFolder, StoredRun
from hetsys.tracking.tracker import Tracker, make_tracker

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA_VERSION = 1


@dataclass
class SweepResult:
    """What became of a sweep: folders that were run, that stood already, that failed (with one line each)."""

    finished: list[Path] = field(default_factory=list)
    skipped: list[Path] = field(default_factory=list)
    failed: list[tuple[Path, str]] = field(default_factory=list)
    interrupted: bool = False


Launch = Callable[[list[Experiment], Callable[[Experiment], str | None]], Iterable[str | None]]
"""Something else that runs experiments, such as a launcher of Hydra's: applies the function to each, gives the answers in order."""


def run_sweep(experiments: Sequence[Experiment], *, console: Console, launch: Launch | None = None) -> SweepResult:
    """Run what is not finished yet, seed by seed, the systems of a seed in shuffled order, on as many processes as `workers` says, or
    by `launch`.

    A run that fails leaves the others going. Ctrl-C stops the workers and keeps every finished run.
    """
    from hetsys.tracking.progress import sweep_progress

    result = SweepResult()
    todo: list[Experiment] = []
    for experiment in _shuffled_within_seeds(experiments):
        (result.skipped.append(experiment.folder) if _is_done(experiment) else todo.append(experiment))
    if not todo:
        return result
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if launch is not None:
        for experiment, error in zip(todo, launch(todo, attempt), strict=True):
            result.finished.append(experiment.folder) if error is None else result.failed.append((experiment.folder, error))
        return result
    workers = todo[0].workers or os.cpu_count() or 1
    labels = [f"{item.system} seed {item.seed}" for item in todo]
    outcomes = run_tasks(todo, execute, workers)
    try:
        with sweep_progress(len(todo), console, f"{todo[0].name}: {len(todo)} runs on {min(workers, len(todo))} processes") as progress:
            for outcome in outcomes:
                folder = todo[outcome.index].folder
                if outcome.error is None:
                    result.finished.append(folder)
                else:
                    result.failed.append((folder, outcome.error))
                progress.advance(labels[outcome.index], "failed" if outcome.error else "finished")
    except KeyboardInterrupt:
        result.interrupted = True
    finally:
        outcomes.close()
    return result


def attempt(experiment: Experiment) -> str | None:
    """`execute`, with its error as one line; None if it went well."""
    return run_task(0, experiment, execute).error


def execute(experiment: Experiment) -> dict[str, Any]:
    """One run from start to summary; its folder is complete when this returns. Returns the summary.

    On any error the folder holds `error.txt`; on an interruption it is left without a summary, to be run again.
    """
    began = time.perf_counter()
    if _is_done(experiment):  # by another sweep, since this one was planned
        return StoredRun(experiment.folder).summary
    folder = RunFolder.open(experiment.folder)
    tracker = make_tracker(experiment, folder)
    try:
        folder.write_config(experiment.config_yaml)
        summary = _run_scheduling(experiment, folder, tracker)
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


def plan_sweep(experiments: Sequence[Experiment], console: Console) -> list[Path]:
    """Plan the first seed of each system, print each plan with what it predicts, write `plan.json`, execute nothing."""
    from rich.table import Table

    first = {experiment.system: experiment for experiment in reversed(experiments)}
    chosen = [experiment for experiment in experiments if first[experiment.system] is experiment]
    paths = []
    for experiment in chosen:
        view, allocation, plan = _first_plan(experiment)
        paths.append(_write_plan_only(experiment, plan))
        table = Table(title=_plan_title(experiment, plan), title_justify="left", pad_edge=False)
        table.add_column("claim")
        for kind, up in zip(view.kinds, view.capacity, strict=True):
            table.add_column(f"{kind} (of {up})", justify="right")
        for claim in allocation.claims[:_PLAN_ROWS]:
            table.add_row(claim.name, *(f"{count:.3f}" for count in claim.devices))
        if len(allocation.claims) > _PLAN_ROWS:
            table.add_row(f"... and {len(allocation.claims) - _PLAN_ROWS} more in plan.json")
        console.print(table)
    return paths


_PLAN_ROWS = 12
_LOG_EVERY_ROUNDS = 5  # every round is in records.jsonl; the live curves need fewer points


def replay(path: Path, console: Console) -> bool:
    """Run a stored run again from its own configuration; print what came out equal and what differs; True if all figures are equal.

    Only `wall_s` and the host timings may differ.
    """
    from rich.table import Table

    stored = StoredRun(path)
    if stored.status != "finished":
        raise ConfigError("RUN", str(path), f"is {stored.status}; only finished runs can be replayed")
    again = rerun(path)
    differing = sorted(
        name for name in stored.summary.keys() | again.keys() if name not in HOST_TIMINGS and stored.summary.get(name) != again.get(name)
    )
    equal = len(stored.summary.keys() - set(HOST_TIMINGS) - set(differing))
    console.print(f"{equal} figures of {stored.system} seed {stored.seed} came out equal, {len(differing)} differ")
    if stored.code_id != code_id():
        console.print(f"note: the stored run is of code {stored.code_id}, this is {code_id()}")
    if differing:
        table = Table("figure", "stored", "replayed")
        for name in differing:
            table.add_row(name, str(stored.summary.get(name)), str(again.get(name)))
        console.print(table)
    return not differing


def rerun(path: Path) -> dict[str, Any]:
    """Execute the stored run at `path` once more in a temporary folder, without wandb, and return its summary."""
    from hetsys.config import rebuild

    with tempfile.TemporaryDirectory(prefix="hetsys-replay-") as scratch:
        experiment = rebuild((path / "config.yaml").read_text(), Path(scratch))
        return execute(replace(experiment, tracker="files"))


def _shuffled_within_seeds(experiments: Iterable[Experiment]) -> list[Experiment]:
    by_seed: dict[int, list[Experiment]] = {}
    for experiment in experiments:
        by_seed.setdefault(experiment.seed, []).append(experiment)
    for seed, group in by_seed.items():
        random.Random(f"{group[0].frame_hash}-{seed}").shuffle(group)
    return [experiment for group in by_seed.values() for experiment in group]


def _is_done(experiment: Experiment) -> bool:
    """Whether the run stands finished in the sense of `resume`."""
    if not (experiment.folder / "summary.json").exists():
        return False
    if experiment.resume == "commit":
        return StoredRun(experiment.folder).code_id == code_id()
    return experiment.resume == "any"


def _run_scheduling(experiment: Experiment, folder: RunFolder, tracker: Tracker) -> dict[str, Any]:
    trace = experiment.workload.sample(experiment.seed, experiment.cluster)
    env = environment(experiment, start_time=datetime.now(UTC), data_sha256=dict(trace.data_sha256))
    folder.write_env(env)
    tracker.start(yaml.safe_load(experiment.config_yaml), env)
    watched = _Watched(experiment.policy)
    executor = SimExecutor(trace)
    records: list[SchedulingRecord] = []
    try:
        rounds = run_rounds(trace, experiment.cluster, watched, executor, time.perf_counter)
        for row in encode(_tee(rounds, partial(_log_round, tracker), records)):
            folder.append(row)
    finally:
        executor.close()
    if watched.first is not None:
        folder.write_plan(_plan_dict(*watched.first))
    folder.write_timeline(chrome_trace(records, experiment.cluster.kinds))
    prices = {kind: sheet.price_usd_per_hour for kind, sheet in experiment.cluster.sheets.items()}
    figures = summarize(records, kinds=experiment.cluster.kinds, prices_usd_per_hour=prices)
    own_answers = figures["rounds"] == 0 or figures["solver_fallbacks"] != figures["rounds"]
    return {
        "system": experiment.system, "experiment": experiment.name, "seed": experiment.seed, "status": "finished", "valid": own_answers,
        "source": experiment.source, "provenance": trace.provenance, "frame_hash": experiment.frame_hash,
        "run_hash": experiment.run_hash, "schema_version": SCHEMA_VERSION, **figures,
    }  # fmt: skip


class _Watched:
    """A policy that remembers its first answer, for `plan.json`."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self.first: tuple[ClusterView, Allocation] | None = None

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        allocation, memo = self._policy.allocate(view, memo)
        if self.first is None:
            self.first = (view, allocation)
        return allocation, memo


def _tee(
    records: Iterable[SchedulingRecord], log: Callable[[RoundRecord], None], kept: list[SchedulingRecord]
) -> Iterable[SchedulingRecord]:
    for record in records:
        kept.append(record)
        if isinstance(record, RoundRecord):
            log(record)
        yield record


def _log_round(tracker: Tracker, record: RoundRecord) -> None:
    if record.index % _LOG_EVERY_ROUNDS:
        return
    tracker.log(
        {
            "throughput_normalized": sum(record.progress.values()) / record.length_s,
            "waiting_jobs": float(record.waiting_jobs),
            "idle_devices": float(sum(record.idle)),
            "restarts": float(sum(grant.restarted for grant in record.grants)),
            "policy_s": record.policy_s,
        },
        record.start_s,
    )


def _first_plan(experiment: Experiment) -> tuple[ClusterView, Allocation, dict[str, Any]]:
    """The allocation of the first round in which somebody is there. Raises HetsysError where every job is parked."""
    trace = experiment.workload.sample(experiment.seed, experiment.cluster)
    state = SchedulingState(trace, experiment.cluster)
    state.skip_idle()
    state.open_round(SimExecutor(trace).down_at(state.now_ns))
    if not state.live:
        reasons = "; ".join(dict.fromkeys(record.reason for record in state.parked)) or "the trace has no jobs"
        raise HetsysError(f"nothing to plan: no job can run on this cluster ({reasons})")
    view = state.view()
    began = time.perf_counter()
    allocation, _ = experiment.policy.allocate(view, None)
    plan = _plan_dict(view, allocation)
    plan["plan_s"] = time.perf_counter() - began
    return view, allocation, plan


def _write_plan_only(experiment: Experiment, plan: dict[str, Any]) -> Path:
    """`plan.json` in the run's folder, to be filled in by a later run; where the run stands finished, its own plan stands too."""
    if not (experiment.folder / "summary.json").exists():
        folder = RunFolder.open(experiment.folder)
        try:
            folder.write_config(experiment.config_yaml)
            folder.write_plan(plan)
        finally:
            folder.close()
    return experiment.folder / "plan.json"


def _plan_dict(view: ClusterView, allocation: Allocation) -> dict[str, Any]:
    """What a policy decided for `view`, with the normalised throughput that its shares would give if they ran for ever."""
    from hetsys.core.scheduling.users import normalised_speed

    speed = {job.name: normalised_speed(job) for job in view.jobs}
    rates = {claim.name: float(speed[claim.jobs[0]] @ claim.devices) for claim in allocation.claims}
    return {
        "now_s": view.now_s, "kinds": list(view.kinds), "capacity": list(view.capacity), "status": allocation.status,
        "note": allocation.note, "prices": None if allocation.prices is None else list(allocation.prices),
        "predicted_throughput_normalized": sum(rates.values()),
        "claims": [
            {
                "name": claim.name, "tenant": claim.tenant, "jobs": list(claim.jobs), "devices": list(claim.devices),
                "predicted_throughput_normalized": rates[claim.name], "level": allocation.levels.get(claim.name),
            }
            for claim in allocation.claims
        ],
    }  # fmt: skip


def _plan_title(experiment: Experiment, plan: dict[str, Any]) -> str:
    label = experiment.system_about.label or experiment.system
    return (
        f"{label}, seed {experiment.seed}: devices a claim in round 0, {plan['status']}, predicted normalised throughput "
        f"{plan['predicted_throughput_normalized']:.2f}, planned in {1000 * plan['plan_s']:.1f} ms"
    )
