"""How a grid is printed: a small table a metric with a column for each value of the axis; the same cells as CSV, JSON or Markdown."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hetsys.report import tables
from hetsys.report.compare import Cell
from hetsys.report.grid import Grid

_WIDEST = 16

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def show(grid: Grid, fmt: str, console: Console) -> None:
    """Print `grid` as `fmt`: table, csv, json or markdown."""
    if fmt == "table":
        _show_tables(grid, console)
    else:
        console.file.write({"csv": as_csv, "json": as_json, "markdown": as_markdown}[fmt](grid))


def _show_tables(grid: Grid, console: Console) -> None:
    console = tables.wide_enough(console)
    width = max(tables.COLUMN_WIDTH, *(min(len(value), _WIDEST) for value in grid.axis.values))
    per_part = tables.columns_beside(console, width)
    for name in grid.metrics:
        what = _metric(grid, name)
        title = f"{grid.any_comparison.frame.experiment}: {what.title}{tables.arrow(what)}, by {grid.axis.key}"
        console.print(f"\n{title}", soft_wrap=True, markup=False, highlight=False)
        for at in range(0, len(grid.axis.values), per_part):
            console.print(_part(grid, name, grid.axis.values[at : at + per_part], width))
    for line in notes(grid):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def notes(grid: Grid, where: str = "Second line") -> list[str]:
    """Legend, source, and what was left out: once where it holds for all values, else with the value before it."""
    cells = [cell for rows in grid.cells.values() for row in rows.values() for cell in row.values() if cell.effect]
    first = grid.any_comparison
    lines = []
    if cells and grid.reference is not None:
        lines.append(tables.legend(cells, f"the same system at {grid.axis.short} {grid.reference}", first.frame.source, where))
    elif cells and grid.baseline is not None:
        lines.append(tables.legend(cells, f"{grid.labels[grid.baseline]} at the same {grid.axis.short}", first.frame.source, where))
    said = {value: [line for line in tables.notes(one, where) if not line.startswith(where)] for value, one in grid.comparisons.items()}
    everywhere = [line for line in said[grid.axis.values[0]] if all(line in others for others in said.values())]
    lines += everywhere
    return lines + [f"{grid.axis.short} {value}: {line}" for value, mine in said.items() for line in mine if line not in everywhere]


def _part(grid: Grid, name: str, values: tuple[str, ...], width: int) -> Table:
    from rich import box
    from rich.table import Table

    what = _metric(grid, name)
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False, header_style="bold")
    tables.add_columns(table, grid.axis.short, values, width)
    for system in sorted(grid.labels):
        row = grid.cells[name][system]
        cells = [(row.get(value), value == grid.reference or (grid.reference is None and system == grid.baseline)) for value in values]
        table.add_row(
            tables.label_text(grid.labels[system], grid.reference is None and system == grid.baseline),
            *(tables.cell_text(what, cell, plain) if cell else "" for cell, plain in cells),
        )
    return table


def _metric(grid: Grid, name: str) -> Any:
    return tables.printed([cell for row in grid.cells[name].values() for cell in row.values()], name)


def as_csv(grid: Grid) -> str:
    """One line a metric, system and value; each says where it comes from."""
    out = io.StringIO()
    rows = _flat(grid)
    writer = csv.DictWriter(out, list(rows[0]) if rows else ["system"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def as_json(grid: Grid) -> str:
    """What the values have in common, the frame of each, then the cells; valid JSON (no NaN)."""
    head = {"axis": grid.axis.key, "baseline": grid.baseline, "reference": grid.reference}
    frames = {value: {**asdict(one.frame), "seeds": list(one.seeds)} for value, one in grid.comparisons.items()}
    return json.dumps({**head, "frames": frames, "rows": _flat(grid)}, indent=1, allow_nan=False) + "\n"


def as_markdown(grid: Grid) -> str:
    """A table a metric, then the notes."""
    lines: list[str] = []
    for name in grid.metrics:
        what = _metric(grid, name)
        lines += [f"{what.title}, by {grid.axis.key}", "", f"| system | {' | '.join(grid.axis.values)} |"]
        lines += ["|---" + "|---:" * len(grid.axis.values) + "|"]
        for system in sorted(grid.labels):
            cells = [tables.cell_line(what, cell) if (cell := grid.cells[name][system].get(v)) else "" for v in grid.axis.values]
            mark = " (baseline)" if grid.reference is None and system == grid.baseline else ""
            lines.append(f"| {grid.labels[system]}{mark} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join([*lines, *(f"{line}  " for line in notes(grid, "In brackets"))]) + "\n"


def _flat(grid: Grid) -> list[dict[str, Any]]:
    rows = []
    for by_system in grid.cells.values():
        for system, by_value in by_system.items():
            for value, cell in by_value.items():
                frame = grid.comparisons[value].frame
                same = {"experiment": frame.experiment, "source": frame.source, "frame_hash": frame.frame_hash, "commit": frame.commit}
                rows.append({"axis": grid.axis.key, "value": value, **_row(grid, system, value, cell), **same})
    return rows


def _row(grid: Grid, system: str, value: str, cell: Cell) -> dict[str, Any]:
    is_base = value == grid.reference if grid.reference is not None else system == grid.baseline
    against = f"{grid.axis.short}={grid.reference}" if grid.reference is not None else grid.baseline
    return {**tables.flat_row(cell, grid.labels[system], is_base), "against": against}
