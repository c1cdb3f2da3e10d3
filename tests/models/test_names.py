"""Names of programs: understood, refused with what was probably meant, and all that without torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hetsys.core.errors import ConfigError
from hetsys.models.jobs.names import FAMILY_NAMES, SIZES, parse_program


@pytest.mark.parametrize("family", FAMILY_NAMES)
@pytest.mark.parametrize("size", SIZES)
def test_every_family_has_every_size(family: str, size: str) -> None:
    assert parse_program(f"{family}/{size}") == (family, size)


@pytest.mark.parametrize("program", ["", "conv", "conv/", "/tiny", "conv/tiny/", "conv/large", "resnet/tiny", "Conv/tiny"])
def test_anything_else_is_refused(program: str) -> None:
    with pytest.raises(ConfigError, match="choices: actor_critic/full"):
        parse_program(program)


def test_the_refusal_names_the_key_and_what_was_meant() -> None:
    with pytest.raises(ConfigError, match=r"jobs\[2\]\.program='lstn/tiny': did you mean 'lstm/tiny'\?"):
        parse_program("lstn/tiny", "jobs[2].program")


def test_names_load_no_torch() -> None:
    code = "import sys, hetsys.models.jobs.names; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
