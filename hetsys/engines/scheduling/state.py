"""The bookkeeping of a scheduling run: who is live, who holds what, what each round achieved. No tensor, no clock, no policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hetsys.core.cluster import Cluster, Device
from hetsys.core.scheduling.admission import AdmittedJob, admit
from hetsys.core.scheduling.isolated import isolated_jcts, isolated_rates
from hetsys.core.scheduling.place import place
from hetsys.core.scheduling.plan import Allocation, Lease, LeaseOutcome, RoundOutcome, RoundPlan
from hetsys.core.scheduling.record import Grant, JobRecord, ParkedRecord, RoundRecord, SchedulingRecord, UserShare
from hetsys.core.scheduling.rounding import Credits, round_gangs
from hetsys.core.scheduling.speeds import SpeedBook
from hetsys.core.scheduling.trace import JobTrace
from hetsys.core.scheduling.users import users_of
from hetsys.core.scheduling.view import ClusterView, JobView, TenantView

NS = 1_000_000_000


def to_ns(seconds: float) -> int:
    return round(seconds * NS)


@dataclass
class LiveJob:
    """What the scheduler remembers of a job between rounds."""

    admitted: AdmittedJob
    steps_left: int
    held: tuple[Device, ...] = ()
    start_ns: int | None = None
    rounds_held: int = 0
    lost_steps: int = 0
    restarts: int = 0
    preemptions: int = 0
    crashes: int = 0
    crashes_in_row: int = 0
    isolated_s: float = 0.0


class SchedulingState:
    """Pure state; `check()` holds its invariants. All times are integer nanoseconds of device time."""

    def __init__(self, trace: JobTrace, cluster: Cluster) -> None:
        self.trace, self.cluster = trace, cluster
        admitted, self.parked = admit(trace, cluster)
        self.tenants = {tenant.name: tenant for tenant in trace.tenants}
        self.coming = sorted(admitted, key=lambda item: item.job.arrival_s, reverse=True)
        self.live: dict[str, LiveJob] = {}
        self.now_ns = 0
        self.index = 0
        self.down: frozenset[str] = frozenset()
        self.speeds = SpeedBook(cluster.kinds, trace.learns)
        self._credits: Credits = {}
        self._placed: dict[str, tuple[Device, ...]] = {}
        self._kind_index = {kind: index for index, kind in enumerate(cluster.kinds)}
        self._isolated = self._isolated_jcts(admitted)
        self._shares: tuple[object, tuple[UserShare, ...]] | None = None

    @property
    def pending(self) -> bool:
        """Whether anything is left to do and rounds are left to do it in."""
        return bool(self.live or self.coming) and self.index < self.trace.max_rounds

    def open_round(self, down: frozenset[str]) -> list[SchedulingRecord]:
        """Let go who leaves, admit who has arrived, note what is up. Returns the records of those who are gone."""
        self.down = down
        gone = [job for job in self.live.values() if self._has_left(job.admitted.job.tenant)]
        records: list[SchedulingRecord] = [self._leave(job, "withdrawn", None) for job in gone]
        while self.coming and to_ns(self.coming[-1].job.arrival_s) <= self.now_ns:
            item = self.coming.pop()
            if self._has_left(item.job.tenant):
                records.append(ParkedRecord(item.job.tenant, item.job.name, "arrives when its tenant has left"))
            else:
                self.live[item.job.name] = LiveJob(item, item.job.num_steps)
        return records

    def skip_idle(self) -> None:
        """Nobody is live: jump to the first round boundary at which somebody has arrived."""
        round_ns = to_ns(self.trace.round_s)
        if self.coming:
            self.now_ns = max(self.now_ns, -(-to_ns(self.coming[-1].job.arrival_s) // round_ns) * round_ns)

    def view(self) -> ClusterView:
        """The snapshot that a policy decides on. Kinds with fewer devices up than a gang needs count as unsupported for now."""
        capacity = self._capacity()
        by_tenant: dict[str, list[JobView]] = {}
        for job in self.live.values():
            spec = job.admitted.job
            speeds = self.speeds.of(job.admitted)
            if self.down:
                speeds = tuple(speed if spec.gang <= up else 0.0 for speed, up in zip(speeds, capacity, strict=True))
            if not self.down or any(speeds):
                known = (spec.name, spec.tenant, spec.job_type, spec.gang, speeds, job.steps_left, spec.arrival_s, job.rounds_held)
                held_kind = self._kind_index[job.held[0].kind] if job.held else -1
                measured = self.speeds.measured(job.admitted)
                by_tenant.setdefault(spec.tenant, []).append(JobView(*known, job.restarts, held_kind, measured, job.isolated_s))
        tenants = tuple(
            TenantView(name, tenant.weight, tuple(by_tenant[name])) for name, tenant in self.tenants.items() if name in by_tenant
        )
        return ClusterView(self.now_ns / NS, self.trace.round_s, self.cluster.kinds, capacity, tenants, self.trace.restart_s)

    def delay(self, seconds: float) -> None:
        """Let device time pass before the next round starts: a decision that was charged."""
        self.now_ns += to_ns(seconds)

    def plan(self, allocation: Allocation, view: ClusterView) -> RoundPlan:
        """Whole gangs on devices: gang credits, then the one placer."""
        held = {name: self._kind_index[job.held[0].kind] for name, job in self.live.items() if job.held}
        sticky = self.trace.restart_s / self.trace.round_s
        grants, self._credits = round_gangs(allocation, view, self._credits, held, sticky)
        up = [device for device in self.cluster.devices if device.name not in self.down]
        self._placed = place(grants, up, self.cluster.kinds, {name: job.held for name, job in self.live.items()})
        leases = tuple(self._lease(name, devices) for name, devices in self._placed.items())
        return RoundPlan(self.index, self.now_ns, to_ns(self.trace.round_s), to_ns(self.trace.restart_s), leases)

    def apply(
        self, allocation: Allocation, view: ClusterView, plan: RoundPlan, outcome: RoundOutcome, policy_s: float
    ) -> Iterator[SchedulingRecord]:
        """Take in what a round achieved; yields its record, then one for each job that finished in it or has crashed too often."""
        leases = {lease.job: lease for lease in plan.leases}
        for name, job in self.live.items():
            if name not in leases and job.held:
                job.preemptions += 1
                job.held = ()
        waiting = len(self.live) - len(leases)
        grants, progress = [], dict.fromkeys((tenant.name for tenant in view.tenants), 0.0)
        finished: list[tuple[LiveJob, int]] = []
        parked: list[tuple[LiveJob, str]] = []
        users = self._user_shares(allocation, view)
        isolated = isolated_rates(view)
        for result in outcome.leases:
            lease, job = leases[result.job], self.live[result.job]
            tenant = job.admitted.job.tenant
            job.start_ns = plan.start_ns if job.start_ns is None else job.start_ns
            job.steps_left -= result.steps
            if result.steps and (rate := isolated[result.job]):
                job.isolated_s += result.steps / rate
            job.lost_steps += result.lost_steps
            job.restarts += not lease.extended and job.rounds_held > 0
            job.rounds_held += 1
            job.held = () if result.failed else self._placed[lease.job]
            progress[tenant] += result.steps / job.admitted.unit_steps_per_s
            self.speeds.observe(job.admitted, lease, result)
            if self._gives_up(job, result):
                parked.append((job, f"crashed {job.crashes_in_row} times in a row without progress; the last time: {result.reason}"))
            grants.append(
                Grant(
                    lease.job, tenant, lease.kind, lease.devices, result.steps, result.held_ns / NS,
                    result.lost_steps, not lease.extended, result.failed, lease.spans_nodes, result.crashed,
                )
            )  # fmt: skip
            if result.finish_ns is not None:
                finished.append((job, result.finish_ns))
        idle = list(view.capacity)
        for lease in plan.leases:
            idle[self._kind_index[lease.kind]] -= len(lease.devices)
        length_s = (outcome.end_ns - plan.start_ns) / NS
        yield RoundRecord(
            index=plan.index, start_s=plan.start_ns / NS, length_s=length_s, capacity=view.capacity,
            users=users, grants=tuple(grants), progress=progress, idle=tuple(idle),
            stranded=tuple(idle) if waiting else (0,) * len(idle), waiting_jobs=waiting, status=allocation.status,
            note=allocation.note, policy_s=policy_s, prices=allocation.prices, levels=allocation.levels, binding=allocation.binding,
        )  # fmt: skip
        for job, finish_ns in finished:
            yield self._leave(job, "finished", finish_ns)
        self.now_ns, self.index = outcome.end_ns, self.index + 1
        for job, reason in parked:
            yield self._leave(job, "parked", None, reason)

    def leftover(self) -> list[SchedulingRecord]:
        """Records of the jobs that were still live, or had not arrived, when the rounds ran out."""
        for item in self.coming:
            self.live.setdefault(item.job.name, LiveJob(item, item.job.num_steps))
        self.coming = []
        return [self._leave(job, "unfinished", None) for job in list(self.live.values())]

    def check(self) -> None:
        """Assert what must hold between rounds: no device held twice, none that is down, steps within bounds."""
        held = [device.name for job in self.live.values() for device in job.held]
        assert len(held) == len(set(held)), f"device held twice: {sorted(held)}"
        for job in self.live.values():
            assert 0 < job.steps_left <= job.admitted.job.num_steps, f"{job.admitted.job.name}: {job.steps_left} steps left"
            assert len(job.held) in (0, job.admitted.job.gang), f"{job.admitted.job.name} holds part of a gang"

    def _capacity(self) -> tuple[int, ...]:
        if not self.down:
            return tuple(self.cluster.num_devices_by_kind.values())
        return tuple(
            sum(d.kind == kind and d.name not in self.down for d in self.cluster.devices) for kind in self.cluster.kinds
        )

    def _has_left(self, tenant: str) -> bool:
        leaves_s = self.tenants[tenant].leaves_s
        return leaves_s is not None and to_ns(leaves_s) <= self.now_ns

    def _lease(self, name: str, devices: tuple[Device, ...]) -> Lease:
        job = self.live[name]
        index = self._kind_index[devices[0].kind]
        spans = len({device.node for device in devices}) > 1
        speed = (job.admitted.spread_speeds if spans else job.admitted.speeds)[index]
        extended = len(job.held) == len(devices) and set(job.held) == set(devices)
        return Lease(name, devices[0].kind, tuple(device.name for device in devices), speed, extended, spans)

    def _gives_up(self, job: LiveJob, result: LeaseOutcome) -> bool:
        """Count a crash, or progress, which makes up for those before; whether `job` is to be parked."""
        if result.crashed:
            job.crashes += 1
            job.crashes_in_row += 1
        elif result.steps:
            job.crashes_in_row = 0
        return job.crashes_in_row >= self.trace.max_crashes

    def _leave(self, job: LiveJob, status: str, finish_ns: int | None, reason: str = "") -> JobRecord:
        spec = job.admitted.job
        del self.live[spec.name]
        return JobRecord(
            job=spec.name, tenant=spec.tenant, job_type=spec.job_type, gang=spec.gang, status=status, arrival_s=spec.arrival_s,
            start_s=None if job.start_ns is None else job.start_ns / NS, finish_s=None if finish_ns is None else finish_ns / NS,
            left_s=max(self.now_ns / NS, spec.arrival_s) if finish_ns is None else finish_ns / NS,
            steps=spec.num_steps - job.steps_left, lost_steps=job.lost_steps, restarts=job.restarts, preemptions=job.preemptions,
            isolated_jct_s=self._isolated[spec.name], crashes=job.crashes, reason=reason,
        )  # fmt: skip

    def _isolated_jcts(self, admitted: tuple[AdmittedJob, ...]) -> dict[str, float | None]:
        by_tenant: dict[str, list[AdmittedJob]] = {}
        for item in admitted:
            by_tenant.setdefault(item.job.tenant, []).append(item)
        total = sum(self.tenants[name].weight for name in by_tenant)
        jcts: dict[str, float | None] = {}
        for name, jobs in by_tenant.items():
            share = self.tenants[name].weight / total if total else 0.0
            devices = [share * count for count in self.cluster.num_devices_by_kind.values()]
            jcts.update(isolated_jcts(jobs, devices, self.trace.round_s, self.trace.restart_s))
        return jcts

    def _user_shares(self, allocation: Allocation, view: ClusterView) -> tuple[UserShare, ...]:
        """What each user was allotted, by the true speeds; computed again only when claims, live jobs, capacity or beliefs change."""
        key = (allocation.claims, tuple(job.name for job in view.jobs), view.capacity, self.speeds.version)
        if self._shares is None or self._shares[0] != key:
            users = users_of(view)
            user_of = {job: index for index, jobs in enumerate(users.jobs) for job in jobs}
            devices = [[0.0] * len(view.kinds) for _ in users.names]
            for claim in allocation.claims:
                row = devices[user_of[claim.jobs[0]]]
                for kind, share in enumerate(claim.devices):
                    row[kind] += share
            speeds = [self._true_speeds(jobs[0], row) for jobs, row in zip(users.jobs, users.speed.tolist(), strict=True)]
            columns = (users.names, users.tenants, users.weight.tolist(), devices, speeds, users.demand.tolist())
            rows = zip(*columns, strict=True)
            self._shares = (key, tuple(UserShare(n, t, w, tuple(d), tuple(s), demand) for n, t, w, d, s, demand in rows))
        return self._shares[1]

    def _true_speeds(self, job: str, believed: Sequence[float]) -> Sequence[float]:
        """The normalised speeds of `job` as devices run it, 0 where the scheduler believes 0: what fairness is judged by."""
        true = tuple(speed if seen else 0.0 for speed, seen in zip(self.live[job].admitted.speeds, believed, strict=True))
        slowest = next(speed for speed in true if speed > 0)
        return [speed / slowest for speed in true]
