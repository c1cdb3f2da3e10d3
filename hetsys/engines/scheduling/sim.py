"""The simulated executor: what a round of leases achieves, in integer nanoseconds and whole steps, without running anything."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from hetsys.core.scheduling.plan import Lease, LeaseOutcome, RoundOutcome, RoundPlan
from hetsys.core.scheduling.trace import JobTrace
from hetsys.engines.scheduling.state import NS, to_ns


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
        self._outages: dict[str, list[tuple[int, int]]] = {}
        for failure in sorted(trace.failures, key=lambda failure: failure.at_s):
            start_ns, end_ns = to_ns(failure.at_s), to_ns(failure.at_s + failure.down_s)
            spans = self._outages.setdefault(failure.device, [])
            if spans and start_ns <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(spans[-1][1], end_ns))
            else:
                spans.append((start_ns, end_ns))

    def down_at(self, now_ns: int) -> frozenset[str]:
        return frozenset(name for name, spans in self._outages.items() if _covers(spans, now_ns))

    def round(self, plan: RoundPlan) -> RoundOutcome:
        end_ns = plan.start_ns + plan.length_ns
        outcomes = tuple(self._run(lease, plan, end_ns) for lease in plan.leases)
        return RoundOutcome(end_ns, outcomes, self.down_at(end_ns))

    def close(self) -> None:
        """Nothing to release."""

    def _run(self, lease: Lease, plan: RoundPlan, end_ns: int) -> LeaseOutcome:
        job = self._progress[lease.job]
        step_ns = max(1, round(NS / lease.steps_per_s))
        if not lease.extended:
            job.carry_ns = 0
        began_ns = plan.start_ns + (0 if lease.extended else plan.restart_ns) - job.carry_ns
        fails_ns = self._first_failure(lease, plan.start_ns, end_ns)
        stop_ns = end_ns if fails_ns is None else fails_ns
        steps = max(0, stop_ns - began_ns) // step_ns
        if steps >= job.steps_left:
            finish_ns = began_ns + job.steps_left * step_ns
            steps, job.steps_left = job.steps_left, 0
            return LeaseOutcome(lease.job, steps, finish_ns, False, 0, finish_ns - plan.start_ns)
        if fails_ns is not None:
            job.carry_ns = 0
            return LeaseOutcome(lease.job, 0, None, True, steps, fails_ns - plan.start_ns, "a device failed")
        job.steps_left -= steps
        job.carry_ns = max(0, end_ns - began_ns) - steps * step_ns
        return LeaseOutcome(lease.job, steps, None, False, 0, plan.length_ns)

    def _first_failure(self, lease: Lease, start_ns: int, end_ns: int) -> int | None:
        starts = []
        for name in lease.devices:
            spans = self._outages.get(name, ())
            next_one = bisect_right(spans, start_ns, key=_start)
            if next_one < len(spans) and spans[next_one][0] < end_ns:
                starts.append(spans[next_one][0])
        return min(starts, default=None)


def _start(span: tuple[int, int]) -> int:
    return span[0]


def _covers(spans: Sequence[tuple[int, int]], now_ns: int) -> bool:
    """Whether one of `spans` (sorted, disjoint) holds `now_ns`."""
    index = bisect_right(spans, now_ns, key=_start)
    return index > 0 and now_ns < spans[index - 1][1]


