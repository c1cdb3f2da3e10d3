"""A stored run once more, from its own configuration: what comes out equal, and what differs by how much."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsys.core.errors import ConfigError
from hetsys.metrics.scheduling import HOST_TIMINGS
from hetsys.runner.machine import check_machine
from hetsys.runner.one import execute
from hetsys.tracking.env import code_id
from hetsys.tracking.folder import StoredRun

if TYPE_CHECKING:
    from rich.console import Console

SAME_ON_THE_WALL_CLOCK = (
    "system", "experiment", "seed", "status", "valid", "source", "provenance", "frame_hash", "run_hash", "schema_version", "jobs_finished",
    "jobs_unfinished", "jobs_withdrawn", "jobs_parked", "tenants_parked",
)  # fmt: skip
"""What a measured run must repeat; everything else in its summary follows from the wall clock."""


def replay(path: Path, console: Console) -> bool:
    """Run a stored run again from its own configuration; print what came out equal and what differs; True unless something differs
    that must not.

    Simulated and emulated runs must repeat every figure but the host's timings; measured ones, and those that are charged the host's own
    time for decisions, what no clock decides.
    """
    stored = StoredRun(path)
    if stored.status != "finished":
        raise ConfigError("RUN", str(path), f"is {stored.status}; only finished runs can be replayed")
    again = rerun(path)
    differing = [
        name for name in sorted(stored.summary.keys() | again.keys())
        if name not in HOST_TIMINGS and stored.summary.get(name) != again.get(name)
    ]  # fmt: skip
    equal = len(stored.summary.keys() - set(HOST_TIMINGS) - set(differing))
    console.print(f"{equal} figures of {stored.system} seed {stored.seed} came out equal, {len(differing)} differ", soft_wrap=True)
    if stored.code_id != code_id():
        console.print(f"note: the stored run is of code {stored.code_id}, this is {code_id()}", soft_wrap=True)
    wrong = [name for name in differing if not _on_the_wall_clock(stored) or name in SAME_ON_THE_WALL_CLOCK]
    if differing:
        console.print(_table(stored.summary, again, differing))
    if differing and not wrong:
        line = "measured on the wall clock: what follows from it differs from run to run, and so does which device trained which step"
        console.print(line, soft_wrap=True)
    return not wrong


def _on_the_wall_clock(stored: StoredRun) -> bool:
    """Whether the host's own time enters the run: as its clock, or as what a decision is charged."""
    return stored.source == "measured" or stored.config.get("backend", {}).get("charge_policy") == "measured"


def rerun(path: Path) -> dict[str, Any]:
    """Execute the stored run at `path` once more in a temporary folder, without wandb, and return its summary."""
    from hetsys.config import rebuild

    with tempfile.TemporaryDirectory(prefix="hetsys-replay-") as scratch:
        experiment = rebuild((path / "config.yaml").read_text(), Path(scratch))
        check_machine([experiment])
        return execute(replace(experiment, tracker="files"))


def _table(stored: Mapping[str, Any], again: Mapping[str, Any], names: Iterable[str]) -> Any:
    from rich.table import Table

    table = Table("figure", "stored", "replayed", "change")
    for name in names:
        table.add_row(name, _shown(stored.get(name)), _shown(again.get(name)), _change(stored.get(name), again.get(name)))
    return table


def _shown(value: object) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _change(before: object, after: object) -> str:
    if not (isinstance(before, int | float) and isinstance(after, int | float)) or not before:
        return ""
    return f"{100.0 * (after / before - 1.0):+.1f} %"
