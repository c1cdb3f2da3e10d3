"""Sweeps over one more key than system and seed: which key it is, the table with a column a value, and what is still refused."""

from __future__ import annotations

import argparse
import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hetsys.core.errors import ConfigError
from hetsys.metrics.statistics import paired_effect
from hetsys.report import compare as compare_module
from hetsys.report.axes import along, find_axis
from hetsys.report.compare import closing_table, compare, compare_all
from hetsys.report.grid import Grid
from hetsys.report.grid_tables import as_csv, as_json, as_markdown, show
from hetsys.tracking.stored import find_runs
from tests.figures.results import write_run, write_sweep

SAME = {"cluster": {"nodes": 1}, "workload": {"tenants": 2, "spread": 2}}
LEVEL = {"gavel": 1.0, "oef_coop": 1.1, "equal_split": 0.9}


def _figures(system: str, value: Any, seed: int) -> dict[str, Any]:
    """gavel makes 10 at every value; oef_coop 10 % more for each unit of the value above 1, equal_split as much less."""
    return {"throughput_normalized": 10.0 * (1 + seed / 10) * LEVEL[system] ** (value - 1), "envy_max": 0.1 * value}


def _grid(root: Path, **more: Any) -> Grid:
    shown = compare_all(find_runs(write_sweep(root, "workload.spread", (4, 1.0, 2), figures=_figures, **more)), "gavel")
    assert isinstance(shown, Grid)
    return shown


def _text(grid: Grid, width: int = 120) -> str:
    out = io.StringIO()
    show(grid, "table", Console(file=out, width=width))
    return out.getvalue()


def test_the_axis_is_the_one_key_that_differs(results_root: Path) -> None:
    axis = find_axis(find_runs(write_sweep(results_root, "workload.spread", (4, 1.0, 12, 1.5))))
    assert axis is not None and (axis.key, axis.short) == ("workload.spread", "spread")
    assert axis.values == ("1", "1.5", "4", "12"), "numbers in order, words and descriptions aside"
    assert all(len(runs) == 9 and len({run.frame_hash for run in runs}) == 1 for runs in axis.runs.values())


def test_values_that_are_no_numbers_go_by_name(results_root: Path) -> None:
    axis = find_axis(find_runs(write_sweep(results_root, "workload.lie", ("under", "none", "over"), seeds=1)))
    assert axis is not None and axis.values == ("none", "over", "under")
    lists = find_axis(find_runs(write_sweep(results_root, "workload.speeds", ([[1, 2]], [[1, 1]], None), seeds=1, name="lists")))
    assert lists is not None and lists.values == ("null", "[[1, 1]]", "[[1, 2]]")


def test_a_group_is_the_axis_where_whole_options_differ(results_root: Path) -> None:
    for number, (cluster, nodes) in enumerate((("small", 1), ("large", 9))):
        config = {"options": {"cluster": cluster}, "cluster": {"nodes": nodes}, "workload": {"tenants": 2}}
        write_run(results_root, "gavel", 0, variant=str(number), frame_hash=f"f{number}", config=config)
    axis = find_axis(find_runs(results_root))
    assert axis is not None and (axis.key, axis.values) == ("cluster", ("large", "small"))


def test_one_frame_has_no_axis_and_two_keys_make_none(results_root: Path) -> None:
    one = find_runs(write_sweep(results_root, "workload.spread", (1,)))
    assert find_axis(one) is None and list(along(one, "workload.spread")) == ["1"]
    both = {"cluster": {"nodes": 1}, "workload": {"tenants": 3, "spread": 2}}
    write_run(results_root, "gavel", 0, name="study", variant="other", frame_hash="other", config=both)
    several = find_runs(results_root)
    assert find_axis(several) is None
    with pytest.raises(ConfigError, match="several frames are no comparison"):
        compare_all(several, "gavel")


def test_two_experiments_are_no_sweep(results_root: Path) -> None:
    for name, spread in (("one", 1), ("other", 2)):
        config = {"cluster": {"nodes": 1}, "workload": {"tenants": 2, "spread": spread}}
        write_run(results_root, "gavel", 0, name=name, frame_hash=name, config=config)
    assert find_axis(find_runs(results_root)) is None


