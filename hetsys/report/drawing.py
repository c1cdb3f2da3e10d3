"""The common look of all pictures: colours that the colour-blind can tell apart, labels beside points, files and their CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hetsys.report.compare import Comparison, short_commit
from hetsys.tracking.folder import StoredRun

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#7F6000", "#882255", "#44AA99")
"""Okabe and Ito's palette without its yellow (too faint on white), then three more that keep apart from it."""
GREY, PALE = "#6B6B6B", "#B4B4B4"
MARKERS = "oD^sv<>PX*"
Box = tuple[float, float, float, float]

_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.linewidth": 0.8,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
    "svg.hashsalt": "hetsys",
    "svg.fonttype": "none",
    "figure.dpi": 100,
    "savefig.dpi": 200,
}


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib's settings for the length of a picture; nothing global stays changed."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        yield


def canvas(width_in: float, height_in: float) -> Any:
    """A figure that belongs to no window and no global list."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def caption_of(comparison: Comparison) -> str:
    """Where the numbers come from, for the line under a picture."""
    frame = comparison.frame
    counts = [max((cell.n for cell in row.values()), default=0) for row in comparison.cells.values()]
    most = len(comparison.seeds)
    fewest = f"{min(counts)} to " if counts and min(counts) < most else ""
    seeds = f"{fewest}{most} seed{'s' * (most != 1)}"
    left_out = f" · {len(frame.invalid_seeds)} invalid seeds left out" if frame.invalid_seeds else ""
    return joined(frame.source, seeds, frame.provenance, f"{frame.experiment}@{frame.frame_hash}", frame.commit) + left_out


def caption_of_runs(runs: Sequence[StoredRun]) -> str:
    """The same for a picture of single runs."""
    first = runs[0]
    seeds = sorted({run.seed for run in runs if run.seed is not None})
    said = "seed " + ", ".join(map(str, seeds))
    provenance = str(first.summary.get("provenance", ""))
    return joined(first.source, said, provenance, f"{first.experiment}@{first.frame_hash}", first.code_id or first.commit)


def joined(source: str, seeds: str, provenance: str, frame: str, commit: str) -> str:
    """The line under a picture."""
    parts = [f"source: {source or 'unknown'}", seeds, f"provenance {provenance}" if provenance else "", frame]
    return " · ".join([*filter(None, parts), f"commit {short_commit(commit) or 'unknown'}"])


def save(figure: Any, out: Path, stem: str, caption: str, rows: Sequence[Mapping[str, object]]) -> list[Path]:
    """Write `<stem>.png`, `.svg` and `.csv` (the points) into `out`, the caption under the picture. Equal input, equal bytes."""
    out.mkdir(parents=True, exist_ok=True)
    figure.text(0.01, 0.012, caption, fontsize=6.5, color=GREY, ha="left", va="bottom")
    paths = [out / f"{stem}.{ending}" for ending in ("png", "svg", "csv")]
    figure.savefig(paths[0], metadata={"Software": None})
    figure.savefig(paths[1], metadata={"Date": None})
    with paths[2].open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["empty"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return paths


def label_points(
    axes: Any, points: Sequence[tuple[float, float, str, str, bool]], faint: Sequence[tuple[float, float]] = ()
) -> None:
    """Write each `(x, y, text, colour, bold)` beside its point, where it covers least of other labels, points and edges.

    `faint` points should be left free as well, but count less.
    """
    from matplotlib.patheffects import withStroke

    halo = withStroke(linewidth=2.0, foreground="white")
    figure = axes.figure
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    panel = axes.get_window_extent(renderer)
    spots = [axes.transData.transform((x, y)) for x, y, *_ in points]
    specks = [_around(axes.transData.transform(point), 2 * figure.dpi / 72.0) for point in faint]
    taken: list[Box] = []
    unit = figure.dpi / 72.0
    for rank in sorted(range(len(points)), key=lambda i: (-spots[i][0], spots[i][1])):
        _, _, text, colour, bold = points[rank]
        label = axes.text(0, 0, text, color=colour, fontsize=7.5, fontweight="bold" if bold else "normal", zorder=6)
        size = label.get_window_extent(renderer)
        label.remove()
        box, distance = _free_box(spots[rank], (size.width, size.height), spots, taken, specks, panel, unit)
        taken.append(box)
        centre = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
        line = {"arrowstyle": "-", "color": colour, "lw": 0.6, "alpha": 0.7, "shrinkA": 1, "shrinkB": 2}
        axes.annotate(
            text, points[rank][:2], xytext=axes.transData.inverted().transform(centre), textcoords="data", ha="center", va="center",
            color=colour, fontsize=7.5, fontweight="bold" if bold else "normal", zorder=6, annotation_clip=False,
            arrowprops=line if distance > 10 * unit else None, path_effects=[halo],
        )  # fmt: skip


def _free_box(
    spot: Any,
    size: tuple[float, float],
    spots: Sequence[Any],
    taken: Sequence[Box],
    specks: Sequence[Box],
    panel: Any,
    unit: float,
) -> tuple[Box, float]:
    """The candidate box around `spot` that covers least, and its distance; nearer ones win ties."""
    from math import cos, pi, sin

    best: tuple[float, Box, float] | None = None
    marks = [_around(mark, 4 * unit) for mark in spots]
    width, height = size[0] + 2 * unit, size[1] + 1 * unit
    for distance in (5.0, 9.0, 14.0, 20.0, 28.0, 38.0, 50.0, 64.0):
        for step in range(16):
            angle = 2 * pi * step / 16
            x = spot[0] + cos(angle) * (distance * unit + width / 2)
            y = spot[1] + sin(angle) * (distance * unit + height / 2)
            box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            covered = sum(_overlap(box, other) for other in (*taken, *marks)) + 0.3 * sum(_overlap(box, speck) for speck in specks)
            outside = width * height - _overlap(box, (panel.x0, panel.y0, panel.x1, panel.y1))
            cost = covered * 4 + outside * 4 + distance * unit * 6
            if best is None or cost < best[0]:
                best = (cost, box, distance * unit)
    assert best is not None
    return best[1], best[2]


def _around(spot: Any, reach: float) -> Box:
    return (spot[0] - reach, spot[1] - reach, spot[0] + reach, spot[1] + reach)


def _overlap(one: Box, other: Box) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0.0) * max(height, 0.0)
