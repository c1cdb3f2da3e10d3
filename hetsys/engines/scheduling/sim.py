"""The simulated executor: what a round of leases achieves, in integer nanoseconds and whole steps, without running anything."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hetsys.core.scheduling.plan import Lease, LeaseOutcome, RoundOutcome, RoundPlan
from hetsys.core.scheduling.trace import JobTrace
from hetsys.engines.scheduling.outages import Outages
from hetsys.engines.scheduling.state import NS

_NEVER_NS = 1 << 62
DEVICE_FAILED = "a device failed"


@dataclass
class _Progress:
    """A job's own state: steps to go, and the time already spent on the step under way (kept only while its lease is extended)."""

    steps_left: int
    carry_ns: int = 0


class SimExecutor:
    """A step takes `round(1e9 / steps_per_s)` ns. A job that starts on new devices first loses `restart_ns` and the step under way. It is
    saved at the start of every round; a device that fails sets it back to there."""

    def __init__(self, trace: JobTrace) -> None:
        self._progress = {job.name: _Progress(job.num_steps) for job in trace.jobs}
        self._saved: dict[str, _Progress] = {}
        self._outages = Outages(trace.failures)

    def down_at(self, now_ns: int) -> frozenset[str]:
        return self._outages.down_at(now_ns)

    def round(self, plan: RoundPlan) -> RoundOutcome:
        end_ns = plan.start_ns + plan.length_ns
        self._saved = {lease.job: replace(self._progress[lease.job]) for lease in plan.leases}
        outcomes = tuple(self._run(lease, plan, end_ns) for lease in plan.leases)
        return RoundOutcome(end_ns, outcomes, self.down_at(end_ns))

    def undo(self, job: str) -> None:
        """Set `job` back to where it stood when the latest round began: the round was lost to it."""
        self._progress[job] = self._saved[job]

    def close(self) -> None:
        """Nothing to release."""

    def _run(self, lease: Lease, plan: RoundPlan, end_ns: int) -> LeaseOutcome:
        job = self._progress[lease.job]
        step_ns = max(1, round(NS / lease.steps_per_s)) if lease.steps_per_s > 0 else _NEVER_NS
        if not lease.extended:
            job.carry_ns = 0
        began_ns = plan.start_ns + (0 if lease.extended else plan.restart_ns) - job.carry_ns
        fails_ns = self._outages.first(lease.devices, plan.start_ns, end_ns)
        stop_ns = end_ns if fails_ns is None else fails_ns
        steps = max(0, stop_ns - began_ns) // step_ns
        if steps >= job.steps_left:
            finish_ns = began_ns + job.steps_left * step_ns
            steps, job.steps_left = job.steps_left, 0
            return LeaseOutcome(lease.job, steps, finish_ns, False, 0, finish_ns - plan.start_ns, stepping_ns=steps * step_ns)
        if fails_ns is not None:
            job.carry_ns = 0
            return LeaseOutcome(lease.job, 0, None, True, steps, fails_ns - plan.start_ns, DEVICE_FAILED, steps * step_ns)
        job.steps_left -= steps
        job.carry_ns = max(0, end_ns - began_ns) - steps * step_ns
        return LeaseOutcome(lease.job, steps, None, False, 0, plan.length_ns, stepping_ns=steps * step_ns)
