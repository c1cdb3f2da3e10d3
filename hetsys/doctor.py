"""`hetsys doctor`: what this machine has, what can run on it, and whether the solvers answer a small question rightly."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from hetsys.core.errors import ConfigError, HetsysError
from hetsys.core.paths import data_dir, results_dir, shipped

INSTRUCTION_SETS = ("sse4_1", "avx", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")
PACKAGES = {
    "torch": "nothing today; real execution later",
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
    findings = [*machine(), *packages(), code(), data(), results(), *solvers()]
    console.print(_table(findings))
    console.print(_clusters())
    console.print("Today runs are simulated: native and emulated execution are not there yet.")
    bad = [finding.topic for finding in findings if finding.ok is False]
    console.print(f"To mend: {', '.join(bad)}" if bad else "All well.")
    return 1 if bad else 0


def machine() -> Iterator[Finding]:
    """Processor, memory, GPUs and compiler."""
    import psutil

    from hetsys.tracking.env import machine as host
    from hetsys.tracking.env import package_versions

    facts = host()
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else facts["cores"]
    memory = psutil.virtual_memory()
    yield Finding("python", f"{package_versions()['python']} on {facts['platform']}")
    yield Finding("processor", f"{facts['cpu']}, {facts['cores']} cores, {usable} usable")
    yield Finding("instruction sets", _instruction_sets())
    yield Finding("memory", f"{memory.total / 1e9:.1f} GB, {memory.available / 1e9:.1f} GB available")
    yield Finding("GPUs", _gpus())
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    yield Finding("C compiler", compiler or "none (not needed today)")


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
    from hetsys.systems.solve import SOLVERS, maximise, solve, unknown

    for name in SOLVERS:
        problem = maximise("doctor")
        x, y = unknown(problem, "x"), unknown(problem, "y")
        problem += 3 * x + 2 * y
        problem += (x + y <= 4, "first")
        problem += (x + 3 * y <= 6, "second")
        problem += (x <= 3, "third")
        try:
            found = solve(problem, solver=name).objective
        except HetsysError as error:
            yield Finding(f"solver {name}", str(error), ok=False)
        else:
            good = abs(found - SELF_TEST_OPTIMUM) < 1e-6
            yield Finding(f"solver {name}", f"self-test: optimum {found:g}, expected {SELF_TEST_OPTIMUM:g}", ok=good)


def _instruction_sets() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown on this system"
    flags = next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())
    return ", ".join(name for name in INSTRUCTION_SETS if name in flags) or "none of those that matter here"


def _gpus() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return "none"
    query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi does not answer ({type(error).__name__})"
    return "; ".join(done.stdout.splitlines()) if done.returncode == 0 and done.stdout.strip() else "none that nvidia-smi can see"


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
    import yaml
    from rich.table import Table

    from hetsys.workloads.throughputs import KINDS

    table = Table("cluster", "devices", "native", "emulated", "simulated", title="What can run here", title_justify="left")
    for path in sorted((shipped("conf") / "cluster").glob("*.yaml")):
        file = yaml.safe_load(path.read_text(encoding="utf-8"))
        covered = all(group["kind"] in KINDS for group in file["nodes"])
        simulated = "yes" if covered else "with a tenant file of your own speeds"
        table.add_row(path.stem, file["about"]["label"], "not yet", "not yet", simulated)
    return table
