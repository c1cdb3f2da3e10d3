"""How a comparison is printed: the terminal's table, CSV, JSON, Markdown. Losses look as plain as gains."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hetsys.metrics.catalog import Metric
from hetsys.metrics.catalog import metric as known_metric
from hetsys.metrics.statistics import LEAST_SEEDS_OF_AN_INTERVAL, Effect
from hetsys.report.compare import Cell, Comparison, short_commit
from hetsys.report.grid import Grid

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MARKS = {"better": "✓", "worse": "✗", "no loss": "=", "inconclusive": "?", "higher": "↑", "lower": "↓"}
_STYLES = {"better": "green", "worse": "red", "no loss": "default", "inconclusive": "yellow"}
_FIRST_WIDTH, COLUMN_WIDTH, _PIPE_WIDTH = 16, 10, 110
_WIDEST_PERCENT = 100.0
"""Half an interval beyond this is printed as `±>100%`: it says no more than that the effect is unknown."""
LEAST_HOURS = 0.2
_HEADS = {
    "throughput_normalized": "through-\nput",
    "jct_mean_s": "mean JCT\n(h)",
    "finish_time_fairness_p95": "fairness\nρ p95",
    "jain_index": "Jain\nindex",
    "envy_max": "envy\nmax",
    "sharing_incentive_min": "sharing\nincent.",
    "idle_device_fraction": "idle\ndevices",
    "restarts_per_round": "restarts\na round",
}


def show(shown: Comparison | Grid, fmt: str, console: Console) -> None:
    """Print a comparison, or one for each value of an axis, as `fmt`: table, csv, json or markdown."""
    from hetsys.report import grid_tables

    if isinstance(shown, Grid):
        grid_tables.show(shown, fmt, console)
    elif fmt == "table":
        show_table(shown, console)
    else:
        text = {"csv": as_csv, "json": as_json, "markdown": as_markdown}[fmt](shown)
        console.file.write(text)


def show_table(comparison: Comparison, console: Console) -> None:
    """The table, as many columns side by side as the terminal is wide, then what the reader must know of it."""
    console = wide_enough(console)
    per_part = columns_beside(console)
    systems = _order(comparison)
    for at in range(0, max(1, len(comparison.metrics)), per_part):
        table = _part(comparison, systems, comparison.metrics[at : at + per_part])
        console.print(table)
    for line in notes(comparison):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def wide_enough(console: Console) -> Console:
    """`console` itself, or where it is no terminal one that is as wide as a table needs."""
    from rich.console import Console

    if not console.is_terminal and console.width < _PIPE_WIDTH:
        return Console(file=console.file, width=_PIPE_WIDTH)
    return console


def columns_beside(console: Console, width: int = COLUMN_WIDTH) -> int:
    """How many columns of numbers, each `width` wide, `console` holds beside the names."""
    return max(1, (console.width - _FIRST_WIDTH) // (width + 1))


def notes(comparison: Comparison, where: str = "Second line") -> list[str]:
    """Legend (`where` the changes stand), source, and everything that was left out."""
    frame = comparison.frame
    parts = [f"source: {frame.source or 'unknown'}", f"{len(comparison.seeds)} seed{'s' * (len(comparison.seeds) != 1)}"]
    parts += [f"provenance {frame.provenance}"] if frame.provenance else []
    parts += [f"experiment {frame.experiment}"]
    parts += [] if frame.commits else [f"commit {short_commit(frame.commit) or 'unknown'}"]
    lines = [", ".join(parts) + (f"; {frame.fidelity}" if frame.fidelity else "")]
    if frame.commits:
        counted = ", ".join(f"{short_commit(commit) or 'unknown'} ({count} runs)" for commit, count in frame.commits.items())
        lines.append(f"commits differ: {counted}; a difference may be the code's")
    cells = [cell for row in comparison.cells.values() for cell in row.values() if cell.effect]
    if comparison.baseline is None and len(comparison.labels) == 1:
        lines.append("One system, so means only.")
    elif comparison.baseline is None:
        lines.append("No baseline, so means only; name one of these systems with `hetsys compare PATH --baseline SYSTEM`.")
    elif cells:
        lines.insert(0, legend(cells, comparison.labels[comparison.baseline], frame.source, where))
    if frame.invalid_seeds:
        of_all = len(frame.invalid_seeds) + len(comparison.seeds)
        seeds = ", ".join(map(str, frame.invalid_seeds))
        lines.append(f"invalid seeds, left out for all systems: {seeds} ({len(frame.invalid_seeds)} of {of_all}); {frame.why_invalid}")
    if frame.unfinished:
        shown = "; ".join(frame.unfinished[:6])
        more = f"; and {len(frame.unfinished) - 6} more" if len(frame.unfinished) > 6 else ""
        lines.append(f"pairs missing from the table ({len(frame.unfinished)}): {shown}{more}")
    short = sorted({(cell.system, cell.n) for cell in cells if cell.n < len(comparison.seeds)})
    if short:
        lines.append("fewer seeds than the others: " + ", ".join(f"{system} ({n})" for system, n in _fewest(short)))
    return lines + list(frame.caveats)


def legend(cells: Sequence[Cell], against: str, source: str, where: str) -> str:
    """What the changes of `cells`, which stand `where`, are against, and what their marks mean."""
    text = f"{where}: change against {against}, paired by seed"
    if any(cell.effect and _width(cell.effect, 1.0) is not None for cell in cells):
        text += ", ± half of the 95 % interval"
    text += ": "
    kinds = {cell.effect.scale for cell in cells if cell.effect}
    text += {"ratio": "%", "difference": "difference"}[next(iter(kinds))] if len(kinds) == 1 else "% or, without %, difference"
    words = {cell.verdict for cell in cells}
    if words == {"descriptive only"}:
        beside = "; twenty simulated seeds of the same setting judge (backend=sim seed='range(20)')" if source == "emulated" else ""
        return text + f". Too few seeds to judge: descriptive only{beside}."
    known = [f"{mark} {word}" for word, mark in MARKS.items() if word in words]
    return text + ". After Holm's correction: " + ", ".join(known) + "."


def _fewest(short: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted({system: min(n for name, n in short if name == system) for system, _ in short}.items())


def _order(comparison: Comparison) -> list[str]:
    """Best throughput first where there are seeds enough to judge; by name else (a smoke run ranks nobody)."""
    systems = sorted(comparison.labels)
    first = comparison.metrics[0] if comparison.metrics else ""
    judged = any(cell.verdict not in ("", "descriptive only") for row in comparison.cells.values() for cell in row.values())
    better = known_metric(first).better
    if not judged or not better:
        return systems
    sign = -1.0 if better == "higher" else 1.0
    means = {system: comparison.cells[system][first].mean for system in systems}
    return sorted(systems, key=lambda system: (means[system] is None, sign * (means[system] or 0.0), system))


def metric(comparison: Comparison, name: str) -> Metric:
    """How `name` is printed here."""
    return printed([cell for row in comparison.cells.values() if (cell := row.get(name))], name)


def printed(cells: Sequence[Cell], name: str) -> Metric:
    """The metric `name` for a column of `cells`: times in seconds where every mean is shorter than LEAST_HOURS."""
    means = [cell.mean for cell in cells if cell.mean is not None]
    what = known_metric(name)
    return what.in_seconds() if max(means, default=0.0) < LEAST_HOURS * 3600.0 else what


def _part(comparison: Comparison, systems: Sequence[str], names: Sequence[str]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False, header_style="bold")
    add_columns(table, f"{comparison.frame.experiment}", [_head(metric(comparison, name)) for name in names])
    for system in systems:
        cells = [(metric(comparison, name), comparison.cells[system][name]) for name in names]
        is_base = system == comparison.baseline
        table.add_row(label_text(comparison.labels[system], is_base), *(cell_text(what, cell, is_base) for what, cell in cells))
    return table


def add_columns(table: Table, first: str, others: Sequence[str], width: int = COLUMN_WIDTH) -> None:
    """A column of names and columns of numbers, as wide in every table."""
    table.add_column(first, width=_FIRST_WIDTH, overflow="fold")
    for name in others:
        table.add_column(name, width=width, justify="right", overflow="fold")


def _head(what: Metric) -> str:
    return _title(what) + arrow(what)


def arrow(what: Metric) -> str:
    """Which direction is good."""
    return {"higher": " ↑", "lower": " ↓"}.get(what.better, "")


def _title(what: Metric) -> str:
    title = _HEADS.get(what.name, what.title)
    return title if what.hours else title.replace("(h)", "(s)")


def label_text(label: str, is_baseline: bool) -> Any:
    """A system's name, and below it what stands in its brackets."""
    from rich.text import Text

    name, _, rest = label.partition(" (")
    second = "baseline" if is_baseline else f"({rest}" if rest else ""
    first = Text(name, style="bold" if is_baseline else "")
    return first + Text(f"\n{second}", style="dim") if second else first


