"""The axis of a sweep: which one key of the configuration makes the frames of an experiment differ, and which runs have which value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hetsys.core.errors import EngineError
from hetsys.tracking.stored import StoredRun

FRAME_PARTS = ("cluster", "model", "workload", "backend")
"""What makes a frame, and so what its key may be in."""
Facts = Mapping[str, str]


@dataclass(frozen=True)
class Axis:
    """`key`: as it is written in an override (`workload.spread`), or a group (`cluster`) where whole options differ. `runs`: by value as
    text, numbers in ascending order, then the others by name."""

    key: str
    runs: Mapping[str, tuple[StoredRun, ...]]

    @property
    def short(self) -> str:
        """The last part of the key."""
        return self.key.rpartition(".")[2]

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(self.runs)


def find_axis(runs: Sequence[StoredRun]) -> Axis | None:
    """The axis of finished `runs`; None where they are of one frame or of several experiments, or differ in more than one key."""
    firsts = {run.frame_hash: run for run in runs}
    if len(firsts) < 2 or len({run.experiment for run in runs}) > 1:
        return None
    facts = {frame: facts_of(run) for frame, run in firsts.items()}
    key = _key(list(facts.values()))
    if key is None:
        return None
    groups = along(runs, key)
    return Axis(key, {value: tuple(group) for value, group in groups.items()}) if len(groups) == len(firsts) else None


def along(runs: Sequence[StoredRun], key: str) -> dict[str, list[StoredRun]]:
    """`runs` by the value that they have for `key`, in the order of an axis; those of one value too."""
    facts = {run.frame_hash: facts_of(run) for run in runs}
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        groups.setdefault(_text(facts[run.frame_hash].get(key, "null")), []).append(run)
    return {value: groups[value] for value in sorted(groups, key=_order)}


def facts_of(run: StoredRun) -> Facts:
    """What decides the frame of `run`: each key of it with its value as JSON; a choice of an option under the name of its group. {} where
    its configuration cannot be read."""
    try:
        config = run.config
    except EngineError:
        return {}
    options = {part: json.dumps(choice) for part, choice in (config.get("options") or {}).items() if part in FRAME_PARTS}
    return options | {name: value for part in FRAME_PARTS for name, value in _flat(part, config.get(part))}


def _flat(name: str, node: Any) -> list[tuple[str, str]]:
    if isinstance(node, Mapping):
        return [pair for key, value in node.items() if key != "about" for pair in _flat(f"{name}.{key}", value)]
    return [(name, json.dumps(node, sort_keys=True))]


def _key(facts: Sequence[Facts]) -> str | None:
    """The one key in which `facts` differ. Where an option differs, everything below it may, and the option is the key."""
    names = {name for one in facts for name in one}
    differing = {name for name in names if len({one.get(name) for one in facts}) > 1}
    options = differing & set(FRAME_PARTS)
    left = {name for name in differing if name.partition(".")[0] not in options} | options
    return left.pop() if len(left) == 1 else None


def _text(value: str) -> str:
    """A JSON value as people write it: text without quotes, 1 and not 1.0."""
    said = json.loads(value)
    if isinstance(said, int | float) and not isinstance(said, bool):
        return f"{said:g}"
    return said if isinstance(said, str) else value


def _order(value: str) -> tuple[bool, float, str]:
    """Numbers by size, then words, "none" before the others."""
    try:
        return False, float(value), ""
    except ValueError:
        return True, float(value not in ("none", "null")), value
