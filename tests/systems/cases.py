"""Small instances of fair division, and by how much an allocation of the public policies violates a property there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hetsys.core.scheduling.view import ClusterView, JobView, TenantView
from tests.systems.views import Array, devices, job, pareto_gap, view_of

Case = Mapping[str, Any]
"""An instance as in conf/tables/scheduling_properties.yaml: `speeds` (a row a tenant; for tenants with several types of jobs a list of
rows), `capacity`, and where they matter `weights`, `jobs` (of each type of a tenant), `in_turn`, `liar`, `report`, `measured`."""


def types_of(row: Sequence[Any]) -> list[list[float]]:
    """The speeds of a tenant's types of jobs."""
    return [list(map(float, speeds)) for speeds in (row if isinstance(row[0], Sequence) else [row])]


def view_of_case(case: Case, *, lying: bool = False) -> ClusterView:
    """Each tenant with `jobs` jobs of a type, by default enough for the whole cluster; with `lying`, the liar with what it reports."""
    capacity = case["capacity"]
    count = len(case["speeds"])
    weights, many = case.get("weights", [1.0] * count), case.get("jobs", [sum(capacity)] * count)
    tenants = []
    for index, row in enumerate(case["speeds"]):
        told = case["report"] if lying and index == case["liar"] else row
        jobs: list[JobView] = []
        for kind, (speeds, true) in enumerate(zip(types_of(told), types_of(row), strict=True)):
            for number in range(many[index]):
                made = job(f"t{index}.{kind}.{number}", f"t{index}", speeds, job_type=f"type{kind}")
                arrival_s = float(number - many[index]) if case.get("in_turn") else 0.0
                jobs.append(replace(made, arrival_s=arrival_s, measured_steps_per_s=tuple(true) if case.get("measured") else ()))
        tenants.append(TenantView(f"t{index}", float(weights[index]), tuple(jobs)))
    return view_of(tenants, capacity)


def bundles(policy: Any, case: Case, *, lying: bool = False) -> Array:
    """(n, k) devices of each tenant."""
    view = view_of_case(case, lying=lying)
    allocation, _ = policy.allocate(view, None)
    assert allocation.status in ("optimal", "rule"), allocation.note
    return devices(allocation, view)


def worth(policy: Any, case: Case, tenant: int, *, lying: bool = False) -> float:
    """What a tenant's claims are truly worth to it: each type of its jobs at its own speed, in units of its slowest kind."""
    view = view_of_case(case, lying=lying)
    allocation, _ = policy.allocate(view, None)
    assert allocation.status in ("optimal", "rule"), allocation.note
    true = types_of(case["speeds"][tenant])
    kind_of = {job.name: int(job.job_type.removeprefix("type")) for job in view.jobs}
    total = 0.0
    for claim in allocation.claims:
        if claim.tenant == f"t{tenant}":
            speeds = true[kind_of[claim.jobs[0]]]
            total += float(np.dot(claim.devices, speeds)) / next(speed for speed in speeds if speed > 0)
    return total


@dataclass(frozen=True)
class Divided:
    """`shares` (n, k) devices of users with normalised `speeds` (n, k), a `capacity` (k,) and `weight` (n,); `demand` (n,): devices that
    they can hold, None: any number."""

    speeds: Array
    capacity: Array
    weight: Array
    shares: Array
    demand: Array | None = None

    def pareto_efficient(self) -> float:
        """What all could gain together while nobody loses, relative to what they have."""
        return pareto_gap(self.speeds, self.capacity, self.shares, self.demand) / float((self.speeds * self.shares).sum())

    def envy_free(self) -> float:
        """The largest gain of a user from the bundle of another, scaled to its own weight, relative to what that is worth to it."""
        value = self.speeds @ (self.shares / self.weight[:, None]).T
        best = value.max(axis=1)
        return float(((best - np.diag(value)) / np.where(best > 0, best, 1.0)).max())

    def sharing_incentive(self) -> float:
        """The part of its entitlement's worth that the worst-off user lacks; below 0: everybody gains."""
        own = (self.speeds * self.shares).sum(axis=1)
        return float((1 - own / (self.speeds @ self.capacity * self.weight / self.weight.sum())).max())


def divided(policy: Any, case: Case) -> Divided:
    """What a policy makes of a case in which each tenant has one type of jobs."""
    rows = np.array(case["speeds"], dtype=float)
    first = np.array([row[np.flatnonzero(row)[0]] for row in rows])
    weight = np.array(case.get("weights", [1.0] * len(rows)), dtype=float)
    demand = np.array(case["jobs"], dtype=float) if "jobs" in case else None
    return Divided(rows / first[:, None], np.array(case["capacity"], dtype=float), weight, bundles(policy, case), demand)


def violation(name: str, policy: Any, case: Case) -> float:
    """By how much a policy violates the property `name` in a case; 0 or less: it does not."""
    return gain_by_lying(policy, case) if name.startswith("no_gain") else float(getattr(divided(policy, case), name)())


def gain_by_lying(policy: Any, case: Case) -> float:
    """What the liar gains, relative to what the truth gives it."""
    honest, lying = (worth(policy, case, case["liar"], lying=lie) for lie in (False, True))
    return lying / honest - 1

