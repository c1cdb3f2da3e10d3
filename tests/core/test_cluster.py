"""Clusters and device sheets: the shipped ones are complete and cited, and mistakes are refused by name."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import yaml

from hetsys.core.cluster import Cluster, DeviceSheet, Link, NodeGroup
from hetsys.core.errors import ConfigError
from hetsys.core.paths import shipped

CLUSTERS = sorted(path.stem for path in (shipped("conf") / "cluster").glob("*.yaml") if "\nnodes:" in path.read_text())
DEVICES = sorted(path.stem for path in (shipped("conf") / "cluster" / "device").glob("*.yaml"))
NAMED = {"a100_40g", "a100_80g", "h100", "h200", "k80", "l4", "p100", "t4", "v100", "xeon6342_core"}
NAMED |= {"rtx3070", "rtx3080", "rtx3090", "rtx4090"}


def read(path: Path) -> dict[str, Any]:
    """A YAML without what only Hydra and the listing need. The loader reads 5.0e-6 as a number, as Hydra's does."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {key: value for key, value in content.items() if key not in ("defaults", "_target_", "about")}


def sheet(name: str) -> DeviceSheet:
    return DeviceSheet(**read(shipped("conf") / "cluster" / "device" / f"{name}.yaml"))


def cluster(name: str) -> Cluster:
    """A shipped cluster, its sheets taken from its defaults list: `device@sheets.KIND: FILE`."""
    path = shipped("conf") / "cluster" / f"{name}.yaml"
    pulls = [entry for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["defaults"] if isinstance(entry, dict)]
    sheets = {key.removeprefix("device@sheets."): sheet(file) for entry in pulls for key, file in entry.items()}
    content = read(path)
    return Cluster(
        nodes=[NodeGroup(**group) for group in content["nodes"]],
        sheets=sheets,
        intra_node=Link(**content["intra_node"]),
        inter_node=Link(**content["inter_node"]),
    )


@pytest.fixture
def v100() -> DeviceSheet:
    return sheet("v100")


def test_every_named_device_has_a_sheet() -> None:
    assert set(DEVICES) >= NAMED


@pytest.mark.parametrize("name", DEVICES)
def test_every_figure_of_a_sheet_names_its_source(name: str) -> None:
    content = read(shipped("conf") / "cluster" / "device" / f"{name}.yaml")
    figures = {key for key, value in content.items() if isinstance(value, int | float)}
    figures |= {f"flops_per_s_{dtype}" for dtype in content["flops_per_s"]}
    assert figures == set(content["sources"]), "each figure one source, no source without a figure"
    assert all(len(text) > 10 for text in content["sources"].values())
    assert content["price_date"][-4:].isdigit() or content["price_date"][:4].isdigit()
    assert "fp16" in content["flops_per_s"] and "fp32" in content["flops_per_s"]
    sheet(name)


def test_one_k80_is_half_a_board() -> None:
    k80 = sheet("k80")
    assert (k80.memory_bytes, k80.memory_bandwidth_bytes_per_s) == (12e9, 240e9)
    assert k80.flops_per_s["fp32"] == pytest.approx(8.74e12 / 2)


def test_dense_rates_are_not_the_sparse_ones() -> None:
    assert sheet("h100").flops_per_s["bf16"] == pytest.approx(989.4e12)
    assert sheet("l4").flops_per_s["fp16"] == pytest.approx(121e12)
    assert sheet("rtx4090").flops_per_s["fp16"] == pytest.approx(165.2e12)
    assert sheet("rtx3090").flops_per_s["fp16"] == pytest.approx(71e12)


@pytest.mark.parametrize(
    ("name", "kinds", "counts", "hosts"),
    [
        ("k80_p100_v100", ("k80", "p100", "v100"), (8, 8, 8), 6),
        ("philly_small", ("k80", "p100", "v100"), (12, 12, 12), 9),
        ("philly_160", ("k80", "p100", "v100"), (160, 160, 160), 60),
        ("rtx_3070_3080_3090", ("rtx3070", "rtx3080", "rtx3090"), (8, 8, 8), 6),
        ("p100_3090_a100", ("p100", "rtx3090", "a100_80g"), (4, 4, 4), 4),
        ("xeon_a100", ("xeon6342_core", "a100_80g"), (120, 4), 6),
    ],
)
def test_shipped_clusters(name: str, kinds: tuple[str, ...], counts: tuple[int, ...], hosts: int) -> None:
    made = cluster(name)
    assert made.kinds == kinds
    assert tuple(made.num_devices_by_kind.values()) == counts
    assert len({device.node for device in made.devices}) == hosts
    assert len({device.name for device in made.devices}) == sum(counts)


@pytest.mark.parametrize("name", CLUSTERS)
def test_kinds_run_from_slow_to_fast(name: str) -> None:
    made = cluster(name)
    rates = [made.sheets[kind].flops_per_s["fp16"] for kind in made.kinds]
    assert rates == sorted(rates)


def test_names_of_devices_and_hosts(v100: DeviceSheet) -> None:
    made = Cluster([NodeGroup("a", 2, 2), NodeGroup("b", 1), NodeGroup("a", 1)], {"a": v100, "b": v100})
    assert [device.name for device in made.devices] == ["a-0-0", "a-0-1", "a-1-0", "a-1-1", "b-0-0", "a-2-0"]
    assert made.devices[3].node == "a-1"
    assert made.kinds == ("a", "b")
    assert made.num_devices_by_kind == {"a": 5, "b": 1}


def test_a_message_takes_latency_and_bytes_over_bandwidth() -> None:
    assert Link(bandwidth_bytes_per_s=1e9, latency_s=0.5).duration_s(2e9) == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"memory_bytes": 0}, "device.memory_bytes"),
        ({"memory_bandwidth_bytes_per_s": nan}, "device.memory_bandwidth_bytes_per_s"),
        ({"flops_per_s": {"fp16": -1.0}}, "device.flops_per_s.fp16"),
        ({"price_usd_per_hour": inf}, "device.price_usd_per_hour"),
        ({"launch_floor_s": -1e-6}, "device.launch_floor_s"),
        ({"compute_fraction": 0.0}, "device.compute_fraction"),
        ({"memory_fraction": 1.2}, "device.memory_fraction"),
        ({"memory_fraction": nan}, "device.memory_fraction"),
    ],
)
def test_bad_sheets_are_refused(v100: DeviceSheet, change: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as error:
        replace(v100, **change)
    assert error.value.key == key


def test_bad_clusters_are_refused(v100: DeviceSheet) -> None:
    sheets = {"v100": v100}
    for nodes in ([], [NodeGroup("v100", 0)], [NodeGroup("v100", 4, 0)]):
        with pytest.raises(ConfigError, match="no device"):
            Cluster(nodes, sheets)
    with pytest.raises(ConfigError, match="did you mean 'v100'"):
        Cluster([NodeGroup("v10", 1)], sheets)
    with pytest.raises(ConfigError) as error:
        Cluster([NodeGroup("v100", 1), NodeGroup("v100", -1)], sheets)
    assert error.value.key == "cluster.nodes[1].devices"
    for bandwidth in (0.0, -1.0, nan, inf):
        with pytest.raises(ConfigError, match="bandwidth_bytes_per_s"):
            Link(bandwidth)
    with pytest.raises(ConfigError, match="latency_s"):
        Link(1e9, nan)
