"""Readers of published and measured times: the full tables of the data folder, and the condensed ones of `conf/tables`.

Both become a ProfileTable, so that everything runs without a data folder; `condense.py` makes the second from the first.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from hetsys.core.costs import ProfileTable, Provenance, Row
from hetsys.core.errors import ConfigError, did_you_mean
from hetsys.core.paths import shipped

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_COMMITS_VIDUR = "25e529d bee57da e26eb8f 683364e (a100 70b, a100 7b, a40, h100 70b)"
_COMMITS_VIDUR_NET = "e26eb8f d200512 60277c0 5555bb8 (by cluster and operation)"


@dataclass(frozen=True)
class Layout:
    """How a CSV becomes a table.

    `keys` and `axes`: (name in the table, column of the file); the first key is the device. `values`: (name, column); where there
    are several, the name becomes the last key, `what`. `rename`: spelling of a device in the file -> name of its sheet.
    """

    keys: tuple[tuple[str, str], ...]
    axes: tuple[tuple[str, str], ...]
    values: tuple[tuple[str, str], ...]
    unit: str
    origin: Provenance
    rename: tuple[tuple[str, str], ...] = ()

    @property
    def key_names(self) -> tuple[str, ...]:
        names = tuple(name for name, _ in self.keys)
        return (*names, "what") if len(self.values) > 1 else names


@dataclass(frozen=True)
class Published:
    """A published table: its file below the data folder and its layout there. The condensed one is `conf/tables/<name>.csv`."""

    file: str
    layout: Layout


TABLES = {
    "helix_layers": Published(
        "gpu_profiles/helix_llm_layer_latency.csv",
        Layout(
            keys=(("device", "gpu"), ("model", "model"), ("phase", "phase")),
            axes=(("rows", "batch_tokens"),),
            values=(("time", "time_ms"),),
            unit="ms",
            origin=Provenance("published", "Thesys-lab/Helix-ASPLOS25 simulator/model_manager", "9698e32", "Apache-2.0"),
            rename=(("A100", "a100_40g"),),
        ),
    ),
    "vidur_linear": Published(
        "gpu_profiles/vidur_mlp_median_ms.csv",
        Layout(
            keys=(("device", "gpu"), ("model", "model"), ("tp", "tp")),
            axes=(("rows", "num_tokens"),),
            values=tuple((name, name) for name in ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")),
            unit="ms",
            origin=Provenance("published", "microsoft/vidur data/profiling/compute/*/mlp.csv", _COMMITS_VIDUR, "MIT"),
            rename=(("a100", "a100_80g"),),
        ),
    ),
    "vidur_network": Published(
        "gpu_profiles/vidur_network_median_ms.csv",
        Layout(
            keys=(
                ("cluster", "cluster"),
                ("collective", "collective"),
                ("num_workers", "num_workers"),
                ("devices_per_node", "devices_per_node"),
            ),
            axes=(("num_bytes", "size_bytes"),),
            values=(("time", "median_ms"),),
            unit="ms",
            origin=Provenance("published", "microsoft/vidur data/profiling/network", _COMMITS_VIDUR_NET, "MIT"),
        ),
    ),
    "sailor_layers": Published(
        "gpu_profiles/sailor_train_layer_times.csv",
        Layout(
            keys=(("device", "gpu"), ("model", "model"), ("tp", "tp"), ("layer", "layer")),
            axes=(("rows", "mbs"),),
            values=(("forward", "fwd_s"), ("backward", "bwd_s")),
            unit="s",
            origin=Provenance("published", "eth-easl/sailor sailor/Planner/simulations/profiles_tmp.json", "cf2c8e3", "MIT"),
            rename=(
                ("A100-40", "a100_40g"),
                ("A100-80", "a100_80g"),
                ("V100-16", "v100"),
                ("RTX-3090", "rtx3090"),
                ("RTX-2080", "rtx2080"),
                ("Titan-RTX", "titan_rtx"),
                ("GH-96", "gh200"),
            ),
        ),
    ),
}


def load_table(name: str, data: Path | None = None, beyond: str = "refuse") -> ProfileTable:
    """The table `name` (one of TABLES): complete from the data folder `data`, condensed from `conf/tables` where that is None.

    Raises ConfigError for an unknown name, a missing file, or an entry that is no finite number (with file and line).
    """
    if name not in TABLES:
        raise ConfigError("table", name, did_you_mean(name, TABLES))
    if data is None:
        return read_condensed(shipped("conf") / "tables" / f"{name}.csv", beyond)
    return read_table(data / TABLES[name].file, TABLES[name].layout, beyond)


def read_table(path: Path, layout: Layout, beyond: str = "refuse") -> ProfileTable:
    """The CSV `path` with a header line, laid out as `layout`."""
    return _table(_lines(path, skip_comments=False), path, layout, beyond)


def read_condensed(path: Path, beyond: str = "refuse") -> ProfileTable:
    """A table as `write_condensed` writes it: `# name: text` lines (source, commit, licence, keys, axes, unit), then a CSV."""
    lines = _lines(path, skip_comments=False)
    facts = dict(line[1:].split(":", 1) for _, line in lines if line.startswith("#") and ":" in line)
    facts = {name.strip(): text.strip() for name, text in facts.items()}
    wanted = ("kind", "source", "commit", "licence", "keys", "axes", "unit")
    missing = [name for name in wanted if name not in facts]
    if missing:
        raise ConfigError(str(path), missing, f"begin the file with lines `# name: text` for {', '.join(wanted)}")
    body = _lines(path, skip_comments=True)
    columns = next(csv.reader([body[0][1]]))
    keys, axes = facts["keys"].split(), facts["axes"].split()
    layout = Layout(
        keys=tuple((name, name) for name in keys),
        axes=tuple((name, name) for name in axes),
        values=tuple((name, name) for name in columns if name not in (*keys, *axes)),
        unit=facts["unit"],
        origin=Provenance(facts["kind"], facts["source"], facts["commit"], facts["licence"]),
    )
    return _table(body, path, layout, beyond)


def _lines(path: Path, skip_comments: bool) -> list[tuple[int, str]]:
    """(line number, text) of a file. Raises ConfigError where it cannot be read or holds nothing."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError("table", str(path), f"cannot be read: {error.strerror}") from error
    numbered = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    kept = [(i, line) for i, line in numbered if not (skip_comments and line.startswith("#"))]
    if not kept:
        raise ConfigError("table", str(path), "is empty")
    return kept


