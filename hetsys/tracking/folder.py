"""The writer of a run's folder, which is the truth about the run: every file of it, the lock on it and the index line.

A folder is done when `summary.json` stands in it; that file is written last and in one step.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from hetsys.core.errors import ConfigError, EngineError, HetsysError
from hetsys.core.files import fsync
from hetsys.tracking.stored import StoredRun, find_runs

__all__ = ["RunFolder", "StoredRun", "find_runs", "utc_now"]

_FLUSH_PERIOD_S = 1.0
_BUFFER_BYTES = 1 << 18
_LOCK = ".lock"
_RECORDS, _LEDGER = "records.jsonl", "ledger.jsonl"
_PLANNED = {"config.yaml", "env.json", "plan.json", _LOCK}
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO}
_log = logging.getLogger(__name__)


def utc_now() -> str:
    """The time now, ISO 8601, UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class RunFolder:
    """One run's folder while the run is under way; made by `RunFolder.open`, ended by `finish`, `fail` or `close`.

    Writing raises EngineError, naming the file, where the disk is full or refuses; ValueError for NaN or infinity in JSON.
    """

    def __init__(self, path: Path, lock: int) -> None:
        """Use `RunFolder.open`: `lock` is an open, locked descriptor of the folder's lock file."""
        self.path = path
        self._lock: int | None = lock
        self._lines: dict[str, BinaryIO] = {}
        self._flushed_s = 0.0
        self._env: dict[str, Any] | None = None

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Create the folder `results/<experiment>/<system>/<run>` and lock it.

        What is in the way is kept: a torn or failed run is renamed `<run>.aborted-N`, a finished one `<run>.replaced-N` (so ask
        `StoredRun.status` first where a finished run should stand). A folder that was only planned is filled in.
        Raises ConfigError where another process writes this run or the place cannot be written.
        """
        with _place(path):
            while True:
                path.mkdir(parents=True, exist_ok=True)
                lock = _locked(path)
                if lock is None:
                    continue
                if {entry.name for entry in os.scandir(path)} <= _PLANNED:
                    return cls(path, lock)
                _move_aside(path)
                os.close(lock)

    def write_config(self, config_yaml: str) -> None:
        """`config.yaml`: the resolved configuration as it is."""
        self._replace("config.yaml", config_yaml.encode())

    def write_env(self, env: Mapping[str, Any]) -> None:
        """`env.json`; `finish` and `fail` add its `end_time`."""
        self._env = dict(env)
        self._replace("env.json", _pretty(self._env))

    def write_plan(self, plan: Mapping[str, Any]) -> None:
        """`plan.json`: what the policy decided."""
        self._replace("plan.json", _pretty(plan))

    def write_timeline(self, timeline: Mapping[str, Any]) -> None:
        """`timeline.json`: a Chrome trace."""
        self._replace("timeline.json", _compact(timeline))

    def write_losses(self, digests: Mapping[str, str]) -> None:
        """`losses.json`: by job, the digest of its losses, step by step."""
        self._replace("losses.json", _pretty(digests))

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one line to `records.jsonl`. Buffered: written out when a second has passed since the last time, and at the end."""
        self._append(_RECORDS, record)

    def note(self, entry: Mapping[str, Any]) -> None:
        """Add one line to `ledger.jsonl`: what was ordered of the workers of a live run, and what they counted. Buffered likewise."""
        self._append(_LEDGER, entry)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Make all files durable, then `summary.json` in one step, then the line in `results/index.jsonl`."""
        data = _pretty(summary)
        with self._disk(_RECORDS):
            self._open_lines(_RECORDS)
            self._flush()
        self._stamp_env()
        with self._disk("summary.json"):
            for entry in os.scandir(self.path):
                if entry.is_file() and entry.name != _LOCK:
                    fsync(Path(entry.path))
        self._replace("summary.json", data, durable=True)
        self._index(str(summary.get("status", "finished")))
        self.close()

    def fail(self, error: BaseException | str) -> None:
        """`error.txt`: the message first, the traceback after. Never raises: where even that cannot be written, a log line says so.

        Nothing is written into a folder that is finished.
        """
        if not (self.path / "summary.json").exists():
            try:
                self._replace("error.txt", _error_text(error).encode())
                self._stamp_env()
                self._flush()
            except (EngineError, OSError) as trouble:
                _log.warning("%s failed (%s), and its folder does not say so: %s", self.path, error, trouble)
            self._index("failed")
        self.close()

    def close(self) -> None:
        """Release the folder as it is; for a run that is only planned. Harmless when repeated."""
        for file in self._lines.values():
            with suppress(OSError):  # a disk that refused these lines has been reported already
                file.close()
        self._lines = {}
        if self._lock is not None:
            (self.path / _LOCK).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def _append(self, name: str, row: Mapping[str, Any]) -> None:
        line = _compact(row) + b"\n"
        with self._disk(name):
            self._open_lines(name).write(line)
            if time.monotonic() - self._flushed_s > _FLUSH_PERIOD_S:
                self._flush()

    def _open_lines(self, name: str) -> BinaryIO:
        if name not in self._lines:
            self._lines[name] = (self.path / name).open("wb", buffering=_BUFFER_BYTES)
            self._flushed_s = time.monotonic()
        return self._lines[name]

    def _flush(self) -> None:
        for file in self._lines.values():
            file.flush()
        self._flushed_s = time.monotonic()

    def _stamp_env(self) -> None:
        if self._env is not None:
            self.write_env({**self._env, "end_time": utc_now()})

    def _replace(self, name: str, data: bytes, *, durable: bool = False) -> None:
        """Write a whole file so that it is never seen half-written."""
        target, fresh = self.path / name, self.path / f".{name}.tmp"
        with self._disk(name):
            fresh.write_bytes(data)
            if durable:
                fsync(fresh)
            os.replace(fresh, target)
            if durable:
                fsync(self.path)

    def _index(self, status: str) -> None:
        """One line a run; only a convenience, so a failure is a warning."""
        env = self._env or {}
        names = ("experiment", "system", "seed", "source", "frame_hash", "commit", "code_id", "start_time", "end_time")
        row = {"path": "/".join(self.path.parts[-3:]), "status": status, **{name: env.get(name) for name in names}}
        index = self.path.parents[2] / "index.jsonl"
        try:
            _append_line(index, _compact(row))
        except OSError as trouble:
            _log.warning("no line for %s in %s: %s", self.path, index, trouble.strerror)

    @contextmanager
    def _disk(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _disk_error(self.path / name, error) from error


def _locked(path: Path) -> int | None:
    """A descriptor that holds the folder's lock, or None where the folder moved away meanwhile."""
    name = path / _LOCK
    with ExitStack() as undo:
        try:
            lock = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
            undo.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.stat(name).st_ino == os.fstat(lock).st_ino:
                undo.pop_all()
                return lock
        except FileNotFoundError:
            return None
        except BlockingIOError:
            remedy = "another hetsys process is writing this run; wait until it ends, or choose another name or results folder"
            raise ConfigError("run", str(path), remedy) from None
    return None


