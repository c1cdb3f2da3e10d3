"""What stands under a table: failed solvers, parked and unfinished jobs, invalid seeds, and which pairs are missing."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hetsys.core.errors import ConfigError
from hetsys.core.scheduling.record import ParkedRecord
from hetsys.report.caveats import caveats
from hetsys.report.compare import closing_table, compare
from hetsys.report.tables import as_json, notes
from hetsys.tracking.folder import RunFolder, StoredRun, find_runs
from tests.figures.results import LABELS, write_results, write_run

FINE = {"rounds": 36, "solver_kept": 0, "solver_fallbacks": 0}
JOBS = {"jobs_finished": 240, "jobs_unfinished": 0, "jobs_withdrawn": 0, "jobs_parked": 0, "tenants_parked": 0}


def closing(root: Path) -> str:
    out = io.StringIO()
    closing_table([run.path for run in find_runs(root)], "gavel", Console(file=out, width=110))
    return out.getvalue()


def test_crashes_and_a_busy_machine_are_said(results_root: Path) -> None:
    write_run(results_root, "gavel", 0, figures={**FINE, "crashes": 2, "worker_cpu_share": 0.61})
    write_run(results_root, "oef_coop", 0, figures={**FINE, "crashes": 0, "worker_cpu_share": 0.99})
    crashed, busy = caveats(find_runs(results_root))
    assert crashed.startswith("crashed: 2 leases, as a process of the job died (") and "Gavel" in crashed and "OEF" not in crashed
    assert busy == "this machine was busy: workers got as little as 61 % of their processor time; repeat when it is quiet"


@pytest.mark.parametrize(
    ("kept", "fallbacks", "line"),
    [
        (0, 36, "the solver failed in 72 of 72 rounds (72 replaced by an equal split); its figures are not the policy's"),
        (2, 0, "the solver failed in 4 of 72 rounds (4 replaced by the last good answer); its figures are only in part the policy's"),
        (
            1, 2, "the solver failed in 6 of 72 rounds (4 replaced by an equal split, 2 replaced by the last good answer); "
            "its figures are only in part the policy's",
        ),
    ],
)  # fmt: skip
def test_a_solver_that_failed_is_named_under_the_table(results_root: Path, kept: int, fallbacks: int, line: str) -> None:
    for seed in range(2):
        write_run(results_root, "gavel", seed, figures=FINE)
        write_run(results_root, "oef_coop", seed, figures={**FINE, "solver_kept": kept, "solver_fallbacks": fallbacks})
    whole = f"OEF cooperative (re-implemented): {line}"
    assert caveats(find_runs(results_root)) == [whole]
    assert whole in closing(results_root).splitlines()
    assert json.loads(as_json(compare(find_runs(results_root), "gavel")))["caveats"] == [whole]


def test_an_invalid_seed_says_whose_fault_it_is_and_its_rounds_count_only_there(results_root: Path) -> None:
    for seed in range(3):
        lost = {**FINE, "solver_fallbacks": 36, "valid": False} if seed == 1 else FINE
        write_run(results_root, "gavel", seed, figures=FINE)
        write_run(results_root, "oef_coop", seed, figures=lost)
    found = compare(find_runs(results_root), "gavel")
    because = "OEF cooperative (re-implemented): the solver failed in 36 of 36 rounds (36 replaced by an equal split)"
    assert found.seeds == (0, 2) and found.frame.caveats == ()
    assert f"invalid seeds, left out for all systems: 1 (1 of 3); {because}" in notes(found)


def test_where_every_seed_is_invalid_the_reason_stands_in_place_of_the_table(results_root: Path) -> None:
    write_run(results_root, "oef_coop", 0, figures={**FINE, "solver_fallbacks": 36, "valid": False})
    with pytest.raises(ConfigError) as caught:
        compare(find_runs(results_root))
    assert caught.value.remedy.endswith("the solver failed in 36 of 36 rounds (36 replaced by an equal split)")
    write_run(results_root, "gavel", 0, figures=FINE)
    text = closing(results_root)
    assert text.startswith("No table: path=") and "the solver failed in 36 of 36 rounds" in text
    assert "the other systems can be named by PATH" in text


def parked(*gangs: int) -> Sequence[ParkedRecord]:
    return [ParkedRecord("t", f"t.{i}", f"gang of {gang} fits no kind; the largest has 8 devices") for i, gang in enumerate(gangs)]


def test_parked_jobs_are_counted_once_a_seed_with_their_two_most_frequent_reasons(
    results_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for system in LABELS:
        counts = {**JOBS, "jobs_finished": 113, "jobs_parked": 7, "tenants_parked": 1}
        reasons = [*parked(16, 16, 16, 16, 32, 32, 64), ParkedRecord("idle", None, "has no jobs")]
        for seed in range(2):
            write_run(results_root, system, seed, figures=counts, parked=reasons)
    read: list[str] = []
    rows = StoredRun.parked_rows
    monkeypatch.setattr(StoredRun, "parked_rows", lambda run: read.append(f"{run.seed}") or rows(run))
    line = "parked: 14 of 240 jobs and 2 tenants (gang of 16 fits no kind: 8; gang of 32 fits no kind: 4; other reasons: 4)"
    assert caveats(find_runs(results_root)) == [line]
    assert sorted(read) == ["0", "1"], "the records of one run a seed, not of all"


def test_parked_jobs_whose_records_are_damaged_are_still_counted(results_root: Path) -> None:
    path = write_run(results_root, "gavel", 0, figures={**JOBS, "jobs_parked": 1}, parked=parked(16))
    text = (path / "records.jsonl").read_text()
    (path / "records.jsonl").write_text(text.replace('"reason":', '"reason"', 1))
    (line,) = caveats(find_runs(results_root))
    assert line.startswith("parked: 1 of 241 jobs (reasons unknown: ") and "line 1 is damaged" in line


@pytest.mark.parametrize(
    ("name", "oef", "line"),
    [
        ("jobs_unfinished", 7, "unfinished: 7 of 247 jobs at max_rounds"),
        (
            "jobs_unfinished", 3,
            "unfinished: Gavel (re-implemented) 7 of 247 jobs, OEF cooperative (re-implemented) 3 of 243 jobs at max_rounds",
        ),
        ("jobs_withdrawn", 7, "withdrawn: 7 of 247 jobs, with tenants that left"),
    ],
)  # fmt: skip
def test_unfinished_and_withdrawn_jobs_are_named(results_root: Path, name: str, oef: int, line: str) -> None:
    for system, count in (("gavel", 7), ("oef_coop", oef)):
        write_run(results_root, system, 0, figures={**JOBS, name: count})
    assert line in closing(results_root).splitlines()


def test_all_is_well_adds_no_line(results_root: Path) -> None:
    write_run(results_root, "gavel", 0, figures={**FINE, **JOBS})
    assert caveats(find_runs(results_root)) == []


def stopped(root: Path, seed: int, workload: str, *, name: str = "demo", error: str = "", plan: bool = False) -> None:
    """A folder without env.json: of a run that failed before anything of it was known, or that was only planned."""
    folder = RunFolder.open(root / name / "gavel" / f"{seed}-{workload}")
    folder.write_config(f"name: {name}\nseed: {seed}\nworkload: {{kind: {workload}}}\n")
    if plan:
        folder.write_plan({"claims": []})
    folder.fail(error) if error else folder.close()


def test_only_what_was_to_be_of_this_frame_is_a_missing_pair(results_root: Path) -> None:
    folder = write_results(results_root, 1)
    for run in find_runs(folder):
        (run.path / "config.yaml").write_text("name: demo\nseed: 0\nworkload: {kind: mix}\n")
    stopped(results_root, 5, "mix", error="no such file")
    stopped(results_root, 6, "other", error="no such file")
    stopped(results_root, 7, "mix", error="no such file", name="another")
    stopped(results_root, 8, "mix", plan=True)
    write_run(results_root, "gavel", 9, done=False, frame_hash="beef")
    found = compare(find_runs(results_root), "gavel")
    assert found.frame.unfinished == ("gavel seed 5: failed",)


def test_a_failed_run_without_any_configuration_counts_to_its_experiment(results_root: Path) -> None:
    write_results(results_root, 1)
    RunFolder.open(results_root / "demo" / "gavel" / "5-x").fail("boom")
    RunFolder.open(results_root / "another" / "gavel" / "5-x").fail("boom")
    found: Any = compare(find_runs(results_root), "gavel")
    assert found.frame.unfinished == ("gavel seed 5: failed",)
