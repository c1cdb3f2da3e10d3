"""The options of `conf/` as they stand in the YAML files, read without Hydra: for lists and for remedies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hetsys.core.errors import ConfigError
from hetsys.core.paths import shipped


def read_options(group: str, extra: Sequence[Path] = ()) -> dict[str, dict[str, Any]]:
    """The files of `conf/<group>/` and of the same group in `extra` folders, by option. Raises ConfigError for a broken YAML."""
    found: dict[str, dict[str, Any]] = {}
    for conf in (shipped("conf"), *extra):
        for path in sorted((conf / group).glob("*.yaml")):
            found.setdefault(path.stem, read_yaml(path))
    return found


def read_yaml(path: Path) -> dict[str, Any]:
    """One YAML file as a dict. Raises ConfigError, naming file and line, where it is none."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise ConfigError(f"{path}:{line}", error.problem or "", "is not valid YAML; see the line and the one before it") from error
    if not isinstance(content, dict):
        raise ConfigError(str(path), content, "must hold keys and values")
    return content


def list_options(groups: Sequence[str]) -> str:
    """One line a group, with the options that hetsys ships."""
    names = {group: sorted(path.stem for path in (shipped("conf") / group).glob("*.yaml")) for group in groups}
    return "\n".join(f"  {group:<10} {', '.join(options)}" for group, options in names.items())
