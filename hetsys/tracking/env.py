"""What surrounded a run: code, packages, machine, devices and times, as written to `env.json`."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from hetsys.core.experiment import Experiment
from hetsys.core.host import facts

SCHEMA_VERSION = 1
_ROOT = Path(__file__).resolve().parents[2]
_CODE = ("hetsys", "conf")
_PACKAGES = ("hydra-core", "omegaconf", "numpy", "pulp", "highspy", "torch")


def environment(
    experiment: Experiment, *, start_time: datetime, data_sha256: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The content of `env.json`. `start_time` is aware of its zone and stored as ISO 8601 in UTC; the folder adds the end time.

    `data_sha256` maps each data file or cost table to its hash. `commit` and `dirty` speak of the code and configuration that
    ship with hetsys; `code_id` is equal for equal code.
    """
    about = experiment.system_about
    return {
        "schema_version": SCHEMA_VERSION,
        "experiment": experiment.name,
        "system": experiment.system,
        "label": about.label or experiment.system,
        "seed": experiment.seed,
        "domain": experiment.domain,
        "backend": experiment.backend,
        "source": experiment.source,
        "frame_hash": experiment.frame_hash,
        "run_hash": experiment.run_hash,
        "options": dict(experiment.options),
        "overrides": list(experiment.overrides),
        **code_version(),
        "packages": package_versions(),
        "machine": machine(),
        "devices": dict(experiment.cluster.num_devices_by_kind),
        "data_sha256": dict(data_sha256 or {}),
        "start_time": start_time.astimezone(UTC).isoformat(timespec="milliseconds"),
        "end_time": None,
    }


def code_id() -> str:
    """What "this commit" means to a resumed sweep: the commit, with a hash of what differs from it."""
    return str(code_version()["code_id"])


@cache
def code_version() -> dict[str, Any]:
    """`commit`, `dirty` and `code_id` of the running code; read once a process.

    In a clone of hetsys: the commit, whether `hetsys/` or `conf/` differ from it, and the commit with a hash of the difference
    and of new files there. Installed without git: the version of the package, thrice the same thing.
    """
    top = _git("rev-parse", "--show-toplevel")
    if top is None or Path(os.fsdecode(top.strip())).resolve() != _ROOT:
        version = _version("hetsys") or "unknown"
        return {"commit": version, "dirty": False, "code_id": version}
    head = _git("rev-parse", "--verify", "--quiet", "HEAD")
    commit = head.decode().strip() if head else "no-commit"
    changes = _changes(has_commit=head is not None)
    code_id = f"{commit}-{hashlib.sha256(changes).hexdigest()[:10]}" if changes else commit
    return {"commit": commit, "dirty": bool(changes), "code_id": code_id}


@cache
def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that results may depend on, read without importing them."""
    found = {name: version for name in _PACKAGES if (version := _version(name))}
    return {"python": platform.python_version(), "hetsys": _version("hetsys") or "unknown", **found}


def machine() -> dict[str, Any]:
    """The host: processor, cores, memory, system, and a short hash of the first three."""
    return facts()


def _changes(*, has_commit: bool) -> bytes:
    """All that differs from the commit in code and configuration: the diff, then name and content of each new file."""
    parts = [_git("diff", "--no-ext-diff", "--binary", "HEAD", "--", *_CODE) or b""] if has_commit else []
    listed = ("ls-files", "--others") if has_commit else ("ls-files", "--others", "--cached")
    names = _git(*listed, "--exclude-standard", "-z", "--", *_CODE) or b""
    for name in sorted(filter(None, names.split(b"\0"))):
        path = _ROOT / os.fsdecode(name)
        parts += [name, path.read_bytes()] if path.is_file() else []
    return b"\0".join(filter(None, parts))


def _git(*arguments: str) -> bytes | None:
    """What git prints, or None where git is missing or refuses."""
    command = ["git", "-C", str(_ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"})
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
