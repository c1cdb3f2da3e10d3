"""What is said of the code, the machine and the run's surroundings."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from hetsys.tracking import env
from tests.tracking.builders import experiment


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = (tmp_path / "clone").resolve()
    for name in ("hetsys/a.py", "conf/a.yaml", "README.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("1\n")
    git(root, "init", "-q")
    monkeypatch.setattr(env, "_ROOT", root)
    return root


def version() -> dict[str, Any]:
    return env.code_version.__wrapped__()


def test_code_id_follows_the_code_and_only_the_code(clone: Path) -> None:
    before = version()
    assert (before["commit"], before["dirty"]) == ("no-commit", True)
    git(clone, "add", ".")
    assert version() == before, "the same content, whether git knows of it or not"
    git(clone, "commit", "-qm", "first")
    commit = git(clone, "rev-parse", "HEAD")
    clean = {"commit": commit, "dirty": False, "code_id": commit}
    assert version() == clean
    (clone / "README.md").write_text("words\n")
    assert version() == clean
    seen = {commit}
    for name, text in (("hetsys/a.py", "2\n"), ("hetsys/a.py", "3\n"), ("conf/new.yaml", "1\n"), ("conf/new.yaml", "2\n")):
        (clone / name).write_text(text)
        dirty = version()
        assert (dirty["commit"], dirty["dirty"]) == (commit, True)
        assert dirty["code_id"].startswith(commit + "-")
        assert dirty["code_id"] not in seen
        seen.add(dirty["code_id"])
    (clone / "hetsys/a.py").write_text("1\n")
    (clone / "conf/new.yaml").unlink()
    assert version() == clean


def test_inside_somebody_elses_repository_the_package_version_counts(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env, "_ROOT", clone / "hetsys")
    monkeypatch.setattr(env, "_version", lambda name: "9.8.7" if name == "hetsys" else None)
    assert version() == {"commit": "9.8.7", "dirty": False, "code_id": "9.8.7"}


def test_without_git_the_package_version_counts(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(env, "_version", lambda name: None)
    assert version()["code_id"] == "unknown"


def test_environment_is_json_and_says_where_numbers_come_from(results_root: Path) -> None:
    start = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=1)))
    said = json.loads(json.dumps(env.environment(experiment(results_root), start_time=start, data_sha256={"trace.csv": "ab"})))
    assert (said["source"], said["frame_hash"], said["backend"], said["domain"]) == ("simulated", "f00d", "sim", "scheduling")
    assert (said["devices"], said["overrides"], said["data_sha256"]) == ({"k80": 8}, ["seed=3"], {"trace.csv": "ab"})
    assert datetime.fromisoformat(said["start_time"]) == start.astimezone(UTC)
    assert said["start_time"].endswith("+00:00")
    assert said["code_id"] == env.code_id()
    assert {"python", "numpy", "pulp", "hydra-core"} <= said["packages"].keys()
    assert said["machine"]["cores"] > 0 and len(said["machine"]["fingerprint"]) == 12


def test_versions_are_read_without_importing() -> None:
    script = (
        "import sys; from hetsys.tracking import env, folder, tracker, progress, views; env.package_versions()\n"
        "print([name for name in ('torch', 'wandb', 'rich', 'hydra', 'pulp', 'yaml') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=env._ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
