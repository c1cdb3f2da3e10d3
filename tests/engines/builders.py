"""Small clusters and traces from which the scheduling tests are made."""

from __future__ import annotations

from collections.abc import Sequence

from hetsys.core.cluster import Cluster, DeviceSheet, NodeGroup
from hetsys.core.scheduling.plan import Allocation, Claim
from hetsys.core.scheduling.trace import Job
from hetsys.core.scheduling.users import users_of
from hetsys.core.scheduling.view import ClusterView, JobView, TenantView

SHEET = DeviceSheet("test device", 1 << 30, 1e9, {"fp32": 1e12}, 0.0, 1.0, "2026-01")


def cluster(**groups: tuple[int, int]) -> Cluster:
    """`cluster(slow=(2, 4))`: kind slow, 2 hosts of 4 devices."""
    nodes = [NodeGroup(kind, devices, hosts) for kind, (hosts, devices) in groups.items()]
    return Cluster(nodes, {kind: SHEET for kind in groups})


def job(name: str, tenant: str = "a", *, steps: int = 1000, gang: int = 1, arrival_s: float = 0.0, **speeds: float) -> Job:
    return Job(name, tenant, "type", gang, steps, arrival_s, speeds or {"slow": 1.0})


def view(speeds: Sequence[Sequence[float]], capacity: Sequence[int], gangs: Sequence[int], jobs_each: int) -> ClusterView:
    """One tenant a row of `speeds` (a device), each with `jobs_each` jobs of its gang."""
    tenants = []
    for i, (row, gang) in enumerate(zip(speeds, gangs, strict=True)):
        name = f"u{i}"
        jobs = tuple(
            JobView(f"{name}.{k}", name, name, gang, tuple(gang * s for s in row), 10**9, 0.0) for k in range(jobs_each)
        )
        tenants.append(TenantView(name, 1.0, jobs))
    return ClusterView(0.0, 360.0, tuple(f"k{j}" for j in range(len(capacity))), tuple(capacity), tuple(tenants))


class EqualShares:
    """The plainest policy there is, so that engine tests do not depend on the real ones."""

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        users = users_of(view)
        rows = zip(users.names, users.tenants, users.jobs, users.entitlement().tolist(), strict=True)
        return Allocation(tuple(Claim(name, tenant, jobs, tuple(share)) for name, tenant, jobs, share in rows)), memo
