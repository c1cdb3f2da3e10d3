"""Bad input through the command line: one line and exit code 2 before any run, or parked with its reason while the others finish."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from hetsys.__main__ import main
from hetsys.core.errors import SolverError
from hetsys.systems.solve import Solver
from hetsys.workloads.philly import TRACE_FILE
from tests.config.conftest import one_line

FEW = ["system=gavel,oef_coop", "seed=0", "tracker=files", "launch.workers=1"]
JOB = "job_type: x, num_steps: 100"
GOOD = f"{{name: good, jobs: [{{{JOB}, steps_per_s: {{k80: 1, v100: 2}}}}]}}"
CSV = "tenant,job_type,num_steps,steps_per_s.v100\ngood,x,10,1\n"


def with_speed(speed: str) -> str:
    return f"[{GOOD}, {{name: bad, jobs: [{{{JOB}, steps_per_s: {{v100: {speed}}}}}]}}]"


def with_tenant(entries: str) -> str:
    return f"[{GOOD}, {{{entries}}}]"


def tenant_file(folder: Path, name: str, text: str) -> list[str]:
    """The words that run the tenants of `text`, after it is written to `folder`/`name`."""
    (folder / name).write_text(text)
    return ["workload=tenants_file", f"workload.path={folder / name}", *FEW]


def records(results: Path, kind: str) -> list[list[dict[str, Any]]]:
    """The records of a kind in each run."""
    runs = [[json.loads(line) for line in path.read_text().splitlines()] for path in sorted(results.rglob("records.jsonl"))]
    return [[record for record in run if record["record"] == kind] for run in runs]


REFUSED_YAML = {
    "NaN speed": (with_speed(".nan"), "t.yaml: tenants[1] 'bad', jobs[0]: steps_per_s.v100=nan: must be finite"),
    "infinite speed": (with_speed(".inf"), "t.yaml: tenants[1] 'bad', jobs[0]: steps_per_s.v100=inf: must be finite"),
    "huge speed": (with_speed("1.0e+300"), "steps_per_s.v100=1e+300: must be 1e+15 or less"),
    "whole number too long for a float": (with_speed("9" * 400), f"steps_per_s.v100={'9' * 400}: must be 1e+15 or less"),
    "negative speed": (with_speed("-1"), "t.yaml: tenants[1] 'bad', jobs[0]: steps_per_s.v100=-1: must be 0 or more"),
    "speed that is no number": (with_speed("fast"), "steps_per_s.v100='fast': must be a number"),
    "speed of an unknown kind": (with_speed("1, h10: 2"), "steps_per_s='h10': is no kind of device; did you mean 'h100'?"),
    "NaN weight": (with_tenant("name: bad, weight: .nan"), "tenants[1] 'bad': weight=nan: must be finite"),
    "negative weight": (with_tenant("name: bad, weight: -1"), "tenants[1] 'bad': weight=-1: must be 0 or more"),
    "arrival after all time": (
        with_tenant(f"name: bad, jobs: [{{{JOB}, arrival_s: 1e300, steps_per_s: {{v100: 1}}}}]"),
        "jobs[0]: arrival_s='1e300': must be 1e+15 or less",
    ),
    "duplicate tenant": (f"[{GOOD}, {GOOD}]", "t.yaml: tenants[1] 'good': name='good': another tenant has this name, at "),
    "duplicate job": (
        with_tenant(f"name: bad, jobs: [{{name: good-0, {JOB}, steps_per_s: {{v100: 1}}}}]"),
        "tenants[1] 'bad', jobs[0]: name='good-0': another job has this name, at ",
    ),
    "empty file": (None, "t.yaml': is empty; begin it with `tenants:`"),
    "broken YAML": ("[", "t.yaml:1': is not valid YAML"),
    "unknown key of a tenant": (with_tenant("nam: bad"), "t.yaml: tenants[1]='nam': unknown key; did you mean 'name'"),
    "unknown key of a job": (with_tenant(f"name: bad, jobs: [{{{JOB}, gangs: 2}}]"), "jobs[0]='gangs': unknown key; did you mean 'gang'"),
    "no tenants": ("[]", "has no tenants; see the README"),
    "nobody can run": (
        "[{name: idle}, {name: slow, jobs: [{job_type: x, num_steps: 1, steps_per_s: {v100: 0}}]}]",
        "none of its jobs can run on cluster=k80_p100_v100_12 (runs at 0 steps/s on every kind that can hold its gang; gang of 1 on "
        "k80, p100, v100; has no jobs); change the jobs or choose another cluster",
    ),
}
REFUSED_CSV = {
    "cell that is no number": (CSV + "bad,x,ten,1\n", "t.csv:3: num_steps='ten': must be a number"),
    "NaN cell": (CSV + "bad,x,10,nan\n", "t.csv:3: steps_per_s.v100='nan': must be finite"),
    "missing cell": (CSV + "bad,x\n", "t.csv:3='bad,x': has 2 cells, the header names 4"),
    "cell that is too long": (CSV + "b" * 200_000 + ",x,10,1\n", "t.csv:3='" + "b" * 40 + "...': is not valid CSV"),
    "unknown column": (CSV.replace("num_steps", "steps"), "t.csv:2='steps': unknown key; did you mean"),
    "empty file": ("", "t.csv': is empty; its first line must name"),
}
REFUSED_WORDS = {
    "kinds without published speeds": (["cluster=rtx_3070_3080_3090"], "cluster.nodes.kind='rtx3070': no published training speed"),
    "zero devices": (["cluster.nodes=[{kind: v100, devices: 0}]"], "cluster.nodes=[]: the cluster has no device; give at least one"),
    "negative devices": (["cluster.nodes.0.devices=-1"], "cluster.nodes[0].devices=-1: must be 0 or more"),
    "restart as long as a round": (["workload.restart_s=2.7"], "workload.restart_s=2.7: must be 0 or more and below round_s=2.7"),
    "too many types": (["workload.job_types_per_tenant=27"], "workload.job_types_per_tenant=27: the throughput table has 26"),
    "too many tenants": (["workload=philly_tenants", "workload.num_tenants=16"], "workload.num_tenants=16: the trace has 15"),
    "no steps in a number": (["workload.duration_scale=1e300"], "workload.duration_scale=1e+300: must be 1e+15 or less"),
}


@pytest.mark.parametrize("case", REFUSED_YAML)
def test_a_bad_yaml_file_starts_nothing(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], results_root: Path) -> None:
    tenants, message = REFUSED_YAML[case]
    text = "" if tenants is None else f"tenants: {tenants}"
    assert message in one_line(tenant_file(tmp_path, "t.yaml", text), capsys)
    assert not results_root.exists()


@pytest.mark.parametrize("case", REFUSED_CSV)
def test_a_bad_csv_file_starts_nothing(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], results_root: Path) -> None:
    text, message = REFUSED_CSV[case]
    assert message in one_line(tenant_file(tmp_path, "t.csv", text), capsys)
    assert not results_root.exists()


@pytest.mark.parametrize("case", REFUSED_WORDS)
def test_a_bad_workload_or_cluster_starts_nothing(case: str, capsys: pytest.CaptureFixture[str], results_root: Path) -> None:
    words, message = REFUSED_WORDS[case]
    assert one_line(words, capsys).startswith(f"hetsys: {message}")
    assert not results_root.exists()


@pytest.mark.parametrize("words", [["plan_only=true"], ["-m", "workload.max_rounds=5,6"]])
def test_plans_and_sweeps_are_checked_as_well(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], results_root: Path
) -> None:
    line = one_line([*tenant_file(tmp_path, "t.yaml", f"tenants: {with_speed('.nan')}"), *words], capsys)
    assert "steps_per_s.v100=nan" in line and "more" not in line
    assert not results_root.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"vc,job_type,total_steps,arrival_s,scale_factor\na,A3C,1,0,1\na,A3C,few,0,1\n"), ":3: total_steps='few'"),
        (b"vc,job_type\n", "does not unpack as gzip"),
        (None, "no such file"),
    ],
    ids=["a cell", "no gzip", "no file"],
)
def test_a_trace_that_does_not_parse_is_named_with_its_line(
    content: bytes | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    results_root: Path,
) -> None:  # fmt: skip
    monkeypatch.setenv("HETSYS_DATA", str(tmp_path))
    if content is not None:
        (tmp_path / TRACE_FILE).parent.mkdir()
        (tmp_path / TRACE_FILE).write_bytes(content)
    line = one_line(["workload=philly_tenants", "workload.trace=file", "workload.num_tenants=1"], capsys)
    assert str(tmp_path / TRACE_FILE) in line and message in line
    assert not results_root.exists()


@pytest.mark.parametrize("blocked", ["results", "results/oef"])
def test_a_results_folder_that_cannot_be_written(blocked: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / blocked).parent.mkdir(exist_ok=True)
    (tmp_path / blocked).write_text("in the way")
    line = one_line(["system=gavel", "seed=0"], capsys)
    assert line.startswith(f"hetsys: HETSYS_RESULTS='{tmp_path}/results': cannot be written")
    assert f"{tmp_path / blocked}); set HETSYS_RESULTS" in line


PARKED = {
    "all-zero speeds": (with_speed("0"), "bad-0", "runs at 0 steps/s on every kind that can hold its gang; gang of 1 on k80, p100, v100"),
    "gang that fits no kind": (
        with_tenant(f"name: bad, jobs: [{{{JOB}, gang: 9, steps_per_s: {{v100: 1}}}}]"),
        "bad-0",
        "gang of 9 fits no kind; the largest has 4 devices",
    ),
    "tenant without jobs": (with_tenant("name: bad"), None, "has no jobs"),
}


@pytest.mark.parametrize("case", PARKED)
def test_what_cannot_run_is_parked_and_the_others_finish(case: str, tmp_path: Path, results_root: Path) -> None:
    tenants, job, reason = PARKED[case]
    assert main(["run", *tenant_file(tmp_path, "t.yaml", f"tenants: {tenants}")]) == 0
    assert records(results_root, "parked") == [[{"record": "parked", "tenant": "bad", "job": job, "reason": reason}]] * 2
    for jobs in records(results_root, "job"):
        assert [(record["job"], record["status"]) for record in jobs] == [("good-0", "finished")]


def test_a_tenant_of_weight_0_runs_on_idle_devices(tmp_path: Path, results_root: Path) -> None:
    guest = f"name: guest, weight: 0, jobs: [{{{JOB}, steps_per_s: {{v100: 1}}}}]"
    assert main(["run", *tenant_file(tmp_path, "t.yaml", f"tenants: {with_tenant(guest)}")]) == 0
    assert records(results_root, "parked") == [[], []]
    for jobs in records(results_root, "job"):
        assert {record["job"]: record["status"] for record in jobs} == {"good-0": "finished", "guest-0": "finished"}


def summaries(results: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in results.rglob("summary.json")]


def test_a_solver_out_of_time_is_counted_and_the_run_goes_on(results_root: Path) -> None:
    assert main(["run", "experiment=oef_smoke", "backend=sim", *FEW, "system.time_limit_s=1e-6"]) == 0
    found = summaries(results_root)
    assert len(found) == 2
    for summary in found:
        assert 0 < summary["solver_fallbacks"] <= summary["rounds"]
        assert summary["jobs_finished"] == 6


def test_a_solver_that_fails_later_keeps_its_last_answer(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    solve, calls = Solver.solve, []

    def failing(self: Solver, *arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 4:
            raise SolverError("the licence has run out")
        return solve(self, *arguments, **named)

    monkeypatch.setattr(Solver, "solve", failing)
    assert main(["run", "experiment=oef_smoke", "backend=sim", *FEW, "system=gavel"]) == 0
    (summary,) = summaries(results_root)
    assert summary["solver_kept"] > 0
    assert summary["jobs_finished"] == 6
    notes = {record.get("note") for record in records(results_root, "round")[0]}
    assert "the licence has run out" in notes