def _move_aside(path: Path) -> None:
    reason = "replaced" if (path / "summary.json").exists() else "aborted"
    number = 1
    while (aside := path.with_name(f"{path.name}.{reason}-{number}")).exists():
        number += 1
    path.rename(aside)
    (aside / _LOCK).unlink(missing_ok=True)


@contextmanager
def _place(path: Path) -> Iterator[None]:
    """Turn what goes wrong while making a folder into the user's mistake, or into the disk's."""
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_ERRORS:
            raise _disk_error(path, error) from error
        remedy = f"cannot be written ({error.strerror}); set HETSYS_RESULTS to a folder that can"
        raise ConfigError("results", str(path), remedy) from error


def _disk_error(path: Path, error: OSError) -> EngineError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    what = "the disk is full" if full else str(error.strerror or error)
    return EngineError(f"cannot write {path}: {what}; finished runs are kept, the same command goes on with the rest")


def _append_line(path: Path, line: bytes) -> None:
    """Append a whole line under the file's lock, after ending a torn last line."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, (b"\n" if torn else b"") + line + b"\n")
    finally:
        os.close(descriptor)


def _error_text(error: BaseException | str) -> str:
    if isinstance(error, str):
        return error.rstrip() + "\n"
    message = str(error) if isinstance(error, HetsysError) else f"{type(error).__name__}: {error}"
    return f"{message}\n\n{''.join(traceback.format_exception(error))}"


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain).encode()


def _pretty(value: object) -> bytes:
    return json.dumps(value, indent=1, allow_nan=False, default=_plain).encode() + b"\n"


def _plain(value: object) -> object:
    """What JSON has no form for: numpy's numbers and arrays, mappings, paths."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON: {value!r}")
