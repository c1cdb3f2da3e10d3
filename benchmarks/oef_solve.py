"""How long OEF's two programs take, cold and from the last round's memory, how exact they are, and PuLP + CBC on the full program.

What is timed is all that a round costs: from the snapshot of a cluster to the allocation, with every check of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Row, main, say, seconds
from hetsys.core.errors import HetsysError
from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import normalised_speed
from hetsys.core.scheduling.view import ClusterView, JobView, TenantView
from hetsys.systems.oef.cooperative import OefCooperative
from hetsys.systems.oef.noncooperative import OefNonCooperative
from hetsys.systems.program import Program, unknowns
from hetsys.systems.solve import solve

Array = NDArray[np.float64]
NO_LIMIT_S = 3600.0
CBC_LIMIT_S = 120.0


@dataclass(frozen=True)
class Case:
    """`tenants` of one job type each, on `kinds` kinds; `types`: how many different vectors of speeds they have, None: all differ. `full`,
    `cbc`: whether the full program, with a row for every pair of tenants, can be solved at all, and by CBC."""

    tenants: int
    kinds: int
    cooperative: bool = True
    types: int | None = None
    full: bool = True
    cbc: bool = True


CASES = {
    "cooperative_n10_k6": Case(10, 6),
    "cooperative_n100_k6": Case(100, 6),
    "cooperative_n1000_k3": Case(1000, 3, full=False, cbc=False),
    "cooperative_n1000_k6": Case(1000, 6, full=False, cbc=False),
    "noncooperative_n10000_k10": Case(10_000, 10, cooperative=False),
    "cooperative_10000_of_80_types": Case(10_000, 3, types=80, full=False, cbc=False),
}


def view_of(speeds: Array, weights: Array, devices: int) -> ClusterView:
    """A tenant a row of `speeds`, with one job that could use the whole cluster."""
    kinds = speeds.shape[1]
    tenants = []
    for index, row in enumerate(speeds.tolist()):
        job = JobView(f"job{index}", f"tenant{index}", "any", devices * kinds, tuple(row), 1000, 0.0)
        tenants.append(TenantView(f"tenant{index}", float(weights[index]), (job,)))
    return ClusterView(0.0, 360.0, tuple(f"kind{kind}" for kind in range(kinds)), (devices,) * kinds, tuple(tenants))


def first_speeds(case: Case, seed: int = 0) -> Array:
    """(tenants, kinds): from 1 on the slowest kind, growing by up to 1 from kind to kind; seeded."""
    rng = np.random.default_rng(seed)
    count = case.types or case.tenants
    speeds = np.cumsum(np.column_stack([np.ones(count), rng.uniform(0, 1, (count, case.kinds - 1))]), axis=1)
    return speeds if case.types is None else speeds[rng.integers(0, count, case.tenants)]


def next_speeds(case: Case, speeds: Array) -> Array:
    """The next round: one tenant in a hundred, at least one, has left and another come; the speeds of two in a hundred, at least one, have
    moved by up to a few percent. Where tenants share types, a type's speeds move for all that have it."""
    rng = np.random.default_rng(1)
    speeds = speeds.copy()
    few = max(1, len(speeds) // 100)
    speeds[rng.choice(len(speeds), few, replace=False)] = first_speeds(case, seed=2)[:few]
    moving = rng.choice(len(speeds), 2 * few, replace=False) if case.types is None else np.flatnonzero((speeds == speeds[0]).all(axis=1))
    factor = rng.uniform(0.97, 1.03, (len(moving), case.kinds) if case.types is None else case.kinds)
    moved = np.maximum.accumulate(speeds[moving] * factor, axis=1)
    speeds[moving] = moved / moved[:, :1]
    return speeds


def measure(name: str) -> Iterator[Row]:
    case = CASES[name]
    devices = max(8, case.tenants // 4)
    before = first_speeds(case)
    now, weights = next_speeds(case, before), np.ones(case.tenants)
    view, view_before = view_of(now, weights, devices), view_of(before, weights, devices)
    policy = (OefCooperative if case.cooperative else OefNonCooperative)(time_limit_s=NO_LIMIT_S)
    allocation, _ = policy.allocate(view, None)
    _, memory = policy.allocate(view_before, None)
    warm_allocation, _ = policy.allocate(view, memory)
    for found in (allocation, warm_allocation):
        if found.status != "optimal":
            raise RuntimeError(f"{name}: {found.note}")
    cold_s = seconds(lambda: policy.allocate(view, None))
    say(f"  cold {cold_s:.4g} s")
    yield Row(name, "cold_s", cold_s, "snapshot to allocation, nothing remembered")
    warm_s = seconds(lambda: policy.allocate(view, memory))
    say(f"  warm {warm_s:.4g} s")
    yield Row(name, "warm_s", warm_s, "with the memory of the round before" if case.cooperative else "this program remembers nothing")
    yield error(name, case, view, (allocation, warm_allocation))
    yield cbc_ratio(name, case, view, cold_s)


def devices_of(allocation: Allocation) -> Array:
    return np.array([claim.devices for claim in allocation.claims])


def normalised(view: ClusterView) -> Array:
    return np.array([normalised_speed(job) for job in view.jobs])


def reached(case: Case, view: ClusterView, allocation: Allocation) -> float:
    """The objective: total throughput, or the lowest."""
    throughput = (normalised(view) * devices_of(allocation)).sum(axis=1)
    return float(throughput.sum() if case.cooperative else throughput.min())


def error(name: str, case: Case, view: ClusterView, allocations: tuple[Allocation, Allocation]) -> Row:
    """The worse of the cold and the warm answer, against the full program, or against a bound that needs none."""
    if case.full:
        say("  the full program, for the error ...")
        best, note = solve(full_program(case, view), time_limit_s=NO_LIMIT_S).objective, "against the full program, solved by HiGHS"
        return Row(name, "objective_error_rel", max(abs(reached(case, view, one) / best - 1) for one in allocations), note)
    note = "gap to the bound that prices and binding rows prove (weak duality); the full program has too many rows to be solved"
    return Row(name, "objective_error_rel", max(abs(reached(case, view, one) / proven_bound(view, one) - 1) for one in allocations), note)


def cbc_ratio(name: str, case: Case, view: ClusterView, cold_s: float) -> Row:
    if not case.cbc:
        rows = case.tenants * (case.tenants - 1)
        return Row(name, "pulp_cbc_ratio", None, f"the full program has {rows:,} rows of envy: too many for PuLP + CBC")
    say("  PuLP + CBC on the full program ...")
    program = full_program(case, view)
    try:
        begin = perf_counter()
        solve(program, solver="pulp_cbc", time_limit_s=CBC_LIMIT_S)
        took_s = perf_counter() - begin
        if took_s < 5:
            took_s = min(took_s, seconds(lambda: solve(program, solver="pulp_cbc", time_limit_s=CBC_LIMIT_S), at_least=2))
    except HetsysError as failed:
        return Row(name, "pulp_cbc_ratio", None, str(failed))
    return Row(name, "pulp_cbc_ratio", took_s / cold_s, f"PuLP + CBC on the full program, {took_s:.3g} s, over our cold time")


def full_program(case: Case, view: ClusterView) -> Program:
    """As on paper: an unknown for each tenant and kind, and a row for each pair of tenants, or for each tenant; weights are equal."""
    speeds = normalised(view)
    n, k = speeds.shape
    x = unknowns(np.ones((n, k), dtype=bool))
    if case.cooperative:
        own, other = np.nonzero(~np.eye(n, dtype=bool))
        program = Program("full", speeds.reshape(-1))
        program.add("envy", np.hstack([x[own], x[other]]), np.hstack([speeds[own], -speeds[own]]), lower=0.0)
    else:
        program = Program("full", np.append(np.zeros(n * k), 1.0))
        program.add("level", np.column_stack([x, np.full(n, n * k)]), np.column_stack([speeds, -np.ones(n)]), lower=0.0, upper=0.0)
    program.add("capacity", x.T, 1.0, upper=np.array(view.capacity, dtype=float))
    return program


def proven_bound(view: ClusterView, allocation: Allocation) -> float:
    """No envy-free allocation has more in total: the multipliers of the binding rows, and for each kind the least price that pays for what
    any class of equal tenants gains by a device of it. Classes are independent of ours: tenants with equal speeds, by name."""
    speeds, first, member = np.unique(normalised(view), axis=0, return_index=True, return_inverse=True)[:3]
    size = np.bincount(member.reshape(-1)).astype(float)
    number = {claim.name: int(member.reshape(-1)[index]) for index, claim in enumerate(allocation.claims)}
    gain = speeds.copy()
    for row in allocation.binding:
        one, other = number[row.claim], number[row.envied]
        gain[one] += row.dual * speeds[one] / size[one]
        gain[other] -= row.dual * speeds[one] / size[other]
    assert first.size == size.size
    return float(gain.max(axis=0) @ np.array(view.capacity, dtype=float))


if __name__ == "__main__":
    raise SystemExit(main("oef_solve", __doc__.splitlines()[0], tuple(CASES), measure))
