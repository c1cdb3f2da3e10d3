"""The words after `hetsys run`: Hydra's own options and overrides, with mistakes in them as ConfigError."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from unittest.mock import patch

from hydra import main as hydra_main
from hydra._internal.utils import get_args_parser

from hetsys.config.schema import register_folder
from hetsys.core.errors import ConfigError
from hetsys.core.paths import shipped


@dataclass(frozen=True)
class Arguments:
    """`overrides`: key=value words; `multirun`: -m; `extra`: the folder of `--config-dir`; `shows`: print, run nothing."""

    overrides: tuple[str, ...]
    multirun: bool
    extra: tuple[Path, ...]
    config_name: str
    shows: bool

    @property
    def implied(self) -> list[str]:
        """The overrides of Hydra itself that the options stand for."""
        search = [f"hydra.searchpath=['file://{folder}']" for folder in self.extra]
        return [*search, *(["hydra.mode=MULTIRUN"] if self.multirun else [])]


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """Raises ConfigError for an option that does not exist or that hetsys does in another way. Registers the schemas of `extra`."""
    parser = get_args_parser()
    parser.error = _refuse  # type: ignore[method-assign]
    options = parser.parse_intermixed_args(list(argv))
    if options.config_path is not None:
        raise ConfigError("--config-path", options.config_path, "would hide what hetsys ships; add options with --config-dir DIR")
    if options.experimental_rerun is not None:
        raise ConfigError("--experimental-rerun", options.experimental_rerun, "use `hetsys replay RUN`")
    for line in options.overrides:
        if line.startswith("hydra.searchpath"):
            raise ConfigError("hydra.searchpath", line.partition("=")[2], "use --config-dir DIR, which also checks its files")
    return Arguments(
        overrides=tuple("~experiment" if line == "experiment=null" else line for line in options.overrides),
        multirun=options.multirun,
        extra=_extra(options.config_dir),
        config_name=options.config_name or "config",
        shows=bool(options.help or options.hydra_help or options.cfg or options.info or options.shell_completion),
    )


def show(argv: Sequence[str]) -> None:
    """What Hydra prints for `--help`, `--hydra-help`, `--version`, `--cfg`, `--info` and `--shell-completion`."""
    with patch.object(sys, "argv", ["hetsys run", *argv]):
        try:
            hydra_main(config_path=str(shipped("conf")), config_name="config", version_base="1.3")(_nothing)()
        except ValueError as error:
            raise ConfigError("hetsys run", " ".join(argv), str(error)) from error


def _nothing(config: object) -> None:
    """Hydra's task; never reached, as each of these options prints and ends."""


def _extra(name: str | None) -> tuple[Path, ...]:
    if name is None:
        return ()
    folder = Path(name).resolve()
    if not folder.is_dir():
        raise ConfigError("--config-dir", name, "is not a folder; give one with sub-folders like system/ or workload/")
    register_folder(folder)
    return (folder,)


def _refuse(message: str) -> NoReturn:
    raise ConfigError("hetsys run", message.partition(": ")[2] or message, "write key=value, -m, --cfg job or --help before it")
