"""Who may import whom, and through which door a heavy package comes in: read from the source with `ast`, nothing is executed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

ROOMS = {
    "core": set(),
    "systems": {"core"},
    "workloads": {"core"},
    "models": {"core"},
    "runtime": {"core"},
    "metrics": {"core"},
    "tracking": {"core"},
    "engines": {"models", "runtime", "core"},
    "report": {"metrics", "tracking", "core"},
    "paper_figs": {"report", "metrics", "tracking", "core"},
    "config": {"core"},
    "runner": {"config", "systems", "engines", "workloads", "metrics", "tracking", "report", "profile", "models", "runtime", "core"},
    "profile": {"models", "runtime", "tracking", "core"},
    "list_options": {"config", "core", "workloads"},
    "doctor": {"systems", "workloads", "runtime", "tracking", "core"},
}
COMMAND_LINE = "__main__"  # thin, and the only one that may reach every room
DOORS = {
    "torch": ["hetsys.models*", "hetsys.runtime*", "hetsys.engines.*.live*"],
    "accelerate": ["hetsys.runtime*", "hetsys.models.jobs*"],
    "hydra": ["hetsys.config*", "hetsys.__main__"],
    "omegaconf": ["hetsys.config*", "hetsys.__main__"],
    "hydra_zen": ["hetsys.config*"],
    "wandb": ["hetsys.tracking.wandb"],
    "pulp": ["hetsys.systems.solve"],
    "highspy": ["hetsys.systems.solve"],
}
LAZY = {"pulp", "highspy", "scipy", "matplotlib", "rich", "wandb", "pandas", "pyarrow", "torch", "accelerate"}
AT_HOME = {"torch": ["hetsys.models.*", "hetsys.engines.*.live*"], "accelerate": ["hetsys.models.jobs*"]}
"""Rooms that are loaded only where real work is done: there these may stand at the top."""
IMPURE = {"time", "subprocess", "multiprocessing", "threading", "asyncio", "socket"}  # a policy has no clock and no processes


@dataclass(frozen=True)
class Import:
    target: str
    line: int
    at_start: bool  # executed when the module is imported: neither inside a function nor for type checkers only


def imports_of(module: str, source: str, is_package: bool = False) -> Iterator[Import]:
    """Every import of `source`, function-level ones and `import_module("...")` included, with absolute targets."""
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        for target in _targets(node, module if is_package else module.rpartition(".")[0]):
            yield Import(target, node.lineno, _runs_at_start(node, parents))


def _targets(node: ast.AST, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *filter(None, [node.module])])
        return [f"{base}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ("import_module", "__import__") and isinstance(node.args[0].value, str):
            return [node.args[0].value]
    return []


def _runs_at_start(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    while node in parents:
        node = parents[node]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return False
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return False
    return True


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[0] if parts[0] == "paper_figs" else (parts[1] if len(parts) > 1 else "")


def complaints(module: str, source: str, is_package: bool = False) -> list[str]:
    """What `source`, as the module of that name, does against the rules; empty if nothing."""
    room = room_of(module)
    if room and room != COMMAND_LINE and room not in ROOMS:
        return [f"{module}: the room {room!r} is not in docs/house.md; add it there and to ROOMS"]
    found = imports_of(module, source, is_package)
    return [f"{module}:{one.line}: {why}" for one in found for why in _judge(module, room, one)]


def _judge(module: str, room: str, found: Import) -> Iterator[str]:
    top = found.target.split(".")[0]
    if top in ("hetsys", "paper_figs"):
        other = room_of(found.target)
        if other and other != room and room != COMMAND_LINE and other not in ROOMS.get(room, set()):
            yield f"{room or 'hetsys/__init__'} may not import {other} ({found.target})"
        return
    if room == "core" and top != "numpy" and top not in sys.stdlib_module_names:
        yield f"core is standard library and numpy only, not {top}"
    if room == "systems" and top in IMPURE:
        yield f"a policy is pure and may not import {top}"
    if top in DOORS and not any(fnmatch(module, door) for door in DOORS[top]):
        yield f"{top} comes in through {', '.join(DOORS[top])} only"
    if top in LAZY and found.at_start and not any(fnmatch(module, home) for home in AT_HOME.get(top, ())):
        yield f"import {top} inside the function that needs it"


def modules() -> list[tuple[str, Path]]:
    files = [*(ROOT / "hetsys").rglob("*.py"), *(ROOT / "paper_figs").rglob("*.py")]
    return sorted((".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path) for path in files)


def test_every_module_keeps_the_import_rules() -> None:
    assert len(modules()) > 20
    assert [line for name, path in modules() for line in complaints(name, path.read_text(), path.stem == "__init__")] == []


@pytest.mark.parametrize(
    ("module", "source", "why"),
    [
        ("hetsys.systems.x", "from hetsys.engines.scheduling import loop", "may not import engines"),
        ("hetsys.engines.scheduling.x", "def f():\n    import hetsys.systems.oef", "may not import systems"),
        ("hetsys.engines.x", "from ..systems import solve", "may not import systems"),
        ("hetsys.core.x", "from importlib import import_module\nimport_module('hetsys.config')", "may not import config"),
        ("hetsys.core.x", "def f():\n    import yaml", "standard library and numpy only"),
        ("hetsys.metrics.x", "from hetsys import tracking", "may not import tracking"),
        ("hetsys.config.x", "from hetsys.runner import execute", "may not import runner"),
        ("hetsys.systems.x", "import time", "a policy is pure"),
        ("hetsys.systems.oef.x", "def f():\n    import pulp", "hetsys.systems.solve only"),
        ("hetsys.systems.solve", "import pulp", "inside the function"),
        ("hetsys.workloads.x", "def f():\n    from omegaconf import OmegaConf", "hetsys.config*"),
        ("hetsys.tracking.folder", "def f():\n    import wandb", "hetsys.tracking.wandb only"),
        ("hetsys.engines.scheduling.sim", "def f():\n    import torch", "torch comes in through"),
        ("hetsys.runtime.x", "import torch", "inside the function"),
        ("hetsys.engines.scheduling.live.x", "def f():\n    import accelerate", "accelerate comes in through"),
        ("hetsys.models.jobs.x", "from hetsys.runtime import local", "models may not import runtime"),
        ("paper_figs.x", "import matplotlib.pyplot as plt", "inside the function"),
        ("paper_figs.x", "from hetsys.runner import run_sweep", "may not import runner"),
        ("hetsys.utils.x", "", "is not in docs/house.md"),
    ],
)
def test_an_offending_module_is_caught(module: str, source: str, why: str) -> None:
    found = complaints(module, source)
    assert len(found) == 1 and why in found[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("hetsys.core.x", "import json\nimport numpy as np\nfrom . import errors\nfrom hetsys.core.errors import ConfigError"),
        ("hetsys.systems.solve", "def f():\n    import pulp"),
        ("hetsys.report.x", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import rich"),
        ("hetsys.engines.training.live.x", "import torch"),
        ("hetsys.models.jobs.x", "import torch\nfrom accelerate import Accelerator"),
        ("hetsys.__main__", "def f():\n    from hetsys.runner import run_sweep\n    import hydra"),
    ],
)
def test_a_good_module_is_left_alone(module: str, source: str) -> None:
    assert complaints(module, source) == []


SHOW_LOADED = """
import importlib, pkgutil, sys
for name in sys.argv[2:]:
    module = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), name + "."):
        importlib.import_module(found.name)
