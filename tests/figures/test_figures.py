"""Figures from a tiny results folder: pictures, the CSV of their points, what they need, and what happens without matplotlib."""

from __future__ import annotations

import csv
import logging
import os
from pathlib import Path

import pytest

from hetsys.core.errors import ConfigError
from hetsys.report import figures
from hetsys.report.compare import compare
from hetsys.report.drawing import canvas
from tests.figures.results import write_results, write_run


def test_every_figure_says_what_it_claims() -> None:
    found = figures.scripts()
    assert set(found) >= {"fairness_efficiency", "device_timeline"}
    for script in found.values():
        figure = script.figure
        assert figure.claim and figure.expected and figure.minutes > 0 and figure.command.startswith("hetsys run")


def test_a_results_folder_becomes_pictures(results_root: Path, tmp_path: Path) -> None:
    write_results(results_root, 3)
    out = tmp_path / "figures"
    pictures = figures.draw_for("demo", results_root, out)
    assert {path.name for path in pictures} == {"demo-device_timeline.png", "demo-fairness_efficiency.png"}
    for path in pictures:
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 20_000
        assert "source: simulated" in path.with_suffix(".svg").read_text()
    rows = list(csv.DictReader((out / "demo-fairness_efficiency.csv").open()))
    assert len(rows) == 9 and {row["throughput_normalized"] for row in rows if row["system"] == "gavel"} == {"1.0"}
    spans = list(csv.DictReader((out / "demo-device_timeline.csv").open()))
    assert len(spans) == 15 and {row["system"] for row in spans} == {"gavel", "oef_coop", "equal_split"}
    assert {row["seed"] for row in spans} == {"0"} and sum(row["failed"] == "True" for row in spans) == 3


def test_equal_results_give_equal_bytes(results_root: Path, tmp_path: Path) -> None:
    write_results(results_root, 2)
    script = figures.scripts()["fairness_efficiency"]
    runs = figures.newest_runs(results_root / "demo")
    one, other = script.draw(runs, tmp_path / "a"), script.draw(runs, tmp_path / "b")
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]


def test_a_picture_never_mixes_the_results_of_two_commits(results_root: Path) -> None:
    write_results(results_root, 2)
    newer = [write_run(results_root, system, 9, code_id="badc0de") for system in ("gavel", "oef_coop")]
    for path in newer:
        os.utime(path / "summary.json", (2e9, 2e9))
    assert {run.path for run in figures.newest_runs(results_root / "demo")} == set(newer)


