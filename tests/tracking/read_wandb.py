"""A small reader of wandb's offline transaction log, so that tests can look at what a run really left behind.

The file is seven bytes of header, then blocks of 32 KiB in the manner of a LevelDB log: each chunk has a checksum, a length and
a type (whole record, first, middle or last part). A record is a protocol buffer.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_HEADER = struct.Struct("<4sHB")
_CHUNK = struct.Struct("<IHB")
_BLOCK_BYTES = 32 * 1024
_WHOLE, _FIRST, _LAST = 1, 2, 4


@dataclass
class WandbLog:
    """What one offline run holds. `exit_code` is None where the run was never closed."""

    run_id: str = ""
    group: str = ""
    job_type: str = ""
    project: str = ""
    name: str = ""
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    step_metrics: dict[str, str] = field(default_factory=dict)
    artifacts: dict[str, dict[str, Path]] = field(default_factory=dict)
    exit_code: int | None = None


def read_wandb(run_folder: Path) -> WandbLog:
    """The single offline run under `<run folder>/wandb/`."""
    (path,) = run_folder.glob("wandb/offline-run-*/run-*.wandb")
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    log = WandbLog()
    for raw in _raw_records(path.read_bytes()):
        record = Record()
        record.ParseFromString(raw)
        _take(log, record)
    return log


def _raw_records(data: bytes) -> Iterator[bytes]:
    magic, number, _version = _HEADER.unpack_from(data)
    assert (magic, number) == (b":W&B", 0xBEE1)
    at, parts = _HEADER.size, b""
    while at + _CHUNK.size <= len(data):
        left = _BLOCK_BYTES - at % _BLOCK_BYTES
        if left < _CHUNK.size:
            at += left
            continue
        _checksum, length, kind = _CHUNK.unpack_from(data, at)
        at += _CHUNK.size
        parts = data[at : at + length] if kind in (_WHOLE, _FIRST) else parts + data[at : at + length]
        at += length
        if kind in (_WHOLE, _LAST):
            yield parts


def _take(log: WandbLog, record: Any) -> None:
    kind = record.WhichOneof("record_type")
    if kind == "run":
        run = record.run
        log.run_id, log.group, log.job_type, log.project = run.run_id, run.run_group, run.job_type, run.project
        log.name, log.tags = run.display_name, list(run.tags)
        _update(log.config, run.config.update)
    elif kind == "config":
        _update(log.config, record.config.update)
    elif kind == "history":
        row: dict[str, Any] = {}
        _update(row, record.history.item)
        log.history.append(row)
    elif kind == "summary":
        _update(log.summary, record.summary.update)
    elif kind == "metric" and record.metric.step_metric:
        log.step_metrics[record.metric.name or record.metric.glob_name] = record.metric.step_metric
    elif kind == "artifact":
        log.artifacts[record.artifact.name] = {
            entry.path: Path(entry.local_path) for entry in record.artifact.manifest.contents
        }
    elif kind == "exit":
        log.exit_code = record.exit.exit_code


def _update(into: dict[str, Any], items: Any) -> None:
    for item in items:
        keys = list(item.nested_key) or [item.key]
        place = into
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        place[keys[-1]] = json.loads(item.value_json)
