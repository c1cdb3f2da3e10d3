"""The built wheel works far from the repository: its options, tables and figure scripts travel inside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]  # one worker builds the wheel
PIP = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with hetsys installed from a wheel, built offline from a copy of what the repository holds."""
    source, wheels, target = (tmp_path_factory.mktemp(name) for name in ("source", "wheels", "target"))
    for name in ("hetsys", "conf", "paper_figs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "THIRD_PARTY.md"):
        shutil.copy(ROOT / name, source / name)
    build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(wheels), str(source)]
    subprocess.run(build, check=True, capture_output=True, cwd=wheels)
    (wheel,) = wheels.glob("hetsys-*.whl")
    subprocess.run([*PIP, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)], check=True, cwd=wheels)
    return target


def run(installed: Path, folder: Path, *arguments: str) -> str:
    """What `python -m hetsys ARGUMENTS` of the installed wheel prints, started in `folder`."""
    environment = os.environ | {"PYTHONPATH": str(installed), "HETSYS_RESULTS": str(folder / "results")}
    command = [sys.executable, "-m", "hetsys", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_is_in_the_wheel(installed: Path) -> None:
    for folder, home in (("hetsys", installed), ("conf", installed / "hetsys"), ("paper_figs", installed / "hetsys")):
        here = {path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.*") if path.suffix in (".py", ".yaml", ".csv")}
        assert here and {path for path in here if not (home / path).exists()} == set()


def test_the_wheel_runs_from_another_folder(installed: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    show = [sys.executable, "-c", "from hetsys.core.paths import shipped; print(shipped('conf'), shipped('paper_figs'))"]
    where = subprocess.run(show, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment).stdout.split()
    assert where == [str(installed / "hetsys" / "conf"), str(installed / "hetsys" / "paper_figs")]
    listed = run(installed, tmp_path, "list", "systems")
    assert all(path.stem in listed for path in (ROOT / "conf" / "system").glob("*.yaml"))
    run(installed, tmp_path, "run", "plan_only=true", "experiment=oef_smoke")
    assert list((tmp_path / "results").rglob("plan.json"))