def test_the_command_takes_the_largest_set_and_says_what_it_left_out(
    results_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Six runs of one frame and commit beat two of a newer frame, two of another commit and one that stands on its own."""
    write_results(results_root, 2, name="oef_mix", frame_hash="71c1aa5500")
    write_run(results_root, "gavel", 8, name="oef_mix", frame_hash="71c1aa5500", code_id="badc0de")
    newer = [write_run(results_root, name, 9, name="oef_mix", frame_hash="b30d5500aa") for name in ("gavel", "oef_coop")]
    for path in newer:
        os.utime(path / "summary.json", (2e9, 2e9))
    assert figures.main(["fairness_efficiency"], False, results_root, tmp_path) == 0
    said = "drawn from oef_mix, frame 71c1aa (simulated, commit c0ffee): 6 runs; 3 runs of other frames, sources or commits left out"
    assert said in capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "oef_mix-fairness_efficiency.csv").open()))
    assert len(rows) == 6 and {row["seed"] for row in rows} == {"0", "1"}
    assert figures.main(["fairness_efficiency"], False, results_root, tmp_path, "b30d") == 0
    assert "frame b30d55 (simulated, commit c0ffee): 2 runs; 7 runs of other" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="71c1aa5500"):
        figures.main([], False, results_root, tmp_path, "beef")


def test_one_system_has_a_timeline_and_nothing_has_no_picture(results_root: Path, tmp_path: Path) -> None:
    write_run(results_root, "best_kind_only", 4)
    drawn = figures.draw_for("demo", results_root, tmp_path / "figures")
    assert [path.name for path in drawn] == ["demo-device_timeline.png"]
    assert figures.draw_for("absent", results_root, tmp_path / "figures") == []


def test_a_number_that_is_null_everywhere_leaves_its_panel_empty(results_root: Path, tmp_path: Path) -> None:
    for system in ("gavel", "oef_coop"):
        write_run(results_root, system, 0, figures={"finish_time_fairness_p95": None})
    pictures = figures.draw_for("demo", results_root, tmp_path / "figures")
    assert len(pictures) == 2 and "no data: fewer than 20 jobs a run" in pictures[1].with_suffix(".svg").read_text()


def test_markers_keep_clear_of_the_top_edge(results_root: Path) -> None:
    """Values that hardly differ leave hardly any margin of their own, while the axis reaches down to 0."""
    from importlib import import_module

    script = import_module("paper_figs.fairness_efficiency")
    for system, value in (("gavel", 1.0), ("oef_coop", 0.999)):
        write_run(results_root, system, 0, figures={"sharing_incentive_min": value})
    runs = figures.newest_runs(results_root / "demo")
    comparison = compare(runs, "gavel", [script.X, "sharing_incentive_min"])
    axes = canvas(4.0, 4.0).add_axes((0.1, 0.1, 0.8, 0.8))
    script._panel(axes, script._points(runs, comparison), comparison, *script.PANELS[0])
    bottom, top = axes.get_ylim()
    assert bottom == -0.04 and top >= 1.0 + 0.06 * 1.04


def test_runs_in_which_nobody_waited_have_no_point_to_draw(
    results_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for system in ("gavel", "oef_coop"):
        write_run(results_root, system, 0, figures={"throughput_normalized": None}, name="oef_mix")
    assert figures.main(["fairness_efficiency"], False, results_root, tmp_path / "out") == 0
    assert "hold nothing to draw" in capsys.readouterr().out and not (tmp_path / "out").exists()


def test_the_command_draws_what_is_here(results_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(results_root, 2, name="oef_mix")
    assert figures.main(["device_timeline"], False, results_root, tmp_path / "out") == 0
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".csv", ".png", ".svg"]
    assert "oef_mix-device_timeline.svg" in capsys.readouterr().out.replace("\n", "")


def test_the_list_says_what_is_here(results_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert figures.main([], True, results_root, tmp_path) == 0
    before = capsys.readouterr().out
    assert "results here: no" in before.replace("  ", " ").replace("  ", " ") and "expected:" in before
    write_results(results_root, 2, name="oef_mix")
    assert figures.main([], True, results_root, tmp_path) == 0
    assert "yes, 3 systems x 2 seeds" in capsys.readouterr().out


def test_missing_results_and_unknown_names_are_the_users_mistake(results_root: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="hetsys run experiment=oef_mix"):
        figures.main([], False, results_root, tmp_path)
    with pytest.raises(ConfigError, match="did you mean 'device_timeline'"):
        figures.main(["device_timelines"], False, results_root, tmp_path)


def test_without_matplotlib_the_extra_is_named(
    results_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_results(results_root, 2, name="oef_mix")
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"hetsys\[analysis\]"):
        figures.main([], False, results_root, tmp_path)
    with caplog.at_level(logging.WARNING):
        assert figures.draw_for("oef_mix", results_root, tmp_path) == []
    assert "hetsys[analysis]" in caplog.text and len(caplog.records) == 1


def test_a_disk_that_refuses_a_picture_is_told_in_a_line(
    results_root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_results(results_root, 2)
    (tmp_path / "figures").write_text("a file in the way")
    with caplog.at_level(logging.WARNING):
        assert figures.draw_for("demo", results_root, tmp_path / "figures") == []
    assert len(caplog.records) == 2 and "figure not drawn: device_timeline: " in caplog.text


def test_a_script_without_its_two_names_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd.py").write_text("FIGURE = 1\n")
    monkeypatch.setattr(figures, "shipped", lambda name: tmp_path)
    with pytest.raises(ConfigError, match=r"odd\.py"):
        figures.scripts()
