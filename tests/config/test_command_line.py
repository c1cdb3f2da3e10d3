"""`hetsys`: what it prints, what it imports, and the exit code of every ending."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import hetsys.config
from hetsys import __main__ as command_line
from hetsys.__main__ import COMMANDS, LISTS, main
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

    monkeypatch.setattr(hetsys.config, "compose_experiments", fail)
    assert main(["run"]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_defect_of_hetsys_itself_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hetsys.config, "compose_experiments", lambda argv: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["run"])


def sweep_with(monkeypatch: pytest.MonkeyPatch, **outcome: object) -> None:
    """Make a sweep of one run end in `outcome`, without running anything."""
    import hetsys.report.compare
    import hetsys.report.figures
    import hetsys.runner

    ended = SimpleNamespace(**{"finished": [], "skipped": [], "failed": [], "interrupted": False, **outcome})
    monkeypatch.setattr(hetsys.runner, "run_sweep", lambda experiments, *, console, launch: ended)
    monkeypatch.setattr(
        hetsys.report.compare, "closing_table", lambda paths, baseline, console: console.print(f"table of {len(paths)}")
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
    assert "oef_mix.png" in out


def test_a_failed_run_is_named_and_the_others_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep_with(monkeypatch, finished=[Path("a")], failed=[(Path("b"), "solver: no answer")])
    assert main(["run", "system=gavel", "seed=0"]) == 1
    caught = capsys.readouterr()
    assert "table of 1" in caught.out
    assert "failed: b: solver: no answer" in caught.err


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
        ("models", ("llama_7b", "6,738,415,616", "524,288")),
        ("workloads", ("gavel_mix", "philly_tenants")),
        ("experiments", ("oef_mix", "range(20)")),
    ],
)
def test_lists_hold_what_there_is(what: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert what in LISTS
    assert main(["list", what]) == 0
    out = capsys.readouterr().out
    for word in words:
        assert word in out


def test_the_command_line_itself_imports_nothing_heavy() -> None:
    heavy = {"hydra", "omegaconf", "numpy", "rich", "yaml", "torch", "wandb"}
    code = f"import sys, hetsys.__main__; print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == ""


def test_terminating_is_like_ctrl_c() -> None:
    with pytest.raises(KeyboardInterrupt):
        command_line._interrupt(15, None)