def _table(lines: list[tuple[int, str]], path: Path, layout: Layout, beyond: str) -> ProfileTable:
    rows = tuple(_rows(lines, path, layout))
    names = tuple(name for name, _ in layout.axes)
    return ProfileTable(layout.key_names, names, rows, layout.origin, beyond)


def _rows(lines: list[tuple[int, str]], path: Path, layout: Layout) -> Iterator[Row]:
    header = next(csv.reader([lines[0][1]]))
    needed = [column for _, column in (*layout.keys, *layout.axes, *layout.values)]
    for column in needed:
        if column not in header:
            raise ConfigError(f"{path}:{lines[0][0]}", column, f"the column is missing; {did_you_mean(column, header)}")
    if layout.unit not in SECONDS:
        raise ConfigError(f"{path}: unit", layout.unit, did_you_mean(layout.unit, SECONDS))
    rename, scale = dict(layout.rename), SECONDS[layout.unit]
    for number, line in lines[1:]:
        cells = dict(zip(header, next(csv.reader([line])), strict=False))
        where = f"{path}:{number}"
        key = [cells.get(column, "") for _, column in layout.keys]
        key[0] = rename.get(key[0], key[0].lower())
        at = tuple(_number(cells, column, where) for _, column in layout.axes)
        for name, column in layout.values:
            what = (name,) if len(layout.values) > 1 else ()
            yield Row((*key, *what), at, _number(cells, column, where) * scale, where)


def _number(cells: dict[str, str], column: str, where: str) -> float:
    text = cells.get(column, "")
    try:
        value = float(text)
    except ValueError:
        raise ConfigError(where, text, f"column {column} must be a number") from None
    if not (isfinite(value) and value >= 0):
        raise ConfigError(where, text, f"column {column} must be a finite number, 0 or more")
    return value
