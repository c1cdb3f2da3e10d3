"""Snapshots for tests of policies, by hand and at random, and the policies that conf/system/ offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import yaml
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from hetsys.core.paths import shipped
from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.view import ClusterView, JobView, TenantView

Array = NDArray[np.float64]
KINDS = ("k80", "p4", "p100", "t4", "v100", "a100")


def system(name: str, **changes: Any) -> Any:
    """The policy of conf/system/<name>.yaml, built without Hydra."""
    fields = yaml.safe_load((shipped("conf") / "system" / f"{name}.yaml").read_text(encoding="utf-8"))
    module, _, cls = fields["_target_"].rpartition(".")
    own = {key: value for key, value in fields.items() if key not in ("defaults", "_target_", "about")}
    return getattr(import_module(module), cls)(**{**own, **changes})


def scheduling_systems() -> list[str]:
    """Every option of conf/system/ for the scheduling domain."""
    files = sorted((shipped("conf") / "system").glob("*.yaml"))
    return [file.stem for file in files if yaml.safe_load(file.read_text(encoding="utf-8"))["about"]["domain"] == "scheduling"]


def job(name: str, tenant: str, speeds: Sequence[float], gang: int = 1, job_type: str = "a") -> JobView:
    return JobView(name, tenant, job_type, gang, tuple(float(speed) for speed in speeds), 1000, 0.0)


def view_of(tenants: Sequence[TenantView], capacity: Sequence[int]) -> ClusterView:
    return ClusterView(0.0, 360.0, KINDS[: len(capacity)], tuple(capacity), tuple(tenants))


def simple(
    speeds: Sequence[Sequence[float]], capacity: Sequence[int], weights: Sequence[float] | None = None, jobs: int = 20
) -> ClusterView:
    """One tenant a row of `speeds`, called t0, t1, ..., each with `jobs` equal jobs of gang 1."""
    weights = weights or [1.0] * len(speeds)
    tenants = [TenantView(f"t{i}", weights[i], tuple(job(f"t{i}.{q}", f"t{i}", row) for q in range(jobs))) for i, row in enumerate(speeds)]
    return view_of(tenants, capacity)


def devices(allocation: Allocation, view: ClusterView) -> Array:
    """(tenants, k): devices of each tenant, over its claims."""
    totals = {tenant.name: np.zeros(len(view.kinds)) for tenant in view.tenants}
    for claim in allocation.claims:
        totals[claim.tenant] += claim.devices
    return np.array(list(totals.values()))


def utilities(name: str, speeds: Sequence[Sequence[float]], capacity: Sequence[int], **options: Any) -> Array:
    """(n,): what each tenant of `simple(speeds, capacity, ...)` gets from the system, in its own units."""
    view = simple(speeds, capacity, **options)
    allocation, _ = system(name).allocate(view, None)
    return np.asarray((devices(allocation, view) * np.array(speeds)).sum(axis=1))


def pareto_gap(speeds: Array, capacity: Array, shares: Array, demand: Array | None = None) -> float:
    """The most that could be added to the users' throughputs in total while nobody loses; 0: Pareto efficient. Solved by scipy, in
    terms of the change to `shares` (n, k), so that no change is an answer whatever the rounding. `demand` (n,): devices that users can
    hold."""
    n, k = speeds.shape
    own = np.kron(np.eye(n), np.ones(k)) * speeds.reshape(-1)
    room = np.concatenate([np.zeros(n), np.maximum(capacity - shares.sum(axis=0), 0.0)])
    bounds = [(-share, None) for share in shares.reshape(-1)]
    rows = np.vstack([-own, np.tile(np.eye(k), n)])
    if demand is not None:
        rows = np.vstack([rows, np.kron(np.eye(n), np.ones(k))])
        room = np.concatenate([room, np.maximum(demand - shares.sum(axis=1), 0.0)])
    result = linprog(-speeds.reshape(-1), A_ub=rows, b_ub=room, bounds=bounds, options={"presolve": False})
    assert result.status == 0, result.message
    return float(-result.fun)


def best_envy_free_total(speeds: Array, capacity: Array, weight: Array) -> float:
    """The cooperative program with every row and no merging, solved by scipy."""
    n, k = speeds.shape
    rows = []
    for i in range(n):
        for j in range(n):
            row = np.zeros((n, k))
            row[i] -= speeds[i] / weight[i]
            row[j] += speeds[i] / weight[j]
            rows.append(row.reshape(-1))
    limits = np.concatenate([np.zeros(n * n), capacity])
    return float(-linprog(-speeds.reshape(-1), A_ub=np.vstack([rows, np.tile(np.eye(k), n)]), b_ub=limits).fun)


@st.composite
def views(draw: st.DrawFn) -> ClusterView:
    """Any snapshot that may reach a policy: ties, zeros, weights (0 too), gangs, several job types, kinds without devices, jobs with a
    past."""
    kinds = draw(st.integers(1, 6))
    capacity = draw(st.lists(st.integers(0, 9), min_size=kinds, max_size=kinds))
    speed = st.one_of(st.sampled_from([0.0, 1.0, 2.0, 3.0]), st.floats(0.05, 50))
    row = st.lists(speed, min_size=kinds, max_size=kinds).filter(any)
    tenants = []
    for index in range(draw(st.integers(0, 5))):
        name, jobs = f"t{index}", []
        for kind in range(draw(st.integers(1, 2))):
            speeds, gang = draw(row), draw(st.sampled_from([1, 1, 2, 4]))
            jobs += [job(f"{name}.{kind}.{q}", name, speeds, gang, f"type{kind}") for q in range(draw(st.integers(1, 4)))]
        past = draw(st.lists(st.integers(0, 999), min_size=len(jobs), max_size=len(jobs)))
        jobs = [with_past(job, number) for job, number in zip(jobs, past, strict=True)]
        tenants.append(TenantView(name, draw(st.sampled_from([0.0, 1.0, 1.0, 0.3, 2.5])), tuple(jobs)))
    return replace(view_of(tenants, capacity), now_s=10_000.0, restart_s=30.0)


def with_past(job: JobView, number: int) -> JobView:
    """`job` with one of a thousand pasts: when it came, what it holds, how often it moved, how far it is."""
    supported = [kind for kind, speed in enumerate(job.steps_per_s) if speed > 0]
    held_kind = [-1, *supported][number % (len(supported) + 1)]
    arrival_s, restarts, isolated_s = number * 37 % 10_000, number % 7, number * 11 % 5_000
    steps_left = 1 + number * number
    return replace(
        job, arrival_s=float(arrival_s), restarts=restarts, held_kind=held_kind, isolated_s=float(isolated_s), steps_left=steps_left
    )


@st.composite
def saturated(draw: st.DrawFn, zeros: bool = False) -> tuple[Array, Array, Array]:
    """(speeds, capacity, weights) of users who could use the whole cluster; first supported kind = 1, ties likely."""
    n, kinds = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    capacity = np.array(draw(st.lists(st.integers(1, 9), min_size=kinds, max_size=kinds)), dtype=float)
    value = st.one_of(st.sampled_from([1.0, 2.0, 4.0]), st.floats(0.3, 12)) | (st.just(0.0) if zeros else st.nothing())
    rows = [draw(st.lists(value, min_size=kinds, max_size=kinds).filter(any)) for _ in range(n)]
    speeds = np.array([[speed / next(s for s in row if s > 0) for speed in row] for row in rows])
    return speeds, capacity, np.array(draw(st.lists(st.sampled_from([1.0, 1.0, 0.5, 3.0]), min_size=n, max_size=n)))


def allocate_saturated(policy: Any, speeds: Array, capacity: Array, weights: Array) -> Array:
    """(n, k) devices."""
    view = simple(speeds.tolist(), [int(c) for c in capacity], weights.tolist(), jobs=int(capacity.sum()))
    allocation, _ = policy.allocate(view, None)
    assert allocation.status in ("optimal", "rule"), allocation.note
    return devices(allocation, view)
