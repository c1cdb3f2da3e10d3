"""Facts of the machine that hetsys runs on: processor, cores, memory, instruction sets, GPUs, and how torch was built (without torch)."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

INSTRUCTION_SETS = ("sse4_1", "avx", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")
"""Those that matter to training on a CPU, oldest first, by their names in /proc/cpuinfo."""
_QUERY = ("uuid", "name", "memory.total")
_MIB = 2**20


@dataclass(frozen=True)
class Gpu:
    """A CUDA device. `index`: its number among the visible ones, by PCI bus, as torch counts under CUDA_DEVICE_ORDER=PCI_BUS_ID."""

    index: int
    name: str
    memory_bytes: int


@cache
def facts() -> dict[str, Any]:
    """Processor, cores, memory, system, and a short hash of the first three (the fingerprint)."""
    named = {"cpu": _cpu_model(), "cores": os.cpu_count() or 0, "memory_bytes": _memory_bytes()}
    fingerprint = hashlib.sha256(repr(sorted(named.items())).encode()).hexdigest()[:12]
    return {**named, "platform": f"{platform.system()} {platform.machine()}", "fingerprint": fingerprint}


def usable_cores() -> int:
    """The cores that this process may use: its affinity where the system has one, else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def instruction_sets() -> tuple[str, ...]:
    """Which of INSTRUCTION_SETS the processor has; empty where the system does not say."""
    flags = next((set(line.partition(":")[2].split()) for line in _cpu_lines() if line.startswith("flags")), set())
    return tuple(name for name in INSTRUCTION_SETS if name in flags)


def gpus(environ: Mapping[str, str] | None = None) -> tuple[Gpu, ...]:
    """The CUDA devices that nvidia-smi sees and CUDA_VISIBLE_DEVICES leaves; none where there is no nvidia-smi or it does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    query = [program, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()] if done.returncode == 0 else []
    listed = [row for row in rows if len(row) == len(_QUERY) and row[2].isdecimal()]
    visible = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    chosen = listed if visible is None else _visible(listed, visible)
    return tuple(Gpu(index, name, int(memory) * _MIB) for index, (_, name, memory) in enumerate(chosen))


def _visible(listed: list[list[str]], visible: str) -> list[list[str]]:
    """As CUDA reads the variable: numbers or beginnings of identifiers, up to the first that names no device."""
    chosen = []
    for word in filter(None, (word.strip() for word in visible.split(","))):
        found = listed[int(word) : int(word) + 1] if word.isdecimal() else [row for row in listed if row[0].startswith(word)][:1]
        if not found:
            break
        chosen += found
    return chosen


@dataclass(frozen=True)
class TorchBuild:
    """`version` as installed ("" where torch is absent); `cuda`: the CUDA version it was built with, "" for none."""

    version: str
    cuda: str


@cache
def torch_build() -> TorchBuild:
    """Read from the installed files: importing torch takes seconds."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return TorchBuild("", "")
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return TorchBuild("unknown", "")
    found = {name: re.search(rf"^{name}\b[^=\n]*= *'([^']*)'", text, re.MULTILINE) for name in ("__version__", "cuda")}
    version, cuda = found["__version__"], found["cuda"]
    return TorchBuild(version[1] if version else "unknown", cuda[1] if cuda else "")


def _cpu_lines() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def _cpu_model() -> str:
    named = [line.partition(":")[2].strip() for line in _cpu_lines() if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0
