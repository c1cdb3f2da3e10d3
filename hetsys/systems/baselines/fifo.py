"""First in, first out: jobs start in order of arrival, each on the fastest kind with room, and keep their devices to the end."""

from __future__ import annotations

from collections.abc import Iterable
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
        users = job_users(view)
        live = {job.name: job for job in view.jobs}
        return allocate(_Queue(tuple(live[name] for name in users.names)), users, uncached(memo), keep="all", fill=False)


@dataclass(frozen=True)
class _Queue:
    """The rule for one moment."""

    jobs: tuple[JobView, ...]

    def shares(self, users: Users) -> Shares:
        devices, left = np.zeros(users.speed.shape), users.capacity.copy()

        def start(index: int, kinds: Iterable[int]) -> bool:
            gang = users.demand[index]
            room = [kind for kind in kinds if users.speed[index, kind] > 0 and gang <= left[kind]]
            if room:
                kind = max(room, key=lambda kind: users.speed[index, kind])
                devices[index, kind] = gang
                left[kind] -= gang
            return bool(room)

        queue = sorted(range(len(self.jobs)), key=lambda index: (self.jobs[index].arrival_s, index))
        held = {index: self.jobs[index].held_kind for index in queue}
        running = {index for index in queue if held[index] >= 0 and start(index, [held[index]])}
        fits = np.any((users.speed > 0) & (users.demand[:, None] <= users.capacity), axis=1, keepdims=True)
        for index in queue:
            if index not in running and fits[index, 0] and not start(index, range(len(left))):
                break
        return Shares(devices)
