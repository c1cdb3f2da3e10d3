"""`hetsys list`: what there is in `conf/`, one line an option or one option in full, read from the YAML files without Hydra."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hetsys.config.options import read_options
from hetsys.core.errors import check_choice

if TYPE_CHECKING:
    from hetsys.core.costs import ProfileTable

Row = tuple[str, ...]
_WIDTH_IN_FILES = 160
_WHOLE = ("option", "arXiv", ">minutes")


def print_options(what: str) -> None:
    """Print the options of one group: systems, clusters, devices, tables, models, workloads or experiments."""
    from rich.console import Console
    from rich.table import Table

    columns, rows = TABLES[what]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            column.lstrip(">"), justify="right" if column.startswith(">") else "left", no_wrap=column in _WHOLE, overflow="fold"
        )
    for row in rows():
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH_IN_FILES
    console.print(table, markup=False)


def print_option(what: str, name: str) -> None:
    """Print one option of a group in full: the words about it, each choice that was ours to make, and what its file sets.

    Raises ConfigError for an unknown `name`.
    """
    import yaml
    from rich.console import Console

    if what == "tables":
        _print_cost_table(name)
        return
    options = read_options(_GROUPS[what])
    check_choice(what, name, options)
    file = dict(options[name])
    about = file.pop("about", {})
    lines = [name, *(f"  {key + ':':11}{value}" for key, value in about.items() if key != "chosen" and value not in (None, ""))]
    lines += ["  chosen by us, as the source leaves it open:"] if about.get("chosen") else []
    lines += [f"    - {choice}" for choice in about.get("chosen") or ()]
    settings = {key: value for key, value in file.items() if key not in ("defaults", "_target_")}
    if settings:
        text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=_WIDTH_IN_FILES)
        lines += ["  settings:", *(f"    {line}" for line in text.splitlines())]
    console = Console()
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _systems() -> Iterator[Row]:
    for name, file in read_options("system").items():
        about = file.get("about", {})
        yield name, *_texts(about, "label", "domain", "summary", "arxiv", "knowledge")


def _clusters() -> Iterator[Row]:
    for name, file in read_options("cluster").items():
        groups = file.get("nodes") or []
        devices = " + ".join(f"{group.get('count', 1)} x {group['devices']} {group['kind']}" for group in groups)
        yield name, *_texts(file.get("about", {}), "label", "summary"), devices


def _workloads() -> Iterator[Row]:
    for name, file in read_options("workload").items():
        yield name, *_texts(file.get("about", {}), "label", "domain", "summary", "arxiv", "knowledge")


def _experiments() -> Iterator[Row]:
    for name, file in read_options("experiment").items():
        params = file.get("hydra", {}).get("sweeper", {}).get("params", {})
        systems = str(params.get("system", "")).count(",") + 1
        yield name, *_texts(file.get("about", {}), "claim", "minutes"), str(systems), str(params.get("seed", file.get("seed", 0)))


def _models() -> Iterator[Row]:
    from hetsys.core.model import ModelSpec

    for name, file in read_options("model").items():
        texts = _texts(file.get("about", {}), "label", "summary")
        if str(file.get("_target_", "")).endswith(f".{ModelSpec.__name__}"):
            spec = _make(ModelSpec, file)
            yield name, *texts, f"{spec.parameters:,}", f"{spec.kv_bytes_per_token('fp16'):,}"
        else:
            yield name, *texts, "", ""


def _devices() -> Iterator[Row]:
    from hetsys.core.cluster import DeviceSheet
    from hetsys.core.costs import reference_durations

    for name, file in read_options("cluster/device").items():
        sheet = _make(DeviceSheet, file)
        rate = " ".join(f"{dtype} {flops_per_s / 1e12:g}" for dtype, flops_per_s in sheet.flops_per_s.items())
        reference = " ".join(f"{1e3 * seconds:.2f}" for seconds in reference_durations(sheet).values())
        price = f"{sheet.price_usd_per_hour:.2f} ({sheet.price_date})"
        bandwidth = f"{sheet.memory_bandwidth_bytes_per_s / 1e9:.4g}"
        yield name, sheet.label, f"{sheet.memory_bytes / 1e9:.3g}", bandwidth, rate, price, reference


def _tables() -> Iterator[Row]:
    from hetsys.workloads.profiles import TABLES as published

    for name in published:
        table, where = _cost_table(name)
        origin = table.origin
        keys = ", ".join(table.key_names)
        source = f"{origin.source} {origin.commit}".strip()
        yield name, keys, ", ".join(table.axis_names), f"{len(table.rows):,}", where, origin.kind, source


def _cost_table(name: str) -> tuple[ProfileTable, str]:
    """The table, complete where HETSYS_DATA has it, else the condensed one; and which of the two it is."""
    from hetsys.core.paths import data_dir
    from hetsys.workloads.profiles import TABLES as published
    from hetsys.workloads.profiles import load_table

    data = data_dir()
    complete = data is not None and (data / published[name].file).is_file()
    return load_table(name, data if complete else None), "complete" if complete else "condensed"


def _print_cost_table(name: str) -> None:
    """One line a key: how many times it has, over which work, and from how long to how long."""
    from rich.console import Console

    from hetsys.workloads.profiles import TABLES as published

    check_choice("tables", name, published)
    table, where = _cost_table(name)
    origin = table.origin
    lines = [f"{name} ({where}): seconds by {', '.join(table.axis_names)}, {origin.kind}, {origin.source}, {origin.licence}"]
    for key in sorted({row.key for row in table.rows}):
        rows = [row for row in table.rows if row.key == key]
        times, work = [row.seconds for row in rows], [row.at[0] for row in rows]
        span = f"{table.axis_names[0]} {min(work):g} to {max(work):g}, {min(times):.3g} to {max(times):.3g} s"
        lines.append(f"  {' '.join(key)}: {len(rows)} times, {span}")
    console = Console()
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _make(cls: Callable[..., Any], file: Mapping[str, Any]) -> Any:
    """The object of a file, without Hydra: its keys are the fields. YAML 1.1 reads 1e9 as a text, so numbers are put right."""
    fields = {field.name: field.type for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    return cls(**{key: _number(value, str(fields[key])) for key, value in file.items() if key in fields})


def _number(value: Any, kind: str) -> Any:
    if isinstance(value, dict):
        return {key: _number(item, kind.rpartition(",")[2]) for key, item in value.items()}
    return float(value) if "float" in kind and value is not None else value


def _texts(about: Mapping[str, Any], *keys: str) -> Row:
    return tuple("" if about.get(key) is None else str(about[key]) for key in keys)


_GROUPS = {
    "systems": "system", "clusters": "cluster", "devices": "cluster/device", "models": "model", "workloads": "workload",
    "experiments": "experiment",
}  # fmt: skip
TABLES: dict[str, tuple[Row, Callable[[], Iterator[Row]]]] = {
    "systems": (("option", "name", "domain", "what it does", "arXiv", "knowledge"), _systems),
    "clusters": (("option", "name", "what it is", "hosts x devices"), _clusters),
    "devices": (
        ("option", "name", ">GB", ">GB/s", "TFLOP/s by dtype", ">USD/h (when)", ">roofline ms: GEMM 4096^3 fp16, copy 1 GiB"),
        _devices,
    ),
    "tables": (("table", "keys", "by", ">times", "here", "provenance", "source"), _tables),
    "models": (("option", "name", "what it is", ">parameters", ">KV bytes a token, fp16"), _models),
    "workloads": (("option", "name", "domain", "what it is", "arXiv", "knowledge"), _workloads),
    "experiments": (("option", "claim", ">minutes", ">systems", ">seeds"), _experiments),
}
