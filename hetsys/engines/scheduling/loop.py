"""The scheduling loop, once for every system and every executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hetsys.core.cluster import Cluster
from hetsys.core.devicetime.charge import Charge
from hetsys.core.scheduling.plan import SchedulingExecutor, SchedulingPolicy
from hetsys.core.scheduling.record import SchedulingRecord
from hetsys.core.scheduling.trace import JobTrace
from hetsys.engines.scheduling.state import SchedulingState

_FREE = Charge()


def run(
    trace: JobTrace,
    cluster: Cluster,
    policy: SchedulingPolicy,
    executor: SchedulingExecutor,
    host_clock: Callable[[], float],
    charge: Charge = _FREE,
) -> Iterator[SchedulingRecord]:
    """Run `trace` to its end, yielding records as they come about. `host_clock` times the policy, in seconds; what `charge` makes of that
    passes before the round begins, devices idle. Nothing is charged by default: deciding then overlaps the round before it."""
    state, memo = SchedulingState(trace, cluster), None
    yield from state.parked
    while state.pending:
        yield from state.open_round(executor.down_at(state.now_ns))
        if not state.live:
            state.skip_idle()
            continue
        view = state.view()
        began = host_clock()
        allocation, memo = policy.allocate(view, memo)
        policy_s = host_clock() - began
        state.delay(charge.seconds(policy_s))
        plan = state.plan(allocation, view)
        outcome = executor.round(plan)
        yield from state.apply(allocation, view, plan, outcome, policy_s)
    yield from state.leftover()