def test_cells_by_hand(results_root: Path) -> None:
    """At spread 4 oef_coop makes 1.1^3 of gavel in each of three seeds; Holm's correction is over all cells of all values."""
    grid = _grid(results_root)
    assert (grid.baseline, grid.reference, next(iter(grid.labels))) == ("gavel", None, "gavel")
    cells = grid.cells["throughput_normalized"]
    for value, power in (("1", 0), ("2", 1), ("4", 3)):
        effect = cells["oef_coop"][value].effect
        assert effect is not None and effect.value == pytest.approx(1.1**power) and effect.n == 3
        assert cells["gavel"][value].effect is None and cells["gavel"][value].mean == pytest.approx(11.0)
    judged = [cell for rows in grid.cells.values() for row in rows.values() for cell in row.values() if cell.effect]
    assert {cell.verdict for cell in judged} == {"descriptive only"} and len(judged) == 2 * 3 * len(grid.metrics)


def test_holms_correction_counts_the_cells_of_all_values(results_root: Path) -> None:
    """Two values with one difference each: the smaller p of two families of one would stay as it is; of one family of two it doubles."""

    def noisy(system: str, value: Any, seed: int) -> dict[str, Any]:
        return {"throughput_normalized": 10.0 + (system == "oef_coop") * (1 + 0.3 * seed * value)}

    runs = find_runs(write_sweep(results_root, "workload.spread", (1, 2), systems=("gavel", "oef_coop"), figures=noisy, seeds=5))
    grid = compare_all(runs, "gavel", ["throughput_normalized"])
    assert isinstance(grid, Grid)
    cells = grid.cells["throughput_normalized"]["oef_coop"]
    p = {value: cell.effect.p for value, cell in cells.items() if cell.effect and cell.effect.p is not None}
    least = min(p, key=lambda value: p[value])
    assert cells[least].p_holm == pytest.approx(min(1.0, 2 * p[least]))


def test_a_reference_compares_each_system_with_itself(results_root: Path) -> None:
    grid = _grid(results_root, config={"reference": 1.0, "workload": {"tenants": 2}})
    assert grid.reference == "1"
    cells = grid.cells["throughput_normalized"]
    assert cells["equal_split"]["1"].effect is None and cells["gavel"]["4"].effect is not None
    effect = cells["equal_split"]["4"].effect
    assert effect is not None and effect.value == pytest.approx(0.9**3)
    assert "change against the same system at spread 1, paired by seed" in _text(grid)


def test_a_reference_that_is_not_there_leaves_the_baseline(results_root: Path) -> None:
    grid = _grid(results_root, config={"reference": "none", "workload": {"tenants": 2}})
    assert grid.reference is None and "change against Gavel (re-implemented) at the same spread" in _text(grid)


def test_a_seed_that_is_invalid_at_one_value_counts_at_the_others(results_root: Path) -> None:
    def one_bad(system: str, value: Any, seed: int) -> dict[str, Any]:
        return {**_figures(system, value, seed), "valid": not (value == 2 and seed == 1 and system == "oef_coop")}

    folder = write_sweep(results_root, "workload.spread", (1, 2), figures=one_bad)
    grid = compare_all(find_runs(folder), "gavel")
    assert isinstance(grid, Grid)
    counts = {value: cell.n for value, cell in grid.cells["throughput_normalized"]["equal_split"].items()}
    assert counts == {"1": 3, "2": 2}
    assert "spread 2: invalid seeds, left out for all systems: 1 (1 of 3)" in _text(grid)


