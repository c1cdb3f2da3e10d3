"""Whether runs of two sources are the same run: every round's allocation and every job's completion, to the last bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from hetsys.core.errors import ConfigError, EngineError
from hetsys.tracking.stored import StoredRun, find_runs

_PARTS = ("cluster", "model", "workload", "system")
_HOST_TIMES = {"policy_s"}


@dataclass(frozen=True)
class Agreement:
    """`equal` of `pairs` pairs (one a system and seed) have equal records but for the host's own times; `first`: where the first of the
    others differs."""

    pairs: int
    equal: int
    first: str = ""


def agreement(one: Sequence[StoredRun], other: Sequence[StoredRun]) -> Agreement:
    """Compare the finished runs of `one` with those of `other` that have the same system, seed, cluster and workload; runs without such a
    counterpart are not counted. Raises EngineError for a damaged file."""
    counterparts = {_key(run): run for run in other if run.status == "finished"}
    pairs = equal = 0
    first = ""
    for run in one:
        counterpart = counterparts.get(_key(run)) if run.status == "finished" else None
        if counterpart is None or any(run.config.get(part) != counterpart.config.get(part) for part in _PARTS):
            continue
        pairs += 1
        difference = first_difference(run, counterpart)
        equal += not difference
        first = first or (f"{run.system} seed {run.seed}: {difference}" if difference else "")
    return Agreement(pairs, equal, first)


def first_difference(run: StoredRun, other: StoredRun) -> str:
    """The first record and field in which two runs differ, with both values; "" where all are equal."""
    for number, (mine, theirs) in enumerate(zip_longest(run.all_rows(), other.all_rows()), 1):
        if mine is None or theirs is None:
            return f"record {number}: {run.source if theirs is None else other.source} goes on, the other has ended"
        for field in sorted((mine.keys() | theirs.keys()) - _HOST_TIMES):
            if mine.get(field) != theirs.get(field):
                return f"{_named(mine)}, {field}: {run.source} {_short(mine.get(field))}, {other.source} {_short(theirs.get(field))}"
    return ""


def agreement_line(paths: Sequence[Path], others: Sequence[Path]) -> str:
    """One sentence on the runs at `paths` against those at `others`; "" where there is nothing to compare."""
    runs, counterparts = [StoredRun(path) for path in paths], [StoredRun(path) for path in others]
    try:
        found = agreement(runs, counterparts)
    except EngineError as error:
        return f"not compared with the others: {error}"
    return _sentence(found, runs[0].source, counterparts[0].source) if found.pairs else ""


def main(paths: Sequence[Path]) -> int:
    """`hetsys compare --same A B`: print the sentence. Returns 0 if all pairs are equal, else 1. Raises ConfigError without pairs."""
    from rich.console import Console

    if len(paths) != 2:
        raise ConfigError("--same", " ".join(map(str, paths)), "takes two PATHs, for example results/oef_live results/oef_live_sim")
    one, other = (find_runs(path) for path in paths)
    for path, runs in zip(paths, (one, other), strict=True):
        sources = sorted({run.source for run in runs if run.status == "finished"})
        if len(sources) > 1:
            raise ConfigError("--same", str(path), f"holds {' and '.join(sources)} runs; name a folder with runs of one source")
    if {run.path.resolve() for run in one} & {run.path.resolve() for run in other}:
        raise ConfigError("--same", " ".join(map(str, paths)), "holds a run on both sides, which equals itself; name two different results")
    found = agreement(one, other)
    if not found.pairs:
        remedy = "hold no two finished runs with the same system, seed, cluster and workload"
        raise ConfigError("--same", " ".join(map(str, paths)), remedy)
    Console().print(_sentence(found, one[0].source, other[0].source), soft_wrap=True, markup=False, highlight=False)
    return 1 if found.first else 0


def _sentence(found: Agreement, source: str, other: str) -> str:
    said = f"{found.equal} of {found.pairs} {source} runs equal the {other} run of their system and seed exactly"
    return f"{said} (every round's allocation, every job's completion time)" + (f"; first difference: {found.first}" if found.first else "")


def _key(run: StoredRun) -> tuple[str, int | None]:
    return run.system, run.seed


def _named(row: Mapping[str, Any]) -> str:
    kind = str(row.get("record", "record"))
    return f"{kind} {row.get('index' if kind == 'round' else 'job', '')}".strip()


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
