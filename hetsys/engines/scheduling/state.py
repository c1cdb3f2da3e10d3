"""The bookkeeping of a scheduling run: who is live, who holds what, what each round achieved. No tensor, no clock, no policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from hetsys.core.cluster import Cluster, Device
from hetsys.core.scheduling.admission import AdmittedJob, admit
from hetsys.core.scheduling.isolated import isolated_jcts, isolated_rate
from hetsys.core.scheduling.place import place
from hetsys.core.scheduling.plan import Allocation, Lease, LeaseOutcome, RoundOutcome, RoundPlan
from hetsys.core.scheduling.record import Grant, JobRecord, ParkedRecord, RoundRecord, SchedulingRecord, UserShare
from hetsys.core.scheduling.rounding import round_gangs
from hetsys.core.scheduling.speeds import SpeedBook
from hetsys.core.scheduling.trace import JobTrace
from hetsys.core.scheduling.turns import Carried
from hetsys.core.scheduling.users import users_of
from hetsys.core.scheduling.view import ClusterView, JobView, TenantView

NS = 1_000_000_000

_PLACES = 9
"""Records hold shares to a billionth of a device and levels to so many digits (our choice: records of long runs stay small)."""


def to_ns(seconds: float) -> int:
    return round(seconds * NS)


@dataclass
class LiveJob:
    """What the scheduler remembers of a job between rounds. `held_kind`: of `held`, -1 where it holds nothing; `lease`: the last one;
    `seen`: what policies are shown of it, None where that has changed."""

    admitted: AdmittedJob
    steps_left: int
    held: tuple[Device, ...] = ()
    held_kind: int = -1
    lease: Lease | None = None
    seen: JobView | None = None
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
        self._carried = Carried()
        self._placed: dict[str, tuple[Device, ...]] = {}
        self._kind_index = {kind: index for index, kind in enumerate(cluster.kinds)}
        self._isolated = self._isolated_jcts(admitted)
        self._shares: tuple[object, tuple[UserShare, ...]] | None = None
        self._rounded: tuple[Allocation, Mapping[str, float]] | None = None
        self._shown: object = None

    @property
    def pending(self) -> bool:
        """Whether anything is left to do and rounds are left to do it in."""
        return bool(self.live or self.coming) and self.index < self.trace.max_rounds

    def open_round(self, down: frozenset[str]) -> list[SchedulingRecord]:
        """Let go who leaves, admit who has arrived, note what is up. Returns the records of those who are gone."""
        self.down = down
        leaving = {name for name in self.tenants if self._has_left(name)}
        gone = [job for job in self.live.values() if job.admitted.job.tenant in leaving]
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
        shown = (self.down, self.speeds.changes)
        changed, self._shown = shown != self._shown, shown
        by_tenant: dict[str, list[JobView]] = {}
        for job in self.live.values():
            if changed or job.seen is None:
                job.seen = self._job_view(job, capacity)
            if not self.down or any(job.seen.steps_per_s):
                by_tenant.setdefault(job.seen.tenant, []).append(job.seen)
        tenants = tuple(
            TenantView(name, tenant.weight, tuple(by_tenant[name])) for name, tenant in self.tenants.items() if name in by_tenant
        )
        return ClusterView(self.now_ns / NS, self.trace.round_s, self.cluster.kinds, capacity, tenants, self.trace.restart_s)

    def delay(self, seconds: float) -> None:
        """Let device time pass before the next round starts: a decision that was charged."""
        self.now_ns += to_ns(seconds)

    def plan(self, allocation: Allocation, view: ClusterView) -> RoundPlan:
        """Whole gangs on devices: as `allocation.rounding` says, then the one placer."""
        held = {name: job.held_kind for name, job in self.live.items() if job.held}
        sticky = self.trace.restart_s / self.trace.round_s
        mixes = {name: job.lease.mix for name, job in self.live.items() if job.held and job.lease and job.lease.mix}
        grants, self._carried = round_gangs(allocation, view, self._carried, held, sticky, mixes)
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
            if job.held and name not in leases:
                job.preemptions += 1
                job.held, job.held_kind, job.seen = (), -1, None
        waiting = len(self.live) - len(leases)
        grants, progress = [], dict.fromkeys((tenant.name for tenant in view.tenants), 0.0)
        finished: list[tuple[LiveJob, int]] = []
        parked: list[tuple[LiveJob, str]] = []
        users = self._user_shares(allocation, view)
        for result in outcome.leases:
            lease, job = leases[result.job], self.live[result.job]
            if result.steps and job.seen and (rate := isolated_rate(job.seen, view.capacity, len(view.jobs))):
                job.isolated_s += result.steps / rate
            progress[job.admitted.job.tenant] += result.steps / job.admitted.unit_steps_per_s
            self._take_in(job, lease, result, plan.start_ns)
            if self._gives_up(job, result):
                parked.append((job, f"crashed {job.crashes_in_row} times in a row without progress; the last time: {result.reason}"))
            grants.append(_grant(job.admitted.job.tenant, lease, result))
            if result.finish_ns is not None:
                finished.append((job, result.finish_ns))
        idle = self._idle(view.capacity, plan.leases)
        length_s = (outcome.end_ns - plan.start_ns) / NS
        yield RoundRecord(
            index=plan.index, start_s=plan.start_ns / NS, length_s=length_s, capacity=view.capacity,
            users=users, grants=tuple(grants), progress=progress, idle=idle, stranded=idle if waiting else (0,) * len(idle),
            waiting_jobs=waiting, status=allocation.status, note=allocation.note, policy_s=policy_s, prices=allocation.prices,
            levels=self._levels(allocation), binding=allocation.binding,
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

    def _job_view(self, job: LiveJob, capacity: tuple[int, ...]) -> JobView:
        spec = job.admitted.job
        speeds = self.speeds.of(job.admitted)
        if self.down:
            speeds = tuple(speed if spec.gang <= up else 0.0 for speed, up in zip(speeds, capacity, strict=True))
        known = (spec.name, spec.tenant, spec.job_type, spec.gang, speeds, job.steps_left, spec.arrival_s, job.rounds_held)
        return JobView(*known, job.restarts, job.held_kind, self.speeds.measured(job.admitted), job.isolated_s, job.admitted.told_spread)

    def _lease(self, name: str, devices: tuple[Device, ...]) -> Lease:
        """The order to hold `devices`: where they are of several kinds, at the pace of the slowest of them."""
        job = self.live[name]
        if job.lease and (devices is job.held or set(devices) == set(job.held)):
            names = job.lease.devices if devices == job.held else tuple(device.name for device in devices)
            return replace(job.lease, devices=names, extended=True)
        spans = len({device.node for device in devices}) > 1
        speeds = job.admitted.spread_speeds if spans else job.admitted.speeds
        counts = Counter(self._kind_index[device.kind] for device in devices)
        slowest = min(counts, key=lambda kind: (speeds[kind], kind))
        mix = tuple(counts[kind] for kind in range(len(speeds))) if len(counts) > 1 else ()
        names = tuple(device.name for device in devices)
        return Lease(name, self.cluster.kinds[slowest], names, speeds[slowest], False, spans, mix)

    def _take_in(self, job: LiveJob, lease: Lease, result: LeaseOutcome, start_ns: int) -> None:
        """What a lease did to its job."""
        job.start_ns = start_ns if job.start_ns is None else job.start_ns
        job.steps_left -= result.steps
        job.lost_steps += result.lost_steps
        job.restarts += not lease.extended and job.rounds_held > 0
        job.rounds_held += 1
        job.held = () if result.failed else self._placed[lease.job]
        job.held_kind = -1 if result.failed else self._kind_index[lease.kind]
        job.lease, job.seen = lease, None
        self.speeds.observe(job.admitted, lease, result)

    def _idle(self, capacity: Sequence[int], leases: Sequence[Lease]) -> tuple[int, ...]:
        """(k,): the devices that are up and under no lease."""
        idle = list(capacity)
        for lease in leases:
            for kind, count in enumerate(lease.mix) if lease.mix else [(self._kind_index[lease.kind], len(lease.devices))]:
                idle[kind] -= count
        return tuple(idle)

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
            true = (self.live[jobs[0]].admitted.speeds for jobs in users.jobs)
            speeds = [_normalised(speed, tuple(seen)) for speed, seen in zip(true, users.speed.tolist(), strict=True)]
            columns = (users.names, users.tenants, users.weight.tolist(), devices, speeds, users.demand.tolist())
            shares = (
                UserShare(name, tenant, weight, tuple(round(x, _PLACES) for x in row), speed, demand)
                for name, tenant, weight, row, speed, demand in zip(*columns, strict=True)
            )
            self._shares = (key, tuple(shares))
        return self._shares[1]

    def _levels(self, allocation: Allocation) -> Mapping[str, float]:
        """The allocation's levels, rounded; the same object for the same allocation."""
        if self._rounded is None or self._rounded[0] is not allocation:
            levels = {name: float(f"{level:.{_PLACES}g}") for name, level in allocation.levels.items()}
            self._rounded = (allocation, levels)
        return self._rounded[1]


@lru_cache(maxsize=4096)
def _normalised(true: tuple[float, ...], believed: tuple[float, ...]) -> tuple[float, ...]:
    """The normalised speeds of a job as devices run it, 0 where the scheduler believes 0: what fairness is judged by."""
    usable = [speed if seen else 0.0 for speed, seen in zip(true, believed, strict=True)]
    slowest = next(speed for speed in usable if speed > 0)
    return tuple(speed / slowest for speed in usable)


def _grant(tenant: str, lease: Lease, result: LeaseOutcome) -> Grant:
    return Grant(
        lease.job, tenant, lease.kind, lease.devices, result.steps, result.held_ns / NS, result.lost_steps, not lease.extended,
        result.failed, lease.spans_nodes, result.crashed, lease.mix,
    )  # fmt: skip
