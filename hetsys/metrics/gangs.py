"""Where gangs sat: across hosts, across kinds of device, and the speed that waiting for the slowest device cost them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hetsys.core.scheduling.record import Grant, JobRecord, RoundRecord
from hetsys.metrics.common import Number, ratio


def gang_figures(rounds: Sequence[RoundRecord], jobs: Sequence[JobRecord]) -> dict[str, Number]:
    """`cross_host_gangs_fraction`, `cross_kind_gangs_fraction`: of the leases of more than one device, those on several hosts, on several
    kinds. `straggler_loss`: of what the devices of gangs on several kinds would have made at their own speeds, the part that they did not
    make because a gang runs at the pace of its slowest device (held device time is the weight). None where there is no such lease.
    """
    gangs = [grant for record in rounds for grant in record.grants if len(grant.devices) > 1]
    mixed = sum(bool(grant.mix) for grant in gangs)
    return {
        "cross_host_gangs_fraction": ratio(sum(grant.spans_nodes for grant in gangs), len(gangs)),
        "cross_kind_gangs_fraction": ratio(mixed, len(gangs)),
        "straggler_loss": _straggler_loss(rounds, jobs) if mixed else None,
    }


def _straggler_loss(rounds: Sequence[RoundRecord], jobs: Sequence[JobRecord]) -> float | None:
    of_job = {job.job: (job.tenant, job.job_type, job.gang) for job in jobs}
    possible = lost = 0.0
    for record in rounds:
        mixed = [grant for grant in record.grants if grant.mix]
        speeds = {user.user: user.speeds for user in record.users} if mixed else {}
        for grant in mixed:
            whole, slowest = _worth(grant, speeds.get("/".join(map(str, of_job[grant.job])), ()))
            possible += whole * grant.held_s
            lost += (whole - slowest) * grant.held_s
    return ratio(lost, possible)


def _worth(grant: Grant, speeds: Sequence[float]) -> tuple[float, float]:
    """(what the devices are worth at their own speeds, what they make at the slowest one's); nothing where the speeds are not known."""
    held = [(count, speed) for count, speed in zip(grant.mix, speeds, strict=False) if count]
    if not held:
        return 0.0, 0.0
    return sum(count * speed for count, speed in held), len(grant.devices) * min(speed for _, speed in held)


def devices_by_kind(grant: Grant, kinds: Sequence[str]) -> Mapping[str, int]:
    """How many devices of each of `kinds` a lease holds, without those of which it holds none."""
    if grant.mix:
        return {kind: count for kind, count in zip(kinds, grant.mix, strict=True) if count}
    return {grant.kind: len(grant.devices)}
