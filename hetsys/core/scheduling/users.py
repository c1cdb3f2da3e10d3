"""From live jobs to the numbers of fair division: who divides, how fast each runs on each kind, and how much each can use.

A *user* is a (tenant, job type, gang): OEF's virtual user. The users of a tenant divide its weight, so that declaring more job types gains
nothing; each takes a part in proportion to its jobs (our choice: every job of a tenant then stands for an equal part of its share, as in
`isolated`). Where a tenant has one job type and gang, user and tenant are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hetsys.core.errors import ConfigError
from hetsys.core.scheduling.view import ClusterView, JobView

Array = NDArray[np.float64]
_KEPT = "_users"


@dataclass(frozen=True)
class Users:
    """n users over k kinds.

    `speed` (n, k): normalised speed of one device (the slowest kind that a user supports = 1, unsupported = 0); `capacity` (k,):
    devices; `weight` (n,): entitlement, all above 0; `demand` (n,): devices that the user's live jobs can hold at once.
    """

    names: tuple[str, ...]
    tenants: tuple[str, ...]
    jobs: tuple[tuple[str, ...], ...]
    speed: Array
    capacity: Array
    weight: Array
    demand: Array

    def __post_init__(self) -> None:
        check_speeds(self.speed, self.names)
        if not (np.isfinite(self.weight).all() and (self.weight > 0).all()):
            bad = int(np.argmin(np.where(np.isfinite(self.weight), self.weight, -np.inf)))
            raise ConfigError(f"weight of {self.names[bad]}", float(self.weight[bad]), "must be finite and above 0")
        if not (np.isfinite(self.capacity).all() and (self.capacity >= 0).all()):
            raise ConfigError("capacity", self.capacity.tolist(), "must be finite, 0 or more devices a kind")

    @property
    def num_users(self) -> int:
        return len(self.names)

    def entitlement(self) -> Array:
        """(n, k): each user's share of every kind in proportion to its weight, `m pi / sum(pi)`."""
        return np.outer(self.weight / self.weight.sum(), self.capacity)


def check_speeds(speed: Array, names: tuple[str, ...]) -> None:
    """Raise ConfigError, naming user and kind index, for a NaN, infinite or negative speed, or for a row without a speed above 0.

    Solvers must never see such numbers: HiGHS reports Optimal for a NaN.
    """
    for bad, why in ((~np.isfinite(speed), "must be finite"), (speed < 0, "must be 0 or more")):
        if bad.any():
            row, kind = map(int, np.argwhere(bad)[0])
            raise ConfigError(f"speed of {names[row]} on kind {kind}", float(speed[row, kind]), why)
    empty = ~(speed > 0).any(axis=1) if speed.size else np.zeros(len(names), bool)
    if empty.any():
        raise ConfigError(f"speeds of {names[int(np.argmax(empty))]}", 0.0, "the user runs on no kind; park it")


def normalised_speed(job: JobView) -> Array:
    """(k,), read-only: the job's speed in units of the slowest kind that it supports."""
    return _normalised(job.steps_per_s)


@lru_cache(maxsize=4096)
def _normalised(steps_per_s: tuple[float, ...]) -> Array:
    slowest = next((value for value in steps_per_s if value > 0), 1.0)
    speeds = np.asarray(steps_per_s, dtype=float) / slowest
    speeds.setflags(write=False)
    return speeds


def users_of(view: ClusterView) -> Users:
    """The virtual users of a snapshot; tenants of weight 0 have none. The view keeps them, as policy and engine both ask."""
    kept: Users | None = view.__dict__.get(_KEPT)
    if kept is None:
        kept = view.__dict__[_KEPT] = _group(view)
    return kept


def _group(view: ClusterView) -> Users:
    groups: dict[tuple[str, str, int, tuple[float, ...]], list[JobView]] = {}
    weight: dict[str, float] = {}
    num_jobs: dict[str, int] = {}
    for tenant in view.tenants:
        if tenant.weight > 0:
            weight[tenant.name], num_jobs[tenant.name] = tenant.weight, len(tenant.jobs)
            for job in tenant.jobs:
                groups.setdefault((tenant.name, job.job_type, job.gang, job.steps_per_s), []).append(job)
    rows = list(groups.values())
    return Users(
        names=_unique(f"{key[0]}/{key[1]}/{key[2]}" for key in groups),
        tenants=tuple(key[0] for key in groups),
        jobs=tuple(tuple(job.name for job in jobs) for jobs in rows),
        speed=np.array([normalised_speed(jobs[0]) for jobs in rows]).reshape(len(rows), len(view.kinds)),
        capacity=np.asarray(view.capacity, dtype=float),
        weight=np.array([weight[key[0]] * len(jobs) / num_jobs[key[0]] for key, jobs in groups.items()]),
        demand=np.array([float(sum(job.gang for job in jobs)) for jobs in rows]),
    )


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    """`names` with "#2", "#3", ... after those that came before: jobs of one type and gang may differ in speed."""
    seen: Counter[str] = Counter()
    made = []
    for name in names:
        seen[name] += 1
        made.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return tuple(made)
