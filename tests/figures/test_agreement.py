"""Runs of two sources that should be one run: equal to the bit, or the first difference by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hetsys.core.errors import ConfigError
from hetsys.report.agreement import Agreement, agreement, agreement_line, main
from hetsys.tracking.stored import StoredRun, find_runs
from tests.figures.results import write_run

CONFIG = "cluster: {nodes: 3}\nworkload: {tenants: 2}\nsystem: {}\nmodel: {}\n"


def two_sources(root: Path, seeds: int = 2, config: str = CONFIG) -> tuple[list[StoredRun], list[StoredRun]]:
    for name, source in (("live", "emulated"), ("sim", "simulated")):
        for system in ("gavel", "oef_coop"):
            for seed in range(seeds):
                path = write_run(root, system, seed, name=name, source=source)
                (path / "config.yaml").write_text(config if name == "live" else CONFIG)
    return find_runs(root / "live"), find_runs(root / "sim")


def change(run: StoredRun, number: int, **values: Any) -> None:
    lines = (run.path / "records.jsonl").read_text().splitlines()
    lines[number] = json.dumps(json.loads(lines[number]) | values)
    (run.path / "records.jsonl").write_text("\n".join(lines) + "\n")


def test_equal_runs_are_counted_and_host_times_may_differ(results_root: Path) -> None:
    live, simulated = two_sources(results_root)
    change(live[0], 0, policy_s=99.0)
    assert agreement(live, simulated) == Agreement(4, 4)
    assert agreement_line([run.path for run in live], [run.path for run in simulated]) == (
        "4 of 4 emulated runs equal the simulated run of their system and seed exactly "
        "(every round's allocation, every job's completion time)"
    )


@pytest.mark.parametrize(
    ("number", "values", "said"),
    [
        (1, {"waiting_jobs": 7}, "gavel seed 0: round 1, waiting_jobs: emulated 7, simulated None"),
        (6, {"finish_s": 590.0000001}, "gavel seed 0: job a.0, finish_s: emulated 590.0000001, simulated 590.0"),
    ],
)
def test_the_first_difference_is_named(number: int, values: dict[str, Any], said: str, results_root: Path) -> None:
    live, simulated = two_sources(results_root)
    change(live[0], number, **values)
    assert agreement(live, simulated) == Agreement(4, 3, said)


def test_a_run_that_goes_on_longer_differs(results_root: Path) -> None:
    live, simulated = two_sources(results_root)
    with (live[1].path / "records.jsonl").open("a") as file:
        file.write('{"record": "round", "index": 99}\n')
    assert agreement(live, simulated).first == "gavel seed 1: record 10: emulated goes on, the other has ended"


def test_runs_of_another_workload_are_no_pair(results_root: Path) -> None:
    live, simulated = two_sources(results_root, config=CONFIG.replace("tenants: 2", "tenants: 3"))
    assert agreement(live, simulated) == Agreement(0, 0)
    assert agreement_line([run.path for run in live], [run.path for run in simulated]) == ""


def test_the_command_says_it_and_refuses_what_cannot_be_compared(results_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live, _ = two_sources(results_root)
    assert main([results_root / "live", results_root / "sim"]) == 0
    assert capsys.readouterr().out.startswith("4 of 4 emulated runs equal")
    change(live[0], 1, waiting_jobs=7)
    assert main([results_root / "live", results_root / "sim"]) == 1
    assert "first difference: gavel seed 0: round 1" in capsys.readouterr().out
    for paths in (
        [results_root / "live", results_root / "live"],
        [results_root, results_root / "sim"],
        [results_root / "live"], [results_root / "live" / "gavel", results_root / "sim" / "oef_coop"],
    ):
        with pytest.raises(ConfigError, match="--same"):
            main(paths)
