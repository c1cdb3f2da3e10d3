"""Native devices: what a worker's environment must hold to be one, and whether this machine can be the cluster that is asked for."""

from __future__ import annotations

import ctypes
import os
import sys
from math import floor

from hetsys.core import host
from hetsys.core.cluster import Cluster
from hetsys.core.errors import ConfigError, EngineError

FREE_CORES = 0.3
"""What the scheduler and the operating system need of the cores while workers compute."""
_SLACK = 1e-9
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _KEPT_BYTES = -1, -3, 1 << 30

_ENVIRONMENTS = {
    "": {},
    "cpu": {},
    "cpu:avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "cpu:sse41": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
    "cuda": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
}
_CAPABILITIES = {"cpu:avx2": "AVX2", "cpu:sse41": "DEFAULT"}
_NEEDS = {"cpu:avx2": "avx2", "cpu:sse41": "sse4_1"}


def worker_env(native: str) -> dict[str, str]:
    """What to put into the environment of a worker that is a device of `DeviceSheet.native`, before its first operation."""
    return dict(_ENVIRONMENTS[native])


def expected_capability(native: str) -> str:
    """What `torch.backends.cpu.get_cpu_capability()` must say in such a worker; "" where any answer is right."""
    return _CAPABILITIES.get(native, "")


def enter_device(native: str, cuda_index: int = 0) -> str:
    """Make this process, which was started with `worker_env(native)`, that device: one thread, its instruction set verified.

    Returns torch's name of the device. Raises EngineError where the process is not what it should be.
    """
    import torch

    torch.set_num_threads(1)
    found, wanted = torch.backends.cpu.get_cpu_capability(), expected_capability(native)
    if wanted and found != wanted:
        raise EngineError(f"this worker computes with {found} instructions and should be capped at {wanted} ({native})")
    if native != "cuda":
        return "cpu"
    if cuda_index >= torch.cuda.device_count():
        raise EngineError(f"torch sees {torch.cuda.device_count()} GPUs; there is none of index {cuda_index}")
    torch.cuda.set_device(cuda_index)
    return f"cuda:{cuda_index}"


def keep_freed_memory() -> None:
    """Have glibc keep what this process frees. A training step takes the memory that the last one freed; glibc else gives large pieces back
    to the system each time and gets them anew page by page, which took 1.7 of 13 ms of a convolutional net's step. Elsewhere no effect."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)


def check_busy(cluster: Cluster, cores: float | None = None) -> None:
    """Raise ConfigError unless this machine can be the native devices of `cluster`: enough cores for its CPU workers and the scheduler
    (`cores`: None counts those that this process may use), their instruction sets, its GPUs. Other clusters pass."""
    sheets = [cluster.sheets[device.kind] for device in cluster.devices]
    set_already = [name for name in _ENVIRONMENTS["cpu:sse41"] if os.environ.get(name)]
    if set_already and any(sheet.native.startswith("cpu") for sheet in sheets):
        name = set_already[0]
        remedy = "this variable caps the instructions of every worker; unset it, so that each kind is what it says"
        raise ConfigError(name, os.environ[name], remedy)
    _check_cores([sheet.busy_fraction for sheet in sheets if sheet.native.startswith("cpu")], cores)
    for kind in cluster.kinds:
        native = cluster.sheets[kind].native
        if native in _NEEDS:
            _check_instructions(kind, native)
        if native == "cuda":
            _check_gpus(cluster, kind)


def _check_cores(busy: list[float], cores: float | None) -> None:
    have = float(host.usable_cores() if cores is None else cores)
    most = have - FREE_CORES
    if not busy or sum(busy) <= most + _SLACK:
        return
    each = sum(busy) / len(busy)
    fits = floor((most + _SLACK) / each)
    remedies = [f"have at most {fits} of them"] if fits else []
    if most > 0:
        remedies.append(f"set their busy_fraction to {floor(100 * most / len(busy)) / 100:g} or less")
    raise ConfigError(
        "cluster.nodes",
        f"{len(busy)} CPU workers",
        f"they would keep {sum(busy):g} cores busy, and this machine has {have:g} - {FREE_CORES:g} for them: the scheduler and the "
        f"operating system need the rest, else timings are of contention; {', or '.join([*remedies, 'use backend=sim'])}",
    )


def _check_instructions(kind: str, native: str) -> None:
    if _NEEDS[native] not in host.instruction_sets():
        known = ", ".join(host.instruction_sets()) or "none that hetsys can see"
        remedy = f"needs a processor with {_NEEDS[native]}; this one has: {known}. Leave the kind out (cluster=local), or use backend=sim"
        raise ConfigError("cluster.nodes.kind", kind, remedy)


def _check_gpus(cluster: Cluster, kind: str) -> None:
    indices, wanted = cluster.sheets[kind].cuda_indices, cluster.num_devices_by_kind[kind]
    if len(indices) < wanted:
        remedy = f"gives {len(indices)} GPU indices for {wanted} devices; give one each"
        raise ConfigError(f"cluster.sheets.{kind}.cuda_indices", list(indices), remedy)
    build = host.torch_build()
    if not build.cuda:
        remedy = f"torch {build.version or '(absent)'} is built without CUDA; install a build with CUDA, or use backend=sim"
        raise ConfigError("cluster.nodes.kind", kind, remedy)
    have = len(host.gpus())
    for index in indices[:wanted]:
        if not 0 <= index < have:
            remedy = f"this machine has {have} visible GPUs (indices from 0); use cluster=local, which takes what is here, or backend=sim"
            raise ConfigError(f"cluster.sheets.{kind}.cuda_indices", list(indices), remedy)
