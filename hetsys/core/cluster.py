"""What a cluster is made of: devices of several kinds, in nodes, joined by links; and the sheet of each kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite

from hetsys.core.errors import ConfigError, check_choice, did_you_mean

NATIVE = ("", "cpu", "cpu:avx2", "cpu:sse41", "cuda")


def _require_positive(key: str, value: float) -> None:
    if not (isfinite(value) and value > 0):
        raise ConfigError(key, value, "must be a finite number above 0")


@dataclass(frozen=True)
class DeviceSheet:
    """The published figures of one kind of device. `sources` names where each figure comes from.

    `flops_per_s` maps a dtype ("fp32", "fp16", "bf16", ...) to the dense peak rate; `compute_fraction` and `memory_fraction`
    are the shares of the peaks that well-written kernels reach; `launch_floor_s` is the least time of any operation.

    `native` says how a device of this kind runs on the machine at hand: "" (it is not there: emulated or simulated only), "cpu" (a worker
    process with the processor's full instruction set), "cpu:avx2" or "cpu:sse41" (capped), "cuda". `cuda_indices[slot]`: which GPU.
    `busy_fraction`: the share of time that a CPU worker computes; it rests otherwise, so that the scheduler has its part of the cores.
    """

    label: str
    memory_bytes: int
    memory_bandwidth_bytes_per_s: float
    flops_per_s: Mapping[str, float]
    launch_floor_s: float
    price_usd_per_hour: float
    price_date: str
    compute_fraction: float = 0.6
    memory_fraction: float = 0.8
    host_overhead_s: float = 0.0
    sources: Mapping[str, str] = field(default_factory=dict)
    native: str = ""
    cuda_indices: Sequence[int] = ()
    busy_fraction: float = 1.0

    def __post_init__(self) -> None:
        for name in ("memory_bytes", "memory_bandwidth_bytes_per_s"):
            _require_positive(f"device.{name}", getattr(self, name))
        for dtype, rate in self.flops_per_s.items():
            _require_positive(f"device.flops_per_s.{dtype}", rate)
        for name in ("price_usd_per_hour", "launch_floor_s", "host_overhead_s"):
            if not (isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ConfigError(f"device.{name}", getattr(self, name), "must be a finite number, 0 or more")
        check_choice("device.native", self.native, NATIVE)
        object.__setattr__(self, "cuda_indices", tuple(self.cuda_indices))
        for name in ("compute_fraction", "memory_fraction", "busy_fraction"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(f"device.{name}", getattr(self, name), "must be above 0 and at most 1")


@dataclass(frozen=True)
class Link:
    """A serial resource between devices: the time of a message is `latency_s + bytes / bandwidth_bytes_per_s`."""

    bandwidth_bytes_per_s: float
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        _require_positive("link.bandwidth_bytes_per_s", self.bandwidth_bytes_per_s)
        if not (isfinite(self.latency_s) and self.latency_s >= 0):
            raise ConfigError("link.latency_s", self.latency_s, "must be a finite number of seconds, 0 or more")

    def duration_s(self, num_bytes: float) -> float:
        return self.latency_s + num_bytes / self.bandwidth_bytes_per_s


@dataclass(frozen=True)
class Device:
    """One thing that computes: `name` is unique in the cluster, `kind` names its sheet, `node` the host it sits in."""

    name: str
    kind: str
    node: str


@dataclass(frozen=True)
class NodeGroup:
    """`count` equal hosts with `devices` devices of one `kind` each."""

    kind: str
    devices: int
    count: int = 1


@dataclass(frozen=True)
class Cluster:
    """Hosts, device sheets and links. The order in which kinds first appear in `nodes` is slow to fast by convention.

    Raises ConfigError for an empty cluster, an unknown kind, or counts below zero.
    """

    nodes: Sequence[NodeGroup]
    sheets: Mapping[str, DeviceSheet]
    intra_node: Link = Link(bandwidth_bytes_per_s=12e9, latency_s=10e-6)
    inter_node: Link = Link(bandwidth_bytes_per_s=1.25e9, latency_s=50e-6)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        for i, group in enumerate(self.nodes):
            if group.kind not in self.sheets:
                raise ConfigError(f"cluster.nodes[{i}].kind", group.kind, did_you_mean(group.kind, self.sheets))
            for name in ("devices", "count"):
                if getattr(group, name) < 0:
                    raise ConfigError(f"cluster.nodes[{i}].{name}", getattr(group, name), "must be 0 or more")
        if len({bool(self.sheets[kind].native) for kind in self.kinds}) > 1:
            remedy = "mixes devices of this machine with others; a cluster is all native or not at all"
            raise ConfigError("cluster.nodes", list(self.kinds), remedy)
        if not self.devices:
            raise ConfigError("cluster.nodes", [], "the cluster has no device; give at least one node with devices >= 1")

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """Every device, named `<kind>-<node index>-<slot>`, in the order of `nodes`."""
        made: list[Device] = []
        hosts: dict[str, int] = {}
        for group in self.nodes:
            for _ in range(group.count):
                host = hosts[group.kind] = hosts.get(group.kind, -1) + 1
                node = f"{group.kind}-{host}"
                made += [Device(f"{node}-{slot}", group.kind, node) for slot in range(group.devices)]
        return tuple(made)

    @cached_property
    def cuda_indices(self) -> dict[str, int]:
        """By device, which GPU of this machine it is; devices that are none do not appear."""
        made: dict[str, int] = {}
        for kind in self.kinds:
            if self.sheets[kind].native == "cuda":
                names = (device.name for device in self.devices if device.kind == kind)
                made |= dict(zip(names, self.sheets[kind].cuda_indices, strict=False))
        return made

    @property
    def native(self) -> bool:
        """Whether the devices are this machine's own, so that a real run is on the wall clock."""
        return all(self.sheets[kind].native for kind in self.kinds)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(device.kind for device in self.devices))

    @cached_property
    def num_devices_by_kind(self) -> dict[str, int]:
        return {kind: sum(device.kind == kind for device in self.devices) for kind in self.kinds}
