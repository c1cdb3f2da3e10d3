"""What `hetsys ls`, `hetsys show` and the progress of a sweep print."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest
from rich.console import Console

from hetsys.core.scheduling.record import ParkedRecord
from hetsys.tracking.folder import RunFolder
from hetsys.tracking.progress import Tally, clock, sweep_progress
from hetsys.tracking.views import ls_main, one_run, show_main
from tests.tracking.builders import append_all, begin, experiment, finished, records, summary


def lines(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in capsys.readouterr().out.splitlines()]


def test_ls_of_nothing(results_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ls_main(None, results_root) == 0
    assert "`hetsys run` makes some" in capsys.readouterr().out
    finished(experiment(results_root))
    assert ls_main("no-such-run", results_root) == 2
    assert "matches 'no-such-run'" in capsys.readouterr().out


def test_ls_lists_each_run_of_a_system_newest_last_however_it_ended(results_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(experiment(results_root, seed=1), throughput_normalized=3.25)
    begin(experiment(results_root, seed=0)).fail("boom")
    broken = finished(experiment(results_root, seed=2))
    (broken / "summary.json").write_text("{")
    (broken / "env.json").write_text("{")
    begin(experiment(results_root, system="gavel", seed=4)).close()
    planned = RunFolder.open(experiment(results_root, system="gavel", seed=5).folder)
    planned.write_config("seed: 5\n")
    planned.write_plan({"claims": []})
    planned.close()
    assert ls_main(None, results_root) == 0
    head, _, *rows = lines(capsys)
    assert head[:6] == ["experiment", "frame", "system", "seed", "status", "source"]
    assert head[6:] == ["throughput_normalized", "jct_mean_s", "jain_index", "commit", "age"]
    assert rows[-2][:9] == ["oef_mix", "f00d", "oef_coop", "1", "finished", "simulated", "3.25", "7200", "0.75"]
    assert [row[-4:-2] if "f00d" not in row else row[3:5] for row in rows][2:] == [
        ["4", "unfinished"], ["1", "finished"], ["0", "failed"],
    ]  # fmt: skip
    assert [row[:4] for row in rows[:2]] == [["oef_mix", "gavel", "5", "planned"], ["oef_mix", "oef_coop", "2", "unreadable"]]


def test_ls_of_many_runs_has_a_line_a_system(results_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(22):
        for system in ("gavel", "oef_coop"):
            finished(experiment(results_root, system=system, seed=seed), throughput_normalized=float(seed))
    begin(experiment(results_root, system="gavel", seed=22)).fail("boom")
    assert ls_main(None, results_root) == 0
    _, _, *rows, note = lines(capsys)
    assert [row[:7] for row in rows] == [
        ["oef_mix", "f00d", "gavel", "23", "22 finished, 1 failed", "simulated", "10.5"],
        ["oef_mix", "f00d", "oef_coop", "22", "22 finished", "simulated", "10.5"],
    ]
    assert note[0].startswith("45 runs")
    assert ls_main("gavel", results_root) == 0
    assert len(lines(capsys)) == 2 + 23, "a filter that narrows lists runs singly"


def test_ls_never_averages_over_frames_or_sources(results_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(15):
        for frame, source, value in (("f00d123456", "simulated", 1.0), ("beef123456", "simulated", 3.0), ("beef123456", "emulated", 5.0)):
            run = experiment(results_root, seed=seed, frame_hash=frame, source=source, run_hash=f"{frame}{source}")
            finished(run, throughput_normalized=value)
    assert ls_main(None, results_root) == 0
    _, _, *rows, note = lines(capsys)
    assert [(row[1], row[3], row[5], row[6]) for row in rows] == [
        ("beef12", "15", "emulated", "5"), ("beef12", "15", "simulated", "3"), ("f00d12", "15", "simulated", "1"),
    ]  # fmt: skip
    assert note[0].startswith("45 runs")


def test_show_prints_summary_plan_and_environment(results_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = finished(experiment(results_root, seed=7), wall_s=1.25)
    finished(experiment(results_root, seed=17))
    for name in (str(path), "7-abc123", "oef_coop/7-"):
        assert show_main(name, results_root) == 0
        text = capsys.readouterr().out
        assert "oef_coop (re-implemented), seed 7 of oef_mix: finished" in text
        assert re.search(r"wall_s +1\.25\n", text)
        assert '"devices": [' in text
        assert re.search(r"frame_hash +f00d *\n", text)


def test_show_asks_which_and_exits_with_2(results_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(experiment(results_root, seed=7))
    finished(experiment(results_root, seed=17))
    assert show_main("oef", results_root) == 2
    assert capsys.readouterr().out.splitlines()[1:] == ["  oef_mix/oef_coop/17-abc123", "  oef_mix/oef_coop/7-abc123"]
    assert show_main("gavel", results_root) == 2
    assert capsys.readouterr().out.startswith("no runs in")


def test_show_lists_the_first_ten_parked_with_their_reasons(results_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = experiment(results_root)
    folder = begin(run)
    append_all(folder, [ParkedRecord("a", f"a.{i}", f"gang of {i} [fits] no kind") for i in range(11)])
    append_all(folder, records())
    folder.finish(summary(run))
    assert show_main(str(run.folder), results_root) == 0
    text = capsys.readouterr().out
    assert "parked: 12\n  tenant a, job a.0: gang of 0 [fits] no kind\n" in text
    assert "job a.9:" in text and "job a.10:" not in text and "... and 2 more in records.jsonl" in text
    finished(experiment(results_root, seed=4))
    assert show_main("oef_coop/4-", results_root) == 0
    assert "parked: 1\n  tenant c: has no job\n" in capsys.readouterr().out


def test_a_part_of_a_path_means_one_run(
    results_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seven = finished(experiment(results_root, seed=7))
    finished(experiment(results_root, seed=70))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "oef_coop").mkdir()
    for name in ("oef_coop/7-", "results/oef_mix/oef_coop/7-", str(seven)[:-3], "results/oef_mix/oef_coop/7-abc123"):
        found = one_run(name, results_root, Console(quiet=True))
        assert found is not None and found.path == seven, name
    assert one_run("oef_coop", results_root, Console()) is None, "a folder of that name that holds no run is not meant"
    assert "2 runs in" in capsys.readouterr().out


def test_show_of_a_failed_and_of_a_damaged_run(results_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = experiment(results_root, seed=7)
    begin(run).fail("the solver [gave] up")
    assert show_main("7-abc123", results_root) == 0
    text = capsys.readouterr().out
    assert "seed 7 of oef_mix: failed" in text and "the solver [gave] up" in text
    (run.folder / "plan.json").write_text("[1")
    assert show_main("7-abc123", results_root) == 1
    assert "plan.json is damaged" in capsys.readouterr().out


def test_progress_prints_plain_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    out = io.StringIO()
    with sweep_progress(4, Console(file=out, width=200), "oef_mix") as bar:
        bar.advance("gavel seed 0", "skipped")
        bar.advance("gavel seed 1", "running")
        bar.advance("gavel seed 2", "running")
        now[0] += 3.0
        bar.advance("gavel seed 1", "finished")
        now[0] += 3.0
        bar.advance("gavel seed 2", "failed")
        bar.advance("gavel seed 3", "running")
        now[0] += 3.0
        bar.advance("gavel seed 3", "finished")
    assert out.getvalue().splitlines() == [
        "oef_mix: gavel seed 2 failed",
        "oef_mix: 3/4 done, 1 of them were there already, 1 failed, 0:06 elapsed, about 0:03 left",
        "oef_mix: 4/4 done, 1 of them were there already, 1 failed, 0:09 elapsed",
    ]


def test_progress_within_a_run_counts_for_the_estimate_and_is_printed_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    out = io.StringIO()
    with sweep_progress(2, Console(file=out, width=200), "oef_live") as bar:
        bar.advance("gavel seed 0", "running")
        for fraction in (0.1, 0.2, 0.25):
            now[0] += 8.0
            bar.within("gavel seed 0", fraction)
        now[0] += 6.0
        bar.advance("gavel seed 0", "finished")
    assert out.getvalue().splitlines() == [
        "oef_live: 0/2 done, 1 running, gavel seed 0 at 20%, 0:16 elapsed, about 2:24 left",
        "oef_live: 1/2 done, 0:30 elapsed, about 0:30 left",
    ]


def test_progress_draws_bars_on_a_terminal_and_nothing_when_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    with sweep_progress(2, Console(file=out, force_terminal=True, width=120), "oef_mix") as bar:
        bar.advance("gavel seed 0", "finished")
        bar.within("gavel seed 1", 0.5)
        bar.advance("gavel seed 1", "failed")
    assert "2/2 done" in out.getvalue() and "1 failed" in out.getvalue() and "━" in out.getvalue()
    for quiet, setting in ((True, "on"), (False, "off")):
        out = io.StringIO()
        monkeypatch.setenv("HETSYS_PROGRESS", setting)
        with sweep_progress(1, Console(file=out, quiet=quiet), "oef_mix") as bar:
            bar.advance("gavel seed 0", "finished")
        assert out.getvalue() == ""


def test_what_was_there_already_does_not_speed_up_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    tally = Tally(10, start_s=0.0)
    for seed in range(5):
        tally.note(f"{seed}", "skipped")
    assert tally.left_s is None
    now[0] = 8.0
    tally.note("5", "finished")
    assert tally.left_s == 8.0 * 4
    assert [clock(seconds) for seconds in (5, 187, 3729)] == ["0:05", "3:07", "1:02:09"]
