"""Scheduling on emulated devices: the simulator says how long everything takes, real training processes make exactly those steps."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from hetsys.core.cluster import Cluster
from hetsys.core.scheduling.plan import Lease, LeaseOutcome, RoundOutcome, RoundPlan
from hetsys.core.scheduling.trace import JobTrace
from hetsys.engines.scheduling.live import child
from hetsys.engines.scheduling.live.books import Books, Note
from hetsys.engines.scheduling.live.checkpoints import Checkpoints
from hetsys.engines.scheduling.live.gangs import Entry, Gangs, Lost
from hetsys.engines.scheduling.live.orders import Report, RunSteps
from hetsys.engines.scheduling.sim import SimExecutor
from hetsys.runtime.launch import Launcher


class EmulatedExecutor:
    """Every round is simulated first; then each lease's processes make the steps that it charged, all leases at once, and save the job.

    What they report must be what was ordered, else EngineError. Where a device fails, they make the steps that are lost, are killed, and
    the job goes on from its last checkpoint. Where a process of a job dies by itself, the lease is lost, and charged as if that had
    happened at its end, whenever it really was: so a run repeats. The machine's own speed does not enter any outcome.
    """

    def __init__(
        self, trace: JobTrace, cluster: Cluster, folder: Path, seed: int, launcher: Launcher, *,
        note: Note | None = None, entry: Entry = child.train,
    ) -> None:  # fmt: skip
        """`folder`: for checkpoints while the run goes on. `note`: see Books. `entry`: what the processes run. The launcher stays open."""
        self._sim = SimExecutor(trace)
        self._gangs = Gangs(trace, cluster, folder / "rendezvous", seed, launcher, entry)
        self._checkpoints = Checkpoints(folder / "checkpoints")
        self.books = Books(trace.jobs, note, {device.name: device.kind for device in cluster.devices})

    def down_at(self, now_ns: int) -> frozenset[str]:
        return self._sim.down_at(now_ns)

    def round(self, plan: RoundPlan) -> RoundOutcome:
        began_s = time.monotonic()
        simulated = self._sim.round(plan)
        self._gangs.turn(plan, self._checkpoints.latest)
        for lease, outcome in zip(plan.leases, simulated.leases, strict=True):
            save = str(self._checkpoints.place(lease.job, plan.index)) if _saves(outcome) else ""
            self._gangs.order(lease.job, RunSteps(_steps(outcome), save))
        answers = self._gangs.collect([lease.job for lease in plan.leases])
        wall_s = time.monotonic() - began_s
        pairs = zip(plan.leases, simulated.leases, strict=True)
        return replace(simulated, leases=tuple(self._settle(plan, lease, outcome, answers[lease.job], wall_s) for lease, outcome in pairs))

    def close(self) -> None:
        self._gangs.close()
        self._checkpoints.close()

    def _settle(
        self, plan: RoundPlan, lease: Lease, outcome: LeaseOutcome, answer: list[Report] | Lost, wall_s: float
    ) -> LeaseOutcome:
        """What became of the lease: what was simulated, once the books balance; or its loss, where a process died."""
        if isinstance(answer, Lost):
            self._sim.undo(lease.job)
            self.books.lose(plan.index, lease, answer.reason)
            return replace(
                outcome, steps=0, finish_ns=None, failed=True, lost_steps=_steps(outcome), stepping_ns=0, reason=answer.reason, crashed=True
            )
        self.books.check(plan.index, lease, answer, _steps(outcome), _saves(outcome))
        self.books.enter(plan.index, answer, wall_s, stands=not outcome.failed)
        if _saves(outcome):
            self._checkpoints.wrote(lease.job, self._checkpoints.place(lease.job, plan.index))
        else:
            self._gangs.end(lease.job)
        if outcome.finish_ns is not None:
            self._checkpoints.forget(lease.job)
        return outcome


def _steps(outcome: LeaseOutcome) -> int:
    return outcome.lost_steps if outcome.failed else outcome.steps


def _saves(outcome: LeaseOutcome) -> bool:
    """Whether the job is saved at the end of the round: not where it is done, and not where the round is lost."""
    return not outcome.failed and outcome.finish_ns is None