def cell_text(what: Metric, cell: Cell, is_baseline: bool) -> Any:
    """A mean, and below it the change with its mark."""
    from rich.text import Text

    text = Text(what.text(cell.mean) + " ")
    if is_baseline or cell.effect is None:
        return text
    below = effect_text(cell.effect, what) + MARKS.get(cell.verdict, " ")
    return text + Text(f"\n{below}", style=_STYLES.get(cell.verdict, "dim"))


def effect_text(effect: Effect, what: Metric) -> str:
    """`+4.1±0.3%`, `×3.2` (beyond a factor of 2) or, for differences, `+0.12±0.03`; without an interval below three seeds, of which it
    would say nothing, and `±>100%` for one that is wider than the scale it is read on."""
    if effect.scale == "ratio":
        if not 0.5 <= effect.value <= 2.0:
            return f"×{effect.value:.3g}"
        half = _width(effect, 50.0)
        if half is not None and half > _WIDEST_PERCENT:
            return f"{_digits((effect.value - 1.0) * 100.0, 0)}±>{_WIDEST_PERCENT:.0f}%"
        return f"{_digits((effect.value - 1.0) * 100.0, 1)}{_half(half, 1)}%"
    scale = 3600.0 if what.hours else 1.0
    half = _width(effect, 0.5 / scale)
    return f"{_digits(effect.value / scale, 2)}{_half(half, 2)}"


