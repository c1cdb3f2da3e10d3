"""A drill for schedulers: a trace in which everything happens that can, processes that fall, and what must hold in each round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from hetsys.core.cluster import Cluster
from hetsys.core.scheduling.credit import OVERDUE
from hetsys.core.scheduling.plan import Allocation, LeaseOutcome, RoundOutcome, RoundPlan, SchedulingExecutor, SchedulingPolicy
from hetsys.core.scheduling.record import SchedulingRecord
from hetsys.core.scheduling.trace import DeviceFailure, Job, JobTrace, Tenant
from hetsys.core.scheduling.turns import LATE_TURNS
from hetsys.core.scheduling.view import ClusterView
from hetsys.engines.scheduling.sim import SimExecutor
from hetsys.engines.scheduling.state import NS, SchedulingState
from tests.engines.builders import cluster
from tests.engines.fakes import falls

MACHINE = cluster(slow=(2, 2), mid=(1, 4), fast=(2, 2))
ODD = cluster(slow=(1, 3), mid=(1, 3), fast=(1, 3))
"""Gangs of 2 leave one device of each kind, so that some can only run on two kinds."""
WIDE = cluster(slow=(3, 4), mid=(2, 8), fast=(5, 8))
"""12, 16 and 40 devices: gangs of 8 beside others, and more than one of them on a kind."""
ROUND_S = 100.0


def drill_trace(
    seed: int, rounds: int, machine: Cluster = MACHINE, gangs: Sequence[int] = (1, 1, 1, 2, 2, 4), per_round: float = 1.25
) -> JobTrace:
    """Six tenants of other weights, one of weight 0, who come and go, more jobs than devices (`per_round` jobs for each round), and devices
    that fail for up to 9 rounds."""
    random = Random(seed)
    span_s = rounds * ROUND_S
    leaves = {1: 0.6, 4: 0.75}
    tenants = tuple(Tenant(f"t{i}", [1.0, 2.0, 1.0, 0.5, 1.0, 0.0][i], leaves[i] * span_s if i in leaves else None) for i in range(6))
    comes = [0.0, 0.0, 0.0, 0.25, 0.4, 0.0]
    speeds = [(1.0, random.uniform(1.1, 2.0), random.uniform(1.2, 4.0)) for _ in range(4)]
    jobs: list[Job] = []
    for index in range(int(rounds * per_round)):
        tenant, gang = random.randrange(6), random.choice(gangs)
        kind = random.choice([tenant, tenant + 1]) % 4
        base = 0.4 * gang**0.9
        steps_per_s = {name: base * speed for name, speed in zip(machine.kinds, speeds[kind], strict=True)}
        if kind == 3 and gang > 1:
            steps_per_s["slow"] = 0.0
        arrival_s = (comes[tenant] + random.choice([0.0, 1.0, 1.0]) * random.uniform(0, 0.97 - comes[tenant])) * span_s
        steps = max(1, int(0.4 * ROUND_S * random.uniform(2, 26)))
        spread = {name: 0.7 * speed for name, speed in steps_per_s.items()}
        jobs.append(Job(f"j{index}", f"t{tenant}", f"type{kind}", gang, steps, arrival_s, steps_per_s, spread, program="conv/tiny"))
    failures = tuple(
        DeviceFailure(random.choice(machine.devices).name, random.uniform(0, span_s), random.uniform(0.3, 9) * ROUND_S)
        for _ in range(rounds // 6)
    )
    return JobTrace(tenants, tuple(jobs), failures, round_s=ROUND_S, restart_s=10.0, max_rounds=rounds)


class FallingExecutor(SimExecutor):
    """A simulated executor in which processes fall as `falls` says; the lease is then lost at its end, and the job stands where it stood
    when the round began. `truth[job]`: the steps that stand; `trace_steps[job]`: those it has in all."""

    def __init__(self, trace: JobTrace) -> None:
        super().__init__(trace)
        self.truth = dict.fromkeys((job.name for job in trace.jobs), 0)
        self.trace_steps = {job.name: job.num_steps for job in trace.jobs}
        self._fell: set[tuple[str, int]] = set()

    def round(self, plan: RoundPlan) -> RoundOutcome:
        done = super().round(plan)
        return replace(done, leases=tuple(self._fall(outcome) for outcome in done.leases))

    def _fall(self, outcome: LeaseOutcome) -> LeaseOutcome:
        made, first = outcome.lost_steps if outcome.failed else outcome.steps, self.truth[outcome.job]
        for step in range(first, first + made):
            if falls(outcome.job, step) and (outcome.job, step) not in self._fell:
                self._fell.add((outcome.job, step))
                self.undo(outcome.job)
                lost = replace(outcome, steps=0, finish_ns=None, failed=True, lost_steps=made, stepping_ns=0)
                return replace(lost, reason="fell", crashed=True)
        self.truth[outcome.job] += outcome.steps
        return outcome


BOUND = 8.0
"""The gangs that a job may be entitled to while it waits, of its claim's share for each of the claim's jobs: of 26 systems and 5 seeds the
worst measured 5.7."""


@dataclass
class Watch:
    """What must hold in each round; `most` collects how close it came.

    Waiting, under gang credits, is bounded by proof (see `core.scheduling.credit` and `turns`): a claim is overdue when it has been
    entitled to `OVERDUE` gangs (at most one a round) without running, and runs within as many rounds more as there are claims. Under
    either rule a job runs before its claim has granted others `LATE_TURNS` gangs for each of its jobs, those of the round in which that
    happens, and one for each job that is late before it: `LATE_TURNS` + 2, and one more here, as claims may shrink meanwhile.
    `BOUND` is tighter, for every job with a part of its claim's share, and measured. Tenants of weight 0 have no claim.
    """

    trace: JobTrace
    machine: Cluster
    left: dict[str, int] = field(init=False)
    lost: Counter[str] = field(default_factory=Counter)
    waits: dict[str, float] = field(default_factory=dict)
    entitled: dict[str, float] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    shareless: dict[str, int] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("claim", "passed", "entitled", "rounds", "shareless"), 0.0))
    num_leases: int = 0
    num_crashes: int = 0
    num_mixed: int = 0

    def __post_init__(self) -> None:
        self.left = {job.name: job.num_steps for job in self.trace.jobs}

    def check_allocation(self, allocation: Allocation, view: ClusterView) -> None:
        """Within what is up and what the jobs can hold; for the living only."""
        assert allocation.status in ("rule", "optimal"), allocation.note
        jobs = {job.name: job for job in view.jobs}
        shares = np.array([claim.devices for claim in allocation.claims]).reshape(-1, len(view.kinds))
        assert (shares >= 0).all() and (shares.sum(axis=0) <= np.array(view.capacity) * (1 + 1e-9)).all()
        for claim in allocation.claims:
            assert sum(claim.devices) <= sum(jobs[name].gang for name in claim.jobs) * (1 + 1e-6)

    def check_plan(self, plan: RoundPlan, view: ClusterView, down: frozenset[str]) -> None:
        """No device twice, none that is down; whole gangs, of one kind or as `mix` says, where the job runs."""
        kind_of = {device.name: device.kind for device in self.machine.devices}
        gangs = {job.name: job.gang for job in view.jobs}
        busy = [name for lease in plan.leases for name in lease.devices]
        assert len(busy) == len(set(busy)) and not set(busy) & down
        assert len({lease.job for lease in plan.leases}) == len(plan.leases)
        for lease in plan.leases:
            assert len(lease.devices) == gangs[lease.job] and lease.steps_per_s > 0
            held = Counter(kind_of[name] for name in lease.devices)
            assert held == Counter(dict(zip(view.kinds, lease.mix, strict=True)) if lease.mix else {lease.kind: len(lease.devices)})
        per_kind = Counter(kind_of[name] for name in busy)
        assert all(per_kind[kind] <= up for kind, up in zip(view.kinds, view.capacity, strict=True))

    def check_outcome(self, plan: RoundPlan, outcome: RoundOutcome, state: SchedulingState) -> None:
        """A round that is lost costs what was made in it and no more; any other never takes a step back. The books agree."""
        for lease, result in zip(plan.leases, outcome.leases, strict=True):
            assert 0 <= result.steps <= self.left[lease.job] and (not result.failed or result.steps == 0)
            assert result.failed or result.lost_steps == 0
            assert result.lost_steps <= lease.steps_per_s * plan.length_ns / NS + 1, "lost more than one round can make"
            self.left[lease.job] -= result.steps
            self.lost[lease.job] += result.lost_steps
            assert (result.finish_ns is not None) == (self.left[lease.job] == 0)
            self.num_leases, self.num_crashes = self.num_leases + 1, self.num_crashes + result.crashed
            self.num_mixed += bool(lease.mix)
        for name, live in state.live.items():
            assert (live.steps_left, live.lost_steps) == (self.left[name], self.lost[name])

    def check_waiting(self, allocation: Allocation, plan: RoundPlan, view: ClusterView, passed: Mapping[str, float]) -> None:
        gangs, ran = {job.name: job.gang for job in view.jobs}, {lease.job for lease in plan.leases}
        owners = [tenant for tenant in view.tenants if tenant.weight > 0]
        shares = {name: sum(claim.devices) for claim in allocation.claims for name in claim.jobs}
        waiting = [job.name for owner in owners for job in owner.jobs if job.name not in ran]
        self.rounds = {name: self.rounds.get(name, 0) + 1 for name in waiting}
        self.shareless = {name: self.shareless.get(name, 0) + 1 for name in waiting if shares.get(name, 0.0) < 1e-9}
        waits, entitled = {}, {}
        for claim in allocation.claims:
            part = min(1.0, sum(claim.devices) / min(gangs[name] for name in claim.jobs))
            turns = sum(name in ran for name in claim.jobs)
            if not turns:
                wait = self.waits.get(claim.name, 0.0)
                waits[claim.name] = wait + (1.0 if part and wait >= OVERDUE - 1e-9 else part)
                assert allocation.rounding == "deviation" or waits[claim.name] <= OVERDUE + 1 + len(allocation.claims)
            for name in set(claim.jobs) - ran:
                entitled[name] = self.entitled.get(name, 0.0) + part / len(claim.jobs)
                assert entitled[name] <= BOUND
        self.waits, self.entitled = waits, entitled
        assert all(turns <= LATE_TURNS + 3 for turns in passed.values())
        for name, values in (
            ("claim", waits),
            ("passed", passed),
            ("entitled", entitled),
            ("rounds", self.rounds),
            ("shareless", self.shareless),
        ):
            self.most[name] = max([self.most[name], *values.values()])


def drill(
    trace: JobTrace, policy: SchedulingPolicy, executor: SchedulingExecutor, machine: Cluster = MACHINE
) -> tuple[list[SchedulingRecord], Watch]:
    """Run `trace` as `loop.run` does, under watch."""
    state, memo, watch = SchedulingState(trace, machine), None, Watch(trace, machine)
    records: list[SchedulingRecord] = list(state.parked)
    while state.pending:
        records += state.open_round(executor.down_at(state.now_ns))
        if not state.live:
            state.skip_idle()
            continue
        view = state.view()
        allocation, memo = policy.allocate(view, memo)
        watch.check_allocation(allocation, view)
        plan = state.plan(allocation, view)
        watch.check_plan(plan, view, state.down)
        outcome = executor.round(plan)
        records += state.apply(allocation, view, plan, outcome, 0.0)
        state.check()
        watch.check_outcome(plan, outcome, state)
        watch.check_waiting(allocation, plan, view, state._carried.passed)
    return records + state.leftover(), watch
