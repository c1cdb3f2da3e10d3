"""Every mistake of the user ends with exit code 2 and one line that names key, value and remedy, before anything has started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hetsys.__main__ import main
from tests.config.conftest import WriteOption, one_line

MISTAKES = {
    "wrong type": (["workload.tenants=many"], "workload.tenants", "many", "whole number"),
    "fraction for a count": (["workload.tenants=1.5"], "workload.tenants", "1.5", "whole number"),
    "neither true nor false": (["plan_only=maybe"], "plan_only", "maybe", "must be true or false"),
    "list of options": (["system=[gavel, oef_coop]"], "system", "[gavel, oef_coop]", "write -m system=gavel,oef_coop"),
    "null for a number": (["workload.tenants=null"], "workload.tenants", "null", "must not be null"),
    "misspelt key": (["workload.tennants=3"], "workload.tennants", "3", "did you mean 'tenants'"),
    "misspelt nested key": (["cluster.intra_node.latency=1"], "cluster.intra_node.latency", "1", "did you mean 'latency_s'"),
    "added key": (["+workload.tennants=3"], "workload.tennants", "3", "did you mean 'tenants'"),
    "added top-level key": (["+sed=3"], "sed", "3", "no such key"),
    "unknown option": (["system=gavell"], "system", "gavell", "did you mean 'gavel'"),
    "unknown device": (["cluster/device@cluster.sheets.v100=v10"], "cluster/device", "v10", "did you mean 'v100'"),
    "unknown preset": (["experiment=oef_mixx"], "experiment", "oef_mixx", "did you mean 'oef_mix'"),
    "unknown group": (["sistem=gavel"], "sistem", "gavel", "did you mean 'system'"),
    "no option": (["system=null"], "system", "null", "choose one"),
    "missing value": (["workload=tenants_file"], "workload.path", "???", "add workload.path=VALUE"),
    "no such trace": (
        ["workload=tenants_file", "workload.path=/nowhere/jobs.yaml"],
        "workload.path",
        "/nowhere/jobs.yaml",
        "no such file",
    ),
    "unset variable": (
        ["workload=tenants_file", "workload.path=${oc.env:HETSYS_NOWHERE}"],
        "workload.path",
        "${oc.env:HETSYS_NOWHERE}",
        "HETSYS_NOWHERE is not set",
    ),
    "negative seed": (["seed=-1"], "seed", "-1", "0 or more"),
    "no seed": (["seed=first"], "seed", "first", "whole number"),
    "open bracket": (["system=[gavel"], "system", "[gavel", "brackets in pairs"),
    "no value": (["seed"], "seed", "''", "write seed=VALUE"),
    "unknown flag": (["--fast"], "hetsys run", "--fast", "--help"),
    "sweep without -m": (["experiment=null", "name=x", "system=gavel,ceei"], "system", "gavel,ceei", "add -m"),
    "endless sweep": (["-m", "workload.duration_scale=interval(0,1)"], "workload.duration_scale", "interval(0,1)", "range(20)"),
    "sweep of presets": (["experiment=oef_mix,oef_smoke"], "experiment", "oef_mix,oef_smoke", "one preset a command"),
    "typo within a sweep": (["-m", "system=oef_coop,gavell", "seed=0,1"], "system", "gavell", "did you mean 'gavel'"),
    "NaN in a device sheet": (
        ["cluster.sheets.v100.memory_bandwidth_bytes_per_s=nan"],
        "cluster.sheets.v100.memory_bandwidth_bytes_per_s",
        "nan",
        "finite number above 0",
    ),
    "unknown kind": (["cluster.nodes.0.kind=k8"], "cluster.nodes[0].kind", "k8", "did you mean 'k80'"),
    "no device": (["cluster.nodes=[]"], "cluster.nodes", "[]", "at least one node"),
    "list of a wrong type": (["cluster.nodes=[{kind: v100, devices: a}]"], "cluster.nodes", "devices: a", "whole number"),
    "other source": (["require_source=measured"], "require_source", "measured", "gives 'simulated' numbers; choose backend=torch"),
    "unknown source": (["require_source=mesured"], "require_source", "mesured", "did you mean 'measured'"),
    "unknown resume": (["resume=maybe"], "resume", "maybe", "commit"),
    "no worker": (["launch.workers=0"], "launch.workers", "0", "1 or more"),
    "model of a scheduling run": (["model=tiny"], "model", "tiny", "leave model out"),
    "unknown baseline": (["baseline=gavell"], "baseline", "gavell", "did you mean 'gavel'"),
    "name that is no folder": (["name=a/b"], "name", "a/b", "letters"),
    "no such folder of options": (["--config-dir", "/nowhere/conf"], "--config-dir", "/nowhere/conf", "is not a folder"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line(case: str, capsys: pytest.CaptureFixture[str], results_root: Path) -> None:
    arguments, key, value, remedy = MISTAKES[case]
    line = one_line(arguments, capsys)
    assert line.startswith(f"hetsys: {key}=")
    assert value in line.removeprefix(f"hetsys: {key}")
    assert remedy in line
    assert not results_root.exists(), "no job may have started"


def test_a_mismatch_of_domains_names_the_systems_that_fit(own: WriteOption, capsys: pytest.CaptureFixture[str]) -> None:
    folder = own("workload", "chat", "ServingTrace", domain="serving")
    own("system", "pager", "Policy", domain="serving")
    line = one_line(["--config-dir", str(folder), "workload=chat", "system=gavel"], capsys)
    assert line == (
        "hetsys: system='gavel': is a scheduling system, but workload=chat is a serving workload; systems that fit: pager"
    )


def test_a_constructor_that_refuses_is_named_by_its_full_key(own: WriteOption, capsys: pytest.CaptureFixture[str]) -> None:
    folder = own("system", "mine", "Policy", "patience: -2")
    line = one_line(["--config-dir", str(folder), "system=mine"], capsys)
    assert line == "hetsys: system.patience=-2.0: must be 0 or more"


@pytest.mark.parametrize(
    ("lines", "start", "remedy"),
    [
        ("patience: soon", "system.patience='soon'", "must be a number"),
        ("patinece: 3", "system.patinece=", "did you mean 'patience'"),
        ("patience: [", "mine.yaml:", "is not valid YAML"),
    ],
)
def test_mistakes_in_a_file_of_ones_own(
    own: WriteOption, capsys: pytest.CaptureFixture[str], lines: str, start: str, remedy: str
) -> None:
    folder = own("system", "mine", "Policy", lines)
    line = one_line(["--config-dir", str(folder), "system=mine"], capsys)
    assert start in line
    assert remedy in line


def test_a_description_with_an_unknown_key(own: WriteOption, capsys: pytest.CaptureFixture[str]) -> None:
    folder = own("system", "mine", "Policy")
    path = folder / "system" / "mine.yaml"
    path.write_text(path.read_text().replace("label:", "lable:"))
    line = one_line(["--config-dir", str(folder), "system=mine"], capsys)
    assert line.startswith("hetsys: system.about.lable='mine': no such key; did you mean 'label'?")


def test_several_mistakes_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    line = one_line(["-m", "system=gavell,ceeii,gavel", "seed=0,1,x"], capsys)
    assert line.startswith("hetsys: system='gavell': ")
    assert line.endswith("(and 2 more)")


def test_a_results_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HETSYS_RESULTS", str(tmp_path / "file" / "results"))
    line = one_line(["system=gavel", "seed=0"], capsys)
    assert line.startswith(f"hetsys: HETSYS_RESULTS='{tmp_path}/file/results': cannot be written")
    assert "set HETSYS_RESULTS" in line


@pytest.mark.parametrize("arguments", [["lst"], ["list", "sistems"], ["show"], ["compare", "--formt", "csv"]])
def test_mistakes_in_other_commands_are_one_line_too(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["workload.tennants=3"], ["--cfg", "job", "workload.tennants=3"], ["--cfg", "job", "-m"]])
def test_the_same_from_a_shell(arguments: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hetsys", "run", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONWARNINGS": "error"}, timeout=60)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("hetsys: ")


LAB = """defaults: [/schema/cluster/lab@_here_, device@sheets.k80: k80, _self_]
_target_: hetsys.core.cluster.Cluster
nodes: [{kind: k80, devices: 2}, {kind: v100, devices: 2}]
"""
LABS = {
    "misspelt key of a node": (("v100, devices", "v100, device"), "cluster.nodes[1].device=2: no such key; did you mean 'devices'?"),
    "no sheet": (("", ""), "cluster.nodes[1].kind='v100': has no sheet in this cluster; add `- device@sheets.v100: v100` to the defaults"),
    "unknown kind": (("v100", "k800"), "cluster.nodes[1].kind='k800': did you mean 'k80'?"),
    "no class": (("_target_: hetsys.core.cluster.Cluster\n", ""), "_target_='': is missing in "),
}


@pytest.mark.parametrize("case", LABS)
def test_mistakes_in_a_cluster_file_name_the_full_key(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (old, new), message = LABS[case]
    (tmp_path / "own/cluster").mkdir(parents=True)
    (tmp_path / "own/cluster/lab.yaml").write_text(LAB.replace(old, new) if old else LAB)
    assert one_line(["--config-dir", str(tmp_path / "own"), "cluster=lab"], capsys).startswith(f"hetsys: {message}")
