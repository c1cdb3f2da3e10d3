"""`hetsys doctor` tells a good machine from one on which runs would fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsys import doctor
from hetsys.core.errors import SolverError


@pytest.fixture(autouse=True)
def without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HETSYS_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")


def test_this_machine_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main() == 0
    shown = capsys.readouterr().out
    for words in ("processor", "GPUs", "solver highs", "optimum 11, expected 11", "k80_p100_v100", "not yet", "All well."):
        assert words in shown


def test_a_cluster_without_published_speeds_needs_a_tenant_file(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.main()
    rows = {line.split()[1]: line for line in capsys.readouterr().out.splitlines() if "not yet" in line and len(line.split()) > 5}
    needs = {name for name, row in rows.items() if "with a tenant file of your own speeds" in row}
    assert needs == {"p100_3090_a100", "rtx_3070_3080_3090", "xeon_a100"}
    assert {"k80_p100_v100", "philly_160", "philly_small"} == {name for name, row in rows.items() if " yes " in row}


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
    assert [finding.ok for finding in doctor.solvers()] == [False, False]
    monkeypatch.setattr("hetsys.systems.solve.solve", broken)
    assert [(finding.ok, finding.value) for finding in doctor.solvers()] == [(False, "no licence")] * 2