print(" ".join(sorted(set(sys.argv[1].split(",")) & set(sys.modules))))
"""
HEAVY = "torch,hydra,omegaconf,wandb,matplotlib,pandas,pulp,highspy,scipy,accelerate"


def loaded(heavy: str, *names: str) -> list[str]:
    """Which of `heavy` are in memory after `names`, submodules included, were imported in a new process."""
    command = [sys.executable, "-c", SHOW_LOADED, heavy, *names]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()


LIGHT = [
    "core", "systems", "metrics", "workloads", "tracking", "runtime", "profile", "engines.scheduling.loop", "engines.scheduling.sim",
    "engines.scheduling.state", "models.jobs.names",
]  # fmt: skip


@pytest.mark.parametrize("package", LIGHT)
def test_a_light_room_loads_nothing_heavy(package: str) -> None:
    assert loaded(HEAVY, f"hetsys.{package}") == []


def test_running_simulations_loads_no_torch() -> None:
    assert loaded("torch,accelerate,wandb", "hetsys.runner.sweep", "hetsys.runner.command", "hetsys.config") == []


def test_the_command_line_starts_without_anything_heavy() -> None:
    assert loaded(HEAVY, "hetsys.__main__") == []


def test_loaded_sees_what_is_loaded() -> None:
    assert loaded(HEAVY, "omegaconf") == ["omegaconf"]


def test_the_house_says_what_is_enforced() -> None:
    row = re.compile(r"^\| `(?:hetsys/)?(\w+)(?:/|\.py)?` \|[^|]*\| ([^|]+) \|$", re.MULTILINE)
    rows = row.findall((ROOT / "docs" / "house.md").read_text())
    written = {room: set(allowed.split(", ")) for room, allowed in rows if room not in ("core", COMMAND_LINE)}
    assert written == {room: allowed for room, allowed in ROOMS.items() if room != "core"}
