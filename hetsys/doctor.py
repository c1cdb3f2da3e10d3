"""`hetsys doctor`: what this machine has, what can run on it, and whether the solvers answer a small question rightly."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from hetsys.core import host
from hetsys.core.cluster import Cluster, NodeGroup
from hetsys.core.errors import ConfigError, HetsysError
from hetsys.core.paths import data_dir, results_dir, shipped

PACKAGES = {
    "accelerate": "gangs of real training jobs",
    "wandb": "mirror of a run's files; without it choose tracker=files",
    "matplotlib": "hetsys figures",
    "pandas": "analysis in your own scripts",
    "ray": "many machines, later",
}
SELF_TEST_OPTIMUM = 11.0
LEAST_FREE_BYTES = 1e9


@dataclass(frozen=True)
class Finding:
    """One line of the report. `ok`: None where there is nothing to judge; False makes the command end with exit code 1."""

    topic: str
    value: str
    ok: bool | None = None


def main() -> int:
    """Print the report. Returns 0 if all is well, 1 if something here would make runs fail."""
    from rich.console import Console

    console = Console()
    findings = [*machine(), torch(), *packages(), code(), data(), results(), *solvers()]
    console.print(_table(findings))
    console.print(_clusters())
    console.print("native and emulated: backend=torch, jobs really train; simulated: backend=sim. hetsys profile measures native devices.")
    bad = [finding.topic for finding in findings if finding.ok is False]
    console.print(f"To mend: {', '.join(bad)}" if bad else "All well.")
    return 1 if bad else 0


def machine() -> Iterator[Finding]:
    """Processor, memory, GPUs and compiler."""
    import psutil

    from hetsys.tracking.env import package_versions

    facts = host.facts()
    memory = psutil.virtual_memory()
    yield Finding("python", f"{package_versions()['python']} on {facts['platform']}")
    yield Finding("processor", f"{facts['cpu']}, {facts['cores']} cores, {host.usable_cores()} usable, fingerprint {facts['fingerprint']}")
    yield Finding("instruction sets", ", ".join(host.instruction_sets()) or "none of those that matter here, or unknown on this system")
    yield Finding("CPU generations", _generations())
    yield Finding("memory", f"{memory.total / 1e9:.1f} GB, {memory.available / 1e9:.1f} GB available")
    yield Finding("GPUs", _gpus())
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    yield Finding("C compiler", compiler or "none (not needed today)")


def torch() -> Finding:
    """How torch is built; it is not imported for that."""
    build = host.torch_build()
    if not build.version:
        return Finding("torch", "absent: real runs need it", ok=False)
    return Finding("torch", f"{build.version}, " + (f"with CUDA {build.cuda}" if build.cuda else "for CPUs only"))


def packages() -> Iterator[Finding]:
    """Optional packages: found without importing them."""
    for name, purpose in PACKAGES.items():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = "absent"
        yield Finding(name, f"{version} ({purpose})")


def code() -> Finding:
    from hetsys.tracking.env import code_version, package_versions

    version = code_version()
    changed = ", changed since" if version["dirty"] else ""
    return Finding("hetsys", f"{package_versions()['hetsys']}, commit {version['commit'][:12]}{changed}")


def data() -> Finding:
    """The data folder, against the registry of public files that hetsys can read."""
    from hetsys.workloads.fetch import REGISTRY, read_registry

    try:
        folder = data_dir()
    except ConfigError as mistake:
        return Finding("HETSYS_DATA", str(mistake), ok=False)
    if folder is None:
        return Finding("HETSYS_DATA", "not set: presets use the tables that ship with hetsys; see hetsys fetch --list")
    files = read_registry(shipped("conf") / REGISTRY).values()
    here = [file for file in files if (folder / file.name).is_file()]
    odd = [file.name for file in here if (folder / file.name).stat().st_size != file.size_bytes]
    note = f"; of another size than registered: {', '.join(odd)}" if odd else ""
    return Finding("HETSYS_DATA", f"{folder}: {len(here)} of {len(files)} known files{note}", ok=not odd)


def results() -> Finding:
    """Whether the results folder, or the nearest folder above it that exists, can be written and has room."""
    folder = results_dir()
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    free_bytes = shutil.disk_usage(nearest).free
    try:
        with tempfile.TemporaryFile(dir=nearest) as file:
            file.write(b"hetsys")
    except OSError as error:
        return Finding("results folder", f"{folder}: cannot be written ({error.strerror}); set HETSYS_RESULTS", ok=False)
    return Finding("results folder", f"{folder}: writable, {free_bytes / 1e9:.1f} GB free", ok=free_bytes > LEAST_FREE_BYTES)


def solvers() -> Iterator[Finding]:
    """Each solver on a program whose optimum is known: max 3x + 2y with x + y <= 4, x + 3y <= 6, x <= 3 is 11."""
    import numpy as np

    from hetsys.systems.program import Program
    from hetsys.systems.solve import SOLVERS, solve

    for name in SOLVERS:
        program = Program("doctor", [3.0, 2.0])
        program.add("rows", np.array([[0, 1]] * 3), np.array([[1, 1], [1, 3], [1, 0]]), upper=[4, 6, 3])
        try:
            found = solve(program, solver=name).objective
        except HetsysError as error:
            yield Finding(f"solver {name}", str(error), ok=False)
        else:
            good = abs(found - SELF_TEST_OPTIMUM) < 1e-6
            yield Finding(f"solver {name}", f"self-test: optimum {found:g}, expected {SELF_TEST_OPTIMUM:g}", ok=good)


def _generations() -> str:
    """The kinds of CPU worker that this processor can be."""
    from hetsys.runtime.here import sheets

    by_native = {sheet.native: kind for kind, sheet in sheets().items() if sheet.native.startswith("cpu")}
    slow_to_fast = [by_native[native] for native in ("cpu:sse41", "cpu:avx2", "cpu")]
    here = [kind for kind in slow_to_fast if _why_not(Cluster([NodeGroup(kind, 1)], sheets()), cores=2) is None]
    newer = [name for name in host.instruction_sets() if name.startswith(("avx512", "amx"))]
    return ", ".join(here) + ("" if newer or "cpu_avx2" not in here else " (cpu_full is no faster than cpu_avx2 on this processor)")


def _gpus() -> str:
    if shutil.which("nvidia-smi") is None:
        return "none"
    found = "; ".join(f"{gpu.name}, {gpu.memory_bytes / 1e9:.0f} GB" for gpu in host.gpus())
    if found and not host.torch_build().cuda:
        return f"{found}: not usable, this torch is built for CPUs only"
    return found or "none that nvidia-smi can see"


def _table(findings: list[Finding]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="This machine", title_justify="left")
    for name in ("what", "", "found"):
        table.add_column(name, overflow="fold")
    marks = {True: "[green]ok[/]", False: "[red]bad[/]", None: ""}
    for finding in findings:
        table.add_row(finding.topic, marks[finding.ok], Text(finding.value))
    return table


def _clusters() -> Any:
    from rich.table import Table

    table = Table(title="What can run here", title_justify="left")
    for column in ("cluster", "devices", "native", "emulated", "simulated"):
        table.add_column(column, overflow="fold")
    for path in sorted((shipped("conf") / "cluster").glob("*.yaml")):
        table.add_row(path.stem, *_what_runs(path))
    return table


def _what_runs(path: Path) -> tuple[str, ...]:
    """What it consists of, and whether it runs natively, emulated and simulated here."""
    from hetsys.core.calibration import find
    from hetsys.workloads.throughputs import KINDS

    cluster, label = _read_cluster(path)
    if not cluster.native:
        if set(cluster.kinds) <= set(KINDS):
            return label, "no: not here", "with workload=live_mix", "yes"
        return label, "no: not here", *["with a tenant file of your own speeds"] * 2
    devices = " + ".join(f"{count} {kind}" for kind, count in cluster.num_devices_by_kind.items())
    why_not = _why_not(cluster)
    if why_not is not None:
        return devices, f"no: {why_not}", "no: it is native", "with workload=native_mix"
    calibration = find(cluster, results_dir())
    measured = f"yes, measured {calibration.made_at[:10]}" if calibration else "yes, not measured yet"
    return devices, measured, "no: it is native", "with workload=native_mix"


def _why_not(cluster: Cluster, cores: float | None = None) -> str | None:
    from hetsys.runtime.devices import check_busy

    try:
        check_busy(cluster, cores)
    except ConfigError as mistake:
        return f"{mistake.value}: {mistake.remedy}"
    return None


def _read_cluster(path: Path) -> tuple[Cluster, str]:
    """The cluster of a file of conf/cluster and its label, as Hydra would make it."""
    import yaml

    from hetsys.runtime.here import LocalCluster, sheets

    file = yaml.safe_load(path.read_text(encoding="utf-8"))
    if "nodes" not in file:
        return LocalCluster(file["max_devices"]).resolve(), file["about"]["label"]
    chosen = {key.rpartition(".")[2]: option for line in file["defaults"] if isinstance(line, dict) for key, option in line.items()}
    made = Cluster([NodeGroup(**group) for group in file["nodes"]], {kind: sheets()[option] for kind, option in chosen.items()})
    return made, file["about"]["label"]
