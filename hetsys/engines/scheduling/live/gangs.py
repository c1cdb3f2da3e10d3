"""The processes that hold leases: started, given orders, listened to and ended, one a gang rank. What they did is judged elsewhere."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hetsys.core.cluster import Cluster
from hetsys.core.errors import ConfigError, EngineError
from hetsys.core.scheduling.admission import admit
from hetsys.core.scheduling.plan import Lease, RoundPlan
from hetsys.core.scheduling.trace import Job, JobTrace
from hetsys.engines.scheduling.live.child import nothing
from hetsys.engines.scheduling.live.orders import Beat, Report, RunSteps, RunUntil, Start
from hetsys.runtime.devices import worker_env
from hetsys.runtime.launch import Launcher, Link, Worker

PATIENCE_S = 120.0
"""A process that neither reports nor gives a sign of life for so long hangs, and is ended."""
_NAP_S = 1.0
_WARM_UP_S = 60.0
_BLAME_S = 1.0
_RAISED = " failed: "
"""How the error of a worker reads whose `main` raised, in contrast to one that died (`Launcher.start`)."""

Entry = Callable[[Link, Start], None]


@dataclass(frozen=True)
class Lost:
    """A gang that ended before it had reported: why, when (monotonic clock), after how many steps of its order (as far as its processes
    had said), and whether it was by itself (`crashed`)."""

    reason: str
    at_ns: int
    steps: int
    crashed: bool


@dataclass
class _Gang:
    lease: Lease
    workers: list[Worker]
    rendezvous: Path
    reports: list[Report | None]
    steps: int = 0
    fault: str = ""
    heard_ns: int = 0


class Gangs:
    """At most one gang a job. Every lease that is new in a round gets fresh processes; one that is extended keeps those it has."""

    def __init__(self, trace: JobTrace, cluster: Cluster, folder: Path, seed: int, launcher: Launcher, entry: Entry) -> None:
        """Raises ConfigError for a job that could run and has no program. `folder`: where ranks find each other."""
        for item in admit(trace, cluster)[0]:
            if not item.job.program:
                raise ConfigError(f"workload.jobs.{item.job.name}.program", "", "names nothing to train; such a job can only be simulated")
        self._jobs = {job.name: job for job in trace.jobs}
        self._cluster, self._folder, self._seed = cluster, folder, seed
        self._kind_of = {device.name: device.kind for device in cluster.devices}
        self._launcher, self._entry = launcher, entry
        self._gangs: dict[str, _Gang] = {}
        self._num_started = 0

    def warm_up(self) -> None:
        """Have the launcher load what it forks processes from, so that no clock waits for it."""
        self._launcher.start("warm-up", nothing).stop(_WARM_UP_S)

    def torch_device(self, device: str) -> str:
        """torch's name of where a process for `device` computes."""
        index = self._cluster.cuda_indices.get(device)
        return "cpu" if index is None else f"cuda:{index}"

    def turn(self, plan: RoundPlan, checkpoint: Callable[[str], str]) -> None:
        """End the gangs whose lease is over and start those of new leases, each from its job's latest `checkpoint(job)`. Their state is
        in the checkpoint, so they are ended at once. Does not wait for the new ones to be ready."""
        kept = {lease.job for lease in plan.leases if lease.extended}
        for job in [job for job in self._gangs if job not in kept]:
            self.end(job)
        for lease in plan.leases:
            if lease.extended:
                assert lease.job in self._gangs, f"the lease of {lease.job} is extended, and nothing runs under it"
            else:
                self._start(lease, checkpoint(lease.job))

    def order(self, job: str, order: RunSteps | RunUntil) -> None:
        """Send every rank of `job` an order; a rank that is found dead is remembered for `collect`."""
        gang = self._gangs[job]
        gang.reports, gang.steps, gang.heard_ns = [None] * len(gang.workers), 0, time.monotonic_ns()
        try:
            for worker in gang.workers:
                worker.send(order)
        except EngineError as error:
            gang.fault = str(error)

    def collect(
        self, jobs: Sequence[str], kill_at_ns: Mapping[str, int] | None = None, kill_reason: str = ""
    ) -> dict[str, list[Report] | Lost]:
        """Wait for the reports of all ranks of `jobs`, by job, in order of rank. A gang that loses a rank is ended as a whole at once, and
        so is one whose time in `kill_at_ns` (monotonic clock) comes before it has reported."""
        answers: dict[str, list[Report] | Lost] = {}
        kill_at_ns = kill_at_ns or {}
        while waiting := [job for job in jobs if job not in answers]:
            now_ns = time.monotonic_ns()
            for job in waiting:
                if self._gangs[job].fault:
                    answers[job] = self._lose(job, self._gangs[job].fault, crashed=True)
                elif job in kill_at_ns and now_ns >= kill_at_ns[job]:
                    answers[job] = self._lose(job, kill_reason, crashed=False)
                elif now_ns - self._gangs[job].heard_ns > PATIENCE_S * 1e9:
                    answers[job] = self._lose(job, f"{self._silent(job)} gave no sign of life for {PATIENCE_S:g} s", crashed=True)
            waiting = [job for job in waiting if job not in answers]
            nap_s = min([_NAP_S, *((kill_at_ns[job] - now_ns) / 1e9 for job in waiting if job in kill_at_ns)])
            for job in self._listen(waiting, nap_s):
                answers[job] = [report for report in self._gangs[job].reports if report is not None]
        return answers

    def end(self, job: str) -> None:
        """End the processes of `job`, if any, at once."""
        gang = self._gangs.pop(job, None)
        if gang is not None:
            for worker in gang.workers:
                worker.kill()
            gang.rendezvous.unlink(missing_ok=True)

    def close(self) -> None:
        """End every process. Safe to call twice."""
        for job in list(self._gangs):
            self.end(job)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, lease: Lease, checkpoint: str) -> None:
        job = self._jobs[lease.job]
        self._check_mix(lease)
        self._folder.mkdir(parents=True, exist_ok=True)
        rendezvous = self._folder / f"lease-{self._num_started}"
        self._num_started += 1
        gang = self._gangs[lease.job] = _Gang(lease, [], rendezvous, [])
        for rank, device in enumerate(lease.devices):
            kind = self._kind_of[device]
            sheet = self._cluster.sheets[kind]
            start = Start(
                job=job.name, program=job.program, seed=job_seed(self._seed, job), rank=rank, world_size=job.gang, device=device,
                kind=kind, checkpoint=checkpoint, rendezvous=str(rendezvous), native=sheet.native,
                cuda_index=self._cluster.cuda_indices.get(device, 0),
                busy_fraction=sheet.busy_fraction if sheet.native else 1.0,
            )  # fmt: skip
            name = f"job {job.name} rank {rank} on {device}"
            gang.workers.append(self._launcher.start(name, self._entry, (start,), worker_env(sheet.native)))

    def _check_mix(self, lease: Lease) -> None:
        """Raise ConfigError for a gang of several kinds that could not exchange gradients."""
        if lease.mix and len({self.torch_device(device).partition(":")[0] for device in lease.devices}) > 1:
            kinds = " and ".join(sorted({self._kind_of[device] for device in lease.devices}))
            raise ConfigError("system.cross_kind", True, f"job {lease.job} would train on {kinds} at once: GPUs and CPUs are no one gang")

    def _listen(self, jobs: Sequence[str], nap_s: float) -> list[str]:
        """Read what has come within `nap_s`; the jobs whose last report is in."""
        of = {id(worker): (job, rank) for job in jobs for rank, worker in enumerate(self._gangs[job].workers)}
        silent = [self._gangs[job].workers[rank] for job, rank in of.values() if self._gangs[job].reports[rank] is None]
        done = []
        for worker in self._launcher.wait(silent, max(0.0, nap_s)) if silent else ():
            job, rank = of[id(worker)]
            gang = self._gangs[job]
            try:
                message = worker.recv(PATIENCE_S)
            except EngineError as error:
                gang.fault = gang.fault or _blame(self._launcher, worker, [other for other in gang.workers if other is not worker], error)
                continue
            gang.heard_ns = time.monotonic_ns()
            if isinstance(message, Beat):
                gang.steps = max(gang.steps, message.steps)
            else:
                gang.reports[rank] = message
                if all(gang.reports):
                    done.append(job)
        return done

    def _lose(self, job: str, reason: str, crashed: bool) -> Lost:
        gang = self._gangs[job]
        made = [report.steps for report in gang.reports if report is not None]
        self.end(job)
        return Lost(reason, time.monotonic_ns(), max([gang.steps, *made]), crashed)

    def _silent(self, job: str) -> str:
        gang = self._gangs[job]
        return next(worker.name for worker, report in zip(gang.workers, gang.reports, strict=True) if report is None)


def job_seed(seed: int, job: Job) -> int:
    """What the weights and data of `job` are drawn from in a run of `seed`, whatever the scheduler."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{job.name}".encode()).digest()[:4], "little") >> 1


def _blame(launcher: Launcher, worker: Worker, others: list[Worker], error: EngineError) -> str:
    """Whom to name for the loss of `worker`: where a rank is killed its peers fail as well, and may be heard of first. So a failure waits
    for a moment whether another rank turns out to have died."""
    deadline_s = time.monotonic() + _BLAME_S
    while _RAISED in str(error) and others and (left_s := deadline_s - time.monotonic()) > 0:
        for other in launcher.wait(others, left_s):
            try:
                other.recv(0)
            except EngineError as its:
                others.remove(other)
                if _RAISED not in str(its):
                    return str(its)
    return str(error)
