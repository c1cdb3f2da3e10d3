"""Schemas for Hydra, derived from the classes themselves, so that no class is written twice and no typo becomes a default.

A frozen dataclass would make its configuration read-only, so every class gets a mutable twin with the same fields, a `_target_`
and, at the root of a file, `about`.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from hetsys.core.errors import ConfigError, did_you_mean

_TARGET = re.compile(r"^_target_:[ \t]*[\"']?([\w.]+)", re.MULTILINE)
_PLAIN = (int, float, str, bool)


def register_folder(conf: Path) -> None:
    """Store `schema/<group>/<option>` for each YAML below `conf` that names a `_target_`. Raises ConfigError, naming the file."""
    for path in sorted(conf.glob("*/**/*.yaml")):
        text = path.read_text(encoding="utf-8")
        found = _TARGET.search(text)
        group = path.parent.relative_to(conf).as_posix()
        line = f"/schema/{group}/{path.stem}@_here_"
        if found is None and line in text:
            raise ConfigError("_target_", "", f"is missing in {path}; add `_target_: MODULE.CLASS`, the class that the file configures")
        if found is None:
            continue
        if line not in text:
            raise ConfigError("defaults", str(path), f"begin the file with `defaults: [{line}, _self_]`: it is what refuses typos")
        if beyond := re.search(r"@package .*|override /\S*", text):
            raise ConfigError("option", str(path), f"reaches beyond its own group with {beyond[0]!r}; only a preset may do that")
        cls = _import_class(found[1], path)
        ConfigStore.instance().store(name=path.stem, node=root_twin(cls), group=f"schema/{group}", provider="hetsys")


@cache
def root_twin(cls: type) -> type:
    """The schema of a file whose `_target_` is `cls`: its twin and `about`, the words around it (checked when they are read)."""
    about: Any = ("about", dict[str, Any], dataclasses.field(default_factory=dict))
    return dataclasses.make_dataclass(f"{cls.__name__}File", [about], bases=(twin(cls),))


@cache
def twin(cls: type, with_target: bool = True) -> type:
    """A mutable dataclass with the fields of the dataclass `cls` in types that OmegaConf can check, all with defaults.

    A field without a default becomes a mandatory value (`???`). Raises TypeError for a type that no YAML can hold.
    """
    hints = typing.get_type_hints(cls)
    target = [("_target_", str, f"{cls.__module__}.{cls.__qualname__}")] if with_target else []
    fields = [_twin_field(cls, field, hints[field.name]) for field in dataclasses.fields(cls) if field.init]
    return dataclasses.make_dataclass(cls.__name__, [*target, *fields])


def _twin_field(cls: type, field: dataclasses.Field[Any], hint: Any) -> tuple[str, Any, Any]:
    if field.name == "about":
        raise TypeError(f"{cls.__name__}.about: the name belongs to the description in the YAML")
    try:
        kind = _twin_type(hint)
    except TypeError as error:
        raise TypeError(f"{cls.__name__}.{field.name}: {error}") from None
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    elif field.default is not dataclasses.MISSING:
        default = field.default
    else:
        return field.name, kind, dataclasses.field(default=MISSING)
    return field.name, kind, dataclasses.field(default_factory=lambda: _twin_value(default))


def _twin_type(hint: Any) -> Any:
    """int, float, str, bool, Any as they are; sequences as list, mappings as dict, dataclasses as twins, literals as their type."""
    if hint is Any or hint in _PLAIN:
        return hint
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _twin_union(args)
    if origin is typing.Literal:
        return _one_of([type(value) for value in args])
    if dataclasses.is_dataclass(hint):
        return twin(typing.cast(type, hint))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return dict[str, _element(args[1:])]  # type: ignore[misc]
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return list[_element(args)]  # type: ignore[misc]
    raise TypeError(
        f"{hint} has no counterpart in a YAML; use int, float, str, bool, dataclasses, or Sequence, Mapping, None of these"
    )


def _element(args: tuple[Any, ...]) -> Any:
    """The type of a container's elements. Containers in containers are left to the class: OmegaConf refuses 1 for a float there."""
    kind = _one_of([_twin_type(arg) for arg in args if arg is not Ellipsis])
    return Any if typing.get_origin(kind) in (dict, list) else kind


def _twin_union(args: tuple[Any, ...]) -> Any:
    kinds = [_twin_type(arg) for arg in args if arg is not type(None)]
    kind = kinds[0] if len(kinds) == 1 else typing.Union[tuple(kinds)]  # noqa: UP007
    return typing.Optional[kind] if type(None) in args else kind  # noqa: UP045


def _one_of(kinds: list[Any]) -> Any:
    return kinds[0] if kinds and all(kind == kinds[0] for kind in kinds) else Any


def _twin_value(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return twin(type(value))(**{f.name: _twin_value(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init})
    if isinstance(value, Mapping):
        return {key: _twin_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_twin_value(item) for item in value]
    return value


def _import_class(name: str, path: Path) -> type:
    module_name, _, class_name = name.rpartition(".")
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise ConfigError("_target_", name, f"{path}: cannot be imported ({error}); is its folder on PYTHONPATH?") from error
    cls = getattr(module, class_name, None)
    if not isinstance(cls, type):
        known = [n for n, v in vars(module).items() if isinstance(v, type) and v.__module__ == module.__name__]
        raise ConfigError("_target_", name, f"{path}: {module_name} has no such class; {did_you_mean(class_name, known)}")
    if not dataclasses.is_dataclass(cls):
        raise ConfigError("_target_", name, f"{path}: must be a dataclass: its fields are what the YAML may set")
    return cls
