"""What the tests of rounding share: allocations from plain numbers, and many rounds of one allocation, counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hetsys.core.scheduling.plan import Allocation, Claim
from hetsys.core.scheduling.rounding import round_gangs
from hetsys.core.scheduling.turns import Carried, GrantedGang
from hetsys.core.scheduling.view import ClusterView, JobView, TenantView


def allot(shares: list[list[float]], snapshot: ClusterView, rounding: str = "credit", fill: bool = True) -> Allocation:
    """One claim a tenant of `snapshot`, with the devices of each kind in `shares`."""
    return Allocation(
        tuple(Claim(t.name, t.name, tuple(j.name for j in t.jobs), tuple(s)) for t, s in zip(snapshot.tenants, shares, strict=True)),
        fill=fill, rounding=rounding,
    )  # fmt: skip


@dataclass(frozen=True)
class Received:
    """By tenant: `devices` of each kind a round, on average, granted against its claim; `longest`: the most rounds in a row without."""

    devices: list[list[float]]
    longest: list[int]


def received(
    allocation: Allocation, snapshot: ClusterView, rounds: int, each: Callable[[list[GrantedGang]], None] = lambda grants: None
) -> Received:
    """`rounds` rounds of the same allocation with the same jobs; `each` is shown the grants of each. Capacity is checked in all of them."""
    carried = Carried()
    order = {tenant.name: index for index, tenant in enumerate(snapshot.tenants)}
    owner = {job.name: order[job.tenant] for job in snapshot.jobs}
    total = [[0] * len(snapshot.kinds) for _ in order]
    waits, longest = [0] * len(order), [0] * len(order)
    for _ in range(rounds):
        grants, carried = round_gangs(allocation, snapshot, carried, {}, 0.0)
        each(grants)
        used = [0] * len(snapshot.kinds)
        for grant in grants:
            used[grant.kind] += grant.gang
            if not grant.filled:
                total[owner[grant.job]][grant.kind] += grant.gang
        assert all(count <= most for count, most in zip(used, snapshot.capacity, strict=True))
        served = {owner[grant.job] for grant in grants if not grant.filled}
        for index, wait in enumerate(waits):
            waits[index] = 0 if index in served else wait + 1
            longest[index] = max(longest[index], waits[index])
    return Received([[count / rounds for count in row] for row in total], longest)


def saturated(gangs: list[int], capacity: list[int]) -> ClusterView:
    """Users that can use every device there is, as their shares suppose."""
    tenants = []
    for index, gang in enumerate(gangs):
        names = (f"u{index}.{place}" for place in range(sum(capacity) // gang))
        jobs = tuple(JobView(name, f"u{index}", "type", gang, (1.0,) * len(capacity), 10**9, 0.0) for name in names)
        tenants.append(TenantView(f"u{index}", 1.0, jobs))
    return ClusterView(0.0, 360.0, tuple(f"k{kind}" for kind in range(len(capacity))), tuple(capacity), tuple(tenants))


def parts(got: Received, gangs: list[int], shares: list[list[float]], rounds: int) -> dict[int, float]:
    """Of each user that is entitled to 50 gangs or more in all rounds, the part that it received."""
    pairs = enumerate(zip(gangs, shares, strict=True))
    return {user: sum(got.devices[user]) / sum(row) for user, (gang, row) in pairs if sum(row) * rounds >= 50 * gang}
