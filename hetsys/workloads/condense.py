"""Makes the short tables of `conf/tables` from the full published ones: `python -m hetsys.workloads.condense` rewrites them.

Only published rows are kept, as few as needed for straight lines between them to stay close to all the others.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np

from hetsys.core.costs import ProfileTable
from hetsys.core.errors import ConfigError
from hetsys.core.paths import data_dir, shipped
from hetsys.workloads.profiles import SECONDS, TABLES, load_table

Key = tuple[str, ...]


@dataclass(frozen=True)
class Selection:
    """Which curves of a table are kept, how closely (`tolerance`: a fraction), and what the file says about itself."""

    keep: Callable[[Key], bool]
    tolerance: float
    notes: tuple[str, ...]


_REACH = 2
_NETWORKS = (
    ("all_reduce", "2", "2"),
    ("all_reduce", "4", "4"),
    ("all_reduce", "8", "8"),
    ("send_recv", "2", "1"),
    ("send_recv", "2", "2"),
)

SELECTIONS = {
    "helix_layers": Selection(
        lambda key: key[0] in ("a100_40g", "v100", "l4", "t4"),
        0.05,
        ("Time of one transformer layer, prompt (prefill) or decode, against the tokens in the batch; single GPUs.",),
    ),
    "vidur_linear": Selection(
        lambda key: key[2] == "1",
        0.1,
        ("Median time of the four linear operations of a Llama-2 layer against the tokens in the batch; tensor parallelism 1.",),
    ),
    "vidur_network": Selection(
        lambda key: key[0] in ("a100_dgx", "h100_dgx") and key[1:] in _NETWORKS,
        0.25,
        ("Median time of collectives against the bytes of a message, inside one DGX host (send_recv 2/1: between two).",),
    ),
    "sailor_layers": Selection(
        lambda key: key[1:4] == ("OPT-350", "1", "2"),
        0.1,
        ("Forward and backward time of one middle layer of OPT-350M (2,048 tokens) against the microbatch; one GPU.",),
    ),
}


def condensed_text(name: str, data: Path) -> str:
    """The condensed table `name` as text, from the full one in the data folder `data`."""
    table, selection = load_table(name, data), SELECTIONS[name]
    wide = table.key_names[-1] == "what"
    curves: dict[Key, list[Key]] = {}
    for key in table.keys:
        if selection.keep(key):
            curves.setdefault(key[:-1] if wide else key, []).append(key)
    lines = [(line, x) for line, group in curves.items() for x in grid_points(table, group, selection.tolerance)]
    return _text(table, TABLES[name].layout.unit, selection, curves, lines)


def grid_points(table: ProfileTable, group: Sequence[Key], tolerance: float) -> list[float]:
    """The work at which the curves of `group` (they share the lines of a file) are kept; tables of one axis only.

    Greedy: from the two ends on, a point is added where straight lines miss most, until 90 % of the points of every curve are
    within `tolerance`. Misses are medians over a few neighbours, so that single noisy measurements draw no point to themselves.
    """
    curves = [{at[0]: seconds for at, seconds in table.knots(key)} for key in group]
    shared = sorted(set.intersection(*(set(curve) for curve in curves)))
    times = np.array([[curve[x] for x in shared] for curve in curves])
    smooth = _running_median(times)
    typical = np.abs(times - smooth) / np.maximum(smooth, 1e-12)
    chosen = sorted({0, len(shared) - 1})
    while len(chosen) < len(shared):
        guess = np.array([np.interp(shared, [shared[i] for i in chosen], row[chosen]) for row in times])
        missed = np.abs(guess - times) / np.maximum(times, 1e-12)
        if np.quantile(missed, 0.9, axis=1).max() <= tolerance:
            break
        chosen = sorted({*chosen, _next_point(_running_median(missed).max(axis=0), typical.max(axis=0), chosen)})
    return [shared[i] for i in chosen]


def _next_point(missed: np.ndarray, noise: np.ndarray, chosen: Sequence[int]) -> int:
    """Where most is missed, moved to the least noisy of the neighbours that are still free."""
    free = np.setdiff1d(np.arange(len(missed)), chosen)
    worst = free[int(missed[free].argmax())]
    near = free[np.abs(free - worst) <= _REACH]
    return int(near[int(noise[near].argmin())])


def _running_median(rows: np.ndarray) -> np.ndarray:
    """Median of each value and its neighbours up to _REACH away, along the last axis."""
    last = rows.shape[1]
    return np.array([np.median(rows[:, max(0, i - _REACH) : min(last, i + _REACH + 1)], axis=1) for i in range(last)]).T


def _text(
    table: ProfileTable, unit: str, selection: Selection, curves: dict[Key, list[Key]], lines: list[tuple[Key, float]]
) -> str:
    wide = table.key_names[-1] == "what"
    keys = table.key_names[:-1] if wide else table.key_names
    values = [key[-1] for key in next(iter(curves.values()))] if wide else ["time"]
    facts = table.origin
    head = {"kind": facts.kind, "source": facts.source, "commit": facts.commit, "licence": facts.licence}
    head |= {"keys": " ".join(keys), "axes": " ".join(table.axis_names), "unit": unit}
    notes = [*selection.notes, "Published rows, thinned: straight lines between them stay close to those left out."]
    out = StringIO()
    out.writelines(f"# {line}\n" for line in [*notes, *(f"{name}: {text}" for name, text in head.items())])
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*keys, *table.axis_names, *values])
    for line, x in lines:
        times = [dict(table.knots(key))[(x,)] for key in curves[line]]
        writer.writerow([*line, int(x), *(f"{seconds / SECONDS[unit]:.5g}" for seconds in times)])
    return out.getvalue()


def main() -> None:
    """Rewrite every condensed table from the data folder."""
    data = data_dir()
    if data is None:
        raise ConfigError("HETSYS_DATA", "", "must name the data folder that holds gpu_profiles/")
    for name in SELECTIONS:
        path = shipped("conf") / "tables" / f"{name}.csv"
        path.write_text(condensed_text(name, data), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