def _width(effect: Effect, scale: float) -> float | None:
    if effect.low is None or effect.high is None or effect.n < LEAST_SEEDS_OF_AN_INTERVAL:
        return None
    return (effect.high - effect.low) * scale


def _digits(value: float, decimals: int) -> str:
    decimals = 0 if abs(value) >= 10 else decimals
    text = f"{value:+.{decimals}f}"
    return text.replace("-", "−") if float(text) else f"{0:.{decimals}f}"


def _half(value: float | None, decimals: int) -> str:
    if value is None:
        return ""
    decimals = 0 if value >= 10 else min(decimals, 1) if value >= 1 else decimals
    return "±" + f"{value:.{decimals}f}".removeprefix("0" if decimals > 1 else "")


def as_csv(comparison: Comparison) -> str:
    """One line a system and metric; each says where it comes from."""
    out = io.StringIO()
    frame = comparison.frame
    same = {"experiment": frame.experiment, "source": frame.source, "frame_hash": frame.frame_hash, "commit": frame.commit}
    rows = [{**row, "baseline": comparison.baseline, **same} for row in _flat(comparison)]
    writer = csv.DictWriter(out, list(rows[0]) if rows else ["system"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def as_json(comparison: Comparison) -> str:
    """The frame, then the cells; valid JSON (no NaN)."""
    head = {**asdict(comparison.frame), "baseline": comparison.baseline, "seeds": list(comparison.seeds)}
    return json.dumps({**head, "rows": _flat(comparison)}, indent=1, allow_nan=False) + "\n"


def as_markdown(comparison: Comparison) -> str:
    """A table of systems by metrics, then the notes."""
    known = {name: metric(comparison, name) for name in comparison.metrics}
    heads = [_title(what).replace("-\n", "").replace("\n", " ") for what in known.values()]
    lines = ["| system | " + " | ".join(heads) + " |", "|---" + "|---:" * len(heads) + "|"]
    for system in _order(comparison):
        cells = [cell_line(known[name], comparison.cells[system][name]) for name in comparison.metrics]
        mark = " (baseline)" if system == comparison.baseline else ""
        lines.append(f"| {comparison.labels[system]}{mark} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"{line}  " for line in notes(comparison, "In brackets"))]) + "\n"


def cell_line(what: Metric, cell: Cell) -> str:
    """A mean with the change in brackets, on one line."""
    words = [effect_text(cell.effect, what), MARKS.get(cell.verdict, "")] if cell.effect else []
    return what.text(cell.mean) + (f" ({' '.join(filter(None, words))})" if words else "")


def _flat(comparison: Comparison) -> list[dict[str, Any]]:
    return [
        flat_row(cell, comparison.labels[system], system == comparison.baseline)
        for system, row in comparison.cells.items() for cell in row.values()
    ]  # fmt: skip


def flat_row(cell: Cell, label: str, is_baseline: bool) -> dict[str, Any]:
    """A cell as a row of plain values."""
    effect = cell.effect
    return {
        "system": cell.system,
        "label": label,
        "metric": cell.metric,
        "seeds": cell.n,
        "mean": cell.mean,
        "scale": effect.scale if effect else None,
        "effect": effect.value if effect else None,
        "low": effect.low if effect else None,
        "high": effect.high if effect else None,
        "p_holm": cell.p_holm,
        "verdict": "baseline" if is_baseline else cell.verdict,
    }
