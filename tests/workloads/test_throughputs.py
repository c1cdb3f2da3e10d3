"""The published throughput table: its content, its errors, and its agreement with the full file."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from hetsys.core.cluster import Cluster
from hetsys.core.errors import ConfigError
from hetsys.core.paths import data_dir
from hetsys.workloads.throughputs import KINDS, check_kinds, program_of, read_throughputs

HEADER = "job_type,gang,k80,p100,v100,k80_spread,p100_spread,v100_spread\n"
ROW = "A,1,1,2,3,1,2,3\n"


def test_shipped_table_has_every_published_row() -> None:
    table = read_throughputs()
    assert len(table.rows) == 83
    assert len(table.job_types) == 26
    assert table.gangs("A3C") == (1,)
    assert table.gangs("LM (batch size 5)") == (1, 2, 4, 8)
    assert table.rows["A3C", 1].steps_per_s == {"k80": 3.43877, "p100": 5.68135, "v100": 7.17577}


def test_speeds_stay_as_measured() -> None:
    table = read_throughputs()
    slower = table.rows["Recommendation (batch size 512)", 1].steps_per_s
    assert slower["v100"] < slower["k80"] < slower["p100"]
    assert table.rows["ResNet-50 (batch size 128)", 2].steps_per_s["k80"] == 0.0
    missing = sum(kind not in speeds.spread_steps_per_s for speeds in table.rows.values() for kind in KINDS)
    assert missing == 6
    not_monotone = [name for name in table.job_types if sorted(_by_kind(name)) != _by_kind(name)]
    assert len(not_monotone) == 8


def _by_kind(job_type: str) -> list[float]:
    speeds = read_throughputs().rows[job_type, 1].steps_per_s
    return [speeds[kind] for kind in KINDS]


def test_every_published_type_has_a_program_and_no_other_has() -> None:
    assert all(program_of(job_type) for job_type in read_throughputs().job_types)
    assert [program_of(name) for name in ("LM (batch size 10)", "A3C", "LMs", "")] == ["lstm/tiny", "actor_critic/tiny", "", ""]


def test_fits_needs_speed_and_devices(cluster: Cluster, small_k80_cluster: Cluster) -> None:
    table = read_throughputs()
    assert table.fits("ResNet-50 (batch size 128)", 8, cluster)
    assert not table.fits("ResNet-50 (batch size 128)", 2, small_k80_cluster)
    assert not table.fits("ResNet-18 (batch size 128)", 4, small_k80_cluster)
    assert not table.fits("A3C", 2, cluster)


def test_a_kind_without_published_speeds_is_refused(h100_cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.nodes\.kind='h100'.*k80, p100, v100.*tenants_file"):
        check_kinds(h100_cluster)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + "A,1,fast,2,3,1,2,3\n", r"t\.csv:2: k80='fast': must be a number"),
        (HEADER + ROW + "B,1,1,-2,3,1,2,3\n", r"t\.csv:3: p100='-2': must be 0 or more"),
        ("# note\n\n" + HEADER + "A,1,1,2,nan,1,2,3\n", r"t\.csv:4: v100='nan': must be finite"),
        (HEADER + "A,1,1,2,3,1,2,inf\n", r"t\.csv:2: v100_spread='inf': must be finite"),
        (HEADER + "A,0,1,2,3,1,2,3\n", r"t\.csv:2: gang='0': must be 1 or more"),
        (HEADER + "A,1.5,1,2,3,1,2,3\n", r"t\.csv:2: gang='1\.5': must be a whole number"),
        (HEADER + "A,1,1,2,3\n", r"t\.csv:2='A,1,1,2,3': has 5 cells, the header names 8"),
        (HEADER + ROW + ROW, r"t\.csv:3: job_type='A': has a second row for gang 1"),
        (HEADER + "A,1,0,0,0,0,0,0\n", r"t\.csv:2: job_type='A': gang 1 has no speed above 0"),
        ("job_type,gang,k80\n", r"t\.csv:1=.*the header lacks the column 'p100'"),
        ("gang," + HEADER + "1," + ROW, r"t\.csv:1='gang': the header names this column twice"),
        ("", r"throughput table=.*is empty; its first line must name"),
        (HEADER, r"throughput table=.*has no rows"),
    ],
)
def test_a_bad_table_is_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_throughputs(path)


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"throughput table=.*no such file"):
        read_throughputs(tmp_path / "none.csv")


def test_table_equals_the_full_file_to_six_digits() -> None:
    folder = data_dir()
    if folder is None:
        pytest.skip("HETSYS_DATA is not set")
    with (folder / "cluster/gavel_isolated_throughputs.csv").open() as file:
        full = list(csv.DictReader(file))
    rows = read_throughputs().rows
    assert len(full) == len(rows)
    for line in full:
        speeds = rows[line["job_type"], int(line["scale_factor"])]
        for middle, ours in (("", speeds.steps_per_s), ("_unconsolidated", speeds.spread_steps_per_s)):
            texts = {kind: line[f"{kind}{middle}_steps_per_s"] for kind in KINDS}
            assert ours == {kind: float(f"{float(text):.6g}") for kind, text in texts.items() if text}
