"""The cluster on which workloads are tried: 8 devices of each published kind, 4 a host."""

from __future__ import annotations

import pytest

from hetsys.core.cluster import Cluster, DeviceSheet, NodeGroup


def make_cluster(**devices: int) -> Cluster:
    """A cluster with one host of the given number of devices for each kind."""
    sheet = DeviceSheet("any", 16 * 10**9, 1e11, {"fp32": 1e12}, 0.0, 1.0, "2024-01")
    return Cluster([NodeGroup(kind, count) for kind, count in devices.items()], dict.fromkeys(devices, sheet))


@pytest.fixture
def cluster() -> Cluster:
    made = make_cluster(k80=4, p100=4, v100=4)
    return Cluster([NodeGroup(kind, 4, count=2) for kind in made.kinds], made.sheets)


@pytest.fixture
def h100_cluster() -> Cluster:
    return make_cluster(v100=4, h100=4)


@pytest.fixture
def small_k80_cluster() -> Cluster:
    return make_cluster(k80=2)
