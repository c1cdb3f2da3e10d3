"""`cluster=local`: the devices of the machine at hand, its GPUs or else workers on its CPU cores, found when the configuration is built."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import floor

from hetsys.core import host
from hetsys.core.cluster import Cluster, DeviceSheet, Link, NodeGroup
from hetsys.core.errors import ConfigError
from hetsys.core.paths import shipped
from hetsys.runtime.devices import FREE_CORES

CPU_KIND = "cpu_full"
_OTHER_CARDS = {"ti", "super", "laptop", "mobile", "max"}
_BYTES_PER_S_PER_BYTE = 30.0


@dataclass(frozen=True)
class LocalCluster:
    """What this machine has. `max_devices`: at most so many (None: all). The links between devices are those inside one host.

    GPUs come slow to fast by the memory bandwidth of their sheets. Without GPUs that torch can use, there is one CPU worker a core, each
    busy for so much of the time that the scheduler has its part of the cores.
    """

    max_devices: int | None = None
    link: Link = field(default_factory=lambda: Link(bandwidth_bytes_per_s=12e9, latency_s=10e-6))

    def __post_init__(self) -> None:
        if self.max_devices is not None and self.max_devices < 1:
            raise ConfigError("cluster.max_devices", self.max_devices, "must be 1 or more, or null for all")

    def resolve(self) -> Cluster:
        """The cluster. Raises ConfigError where not even one worker is left beside the scheduler."""
        found = host.gpus() if host.torch_build().cuda else ()
        groups = self._gpus(found) if found else self._cpus()
        nodes = [NodeGroup(kind, count) for kind, (_, count) in groups.items()]
        return Cluster(nodes, {kind: sheet for kind, (sheet, _) in groups.items()}, self.link, self.link)

    def _gpus(self, found: tuple[host.Gpu, ...]) -> dict[str, tuple[DeviceSheet, int]]:
        by_kind: dict[str, list[host.Gpu]] = {}
        for gpu in found[: self.max_devices]:
            by_kind.setdefault(kind_of(gpu), []).append(gpu)
        made = {kind: gpu_sheet(kind, members) for kind, members in by_kind.items()}
        slow_to_fast = sorted(made, key=lambda kind: (made[kind].memory_bandwidth_bytes_per_s, kind))
        return {kind: (made[kind], len(by_kind[kind])) for kind in slow_to_fast}

    def _cpus(self) -> dict[str, tuple[DeviceSheet, int]]:
        cores = host.usable_cores()
        workers = min(cores, self.max_devices or cores)
        busy = min(1.0, floor(100 * (cores - FREE_CORES) / workers + 1e-9) / 100)
        sheet = replace(sheets()[CPU_KIND], busy_fraction=busy, memory_bytes=max(1, host.facts()["memory_bytes"] // cores))
        return {CPU_KIND: (sheet, workers)}


def kind_of(gpu: host.Gpu) -> str:
    """The option of conf/cluster/device that this GPU is, by the model in its name and then the nearest memory; else its name as a word."""
    words = set(re.split(r"[^a-z0-9]+", re.sub(r"\b(rtx|gtx)\s+", r"\1", gpu.name.lower())))
    known = {} if words & _OTHER_CARDS else {kind: sheet for kind, sheet in sheets().items() if kind.split("_")[0] in words}
    if known:
        return min(known, key=lambda kind: abs(known[kind].memory_bytes - gpu.memory_bytes))
    return "_".join(re.findall(r"[a-z0-9]+", gpu.name.lower()))


def gpu_sheet(kind: str, members: list[host.Gpu]) -> DeviceSheet:
    """The sheet of GPUs that are here: the shipped one, or for an unknown card its memory and a bandwidth by rule of thumb."""
    memory_bytes = min(gpu.memory_bytes for gpu in members)
    here = {"native": "cuda", "cuda_indices": tuple(gpu.index for gpu in members)}
    if kind in sheets():
        return replace(sheets()[kind], memory_bytes=memory_bytes, **here)  # type: ignore[arg-type]
    sources = {
        "memory_bytes": "nvidia-smi",
        "memory_bandwidth_bytes_per_s": "no sheet of this card: 30 times its memory a second, as GPUs roughly have; orders the kinds only",
        "price_usd_per_hour": "unknown",
    }
    return DeviceSheet(
        label=members[0].name,
        memory_bytes=memory_bytes,
        memory_bandwidth_bytes_per_s=_BYTES_PER_S_PER_BYTE * memory_bytes,
        flops_per_s={},
        launch_floor_s=5e-6,
        price_usd_per_hour=0.0,
        price_date="",
        sources=sources,
        native="cuda",
        cuda_indices=tuple(gpu.index for gpu in members),
    )


@cache
def sheets() -> Mapping[str, DeviceSheet]:
    """The device sheets that hetsys ships, by option."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    made = {}
    for path in sorted((shipped("conf") / "cluster" / "device").glob("*.yaml")):
        file = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
        made[path.stem] = DeviceSheet(**{key: value for key, value in file.items() if key not in ("defaults", "_target_", "about")})
    return made
