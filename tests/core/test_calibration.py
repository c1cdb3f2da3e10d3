"""A calibration comes back from its file as it was, is found for its cluster and machine only, and is read as a cost table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hetsys.core import calibration as files
from hetsys.core import costs, host
from hetsys.core.calibration import Calibration, JobRow, OpRow
from hetsys.core.cluster import Cluster, DeviceSheet, NodeGroup
from hetsys.core.errors import ConfigError, InfeasiblePlan

SHEET = DeviceSheet("any", 10**9, 1e9, {"fp32": 1e9}, 0.0, 0.0, "", native="cpu", busy_fraction=0.85)
CLUSTER = Cluster([NodeGroup("slow", 1), NodeGroup("fast", 1)], {"slow": SHEET, "fast": SHEET})


def op_row(kind: str, rows: float, seconds: float) -> OpRow:
    op = costs.linear(rows, 576, 1536, "fp32")
    return OpRow(kind, "linear", "fp32", "576x1536", rows, 0, op.num_bytes, op.flops, seconds, seconds / 10, 7)


def made(**changes: object) -> Calibration:
    calibration = Calibration(
        cluster="mine",
        devices={"slow": 1, "fast": 1},
        busy_fraction={"slow": 0.85, "fast": 0.85},
        ops=[op_row("slow", 1, 1e-4), op_row("slow", 64, 4e-3), op_row("fast", 1, 1e-5), op_row("fast", 64, 2e-4)],
        jobs=[JobRow("conv/full", "slow", 1, 10.0, 0.01, 6), JobRow("conv/full", "fast", 1, 30.0, 0.02, 6)],
        restart_s={"slow": 0.4, "fast": 0.2},
        host=dict(host.facts()),
        torch=host.torch_build().version,
        commit="abc",
        command="hetsys profile mine",
        made_at="2026-01-02T03:04:05+00:00",
    )
    return replace(calibration, **changes)  # type: ignore[arg-type]


def test_a_file_comes_back_as_it_was_and_says_units_and_source(tmp_path: Path) -> None:
    path = files.write(made(), tmp_path)
    assert path == tmp_path / "calibration" / f"mine-{host.facts()['fingerprint']}.json"
    assert files.read(path) == made() and files.read(path).hash == made().hash
    assert '"source": "measured"' in path.read_text() and '"steps_per_s": "optimiser steps' in path.read_text()
    assert [one.name for one in path.parent.iterdir()] == [path.name], "nothing else is left beside it"


def test_the_hash_is_of_what_was_measured_only() -> None:
    assert made(made_at="2030-01-01", commit="other", command="again").hash == made().hash
    assert made(restart_s={"slow": 0.4, "fast": 0.21}).hash != made().hash
    assert made(jobs=[JobRow("conv/full", "slow", 1, 10.1, 0.01, 6)]).hash != made().hash


def test_it_is_found_for_its_cluster_on_its_machine_with_its_torch(tmp_path: Path) -> None:
    assert files.find(CLUSTER, tmp_path) is None
    files.write(made(), tmp_path)
    files.write(made(cluster="later", made_at="2027-01-01T00:00:00+00:00"), tmp_path)
    found = files.find(CLUSTER, tmp_path)
    assert found is not None and found.cluster == "later", "the newest that fits"
    assert files.find(Cluster([NodeGroup("slow", 1)], CLUSTER.sheets), tmp_path) is None
    rested = replace(SHEET, busy_fraction=0.5)
    assert files.find(Cluster(CLUSTER.nodes, {"slow": rested, "fast": rested}), tmp_path) is None
    for changes in ({"torch": "0.1"}, {"host": {"fingerprint": "elsewhere"}}):
        assert not made(**changes).fits(CLUSTER)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema_version": 99}', '{"schema_version": 1, "ops": [], "jobs": []}'])
def test_a_damaged_file_is_named_with_the_remedy(tmp_path: Path, text: str) -> None:
    path = files.write(made(), tmp_path)
    path.write_text(text)
    with pytest.raises(ConfigError, match="hetsys profile") as refused:
        files.find(CLUSTER, tmp_path)
    assert refused.value.value == str(path)


def test_operations_are_a_cost_table() -> None:
    table = made().table("linear")
    op = replace(costs.linear(64, 576, 1536, "fp32"), labels=(("shape", "576x1536"), ("dtype", "fp32")))
    assert table.duration_s("fast", op) == 2e-4 and table.provenance.kind == "measured"
    middle = replace(op, rows=32.5)
    assert table.duration_s("slow", middle) == pytest.approx((1e-4 + 4e-3) / 2)
    with pytest.raises(ConfigError, match="choices: linear"):
        made().table("copy")
    with pytest.raises(InfeasiblePlan):
        table.duration_s("slow", replace(op, rows=0))


def test_speeds_by_kind_and_a_program_that_was_not_measured() -> None:
    assert made().steps_per_s("conv/full") == {"slow": 10.0, "fast": 30.0}
    with pytest.raises(ConfigError, match="gang of 2"):
        made().steps_per_s("conv/full", gang=2)
    with pytest.raises(ConfigError, match="did you mean 'conv/full'"):
        made().steps_per_s("conv/ful")
