"""The figures of the studies, each from a few small made-up runs: pictures, the CSV of their points by hand, and which runs they take."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hetsys.core.errors import ConfigError
from hetsys.core.scheduling.record import Grant, JobRecord, RoundRecord, SchedulingRecord, UserShare
from hetsys.report import figures
from hetsys.report.panels import look, point
from tests.figures.results import write_run, write_sweep

GAIN = {"gavel": 1.0, "oef_coop": 1.2, "equal_split": 0.8}


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open()))


def _draw(root: Path, experiment: str, name: str, tmp_path: Path) -> list[dict[str, str]]:
    """The CSV of figure `name`, drawn at the end of a run of `experiment`."""
    pictures = {path.name: path for path in figures.draw_for(experiment, root, tmp_path)}
    assert f"{experiment}-{name}.png" in pictures, list(pictures)
    picture = pictures[f"{experiment}-{name}.png"]
    assert picture.read_bytes().startswith(b"\x89PNG") and "source: simulated" in picture.with_suffix(".svg").read_text()
    return _rows(picture.with_suffix(".csv"))


def _progress(**made: float) -> list[SchedulingRecord]:
    """Two rounds in which tenants make progress; each is entitled to one device of each kind for its weight of 1."""
    users = tuple(UserShare(f"{name}/t/1", name, 1.0, (1.0, 1.0), (1.0, 2.0), 4) for name in made)
    return [
        RoundRecord(i, 100.0 * i, 100.0, (2, 2), users, (), dict(made), (0, 0), (0, 0), 0, "rule", "", 0.001) for i in range(2)
    ]  # fmt: skip


def test_spread_shows_the_ratio_to_the_baseline_at_each_value(results_root: Path, tmp_path: Path) -> None:
    def made(system: str, value: Any, seed: int) -> dict[str, Any]:
        return {"throughput_normalized_all": 10.0 * (1 + seed) * (GAIN[system] if value > 1 else 1.0)}

    write_sweep(results_root, "workload.spread", (1, 4), name="oef_spread", figures=made)
    rows = _draw(results_root, "oef_spread", "speedup_spread", tmp_path)
    ratios = {(row["spread"], row["system"]): float(row["ratio"]) for row in rows}
    assert len(rows) == 2 * 3 * 3 and ratios["1", "oef_coop"] == 1.0
    assert ratios["4", "oef_coop"] == pytest.approx(1.2) and ratios["4", "equal_split"] == pytest.approx(0.8)
    words = (tmp_path / "oef_spread-speedup_spread.svg").read_text()
    assert "Published, not ours" in words and "2 values of workload.spread" in words and "3 seeds" in words


def test_a_sweep_has_the_figures_of_its_axis_only(results_root: Path, tmp_path: Path) -> None:
    write_sweep(results_root, "workload.spread", (1, 4), name="oef_spread", figures=lambda *_: {"throughput_normalized_all": 1.0})
    drawn = figures.draw_for("oef_spread", results_root, tmp_path)
    assert [path.name for path in drawn] == ["oef_spread-speedup_spread.png"]


def test_a_preset_under_another_name_has_its_figures(results_root: Path, tmp_path: Path) -> None:
    write_sweep(
        results_root, "workload.spread", (1, 4), name="mine", figures=lambda *_: {"throughput_normalized_all": 1.0},
        options={"experiment": "oef_spread"},
    )  # fmt: skip
    assert [path.name for path in figures.draw_for("mine", results_root, tmp_path)] == ["mine-speedup_spread.png"]


def test_the_command_takes_all_frames_that_differ_in_the_axis_alone(
    results_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: Any = lambda *_: {"throughput_normalized_all": 1.0}  # noqa: E731
    write_sweep(results_root, "workload.spread", (1, 4), name="oef_spread", figures=made)
    other = {"cluster": {"nodes": 7}, "workload": {"tenants": 2, "spread": 8}}
    write_run(results_root, "gavel", 0, name="oef_spread", variant="x", frame_hash="other", config=other)
    assert figures.main(["speedup_spread"], False, results_root, tmp_path) == 0
    said = capsys.readouterr().out
    assert "drawn from oef_spread, 2 frames (simulated, commit c0ffee): 18 runs; 1 run of other frames" in said
    assert figures.main(["speedup_spread"], False, results_root, tmp_path, "f0") == 0
    assert "2 frames" in capsys.readouterr().out, "a frame names the set that it is in"
    with pytest.raises(ConfigError, match="no results for speedup_spread"):
        figures.main(["speedup_spread"], False, results_root, tmp_path, "other")


def test_one_value_is_no_axis(results_root: Path, tmp_path: Path) -> None:
    write_sweep(results_root, "workload.spread", (4,), name="oef_spread")
    assert "speedup_spread" not in " ".join(path.name for path in figures.draw_for("oef_spread", results_root, tmp_path))


def test_misreports_show_the_gain_over_the_truth_and_of_pairs_together(results_root: Path, tmp_path: Path) -> None:
    """tenant-00 makes 2 a second under the truth, 3 when it understates; as a pair 2 + 2 become 3 + 1.8."""
    watched = {"none": 2.0, "under": 3.0, "pair_under": 3.0}
    pair = {"none": (2.0, 2.0), "under": (3.0, 2.0), "pair_under": (3.0, 1.8)}
    write_sweep(
        results_root, "workload.lie", tuple(watched), name="oef_misreports",
        figures=lambda system, lie, seed: {"throughput_watched": watched[lie]},
        rows=lambda system, lie, seed: _progress(**{"tenant-00": pair[lie][0], "tenant-01": pair[lie][1]}),
    )  # fmt: skip
    rows = _draw(results_root, "oef_misreports", "misreports", tmp_path)
    gains = {row["lie"]: float(row["gain_fraction"]) for row in rows if row["system"] == "gavel"}
    assert gains == {"under": pytest.approx(0.5), "pair_under": pytest.approx(0.2)} and len(rows) == 2 * 3 * 3


def test_misreports_without_a_truth_have_nothing_to_show(results_root: Path, tmp_path: Path) -> None:
    write_sweep(results_root, "workload.lie", ("over", "under"), name="oef_misreports")
    assert figures.draw_for("oef_misreports", results_root, tmp_path) == []


def test_the_curve_knows_truth_and_rival_from_the_configuration(results_root: Path, tmp_path: Path) -> None:
    config = {"workload": {"tenants": 2, "speeds": [[1, 4], [1, 2]]}}
    write_sweep(
        results_root, "workload.lie_factor", (0.5, 1.0, 2.0), name="oef_misreport_curve", seeds=1, config=config,
        figures=lambda system, factor, seed: {"throughput_watched": 8.0 * factor},
    )  # fmt: skip
    rows = _draw(results_root, "oef_misreport_curve", "misreport_curve", tmp_path)
    curve = [(float(row["report"]), float(row["true_throughput"])) for row in rows if row["system"] == "oef_coop"]
    assert curve == [(2.0, 0.5), (4.0, 1.0), (8.0, 2.0)]
    assert "4-fold, its rival 2-fold" in (tmp_path / "oef_misreport_curve-misreport_curve.svg").read_text()


def test_profile_error_compares_totals_with_no_error_and_progress_with_each_other(results_root: Path, tmp_path: Path) -> None:
    write_sweep(
        results_root, "workload.profile_error", (0.0, 0.1), name="oef_profile_error",
        figures=lambda system, error, seed: {"throughput_normalized_all": 10.0 - 10.0 * error, "envy_max": error},
        rows=lambda system, error, seed: _progress(a=1.0 - error, b=1.0),
    )  # fmt: skip
    rows = _draw(results_root, "oef_profile_error", "profile_error", tmp_path)
    found = {(row["metric"], row["error"]): float(row["value"]) for row in rows if row["system"] == "gavel"}
    assert found["total", "0"] == 1.0 and found["total", "0.1"] == pytest.approx(0.9) and found["envy_max", "0.1"] == 0.1
    assert found["evenness", "0.1"] == pytest.approx(0.9)


def test_adjacency_and_solver_time_and_cross_kind(results_root: Path, tmp_path: Path) -> None:
    def made(system: str, value: Any, seed: int) -> dict[str, Any]:
        return {
            "noncontiguous_users_fraction": 0.25, "throughput_normalized_all": 5.0 * GAIN[system], "solve_s_max": 0.1, "solve_s_p50": 0.01,
            "straggler_loss": None if system == "gavel" else 0.3,
        }  # fmt: skip

    write_sweep(results_root, "workload.order", ("any", "ratio_ordered"), name="oef_adjacency", figures=made)
    rows = _draw(results_root, "oef_adjacency", "adjacency", tmp_path)
    assert rows[0]["order"] == "ratio_ordered" and {row["gaps_fraction"] for row in rows} == {"0.25"}
    write_sweep(results_root, "workload.tenants", (10, 100), name="oef_solver_time", figures=made)
    rows = _draw(results_root, "oef_solver_time", "solver_time", tmp_path)
    assert {(row["metric"], row["seconds"]) for row in rows} == {("solve_s_max", "0.1"), ("solve_s_p50", "0.01")} and len(rows) == 36
    write_sweep(results_root, "workload.spread", (1, 4), name="oef_cross_kind", figures=made)
    rows = _draw(results_root, "oef_cross_kind", "cross_kind_gangs", tmp_path)
    assert not [row for row in rows if row["metric"] == "straggler_loss" and row["system"] == "gavel"]


def _gang_run(turns: Sequence[str]) -> list[SchedulingRecord]:
    """60 rounds of two tenants, each entitled to one fast device; a has a gang of 1, b of 2; `turns` says who holds, in rotation."""
    users = (UserShare("a/t/1", "a", 1.0, (0.0, 1.0), (1.0, 2.0), 4), UserShare("b/t/2", "b", 1.0, (0.0, 2.0), (1.0, 2.0), 4))
    grants = {"a": Grant("a.0", "a", "fast", ("fast-0-0",), 1, 100.0), "b": Grant("b.0", "b", "fast", ("fast-0-1", "fast-0-2"), 1, 100.0)}
    rows: list[SchedulingRecord] = []
    for i in range(60):
        held = tuple(grants[name] for name in turns[i % len(turns)])
        rows.append(RoundRecord(i, 100.0 * i, 100.0, (0, 3), users, held, {"a": 1.0, "b": 1.0}, (0, 0), (0, 0), 0, "rule", "", 0.001))
    for name, gang in (("a", 1), ("b", 2)):
        rows.append(JobRecord(f"{name}.0", name, "t", gang, "unfinished", 0.0, 0.0, None, 6000.0, 1, 0, 0, 0, 100.0))
    return rows


def test_gang_rounding_shows_every_user_that_had_enough_turns(results_root: Path, tmp_path: Path) -> None:
    for seed in range(2):
        write_run(results_root, "oef_coop", seed, name="oef_rounding", rows=_gang_run(["ab", "ab", "a"]))
    rows = _draw(results_root, "oef_rounding", "gang_rounding", tmp_path)
    assert {(row["gang"], round(float(row["fraction"]), 4), float(row["wait_turns"])) for row in rows} == {
        ("1", 1.0, 0.0),
        ("2", 0.6667, 1.0),
    }


def test_weights_hold_progress_against_the_own_slice(results_root: Path, tmp_path: Path) -> None:
    """2 + 2 devices, speeds (1, 2) and (1, 4) and weights 1 and 3: own slices make 1.5 and 7.5 a second; z has no weight."""
    users = (UserShare("a/t/1", "a", 1.0, (1, 0), (1.0, 2.0), 4), UserShare("b/t/1", "b", 3.0, (1, 2), (1.0, 4.0), 4))
    row = RoundRecord(0, 0.0, 100.0, (2, 2), users, (), {"a": 300.0, "b": 750.0, "z": 0.0}, (0, 0), (0, 0), 0, "rule", "", 0.001)
    for seed in range(2):
        write_run(results_root, "gavel", seed, name="oef_weights", rows=[row])
    rows = {one["tenant"]: one for one in _draw(results_root, "oef_weights", "weights", tmp_path)}
    assert (float(rows["a"]["of_slice"]), float(rows["b"]["of_slice"]), float(rows["z"]["weight"])) == (150.0, 750.0, 0.0)
    assert float(rows["a"]["of_all"]) == pytest.approx(1050 / 4) and float(rows["b"]["of_all"]) == pytest.approx(3 * 1050 / 4)


def test_churn_and_null_cases_and_tenants(results_root: Path, tmp_path: Path) -> None:
    for system in GAIN:
        for seed in range(3):
            write_run(results_root, system, seed, name="oef_churn", figures={"throughput_normalized": 2.0 * GAIN[system]})
            write_run(results_root, system, seed, name="oef_tenants")
    rows = _draw(results_root, "oef_churn", "churn", tmp_path)
    assert {row["system"] for row in rows} == {"oef_coop", "equal_split"}
    assert {round(float(row["ratio"]), 3) for row in rows if row["metric"] == "throughput_normalized"} == {1.2, 0.8}
    rows = _draw(results_root, "oef_tenants", "philly_tenants", tmp_path)
    rho = {row["tenant"]: (row["jobs"], float(row["rho"])) for row in rows if row["system"] == "gavel"}
    assert rho == {"a": ("1", pytest.approx(590 / 500)), "b": ("2", pytest.approx(600 / 500))}
    write_sweep(
        results_root, "workload.speeds", ([[1, 1]], [[1, 2]]), name="oef_null", figures=lambda *_: {"throughput_normalized_all": 3.0}
    )
    rows = _draw(results_root, "oef_null", "null_cases", tmp_path)
    assert {row["total_ratio"] for row in rows} == {"1.0"} and {row["least_over_most_progress"] for row in rows} == {"0.4"}


def test_emulated_runs_stand_beside_the_simulated_ones(results_root: Path, tmp_path: Path) -> None:
    for system in GAIN:
        for seed in range(3):
            write_run(results_root, system, seed, name="oef_live_sim", figures={"throughput_normalized": 2.0 * GAIN[system]})
        write_run(results_root, system, 0, name="oef_live", source="emulated", frame_hash="beef", figures={"throughput_normalized": 1.0})
    rows = _draw(results_root, "oef_live_sim", "jct_throughput", tmp_path)
    assert {(row["source"], row["ratio"]) for row in rows if row["metric"] == "throughput_normalized" and row["system"] == "oef_coop"} == {
        ("simulated", "1.2"),
        ("emulated", "1.0"),
    }
    assert "source: emulated" in (tmp_path / "oef_live_sim-jct_throughput.svg").read_text()
    for system in GAIN:
        write_run(results_root, system, 0, name="oef_mix")
    rows = _draw(results_root, "oef_mix", "jct_throughput", tmp_path)
    assert {row["source"] for row in rows} == {"simulated"}, "another frame's emulated runs are not its own"


def test_without_the_baseline_ratios_are_not_drawn(results_root: Path, tmp_path: Path) -> None:
    for system in ("oef_coop", "equal_split"):
        write_run(results_root, system, 0, name="oef_churn")
    assert not [path for path in figures.draw_for("oef_churn", results_root, tmp_path) if "churn.png" in path.name]


def test_systems_look_the_same_in_every_figure() -> None:
    assert look("oef_coop") != look("gavel") and look("oef_coop_plus").colour == look("oef_coop").colour
    assert look("oef_coop_plus").dashed and not look("oef_coop").dashed
    assert look("oef_coop_plus_no_rows").marker != look("oef_coop_plus").marker
    known = {look(name) for name in ("oef_coop", "oef_noncoop", "gavel", "gandiva_fair", "ceei", "max_efficiency", "equal_split")}
    assert len(known) == 7
    assert look("mine", ["mine", "yours"]) != look("yours", ["mine", "yours"])


def test_a_point_is_a_mean_with_an_interval_from_three_seeds_on() -> None:
    assert point(1.0, []) is None
    two, three = point(1.0, [1.0, 4.0], ratio=True), point(1.0, [1.0, 2.0, 3.0])
    assert two is not None and (two.mean, two.low) == (pytest.approx(2.0), None)
    assert three is not None and three.low is not None and three.high is not None and three.low < 2.0 < three.high
