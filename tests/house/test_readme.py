"""A newcomer who types what the README says gets what it says: its rival, its cluster and its tenant file work as printed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(?:python|yaml)\n# (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^    hetsys (run .*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the files that the README prints, also where a reader has made files of these names."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("hetsys", "conf", "paper_figs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, body in blocks():
        (folder / name).write_text(body)
    return folder


def blocks() -> list[tuple[str, str]]:
    return BLOCK.findall((ROOT / "README.md").read_text())


def commands() -> list[str]:
    return COMMAND.findall((ROOT / "README.md").read_text())


def test_a_rival_takes_two_files() -> None:
    assert sorted(name for name, _ in blocks()) == [
        "conf/cluster/my_lab.yaml",
        "conf/system/speed_weighted.yaml",
        "hetsys/systems/baselines/speed_weighted.py",
        "my_tenants.yaml",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_the_commands_work_as_printed(command: str, checkout: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "hetsys", *shlex.split(command), "plan_only=true"]
    environment = os.environ | {"PYTHONPATH": str(checkout), "HETSYS_RESULTS": str(tmp_path)}
    done = subprocess.run(words, capture_output=True, text=True, cwd=checkout, env=environment)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("plan.json"))
