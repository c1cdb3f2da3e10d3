"""The reader of stored runs: what each folder under `results/` says, however the run ended."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from hetsys.core.errors import ConfigError, EngineError

_FILES = ("summary.json", "error.txt", "env.json", "records.jsonl", "plan.json", ".lock")  # a folder of settings holds a config.yaml too
_ASIDE = (".aborted-", ".replaced-")
_LEVELS = 3


@dataclass(frozen=True)
class StoredRun:
    """One run folder, read lazily. `summary`, `env` and `plan` are {} where the file is missing and raise EngineError, naming
    the file, where it is damaged; the plain properties (`status`, `system`, ...) always answer."""

    path: Path

    @cached_property
    def summary(self) -> dict[str, Any]:
        return self._json("summary.json")

    @cached_property
    def env(self) -> dict[str, Any]:
        return self._json("env.json")

    @cached_property
    def plan(self) -> dict[str, Any]:
        return self._json("plan.json")

    @cached_property
    def config_yaml(self) -> str:
        """The text of `config.yaml`. Raises EngineError where there is none."""
        try:
            return (self.path / "config.yaml").read_text()
        except OSError as error:
            raise EngineError(f"cannot read {self.path / 'config.yaml'}: {error.strerror}") from error

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved configuration as plain dicts and lists."""
        import yaml

        try:
            config = yaml.load(self.config_yaml, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError as error:
            raise EngineError(f"{self.path / 'config.yaml'} is damaged: {error}") from error
        return dict(config or {})

    @property
    def error(self) -> str:
        """The first line of `error.txt`, or ""."""
        try:
            return (self.path / "error.txt").read_text(errors="replace").partition("\n")[0]
        except FileNotFoundError:
            return ""

    def records(self) -> list[Any]:
        """The typed records of the run's domain, in order. A torn last line is dropped; EngineError for any other bad line."""
        path = self.path / "records.jsonl"
        domain = self.env.get("domain")
        if not domain:
            raise EngineError(f"{self.path / 'env.json'} does not name the domain, so {path} cannot be read")
        return list(import_module(f"hetsys.core.{domain}.record").decode(_rows(path)))

    def all_rows(self) -> Iterator[dict[str, Any]]:
        """Every row of `records.jsonl` as it stands there, in order. EngineError as in `records`."""
        return _rows(self.path / "records.jsonl")

    def rows(self, record: str) -> list[dict[str, Any]]:
        """The rows of `records.jsonl` of one type, such as "parked", as they stand there. Lines of other types are not parsed, so
        this is cheap for rare types. EngineError as in `records`."""
        return [row for row in _rows(self.path / "records.jsonl", f'"{record}"'.encode()) if row.get("record") == record]

    def parked_rows(self) -> list[dict[str, Any]]:
        """The rows of tenants and jobs that were refused at the door, and of jobs that were parked later, each with its `reason`."""
        return [*self.rows("parked"), *(row for row in self.rows("job") if row.get("status") == "parked")]

    @cached_property
    def status(self) -> str:
        """finished | failed | planned (a plan without execution) | unfinished | unreadable (`summary.json` or `env.json` is damaged)."""
        try:
            summary, _ = self.summary, self.env
        except EngineError:
            return "unreadable"
        if summary:
            return str(summary.get("status", "finished"))
        if (self.path / "error.txt").exists():
            return "failed"
        begun = any((self.path / name).exists() for name in ("env.json", "records.jsonl"))
        return "planned" if not begun and (self.path / "plan.json").exists() else "unfinished"

    @property
    def experiment(self) -> str:
        return self.path.parents[1].name

    @property
    def system(self) -> str:
        return self.path.parent.name

    @property
    def seed(self) -> int | None:
        """The seed in the folder's name `<seed>-<hash>`, or None for a folder that is named otherwise."""
        seed = self.path.name.rpartition("-")[0]
        return int(seed) if seed.removeprefix("-").isdigit() else None

    @property
    def label(self) -> str:
        """What to print for the system, such as "Gavel (re-implemented)"."""
        return self._said("label") or self.system

    @property
    def source(self) -> str:
        return self._said("source")

    @property
    def frame_hash(self) -> str:
        return self._said("frame_hash")

    @property
    def commit(self) -> str:
        return self._said("commit")

    @property
    def code_id(self) -> str:
        """The commit, with a hash of uncommitted changes where there were any."""
        return self._said("code_id")

    def _said(self, name: str) -> str:
        return "" if self.status == "unreadable" else str(self.env.get(name) or "")

    def _json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            value = json.loads(path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise EngineError(f"{path} is damaged: {error}") from error
        if not isinstance(value, dict):
            raise EngineError(f"{path} is damaged: it holds no JSON object")
        return value


def find_runs(root: Path, pattern: str | None = None) -> list[StoredRun]:
    """The runs under `root`, sorted by path: a results folder, one of its experiments or systems, or a single run.

    `pattern` keeps those whose path below `root` contains it, or matches it where it is a glob. What was put aside
    (`.aborted-N`, `.replaced-N`) is left out unless `root` names it. Raises ConfigError where `root` is no folder.
    """
    root = Path(root).resolve()
    if not root.is_dir():
        raise ConfigError("path", str(root), "is not a folder; give a results folder, or a run, experiment or system in it")
    runs = [StoredRun(path) for path in _walk(root, _LEVELS)]
    return [run for run in runs if pattern is None or _matches(_below(root, run.path), pattern)]


def of_frame(runs: Sequence[StoredRun], frame: str) -> list[StoredRun]:
    """Those of `runs` whose frame hash begins with `frame`, and those that failed before they had one.

    Raises ConfigError, listing the frames that are there, where no finished run's hash does, or hashes of several frames do.
    """
    finished = [run.frame_hash for run in runs if run.status == "finished"]
    matching = {name for name in finished if name.startswith(frame)}
    if len(matching) != 1:
        there = ", ".join(f"{name or 'unknown'} ({finished.count(name)} runs)" for name in sorted(matching or set(finished)))
        means = "means several frames, give more digits" if matching else "is the frame of no finished run here"
        raise ConfigError("--frame", frame, f"{means}; there is {there or 'none'}")
    return [run for run in runs if run.frame_hash in matching or (not run.frame_hash and run.status != "finished")]


def _below(root: Path, path: Path) -> str:
    return path.name if path == root else path.relative_to(root).as_posix()


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) if any(sign in pattern for sign in "*?[") else pattern in name


def _walk(folder: Path, levels: int) -> Iterator[Path]:
    if any((folder / name).exists() for name in _FILES):
        yield folder
    elif levels:
        for child in sorted(folder.iterdir()):
            if child.is_dir() and not child.name.startswith(".") and not any(mark in child.name for mark in _ASIDE):
                yield from _walk(child, levels - 1)


def _rows(path: Path, holding: bytes = b"") -> Iterator[dict[str, Any]]:
    """The lines of `path` that contain `holding`, parsed."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return
    for number, line in enumerate(lines, start=1):
        if holding not in line:
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                return
            raise EngineError(f"{path}, line {number} is damaged: {error}") from error
        yield row
