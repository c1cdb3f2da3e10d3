"""Where things lie on disk: configuration and figure scripts, the data folder, the results folder."""

from __future__ import annotations

import os
from pathlib import Path

from hetsys.core.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parent.parent


def shipped(name: str) -> Path:
    """The folder `conf` or `paper_figs`: inside the installed package, else at the repository's root."""
    for candidate in (_PACKAGE / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise ConfigError("installation", name, f"the folder {name!r} is missing beside or inside {_PACKAGE}; reinstall hetsys")


def data_dir() -> Path | None:
    """The folder named by HETSYS_DATA, or None where it is unset. Raises ConfigError if it is set but no folder."""
    name = os.environ.get("HETSYS_DATA")
    if not name:
        return None
    if not Path(name).is_dir():
        raise ConfigError("HETSYS_DATA", name, "is not a folder; set it to the folder that holds cluster/, serving/, ...")
    return Path(name).resolve()


def results_dir() -> Path:
    """The folder named by HETSYS_RESULTS, else `./results`."""
    return Path(os.environ.get("HETSYS_RESULTS") or "results").resolve()
