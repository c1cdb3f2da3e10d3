"""What `hetsys profile` measured of this machine's devices: times of operations, training speeds, restarts; and the file that holds it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any

from hetsys.core import host
from hetsys.core.cluster import Cluster
from hetsys.core.costs import ProfileTable, Provenance, Row
from hetsys.core.errors import ConfigError, did_you_mean
from hetsys.core.files import whole_file

SCHEMA_VERSION = 1
FOLDER = "calibration"
UNITS = {"seconds": "s", "sd": "s", "num_bytes": "B", "flops": "2 a multiply-add", "steps_per_s": "optimiser steps of the whole gang / s"}
_AXES = {"linear": ("rows",), "decode_attention": ("rows", "kv_tokens"), "prefill_attention": ("rows",), "copy": ("num_bytes",)}


@dataclass(frozen=True)
class OpRow:
    """`op` took `seconds` (median of `n` repeats, standard deviation `sd`) on a device of `kind`; the work is that of `core.costs.Op`.

    `shape`: what the amounts do not say, such as "576x3072" of a linear layer.
    """

    kind: str
    op: str
    dtype: str
    shape: str
    rows: float
    kv_tokens: float
    num_bytes: float
    flops: float
    seconds: float
    sd: float
    n: int


@dataclass(frozen=True)
class JobRow:
    """A gang of `gang` devices of `kind` trained `program` ("conv/full") at `steps_per_s`: the median of `n` stretches; `sd_fraction`: the
    standard deviation of these as a part of it."""

    program: str
    kind: str
    gang: int
    steps_per_s: float
    sd_fraction: float
    n: int


@dataclass(frozen=True)
class Calibration:
    """Measured on the devices `devices` (kind -> number), all of them busy at once for `busy_fraction[kind]` of the time.

    `cluster`: the option that was profiled. `restart_s[kind]`: from asking for a process to the end of its first step, less one step, with
    a checkpoint loaded. `host`: facts of the machine, with its fingerprint. `made_at`: ISO 8601, UTC.
    """

    cluster: str
    devices: Mapping[str, int]
    busy_fraction: Mapping[str, float]
    ops: Sequence[OpRow]
    jobs: Sequence[JobRow]
    restart_s: Mapping[str, float]
    host: Mapping[str, Any]
    torch: str
    commit: str
    command: str
    made_at: str
    source: str = "measured"
    units: Mapping[str, str] = field(default_factory=lambda: dict(UNITS))

    def __post_init__(self) -> None:
        numbers = [row.steps_per_s for row in self.jobs] + [row.seconds for row in self.ops] + list(self.restart_s.values())
        if not all(isfinite(number) and number >= 0 for number in numbers):
            raise ConfigError("calibration", self.cluster, "holds a time or speed that is no finite number, 0 or more; profile again")

    @cached_property
    def hash(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of what was measured and under which conditions, whenever and by whom."""
        facts = asdict(self)
        decides = {name: facts[name] for name in ("devices", "busy_fraction", "ops", "jobs", "restart_s")}
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]

    def steps_per_s(self, program: str, gang: int = 1) -> dict[str, float]:
        """Speed by kind. Raises ConfigError for a program that was not measured with this gang."""
        found = {row.kind: row.steps_per_s for row in self.jobs if (row.program, row.gang) == (program, gang)}
        if not found:
            known = {row.program for row in self.jobs if row.gang == gang}
            raise ConfigError("program", program, f"was not measured with a gang of {gang}; {did_you_mean(program, known)}")
        return found

    def table(self, op: str) -> ProfileTable:
        """The rows of one operation as a cost table by device, shape and dtype. Raises ConfigError for one that was not measured."""
        rows = [row for row in self.ops if row.op == op]
        if not rows:
            raise ConfigError("op", op, did_you_mean(op, {row.op for row in self.ops}))
        axes = _AXES[op]
        spread = sum(row.sd / row.seconds for row in rows if row.seconds) / len(rows)
        origin = Provenance("measured", f"hetsys profile {self.cluster}, {self.host.get('cpu', '')}", self.commit, "", len(rows), spread)
        points = [Row((r.kind, r.shape, r.dtype), tuple(float(getattr(r, axis)) for axis in axes), r.seconds) for r in rows]
        return ProfileTable(("device", "shape", "dtype"), axes, tuple(points), origin, beyond="mark")

    def fits(self, cluster: Cluster) -> bool:
        """Whether it was measured with these devices on this machine, with the torch that is installed."""
        busy = {kind: cluster.sheets[kind].busy_fraction for kind in cluster.kinds}
        here = (dict(cluster.num_devices_by_kind), busy, host.facts()["fingerprint"], host.torch_build().version)
        return (dict(self.devices), dict(self.busy_fraction), self.host.get("fingerprint"), self.torch) == here


def file_of(cluster: str, results: Path) -> Path:
    """Where the calibration of the cluster option `cluster` on this machine lies: `results/calibration/<option>-<fingerprint>.json`."""
    return results / FOLDER / f"{cluster}-{host.facts()['fingerprint']}.json"


def write(calibration: Calibration, results: Path) -> Path:
    """Write the file, whole or not at all, and return where it lies."""
    path = file_of(calibration.cluster, results)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"schema_version": SCHEMA_VERSION, **asdict(calibration)}
    with whole_file(path, f".{os.getpid()}.part") as file:
        file.write(_text(content).encode())
    return path


def read(path: Path) -> Calibration:
    """The calibration in a file. Raises ConfigError, naming the file, where there is none, or it is damaged or of another version."""
    again = "profile the cluster again: hetsys profile CLUSTER"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError("calibration", str(path), f"cannot be read ({error.strerror}); {again}") from None
    except ValueError:
        raise ConfigError("calibration", str(path), f"is not valid JSON; {again}") from None
    version = content.pop("schema_version", None) if isinstance(content, dict) else None
    if version != SCHEMA_VERSION:
        raise ConfigError("calibration", str(path), f"is of schema version {version}, this hetsys reads {SCHEMA_VERSION}; {again}")
    try:
        ops, jobs = [OpRow(**row) for row in content.pop("ops")], [JobRow(**row) for row in content.pop("jobs")]
        return Calibration(ops=ops, jobs=jobs, **content)
    except (KeyError, TypeError):
        raise ConfigError("calibration", str(path), f"lacks or has unknown keys; {again}") from None


def find(cluster: Cluster, results: Path) -> Calibration | None:
    """The newest calibration under `results` that fits the cluster on this machine; None where there is none.

    Raises ConfigError for a damaged file of this machine.
    """
    paths = sorted((results / FOLDER).glob(f"*-{host.facts()['fingerprint']}.json"))
    fitting = [calibration for path in paths if (calibration := read(path)).fits(cluster)]
    return max(fitting, key=lambda calibration: calibration.made_at, default=None)


def _text(content: Mapping[str, Any]) -> str:
    """JSON with one row of a table a line."""
    lines = []
    for key, value in content.items():
        if key in ("ops", "jobs"):
            rows = ",\n".join(f"    {json.dumps(row)}" for row in value)
            lines.append(f'  "{key}": [\n{rows}\n  ]')
        else:
            lines.append(f'  "{key}": {json.dumps(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"
