"""What the tests of the configuration share: a folder of options of one's own, and the line that a mistake ends with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hetsys.__main__ import main

WriteOption = Callable[..., Path]


def one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr of `hetsys run ARGUMENTS`, which must end with exit code 2 and print nothing else."""
    assert main(["run", *arguments]) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    lines = caught.err.splitlines()
    assert len(lines) == 1, caught.err
    return lines[0]


@pytest.fixture
def own(tmp_path: Path) -> WriteOption:
    """`own("system", "mine", "Policy", "patience: 2.0")` writes DIR/system/mine.yaml for a class of `fakes` and returns DIR."""

    def write(group: str, option: str, cls: str, lines: str = "", domain: str = "scheduling") -> Path:
        path = tmp_path / "own" / group / f"{option}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"defaults: [/schema/{group}/{option}@_here_, _self_]\n"
            f"_target_: tests.config.fakes.{cls}\n"
            f"about: {{domain: {domain}, label: {option}}}\n{lines}\n"
        )
        return tmp_path / "own"

    return write
