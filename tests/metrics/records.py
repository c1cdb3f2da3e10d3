"""Short ways to write the records of a run by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hetsys.core.scheduling.record import Grant, JobRecord, RoundRecord, UserShare

KINDS = ("slow", "fast")
PRICES = {"slow": 1.0, "fast": 3.0}


def user(
    tenant: str, devices: Sequence[float], *, speeds: Sequence[float] = (1.0, 2.0), demand: int = 100, weight: float = 1.0
) -> UserShare:
    return UserShare(tenant, tenant, weight, tuple(devices), tuple(speeds), demand)


def grant(job: str, tenant: str, devices: Sequence[str], *, held_s: float = 100.0, **more: object) -> Grant:
    return Grant(job, tenant, devices[0].split("-")[0], tuple(devices), 10, held_s, **more)  # type: ignore[arg-type]


def round_(
    index: int = 0,
    *,
    users: Sequence[UserShare] = (),
    progress: Mapping[str, float] | None = None,
    grants: Sequence[Grant] = (),
    length_s: float = 100.0,
    capacity: Sequence[int] = (1, 1),
    idle: Sequence[int] = (0, 0),
    waiting: int = 0,
    status: str = "rule",
    policy_s: float = 0.0,
) -> RoundRecord:
    stranded = tuple(idle) if waiting else (0,) * len(idle)
    return RoundRecord(
        index, 100.0 * index, length_s, tuple(capacity), tuple(users), tuple(grants), dict(progress or {}), tuple(idle), stranded,
        waiting, status, "", policy_s,
    )  # fmt: skip


def job(
    name: str, finish_s: float | None, *, tenant: str = "a", arrival_s: float = 0.0, alone_s: float | None = None, status: str = "",
    left_s: float | None = None, steps: int = 10, lost: int = 0, restarts: int = 1, preemptions: int = 0,
) -> JobRecord:  # fmt: skip
    status = status or ("unfinished" if finish_s is None else "finished")
    left_s = left_s if finish_s is None else finish_s
    assert left_s is not None, "say when a job left that did not finish"
    return JobRecord(
        name, tenant, "type", 1, status, arrival_s, arrival_s, finish_s, left_s, steps, lost, restarts, preemptions, alone_s
    )  # fmt: skip
