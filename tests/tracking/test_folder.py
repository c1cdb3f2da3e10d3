"""The run folder: what is written is read back, finishing is one step, what is in the way is kept, the disk may be full."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hetsys.core.errors import ConfigError, EngineError
from hetsys.core.scheduling.record import ParkedRecord
from hetsys.tracking.folder import RunFolder, StoredRun, find_runs
from tests.tracking.builders import append_all, begin, experiment, finished, records, summary

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_written_is_read_back(results_root: Path) -> None:
    run = experiment(results_root)
    stored = StoredRun(finished(run, wall_s=1.5))
    assert stored.path == results_root / "oef_mix" / "oef_coop" / "3-abc123"
    assert {entry.name for entry in stored.path.iterdir()} == {
        "config.yaml", "env.json", "plan.json", "records.jsonl", "timeline.json", "summary.json",
    }  # fmt: skip
    assert stored.records() == records()
    assert stored.summary == summary(run, wall_s=1.5)
    assert stored.config == {"system": {"name": "oef_coop", "round_s": 360.0}, "seed": 3}
    assert stored.plan == {"claims": [{"name": "a", "devices": [2.5]}]}
    assert (stored.status, stored.experiment, stored.system, stored.seed) == ("finished", "oef_mix", "oef_coop", 3)
    assert (stored.source, stored.frame_hash, stored.label) == ("simulated", "f00d", "oef_coop (re-implemented)")
    assert stored.env["end_time"] >= stored.env["start_time"] > "2020"
    assert stored.env["devices"] == {"k80": 8}


def test_each_run_adds_a_line_to_the_index_even_after_a_torn_one(results_root: Path) -> None:
    finished(experiment(results_root, seed=0))
    index = results_root / "index.jsonl"
    with index.open("a") as stream:
        stream.write('{"path": "torn')
    begin(experiment(results_root, seed=1)).fail("boom")
    lines = index.read_text().splitlines()
    assert [json.loads(lines[i])["path"] for i in (0, 2)] == ["oef_mix/oef_coop/0-abc123", "oef_mix/oef_coop/1-abc123"]
    assert [json.loads(lines[i])["status"] for i in (0, 2)] == ["finished", "failed"]
    assert json.loads(lines[2])["seed"] == 1


def test_a_torn_last_line_is_dropped_and_only_the_last(results_root: Path) -> None:
    stored = StoredRun(finished(experiment(results_root)))
    file = stored.path / "records.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    assert stored.records() == records()[:-1]
    file.write_bytes(whole + b'{"record": "jo')
    assert stored.records() == records()
    lines = whole.splitlines(keepends=True)
    file.write_bytes(lines[0][:-9] + b"\n" + b"".join(lines[1:]))
    with pytest.raises(EngineError, match=r"records\.jsonl, line 1 is damaged"):
        stored.records()


def test_the_books_of_a_live_run_lie_beside_its_records(results_root: Path) -> None:
    folder = begin(experiment(results_root, source="emulated"))
    for step in range(3):
        folder.note({"round": 0, "job": "a-0", "steps": step})
    folder.append({"record": "parked", "tenant": "c", "job": None, "reason": "has no jobs"})
    folder.append({"record": "job", "job": "a-1", "tenant": "a", "status": "parked", "reason": "crashed 3 times"})
    folder.append({"record": "job", "job": "a-0", "tenant": "a", "status": "finished"})
    folder.write_losses({"a-0": "00ff"})
    folder.finish({"status": "finished"})
    assert [json.loads(line)["steps"] for line in (folder.path / "ledger.jsonl").read_text().splitlines()] == [0, 1, 2]
    assert json.loads((folder.path / "losses.json").read_text()) == {"a-0": "00ff"}
    stored = StoredRun(folder.path)
    assert [row["reason"] for row in stored.parked_rows()] == ["has no jobs", "crashed 3 times"]
    assert [row["record"] for row in stored.all_rows()] == ["parked", "job", "job"]


def test_rows_of_one_type_are_read_without_parsing_the_others(results_root: Path) -> None:
    run = experiment(results_root)
    folder = begin(run)
    append_all(folder, [ParkedRecord("round", None, "has no job"), *records(2), ParkedRecord("d", "d-0", "came late")])
    folder.finish(summary(run))
    stored = StoredRun(folder.path)
    assert [row["tenant"] for row in stored.rows("parked")] == ["round", "c", "d"]
    assert [row["index"] for row in stored.rows("round")] == [0, 1]
    file = folder.path / "records.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"index"', b"index"))
    assert len(stored.rows("parked")) == 3
    with pytest.raises(EngineError, match="line 3 is damaged"):
        stored.rows("round")


def test_a_plan_alone_is_planned_and_an_environment_or_records_mean_begun(results_root: Path) -> None:
    folder = RunFolder.open(experiment(results_root).folder)
    folder.write_config("seed: 3\n")
    assert StoredRun(folder.path).status == "unfinished"
    folder.write_plan({"claims": []})
    assert StoredRun(folder.path).status == "planned"
    folder.append({"record": "parked", "tenant": "c", "job": None, "reason": ""})
    assert StoredRun(folder.path).status == "unfinished"
    folder.close()


def test_there_is_no_summary_before_finish_and_none_after_a_kill(results_root: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from tests.tracking.builders import *\n"
        "folder = begin(experiment(Path(sys.argv[1])))\n"
        "append_all(folder, records(3000)); folder._flush(); append_all(folder, records(1000))\n"
        "print('up', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(results_root)], cwd=ROOT, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"up\n"
    stored = StoredRun(experiment(results_root).folder)
    assert stored.status == "unfinished"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert not (stored.path / "summary.json").exists()
    assert stored.records()[:3002] == records(3000)
    assert finished(experiment(results_root)) == stored.path, "the lock of a killed process holds nobody up"
    assert StoredRun(stored.path).status == "finished"
    assert (stored.path.with_name("3-abc123.aborted-1") / "records.jsonl").exists()


def test_what_is_in_the_way_is_renamed_and_kept(results_root: Path) -> None:
    run = experiment(results_root)
    begin(run).fail(ValueError("first"))
    torn = begin(run)
    torn.append({"record": "parked", "tenant": "c", "job": None, "reason": ""})
    torn.close()
    path = finished(run)
    finished(run)
    names = sorted(entry.name for entry in path.parent.iterdir())
    assert names == ["3-abc123", "3-abc123.aborted-1", "3-abc123.aborted-2", "3-abc123.replaced-1"]
    assert StoredRun(path.with_name(names[1])).error == "ValueError: first"
    assert (path.with_name(names[3]) / "summary.json").exists()
    assert [found.path for found in find_runs(results_root)] == [path]


def test_a_planned_folder_is_filled_in(results_root: Path) -> None:
    run = experiment(results_root)
    begin(run).close()
    path = finished(run)
    assert [entry.name for entry in path.parent.iterdir()] == ["3-abc123"]


def test_two_processes_do_not_write_one_run(results_root: Path) -> None:
    run = experiment(results_root)
    folder = begin(run)
    script = "import sys; from pathlib import Path; from tests.tracking.builders import *; begin(experiment(Path(sys.argv[1])))"
    second = subprocess.run([sys.executable, "-c", script, str(results_root)], cwd=ROOT, capture_output=True, text=True)
    assert second.returncode != 0
    assert "another hetsys process is writing this run" in second.stderr
    with pytest.raises(ConfigError, match="another hetsys process"):
        RunFolder.open(run.folder)
    folder.finish(summary(run))
    assert [entry.name for entry in run.folder.parent.iterdir()] == ["3-abc123"]


def test_an_error_is_told_message_first(results_root: Path) -> None:
    folder = begin(experiment(results_root))
    try:
        raise EngineError("worker k80-0 died")
    except EngineError as error:
        folder.fail(error)
    text = (folder.path / "error.txt").read_text()
    assert text.startswith("worker k80-0 died\n\nTraceback")
    assert "test_folder.py" in text
    stored = StoredRun(folder.path)
    assert (stored.status, stored.error) == ("failed", "worker k80-0 died")


def test_failing_after_the_finish_changes_nothing(results_root: Path) -> None:
    run = experiment(results_root)
    folder = begin(run)
    folder.finish(summary(run))
    folder.fail("too late")
    assert not (folder.path / "error.txt").exists()


@pytest.mark.parametrize("name", ["config.yaml", "plan.json", "timeline.json", "records.jsonl", "summary.json"])
def test_a_full_disk_is_named_and_what_was_finished_stays(results_root: Path, name: str) -> None:
    kept = StoredRun(finished(experiment(results_root, seed=0)))
    run = experiment(results_root, seed=1)
    folder = RunFolder.open(run.folder)
    (folder.path / (name if name == "records.jsonl" else f".{name}.tmp")).symlink_to("/dev/full")
    with pytest.raises(EngineError, match="the disk is full; finished runs are kept") as caught:
        folder.write_config("a: 1")
        folder.write_plan({})
        folder.write_timeline({})
        append_all(folder, records())
        folder.finish(summary(run))
    assert str(folder.path / name) in str(caught.value)
    folder.fail(caught.value)
    assert StoredRun(folder.path).status == "failed"
    assert (kept.status, kept.records()) == ("finished", records())


def test_even_error_txt_may_not_fit(results_root: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = begin(experiment(results_root))
    (folder.path / ".error.txt.tmp").symlink_to("/dev/full")
    folder.fail("boom")
    assert "boom" in caplog.text and "the disk is full" in caplog.text


def test_results_that_cannot_be_written_are_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file in the way")
    with pytest.raises(ConfigError, match="set HETSYS_RESULTS"):
        RunFolder.open(tmp_path / "results" / "e" / "s" / "0-a")


def test_numbers_that_json_has_no_form_for_are_refused(results_root: Path) -> None:
    folder = begin(experiment(results_root))
    with pytest.raises(ValueError, match="not JSON compliant"):
        folder.append({"record": "round", "length_s": float("nan")})
    folder.close()


def test_runs_are_found_from_any_level_and_by_pattern(results_root: Path) -> None:
    for system in ("gavel", "oef_coop"):
        for seed in (0, 1):
            finished(experiment(results_root, system=system, seed=seed))
    finished(experiment(results_root, name="other", seed=-2))

    def names(root: Path, pattern: str | None = None) -> list[str]:
        return [f"{run.experiment}/{run.system}/{run.seed}" for run in find_runs(root, pattern)]

    everything = ["oef_mix/gavel/0", "oef_mix/gavel/1", "oef_mix/oef_coop/0", "oef_mix/oef_coop/1", "other/oef_coop/-2"]
    assert names(results_root) == everything
    assert names(results_root / "oef_mix") == everything[:4]
    assert names(results_root / "oef_mix" / "gavel") == everything[:2]
    assert names(results_root / "oef_mix" / "gavel" / "1-abc123") == everything[1:2]
    assert names(results_root, "gavel") == everything[:2]
    assert names(results_root, "oef_mix/*/1-*") == [everything[1], everything[3]]
    assert names(results_root, "nothing") == []
    with pytest.raises(ConfigError, match="is not a folder"):
        find_runs(results_root / "missing")


@pytest.mark.parametrize("file", ["summary.json", "env.json"])
def test_a_damaged_run_does_not_hide_the_others(results_root: Path, file: str) -> None:
    broken = StoredRun(finished(experiment(results_root, seed=0)))
    finished(experiment(results_root, seed=1))
    (broken.path / file).write_text('{"source": "simu')
    assert [(run.status, run.seed, bool(run.source)) for run in find_runs(results_root)] == [
        ("unreadable", 0, False),
        ("finished", 1, True),
    ]
    with pytest.raises(EngineError, match=f"{file} is damaged"):
        getattr(broken, file.removesuffix(".json"))