def test_the_headline_of_the_preset_chooses_the_metrics(results_root: Path) -> None:
    folder = write_sweep(results_root, "workload.spread", (1, 2), figures=_figures, config={"headline": ["envy_max"]})
    out = io.StringIO()
    closing_table([run.path for run in find_runs(folder)], "gavel", Console(file=out, width=120))
    assert "study: envy max ↓, by workload.spread" in out.getvalue() and "throughput" not in out.getvalue()
    one = write_sweep(results_root, "workload.spread", (1,), figures=_figures, config={"headline": ["envy_max"]}, name="one")
    assert compare_all(find_runs(one), "gavel").metrics == ("envy_max",)
    unknown = write_sweep(results_root, "workload.spread", (1, 2), config={"headline": ["envy_mix"]}, name="typo")
    out = io.StringIO()
    closing_table([run.path for run in find_runs(unknown)], "gavel", Console(file=out, width=120))
    assert "No table: metric='envy_mix'" in out.getvalue()


def test_the_table_fits_and_says_where_its_numbers_come_from(results_root: Path) -> None:
    text = _text(_grid(results_root))
    assert max(map(len, text.splitlines()[:40])) <= 120
    assert "study: throughput (slow devices) ↑, by workload.spread" in text
    assert "source: simulated, 3 seeds, provenance published, experiment study, commit c0ffee" in text
    assert text.count("source: simulated") == 1, "what holds for all values is said once"
    assert "spread                    1          2          4" in text


def test_many_values_come_in_parts(results_root: Path) -> None:
    folder = write_sweep(results_root, "workload.tenants", range(1, 14), seeds=1, figures=lambda *_: {"envy_max": 0.0})
    grid = compare_all(find_runs(folder), "gavel", ["envy_max"])
    assert isinstance(grid, Grid)
    heads = [line for line in _text(grid, 110).splitlines() if line.startswith("tenants ")]
    assert len(heads) == 2 and heads[0].split()[1:] + heads[1].split()[1:] == [str(value) for value in range(1, 14)]


def test_formats_hold_the_same_numbers(results_root: Path) -> None:
    grid = _grid(results_root)
    rows = list(csv.DictReader(io.StringIO(as_csv(grid))))
    mine = [row for row in rows if (row["system"], row["metric"]) == ("oef_coop", "throughput_normalized")]
    assert [row["value"] for row in mine] == ["1", "2", "4"] and {row["axis"] for row in mine} == {"workload.spread"}
    assert float(mine[2]["effect"]) == pytest.approx(1.1**3) and mine[2]["against"] == "gavel"
    assert {row["frame_hash"] for row in mine} == {"f000d", "f100d", "f200d"}
    loaded = json.loads(as_json(grid))
    assert loaded["axis"] == "workload.spread" and set(loaded["frames"]) == {"1", "2", "4"} and len(loaded["rows"]) == len(rows)
    assert "| OEF cooperative (re-implemented) | 11.00 (0.0±0.0%) | 12.10" in as_markdown(grid)


def test_the_command_compares_a_sweep_value_by_value(results_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_sweep(results_root, "workload.spread", (1, 2), figures=_figures)
    arguments = argparse.Namespace(
        paths=[folder], results=results_root, baseline=None, metric=["throughput_normalized"], frame=None, any_commit=False, format="csv",
        aa=False,
    )  # fmt: skip
    assert compare_module.main(arguments) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 6 and {row["value"] for row in rows} == {"1", "2"}
    arguments.frame = "f1"
    assert compare_module.main(arguments) == 0
    assert "value" not in capsys.readouterr().out.splitlines()[0], "one frame is a plain comparison"


def test_several_sources_or_commits_are_refused_along_an_axis_too(results_root: Path) -> None:
    write_sweep(results_root, "workload.spread", (1, 2))
    write_run(results_root, "oef_fast", 0, name="study", frame_hash="f100d", code_id="badc0de", config=SAME)
    with pytest.raises(ConfigError, match="several versions of hetsys"):
        compare_all(find_runs(results_root), "gavel")


def test_a_baseline_that_lacks_a_number_leaves_the_others_theirs(results_root: Path) -> None:
    for system, value in (("gavel", None), ("oef_coop", 0.25)):
        for seed in range(2):
            write_run(results_root, system, seed, figures={"envy_max": value})
    cell = compare(find_runs(results_root), "gavel", ["envy_max"]).cells["oef_coop"]["envy_max"]
    assert (cell.n, cell.mean, cell.effect) == (2, 0.25, None)
    assert paired_effect([], "ratio") is None
