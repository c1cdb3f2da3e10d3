"""Scheduling on this machine's own devices: real training processes against the wall clock."""

from __future__ import annotations

import time
from pathlib import Path

from hetsys.core.cluster import Cluster
from hetsys.core.errors import EngineError
from hetsys.core.scheduling.plan import Lease, LeaseOutcome, RoundOutcome, RoundPlan
from hetsys.core.scheduling.trace import JobTrace
from hetsys.engines.scheduling.live import child
from hetsys.engines.scheduling.live.books import Books, Note
from hetsys.engines.scheduling.live.checkpoints import Checkpoints
from hetsys.engines.scheduling.live.gangs import Entry, Gangs, Lost
from hetsys.engines.scheduling.live.orders import Report, RunUntil
from hetsys.engines.scheduling.outages import Outages
from hetsys.engines.scheduling.sim import DEVICE_FAILED
from hetsys.engines.scheduling.state import NS
from hetsys.runtime.devices import check_busy, expected_capability
from hetsys.runtime.launch import Launcher


class NativeExecutor:
    """Time 0 is when the first round starts. A round starts at its time, or at once where that has passed, and lasts its length even
    where every lease in it ends before, as a simulated one does; processes start, load and make steps in it, and a step (and the save)
    under way at its end is brought to its end. A device's failure kills what runs on it at that moment.

    Steps are counted where they are made: the books check that all ranks of a gang agree, go on where the job stood and save it.
    """

    def __init__(
        self, trace: JobTrace, cluster: Cluster, folder: Path, seed: int, launcher: Launcher, *,
        note: Note | None = None, entry: Entry = child.train,
    ) -> None:  # fmt: skip
        """As EmulatedExecutor. Raises ConfigError if this machine cannot be `cluster`."""
        check_busy(cluster)
        self._cluster = cluster
        self._num_steps = {job.name: job.num_steps for job in trace.jobs}
        self._outages = Outages(trace.failures)
        self._gangs = Gangs(trace, cluster, folder / "rendezvous", seed, launcher, entry)
        self._checkpoints = Checkpoints(folder / "checkpoints")
        self._kind_of = {device.name: device.kind for device in cluster.devices}
        self.books = Books(trace.jobs, note, self._kind_of)
        self._zero_ns: int | None = None
        self._due_ns = self._got_ns = 0.0

    def down_at(self, now_ns: int) -> frozenset[str]:
        return self._outages.down_at(now_ns)

    def round(self, plan: RoundPlan) -> RoundOutcome:
        if self._zero_ns is None:
            self._gangs.warm_up()
            self._zero_ns = time.monotonic_ns() - plan.start_ns
        _sleep_until(self._zero_ns + plan.start_ns)
        start_ns = time.monotonic_ns() - self._zero_ns
        end_ns = start_ns + plan.length_ns
        self._gangs.turn(plan, self._checkpoints.latest)
        kills = {lease.job: at for lease in plan.leases if (at := self._outages.first(lease.devices, start_ns, end_ns)) is not None}
        for lease in plan.leases:
            save = str(self._checkpoints.place(lease.job, plan.index))
            steps_left = self._num_steps[lease.job] - self.books.steps_done(lease.job)
            self._gangs.order(lease.job, RunUntil(self._zero_ns + end_ns, steps_left, save))
        kill_at_ns = {job: self._zero_ns + at for job, at in kills.items()}
        answers = self._gangs.collect([lease.job for lease in plan.leases], kill_at_ns, DEVICE_FAILED)
        _sleep_until(self._zero_ns + end_ns)
        end_ns = time.monotonic_ns() - self._zero_ns
        outcomes = tuple(self._settle(plan, lease, answers[lease.job], end_ns, self._zero_ns) for lease in plan.leases)
        return RoundOutcome(end_ns, outcomes, self.down_at(end_ns))

    @property
    def cpu_share(self) -> float | None:
        """The processor time that CPU workers got while they made steps, as a part of what was theirs: well below 1, other programs took
        it and the figures are of contention. None where no CPU worker made a step."""
        return self._got_ns / self._due_ns if self._due_ns else None

    def close(self) -> None:
        self._gangs.close()
        self._checkpoints.close()

    def _settle(self, plan: RoundPlan, lease: Lease, answer: list[Report] | Lost, end_ns: int, zero_ns: int) -> LeaseOutcome:
        if isinstance(answer, Lost):
            self.books.lose(plan.index, lease, answer.reason)
            held_ns = answer.at_ns - zero_ns - plan.start_ns
            return LeaseOutcome(lease.job, 0, None, True, answer.steps, held_ns, answer.reason, crashed=answer.crashed)
        self._check_where(lease, answer)
        steps = answer[0].steps
        sheet = self._cluster.sheets[lease.kind]
        if sheet.native.startswith("cpu") and len(answer) == 1:  # ranks of a gang also wait for each other
            self._due_ns += sum(sheet.busy_fraction * (report.ended_ns - report.began_ns) for report in answer)
            self._got_ns += sum(report.cpu_ns for report in answer)
        self.books.check(plan.index, lease, answer, steps, saves=True)
        self.books.enter(plan.index, answer, (end_ns - plan.start_ns) / NS, stands=True)
        ended_ns = max(report.ended_ns for report in answer)
        stepping_ns = ended_ns - max(report.began_ns for report in answer) if steps else 0
        if self.books.steps_done(lease.job) < self._num_steps[lease.job]:
            self._checkpoints.wrote(lease.job, self._checkpoints.place(lease.job, plan.index))
            return LeaseOutcome(lease.job, steps, None, False, 0, end_ns - plan.start_ns, stepping_ns=stepping_ns)
        self._gangs.end(lease.job)
        self._checkpoints.forget(lease.job)
        finish_ns = ended_ns - zero_ns
        return LeaseOutcome(lease.job, steps, finish_ns, False, 0, finish_ns - plan.start_ns, stepping_ns=stepping_ns)

    def _check_where(self, lease: Lease, reports: list[Report]) -> None:
        """Raise EngineError where a process did not compute on its device, or with other instructions."""
        for device, report in zip(lease.devices, reports, strict=True):
            wanted = expected_capability(self._cluster.sheets[self._kind_of[device]].native)
            place = self._gangs.torch_device(device)
            if report.computed_on not in ("", place):
                raise EngineError(f"{device} is {place}, and job {lease.job} computed on {report.computed_on} for it")
            if wanted and report.capability != wanted:
                used = report.capability or "unknown"
                raise EngineError(f"{device} must compute with {wanted} instructions, and job {lease.job} computed with {used} ones on it")


def _sleep_until(monotonic_ns: int) -> None:
    while (left_ns := monotonic_ns - time.monotonic_ns()) > 0:
        time.sleep(left_ns / 1e9)
