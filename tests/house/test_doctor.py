"""`hetsys doctor` tells a good machine from one on which runs would fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hetsys import doctor
from hetsys.core import host
from hetsys.core.errors import SolverError


@pytest.fixture(autouse=True)
def without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HETSYS_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")


def rows(shown: str) -> dict[str, str]:
    """The table of clusters, a row a name."""
    table = shown.partition("What can run here")[2]
    return {cells[0].strip(): " | ".join(cells[1:]) for line in table.splitlines() if len(cells := line.strip("│").split("│")) == 5}


def test_this_machine_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main() == 0
    shown = capsys.readouterr().out
    for words in ("processor", "CPU generations", "cpu_full", "GPUs", "torch", "solver highspy", "optimum 11, expected 11", "All well."):
        assert words in shown
    assert "not there yet" not in shown and "not yet" not in shown


def test_which_clusters_run_and_how(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(host, "usable_cores", lambda: 2)
    monkeypatch.setattr(host, "instruction_sets", lambda: ("sse4_1", "avx2"))
    monkeypatch.setattr(host, "gpus", lambda: ())
    doctor.main()
    shown = capsys.readouterr().out
    found = rows(shown)
    needs = {name for name, row in found.items() if "with a tenant file of your own speeds" in row}
    assert needs == {"p100_3090_a100", "rtx_3070_3080_3090", "six_kinds", "xeon_a100"}
    native = {name for name, row in found.items() if "yes, not measured" in row}
    assert native == {"cpu_generations", "local"} and "2 cpu_full" in found["local"]
    assert all("no: not here" in row for name, row in found.items() if name not in native)
    assert "cpu_full is no faster than cpu_avx2" in shown


def test_why_a_native_cluster_does_not_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(host, "usable_cores", lambda: 1)
    doctor.main()
    table = " ".join(capsys.readouterr().out.partition("What can run here")[2].replace("│", " ").split())
    assert "no: 2 CPU workers" in table and "1 cpu_full" in table


def test_the_doctor_does_not_wait_for_torch() -> None:
    script = "import sys; from hetsys import doctor; doctor.main(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=120).returncode == 0


def test_a_data_folder_that_is_not_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HETSYS_DATA", "/nowhere/at/all")
    assert doctor.main() == 1
    assert "To mend: HETSYS_DATA" in capsys.readouterr().out


def test_a_data_file_that_was_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "gavel_isolated_throughputs.csv").write_text("job_type\n")
    monkeypatch.setenv("HETSYS_DATA", str(tmp_path))
    finding = doctor.data()
    assert finding.ok is False and "1 of " in finding.value and "another size" in finding.value


def test_a_results_folder_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HETSYS_RESULTS", str(tmp_path / "file" / "results"))
    finding = doctor.results()
    assert finding.ok is False and "set HETSYS_RESULTS" in finding.value


def test_a_solver_that_fails_and_one_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(problem: object, **options: object) -> None:
        raise SolverError("no licence")

    monkeypatch.setattr(doctor, "SELF_TEST_OPTIMUM", 12.0)
    assert [finding.ok for finding in doctor.solvers()] == [False] * 3
    monkeypatch.setattr("hetsys.systems.solve.solve", broken)
    assert [(finding.ok, finding.value) for finding in doctor.solvers()] == [(False, "no licence")] * 3
