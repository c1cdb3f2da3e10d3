"""What every benchmark prints: a table for people, or one JSON object, and its progress on the error stream."""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from hetsys.core import host
from hetsys.tracking.env import code_id


class Row(NamedTuple):
    """`value` is None where there is nothing to measure; `note` says why, or what the value was measured against."""

    case: str
    metric: str
    value: float | None
    note: str = ""


def seconds(work: Callable[[], Any], *, at_least: int = 3, enough_s: float = 1.0) -> float:
    """The shortest wall time of `work`, of `at_least` times and of as many as fit in `enough_s` seconds."""
    best, begin, done = float("inf"), time.perf_counter(), 0
    gc.collect()
    while done < at_least or (time.perf_counter() - begin < enough_s and done < 1000):
        start = time.perf_counter()
        work()
        best, done = min(best, time.perf_counter() - start), done + 1
    return best


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(name: str, about: str, cases: Sequence[str], measure: Callable[[str], Iterable[Row]], argv: Sequence[str] | None = None) -> int:
    """The command line of a benchmark: all `cases`, or those asked for."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=about)
    parser.add_argument("--json", action="store_true", help="print one JSON object in place of the table")
    parser.add_argument("--case", choices=cases, action="append", help="this case only; may be given again")
    options = parser.parse_args(argv)
    rows = list(_measured(options.case or cases, measure))
    print(json.dumps(as_object(name, rows), indent=1) if options.json else table(rows))
    return 0


def _measured(cases: Sequence[str], measure: Callable[[str], Iterable[Row]]) -> Iterator[Row]:
    for case in cases:
        say(f"{case} ...")
        yield from measure(case)


def as_object(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    listed = [row._asdict() for row in rows]
    return {"benchmark": name, "commit": code_id(), "machine": host.facts(), "source": "measured", "rows": listed}


def table(rows: Sequence[Row]) -> str:
    cells = [("case", "metric", "value", "note"), *((row.case, row.metric, _number(row.value), row.note) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    lines = [f"{case:{widths[0]}}  {metric:{widths[1]}}  {value:>{widths[2]}}  {note}".rstrip() for case, metric, value, note in cells]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
