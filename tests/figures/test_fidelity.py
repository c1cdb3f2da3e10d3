"""Predicted against measured: the line under the table and the picture, with errors worked out by hand."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from rich.console import Console

from hetsys.report import figures
from hetsys.report.compare import closing_table, compare
from hetsys.tracking.stored import find_runs
from tests.figures.results import write_results, write_run

ERRORS = {"gavel": (0.02, 0.04), "oef_coop": (0.10, 0.10), "equal_split": (0.05, 0.05)}
"""By system, the throughput's error in seeds 0 and 1; that of the JCT is twice as large."""


def write_measured(root: Path) -> None:
    for system, errors in ERRORS.items():
        for seed, error in enumerate(errors):
            measured = {"throughput_normalized": 2.0, "jct_mean_s": 40.0}
            predicted = {"predicted_throughput_normalized": 2.0 * (1 + error), "predicted_jct_mean_s": 40.0 * (1 - 2 * error)}
            off = {"throughput_prediction_error_fraction": error, "jct_prediction_error_fraction": 2 * error}
            write_run(root, system, seed, figures={**measured, **predicted, **off}, source="measured")


def test_the_source_line_says_how_well_measured_runs_were_predicted(results_root: Path) -> None:
    """Means over seeds 3, 10 and 5 %, so the median over policies is 5 %; 10 % for the JCT."""
    write_measured(results_root)
    out = io.StringIO()
    closing_table([run.path for run in find_runs(results_root)], "gavel", Console(file=out, width=300))
    (line,) = [line for line in out.getvalue().splitlines() if line.startswith("source: measured")]
    assert line.rstrip().endswith(
        "; simulator fed with this machine's profile: throughput off by 5.0 %, mean JCT by 10.0 % (median over policies)"
    )


def test_runs_without_a_prediction_say_nothing(results_root: Path) -> None:
    write_results(results_root, 2)
    assert compare(find_runs(results_root)).frame.fidelity == ""


def test_the_picture_and_its_points(results_root: Path, tmp_path: Path) -> None:
    write_measured(results_root)
    script = figures.scripts()["fidelity"]
    paths = script.draw(figures.newest_runs(results_root / "demo"), tmp_path)
    assert [path.name for path in paths] == ["demo-fidelity.png", "demo-fidelity.svg", "demo-fidelity.csv"]
    rows = list(csv.DictReader(paths[2].open()))
    assert len(rows) == 12 and {row["metric"] for row in rows} == {"throughput_normalized", "jct_mean_s"}
    errors = {(row["system"], row["seed"]): float(row["error_fraction"]) for row in rows if row["metric"] == "throughput_normalized"}
    assert errors == {(system, str(seed)): pytest.approx(error) for system, pair in ERRORS.items() for seed, error in enumerate(pair)}
    svg = paths[1].read_text()
    assert "source: measured" in svg and "off by 5.0 % (median over policies)" in svg


def test_runs_without_a_prediction_are_not_drawn(results_root: Path, tmp_path: Path) -> None:
    write_results(results_root, 2)
    assert figures.scripts()["fidelity"].draw(figures.newest_runs(results_root / "demo"), tmp_path) == []
