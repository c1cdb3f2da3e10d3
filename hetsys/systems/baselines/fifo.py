"""First in, first out: jobs start in order of arrival, each on the fastest kind with room, and keep their devices to the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import Users
from hetsys.core.scheduling.view import ClusterView, JobView
from hetsys.systems.shares import Shares, allocate, job_users, uncached


@dataclass(frozen=True)
class Fifo:
    """Who holds devices keeps them; of those that wait the first takes the fastest kind on which its gang has room, and nobody overtakes it
    (our choice: with overtaking large gangs might wait for ever). Where devices fail, the latest to arrive give way. Weights play no part.
    """

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        """Only jobs that run have claims, so that a round costs what runs and not what waits."""
        kinds = _started(view)
        return allocate(_Given(kinds), job_users(view, among=kinds), uncached(memo), keep="all", fill=False)


@dataclass(frozen=True)
class _Given:
    """The whole gang of each user, on the kind that was chosen for it."""

    kinds: Mapping[str, int]

    def shares(self, users: Users) -> Shares:
        devices = np.zeros(users.speed.shape)
        devices[np.arange(users.num_users), [self.kinds[name] for name in users.names]] = users.demand
        return Shares(devices)


def _started(view: ClusterView) -> dict[str, int]:
    """The jobs that run in this round, and the kind of each; without those of tenants of weight 0, who own nothing."""
    left = list(view.capacity)
    started: dict[str, int] = {}

    def start(job: JobView, kinds: range | tuple[int, ...]) -> bool:
        room = [kind for kind in kinds if job.steps_per_s[kind] > 0 and job.gang <= left[kind]]
        if room:
            started[job.name] = kind = max(room, key=lambda kind: job.steps_per_s[kind])
            left[kind] -= job.gang
        return bool(room)

    queue = sorted((job for tenant in view.tenants if tenant.weight > 0 for job in tenant.jobs), key=lambda job: job.arrival_s)
    for job in queue:
        if job.held_kind >= 0:
            start(job, (job.held_kind,))
    for job in queue:
        if job.name not in started and not start(job, range(len(left))) and _fits(job, view):
            break
    return started


def _fits(job: JobView, view: ClusterView) -> bool:
    """Whether the gang could run on what is up, were all of it free."""
    return any(speed > 0 and job.gang <= up for speed, up in zip(job.steps_per_s, view.capacity, strict=True))
