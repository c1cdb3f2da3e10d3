"""`hetsys`: what it prints, what it imports, and the exit code of every ending."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import hetsys.config
from hetsys import __main__ as command_line
from hetsys.__main__ import COMMANDS, LISTS, main
from hetsys.config.options import read_options
from hetsys.core.cluster import Cluster
from hetsys.core.errors import ConfigError, EngineError, InfeasiblePlan


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ConfigError("a", 1, "must\nbe 2"), 2, "hetsys: a=1: must be 2"),
        (InfeasiblePlan("needs 31 GiB, has 24"), 2, "hetsys: needs 31 GiB, has 24"),
        (EngineError("worker 3 was lost"), 1, "hetsys: worker 3 was lost"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_the_exit_code_of_each_ending(
    error: BaseException, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(argv: object) -> None:
        raise error

    monkeypatch.setattr(hetsys.config, "compose_command", fail)
    assert main(["run"]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_defect_of_hetsys_itself_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hetsys.config, "compose_command", lambda argv: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["run"])


def sweep_with(monkeypatch: pytest.MonkeyPatch, **outcome: object) -> None:
    """Make a sweep of one run end in `outcome`, without running anything."""
    import hetsys.report.compare
    import hetsys.report.figures
    import hetsys.runner.command

    ended = SimpleNamespace(**{"finished": [], "skipped": [], "failed": [], "interrupted": False, **outcome})
    monkeypatch.setattr(hetsys.runner.command, "run_sweep", lambda experiments, *, console, launch: ended)
    monkeypatch.setattr(
        hetsys.report.compare, "closing_table", lambda paths, baseline, console, *_: console.print(f"table of {len(paths)}")
    )
    monkeypatch.setattr(hetsys.report.figures, "draw_for", lambda name, results, out: [Path(out) / f"{name}.png"])


def test_a_finished_sweep_shows_table_source_and_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep_with(monkeypatch, finished=[Path("a")], skipped=[Path("b")])
    assert main(["run", "system=gavel", "seed=0"]) == 0
    out = capsys.readouterr().out
    assert "table of 2" in out
    assert "results: " in out
    assert "oef.png" in out


def test_the_default_measures_the_devices_first_and_prints_three_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[tuple[str, tuple[str, ...]]] = []
    sweep_with(monkeypatch, finished=[Path("a")], skipped=[Path("b")])
    monkeypatch.setattr("hetsys.runner.command.check_machine", lambda experiments: None)
    monkeypatch.setattr("hetsys.profile.calibrate", lambda cluster, name, *_: measured.append((name, cluster.kinds)))
    monkeypatch.setattr("hetsys.report.agreement.agreement_line", lambda one, other: f"{len(one)} against {len(other)}")
    assert main(["run"]) == 0
    assert measured == [("cpu_generations", ("cpu_sse41", "cpu_full"))]
    out = capsys.readouterr().out
    places = [out.index(words) for words in ("Measured: ", "Emulated: ", "2 against 2", "Simulated: ", "results: ", "oef_native_short.png")]
    assert places == sorted(places) and out.count("table of 2") == 3
    assert "oef_live_short: 1 of 2 runs stood finished at this commit" in out


def test_the_shipped_speeds_are_taken_where_a_word_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep_with(monkeypatch, finished=[Path("a")])
    monkeypatch.setattr("hetsys.runner.command.check_machine", lambda experiments: None)
    monkeypatch.setattr("hetsys.profile.calibrate", lambda *_: pytest.fail("nothing is to be measured"))
    assert main(["run", "experiment=oef_native", "system=gavel", "seed=0", "workload.calibration=shipped"]) == 0
    assert main(["run", "experiment=oef_live", "system=gavel", "seed=0"]) == 0


def test_profile_measures_a_cluster_of_this_machine_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[tuple[str, int, bool]] = []

    def measure(cluster: Cluster, name: str, results: Path, console: object, quick: bool) -> int:
        asked.append((name, len(cluster.devices), quick))
        return 1

    monkeypatch.setattr("hetsys.profile.main", measure)
    monkeypatch.setattr("hetsys.runtime.devices.check_busy", lambda cluster: None)
    assert main(["profile"]) == main(["profile", "cpu_generations", "--quick"]) == 1
    assert asked == [("cpu_generations", 2, False), ("cpu_generations", 2, True)]
    assert main(["profile", "cpu_generation"]) == 2
    assert "did you mean 'cpu_generations'" in capsys.readouterr().err


def test_a_notice_stands_before_the_runs_and_under_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HETSYS_DATA", raising=False)
    sweep_with(monkeypatch, finished=[Path("a")])
    assert main(["run", "workload=philly_tenants", "cluster=k80_p100_v100", "system=gavel", "seed=0"]) == 0
    before, _, after = capsys.readouterr().out.partition("table of 1")
    assert before.count("the Philly trace is not here") == after.count("the Philly trace is not here") == 1


def test_a_failed_run_is_named_and_the_others_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep_with(monkeypatch, finished=[Path("a")], failed=[(Path("b"), "solver: no answer")])
    assert main(["run", "system=gavel", "seed=0"]) == 1
    caught = capsys.readouterr()
    assert "table of 1" in caught.out
    assert "failed: b: solver: no answer" in caught.err


def test_failures_come_first_and_equal_reasons_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = [(Path(f"r/{seed}-x"), f"cannot write r/{seed}-x/plan.json: the disk is full") for seed in range(200)]
    odd = [(Path(f"odd/{number}"), f"reason number {number}") for number in range(12)]
    sweep_with(monkeypatch, finished=[Path("a")], failed=[*odd, *full])
    monkeypatch.setattr("hetsys.report.compare.closing_table", lambda *_: print("the table", file=sys.stderr))
    assert main(["run", "system=gavel", "seed=0"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "hetsys: failed: 200 runs, for example r/0-x: cannot write r/0-x/plan.json: the disk is full"
    assert lines[1] == "hetsys: failed: odd/0: reason number 0" and len(lines) == 12
    assert lines[10] == "hetsys: failed: 3 more runs, for other reasons; `hetsys show RUN` says why" and lines[11] == "the table"


def test_a_figure_that_the_disk_refuses_fails_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    sweep_with(monkeypatch, finished=[Path("a")], failed=[(Path("b"), "the disk is full")])
    refuse(monkeypatch, "hetsys.report.figures.draw_for")
    assert main(["run", "system=gavel", "seed=0"]) == 1
    failed, not_drawn = capsys.readouterr().err.splitlines()
    assert failed.startswith("hetsys: failed: b: ") and "figure not drawn: [Errno 28] No space left" in not_drawn


def test_the_systems_own_errors_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    refuse(monkeypatch, "hetsys.tracking.views.ls_main")
    assert main(["ls"]) == 1
    assert capsys.readouterr().err == "hetsys: [Errno 28] No space left on device: 'there'\n"


def refuse(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "there")

    monkeypatch.setattr(name, full)


@pytest.mark.parametrize(
    ("finished", "skipped", "words", "line"),
    [
        (0, 200, [], "all 200 runs stood finished at this commit; nothing was run"),
        (0, 1, [], "the one run stood finished at this commit; nothing was run"),
        (0, 3, ["resume=any"], "all 3 runs stood finished; nothing was run"),
        (2, 3, [], "3 of 5 runs stood finished at this commit and were left alone"),
        (2, 0, [], "table of 2"),
    ],
)
def test_what_stood_already_is_said_before_the_table(
    finished: int, skipped: int, words: list[str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep_with(monkeypatch, finished=[Path("a")] * finished, skipped=[Path("b")] * skipped)
    assert main(["run", "system=gavel", "seed=0", *words]) == 0
    assert next(said for said in capsys.readouterr().out.splitlines() if not said.startswith("oef alone")) == line


@pytest.mark.parametrize(("name", "code"), [("gavel/0-", 0), ("gavel/1-", 1), ("gavel", 2), ("nobody", 2)])
def test_replay_takes_a_part_of_a_path_as_show_does(
    name: str, code: int, results_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (0, 1):
        folder = results_root / "demo" / "gavel" / f"{seed}-abc"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text("seed: 0\n")
        (folder / "env.json").write_text("{}")
    settings = results_root / "demo" / "gavel" / "0-conf"
    settings.mkdir()
    (settings / "config.yaml").write_text("seed: 0\n")  # a folder of settings is no run
    replayed: list[str] = []

    def replay(path: Path, console: object) -> bool:
        replayed.append(path.name)
        return path.name == "0-abc"

    monkeypatch.setattr("hetsys.runner.replay", replay)
    assert main(["replay", name, "--results", str(results_root)]) == code
    assert replayed == {"gavel/0-": ["0-abc"], "gavel/1-": ["1-abc"]}.get(name, [])
    out = capsys.readouterr().out
    assert ("demo/gavel/0-abc" in out and "which one?" in out) == (name == "gavel")


def test_an_interrupted_sweep_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    sweep_with(monkeypatch, interrupted=True)
    assert main(["run", "system=gavel", "seed=0"]) == 130
    assert "same command" in capsys.readouterr().err


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "run"])
def test_help_teaches_by_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"hetsys {command}" in capsys.readouterr().out.split("examples:")[1]


def test_help_of_run_names_groups_options_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--help"])
    assert not ended.value.code
    out = capsys.readouterr().out
    for words in ("gavel_mix", "oef_coop", "k80_p100_v100", "hetsys run -m system=oef_coop,gavel seed=0,1,2"):
        assert words in out
    assert "schema" not in out


def test_cfg_prints_the_composed_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--cfg", "job", "-p", "workload", "workload.tenants=7"]) == 0
    assert "tenants: 7\n" in capsys.readouterr().out


def test_no_words_print_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    out = capsys.readouterr().out
    assert all(f"    {name} " in out for name in COMMANDS)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("systems", ("gavel", "2008.09213", "oef_coop")),
        ("clusters", ("k80_p100_v100", "2 x 4 v100")),
        ("devices", ("v100", "900", "fp16 125")),
        ("tables", ("helix_layers", "condensed", "published")),
        ("models", ("llama_7b", "6,738,415,616", "524,288")),
        ("workloads", ("gavel_mix", "philly_tenants")),
        ("experiments", ("oef_mix", "range(20)")),
    ],
)
def test_lists_hold_what_there_is(
    what: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HETSYS_DATA", raising=False)
    assert what in LISTS
    assert main(["list", what]) == 0
    out = capsys.readouterr().out
    for word in words:
        assert word in out


def test_one_option_in_full_shows_its_paper_and_all_that_was_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "systems", "oef_coop"]) == 0
    out = capsys.readouterr().out
    about = read_options("system")["oef_coop"]["about"]
    assert len(about["chosen"]) >= 3 and f"knowledge: {about['knowledge']}\n" in out and about["paper"] in out
    assert all(f"    - {choice}\n" in out for choice in about["chosen"])
    assert "time_limit_s: 10.0\n" in out and "_target_" not in out


@pytest.mark.parametrize("what", LISTS)
def test_every_list_shows_one_of_its_options_and_refuses_others(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = {
        "systems": "gavel", "clusters": "k80_p100_v100", "devices": "v100", "tables": "helix_layers", "models": "llama_7b",
        "workloads": "philly_tenants", "experiments": "oef_mix", "figures": "device_timeline",
    }[what]  # fmt: skip
    assert main(["list", what, name]) == 0
    assert name in capsys.readouterr().out.splitlines()[0]
    assert main(["list", what, name + "x"]) == 2
    assert f"did you mean '{name}'" in capsys.readouterr().err


def test_the_command_line_itself_imports_nothing_heavy() -> None:
    heavy = {"hydra", "omegaconf", "numpy", "rich", "yaml", "torch", "wandb"}
    code = f"import sys, hetsys.__main__; print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == ""


def test_terminating_is_like_ctrl_c() -> None:
    with pytest.raises(KeyboardInterrupt):
        command_line._interrupt(15, None)
