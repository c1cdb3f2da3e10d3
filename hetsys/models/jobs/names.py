"""The names of training programs, checked without loading torch."""

from __future__ import annotations

from hetsys.core.errors import ConfigError, did_you_mean

FAMILY_NAMES = ("conv", "lstm", "transformer", "recommendation", "small_lm", "actor_critic")
SIZES = ("tiny", "full")


def parse_program(program: str, key: str = "program") -> tuple[str, str]:
    """Family and size of a program such as "conv/tiny". Raises ConfigError, under the name `key`, with what was probably meant."""
    family, _, size = program.partition("/")
    if family not in FAMILY_NAMES or size not in SIZES:
        raise ConfigError(key, program, did_you_mean(program, [f"{name}/{size}" for name in FAMILY_NAMES for size in SIZES]))
    return family, size
