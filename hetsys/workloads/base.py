"""What every scheduling workload has: rounds, restart cost and device failures, with one way to turn jobs into a trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hetsys.core.cluster import Cluster
from hetsys.core.scheduling.trace import DeviceFailure, Job, JobTrace, Tenant
from hetsys.workloads.streams import stream
from hetsys.workloads.tables import as_integer, as_number

DAY_S = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """The fields that all scheduling workloads share.

    `round_s` is the length of a lease (Gavel: 360 s), `restart_s` what a job loses when it starts on devices that it did not hold
    (our choice), `max_rounds` ends a run that does not end by itself. Each device fails `failures_per_device_day` times a day of
    service (exponential gaps) and is back after `repair_s`. `learns`: speeds measured in leases replace what the scheduler was told.
    A job whose own processes die `max_crashes` times in a row without progress is parked.
    """

    round_s: float = 360.0
    restart_s: float = 20.0
    max_rounds: int = 100_000
    failures_per_device_day: float = 0.0
    repair_s: float = 3600.0
    learns: bool = False
    max_crashes: int = 3

    def __post_init__(self) -> None:
        as_number("workload.round_s", self.round_s, at_least=1e-3)
        if self.restart_s is not None:  # a workload that has it measured begins with None
            as_number("workload.restart_s", self.restart_s)
        as_integer("workload.max_rounds", self.max_rounds, at_least=1)
        as_number("workload.failures_per_device_day", self.failures_per_device_day)
        as_number("workload.repair_s", self.repair_s, at_least=1e-3)
        as_integer("workload.max_crashes", self.max_crashes, at_least=1)

    @property
    def seeded(self) -> bool:
        """Whether seeds give different traces; where they do not, a sweep over seeds is one run a system."""
        return True

    @property
    def notice(self) -> str:
        """One sentence that belongs beside every number of this workload, or nothing."""
        return ""

    def _failures(self, seed: int, cluster: Cluster) -> tuple[DeviceFailure, ...]:
        """Failures up to the last round, in order of time. A device's failures do not depend on the other devices."""
        made: list[DeviceFailure] = []
        horizon_s = self.max_rounds * self.round_s
        for device in cluster.devices if self.failures_per_device_day > 0 else ():
            rng = stream(seed, f"failures/{device.name}")
            at_s = 0.0
            while (at_s := at_s + rng.exponential(DAY_S / self.failures_per_device_day)) < horizon_s:
                made.append(DeviceFailure(device.name, at_s, self.repair_s))
                at_s += self.repair_s
        return tuple(sorted(made, key=lambda failure: (failure.at_s, failure.device)))

    def _trace(
        self,
        tenants: Iterable[Tenant],
        jobs: Iterable[Job],
        failures: tuple[DeviceFailure, ...],
        provenance: str,
        data_sha256: Mapping[str, str],
    ) -> JobTrace:
        """Jobs in order of arrival; jobs that arrive together keep their order."""
        in_order = tuple(sorted(jobs, key=lambda job: job.arrival_s))
        return JobTrace(
            tuple(tenants), in_order, failures, self.round_s, self.restart_s, self.max_rounds, provenance, dict(data_sha256),
            self.learns, self.max_crashes,
        )  # fmt: skip
