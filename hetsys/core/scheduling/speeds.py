"""What the scheduler believes of the jobs' speeds: what it was told and, where it learns, what their leases have shown since."""

from __future__ import annotations

from collections.abc import Sequence

from hetsys.core.scheduling.admission import AdmittedJob
from hetsys.core.scheduling.plan import Lease, LeaseOutcome

NEW_WEIGHT = 0.3
"""The weight of a new measurement in the moving average of those before (our choice: ten rounds forget all but 3 % of an old one)."""

_Key = tuple[str, int, str, bool]


class SpeedBook:
    """Believed speeds by (job type, gang, kind, whether the gang spans hosts): jobs that agree in these are taken to be equally fast.

    The first measurement replaces what the scheduler was told, each later one moves it by `NEW_WEIGHT` of the difference. Only steps that
    were made count, so a lease that was lost while it started changes nothing. `version` counts the changes of what is believed,
    `changes` those of what was measured.
    """

    def __init__(self, kinds: Sequence[str], learns: bool) -> None:
        self.version = self.changes = 0
        self._kinds, self._learns = tuple(kinds), learns
        self._measured: dict[_Key, float] = {}

    def of(self, item: AdmittedJob) -> tuple[float, ...]:
        """Steps/s of the gang on each kind where it is placed as well as that kind's hosts allow; 0 where it was told to be 0."""
        if not (self._learns and self._measured):
            return item.told
        pairs = zip(self.measured(item), item.told, strict=True)
        return tuple(measured or told if told else 0.0 for measured, told in pairs)

    def measured(self, item: AdmittedJob) -> tuple[float, ...]:
        """Steps/s of the gang on each kind as its leases, or those of its like, showed them; 0 where there were none."""
        keys = ((item.job.job_type, item.job.gang, kind, spans) for kind, spans in zip(self._kinds, item.must_span, strict=True))
        return tuple(self._measured.get(key, 0.0) for key in keys)

    def observe(self, item: AdmittedJob, lease: Lease, outcome: LeaseOutcome) -> None:
        """Take in what a lease of `item` showed: its steps, kept or lost, in the time that they took."""
        steps = outcome.lost_steps if outcome.failed else outcome.steps
        if lease.mix or not (steps and outcome.stepping_ns):
            return
        steps_per_s = 1e9 / (outcome.stepping_ns / steps)  # equal steps give equal speeds, to the last digit
        key = (item.job.job_type, item.job.gang, lease.kind, lease.spans_nodes)
        before = self._measured.get(key)
        after = steps_per_s if before is None else before + NEW_WEIGHT * (steps_per_s - before)
        if after != before:
            self._measured[key] = after
            self.changes += 1
            self.version += self._learns
