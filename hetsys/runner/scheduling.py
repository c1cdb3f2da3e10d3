"""A run of the scheduling domain: trace, policy, executor and records, and the summary that they give."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import yaml

from hetsys.core.experiment import Experiment
from hetsys.core.scheduling.load import load_factor
from hetsys.core.scheduling.plan import Allocation, SchedulingExecutor
from hetsys.core.scheduling.record import RoundRecord, SchedulingRecord, encode
from hetsys.core.scheduling.trace import JobTrace
from hetsys.core.scheduling.view import ClusterView
from hetsys.engines.scheduling.loop import run as run_rounds
from hetsys.engines.scheduling.sim import SimExecutor
from hetsys.metrics.common import Number
from hetsys.metrics.scheduling import summarize
from hetsys.report.timeline import chrome_trace
from hetsys.runner.plans import plan_dict
from hetsys.runtime.launch import Launcher
from hetsys.tracking.env import environment
from hetsys.tracking.folder import RunFolder
from hetsys.tracking.tracker import Tracker

SCHEMA_VERSION = 1
_LOG_EVERY_ROUNDS = 5  # every round is in records.jsonl; the live curves need fewer points
_CHECKED = ("throughput_normalized", "jct_mean_s")
"""The figures whose prediction by the simulator is stored beside a measured run."""


def run_scheduling(
    experiment: Experiment, folder: RunFolder, tracker: Tracker, launcher: Launcher | None, watch: Callable[[float], None] | None
) -> dict[str, Any]:
    """Run to the end, with all files of the folder but the summary written; returns the summary."""
    trace = experiment.workload.sample(experiment.seed, experiment.cluster)
    env = environment(experiment, start_time=datetime.now(UTC), data_sha256=dict(trace.data_sha256))
    folder.write_env(env)
    tracker.start(yaml.safe_load(experiment.config_yaml), env)
    watched = _Watched(experiment.policy)
    observe = _observer(trace, tracker, watch)
    records: list[SchedulingRecord] = []
    more: dict[str, Number] = {"load_factor": load_factor(trace, experiment.cluster)}
    with _executor(experiment, trace, folder, launcher, more) as executor:
        rounds = run_rounds(trace, experiment.cluster, watched, executor, time.perf_counter, experiment.charge)
        for row in encode(_tee(rounds, observe, records)):
            folder.append(row)
    if watched.first is not None:
        folder.write_plan(plan_dict(*watched.first))
    folder.write_timeline(chrome_trace(records, experiment.cluster.kinds))
    figures = _figures(experiment, trace, records) | {"solves": watched.solves}
    if experiment.source == "measured":
        more |= predictions(experiment, trace, figures)
    own_answers = figures["rounds"] == 0 or figures["solver_fallbacks"] != figures["rounds"]
    return {
        "system": experiment.system, "experiment": experiment.name, "seed": experiment.seed, "status": "finished", "valid": own_answers,
        "source": experiment.source, "provenance": trace.provenance, "frame_hash": experiment.frame_hash,
        "run_hash": experiment.run_hash, "schema_version": SCHEMA_VERSION, **figures, **more,
    }  # fmt: skip


def predictions(experiment: Experiment, trace: JobTrace, measured: dict[str, Number]) -> dict[str, Number]:
    """What the simulator makes of the same trace, whose speeds are the profile's, and how far that is from what was measured, as a
    fraction of the measured figure. `prediction_error_fraction` is the throughput's."""
    records = list(
        run_rounds(trace, experiment.cluster, experiment.policy, SimExecutor(trace), time.perf_counter, experiment.charge)
    )
    predicted = _figures(experiment, trace, records)
    found: dict[str, Number] = {}
    for name in _CHECKED:
        guess, real = predicted[name], measured[name]
        found[f"predicted_{name}"] = guess
        short = name.partition("_")[0]
        found[f"{short}_prediction_error_fraction"] = abs(guess / real - 1.0) if guess is not None and real else None
    return found | {"prediction_error_fraction": found["throughput_prediction_error_fraction"]}


def _figures(experiment: Experiment, trace: JobTrace, records: list[SchedulingRecord]) -> dict[str, Number]:
    prices = {kind: sheet.price_usd_per_hour for kind, sheet in experiment.cluster.sheets.items()}
    return summarize(records, kinds=experiment.cluster.kinds, prices_usd_per_hour=prices, watched=trace.watched)


@contextmanager
def _executor(
    experiment: Experiment, trace: JobTrace, folder: RunFolder, launcher: Launcher | None, more: dict[str, Number]
) -> Iterator[SchedulingExecutor]:
    """The executor of the experiment's source; closed at the end. A live one adds its figures to `more` when all went well."""
    if not experiment.live:
        executor = SimExecutor(trace)
        try:
            yield executor
        finally:
            executor.close()
        return
    from hetsys.runner.live import live_executor

    assert launcher is not None, "a live run needs a launcher"
    with live_executor(experiment, trace, folder, launcher, more) as live:
        yield live


class _Watched:
    """A policy that remembers its first answer, for `plan.json`, and counts the rounds in which it gave another one than in the round
    before: where nothing that it depends on has changed, a policy hands out the same again and solves nothing."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._latest: Allocation | None = None
        self.first: tuple[ClusterView, Allocation] | None = None
        self.solves = 0

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        allocation, memo = self._policy.allocate(view, memo)
        self.solves += allocation is not self._latest
        self._latest = allocation
        if self.first is None:
            self.first = (view, allocation)
        return allocation, memo


def _tee(
    records: Iterable[SchedulingRecord], observe: Callable[[RoundRecord], None], kept: list[SchedulingRecord]
) -> Iterator[SchedulingRecord]:
    for record in records:
        kept.append(record)
        if isinstance(record, RoundRecord):
            observe(record)
        yield record


def _observer(trace: JobTrace, tracker: Tracker, watch: Callable[[float], None] | None) -> Callable[[RoundRecord], None]:
    """Sends curves to `tracker` and tells `watch` which part of all steps is made."""
    total = sum(job.num_steps * job.gang for job in trace.jobs)
    made = 0

    def observe(record: RoundRecord) -> None:
        nonlocal made
        made += sum(grant.steps * len(grant.devices) for grant in record.grants)
        if watch is not None and total:
            watch(made / total)
        if record.index % _LOG_EVERY_ROUNDS == 0:
            tracker.log(_curves(record), record.start_s)

    return observe


def _curves(record: RoundRecord) -> dict[str, float]:
    return {
        "throughput_normalized": sum(record.progress.values()) / record.length_s,
        "waiting_jobs": float(record.waiting_jobs),
        "idle_devices": float(sum(record.idle)),
        "restarts": float(sum(grant.restarted for grant in record.grants)),
        "policy_s": record.policy_s,
    }
