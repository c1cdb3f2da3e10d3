"""Hydra's and OmegaConf's errors in the words of hetsys: one ConfigError that names the key, the value and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra.errors import HydraException, InstantiationException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)
from yaml import MarkedYAMLError, YAMLError

from hetsys.config.options import read_options
from hetsys.core.errors import ConfigError, did_you_mean

COMPOSITION_ERRORS = (HydraException, OmegaConfBaseException, YAMLError, ValueError)
_NOUNS = {
    "Integer": "a whole number, like 3 (no decimal point, no exponent)",
    "Float": "a number, like 0.5 or 1e9",
    "Boolean": "true or false",
    "String": "a text",
}


def as_config_error(error: Exception, overrides: Sequence[str], extra: Sequence[Path] = ()) -> ConfigError:
    """What the user did wrong, from an error raised while composing, resolving or instantiating with `overrides`.

    `extra`: folders beside `conf/` in which options were looked for.
    """
    chain = list(_chain(error))
    for known in chain:
        if isinstance(known, ConfigError):
            return known
    line = _guilty_override(error, overrides)
    if line is not None and line.startswith("~"):
        return ConfigError(*_split(line), "cannot be taken away; only an entry of a mapping can")
    for cause in chain:
        found = _translate(cause, line, overrides)
        if found is not None:
            return found if line else _placed(found, str(error), extra)
    key, value = _split(line) if line else ("configuration", "")
    return ConfigError(key, value, _one_line(error))


def _placed(mistake: ConfigError, text: str, extra: Sequence[Path]) -> ConfigError:
    """`mistake` with the full key where OmegaConf knows an entry of a list only: looked up in the file that `text` names."""
    file = re.match(r"In '(.+)/([^/']+)'", text)
    if file is None or "." in mistake.key:
        return mistake
    content = read_options(file[1], extra).get(file[2])
    for key, value in _entries(content, file[1].partition("/")[0]):
        if re.fullmatch(rf".+\[\d+\]\.{re.escape(mistake.key)}", key):
            return ConfigError(key, value, mistake.remedy)
    return mistake


def _entries(node: Any, key: str) -> Iterator[tuple[str, Any]]:
    """(full key, value) of everything below `node`."""
    below = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, value in below:
        full_key = f"{key}[{name}]" if isinstance(node, list) else f"{key}.{name}"
        yield full_key, value
        yield from _entries(value, full_key)


def from_instantiate(error: InstantiationException, config: Any) -> ConfigError | None:
    """The mistake behind a constructor that refused its fields, with the full key; None if it is a defect of the class."""
    where = re.search(r"full_key: (\S+)", str(error))
    full_key = where[1] if where else ""
    for cause in _chain(error):
        if isinstance(cause, ConfigError):
            key = _full_key(cause.key, full_key, config)
            return _without_sheet(key, cause.value) or ConfigError(key, cause.value, cause.remedy)
        if isinstance(cause, TypeError) and (name := re.search(r"unexpected keyword argument '(\w+)'", str(cause))):
            node = OmegaConf.select(config, full_key)
            known = [key for key in node if key not in ("_target_", name[1])]
            return ConfigError(f"{full_key}.{name[1]}", node[name[1]], f"no such key; {did_you_mean(name[1], known)}")
    return None


def _without_sheet(key: str, value: object) -> ConfigError | None:
    if not re.fullmatch(r"cluster\.nodes\[\d+\]\.kind", key) or value not in read_options("cluster/device"):
        return None
    remedy = f"has no sheet in this cluster; add `- device@sheets.{value}: {value}` to the defaults of its file, or on the command "
    return ConfigError(key, value, f"{remedy}line +cluster/device@cluster.sheets.{value}={value}")


def _full_key(key: str, full_key: str, config: Any) -> str:
    """`device.memory_bytes` as `cluster.sheets.v100.memory_bytes`: the key to type; what is no field stays as it is."""
    node = OmegaConf.select(config, full_key) if full_key else None
    if not isinstance(node, DictConfig):
        return key
    for candidate in (key, key.partition(".")[2]):
        if re.split(r"[.\[]", candidate)[0] in node:
            return f"{full_key}.{candidate}"
    return key


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _guilty_override(error: Exception, overrides: Sequence[str]) -> str | None:
    """The override that Hydra's message quotes, else the one that sets the key that OmegaConf complains of."""
    if isinstance(error, OverrideParseException):
        return error.override
    quoted = [line for line in overrides if line and line in str(error)]
    if quoted:
        return max(quoted, key=len)
    keys = [str(cause.full_key) for cause in _chain(error) if isinstance(cause, OmegaConfBaseException) and cause.full_key]
    return next((line for line in reversed(overrides) for key in keys if _split(line)[0] == key), None)


def _split(line: str) -> tuple[str, str]:
    key, _, value = line.lstrip("+~").partition("=")
    return key, value


def _translate(error: BaseException, line: str | None, overrides: Sequence[str]) -> ConfigError | None:
    match error:
        case OverrideParseException():
            return _unreadable(error)
        case MissingConfigException():
            return _unknown_option(error, overrides)
        case ConfigAttributeError() | ConfigKeyError():
            return _unknown_key(error, line)
        case MissingMandatoryValue():
            return ConfigError(str(error.full_key), "???", f"is mandatory; add {error.full_key}=VALUE to the command")
        case InterpolationResolutionError():
            return _broken_interpolation(error)
        case ValidationError():
            return _list_of_options(str(error), overrides) or _wrong_type(error, line)
        case MarkedYAMLError():
            mark = error.problem_mark
            place = f"{mark.name}:{mark.line + 1}" if mark else "configuration"
            return ConfigError(place, error.problem or "", "is not valid YAML; see the line and the one before it")
        case HydraException():
            return _sweep_without_multirun(str(error), line) or _unfit_sweep(str(error), overrides) or _no_choice(str(error))
        case ValueError():
            return _null_option(str(error), overrides)
    return None


def _unreadable(error: OverrideParseException) -> ConfigError:
    key, value = _split(error.override)
    if "=" not in error.override:
        return ConfigError(key, value, f"has no value; write {key}=VALUE (hetsys run --help shows examples)")
    remedy = f"cannot be read; write {key}=VALUE with brackets in pairs, and quote a text that holds a comma, bracket or quote"
    return ConfigError(key, value, remedy)


def _unknown_option(error: MissingConfigException, overrides: Sequence[str]) -> ConfigError:
    group, _, option = (error.missing_cfg_file or "").rpartition("/")
    typed = next((line for line in overrides if _split(line)[1] == option and _split(line)[0].split("@")[0] == group), None)
    asker = re.match(r"In '([^']+)'", str(error))
    place = "" if typed or not asker or asker[1] == "config" else f" (asked for in {asker[1]}.yaml)"
    if not group:
        return ConfigError("config-name", option, "there is no such primary configuration")
    return ConfigError(group, option, f"no such option{place}; {did_you_mean(option, error.options or [])}")


def _unknown_key(error: OmegaConfBaseException, line: str | None) -> ConfigError:
    key, value = _split(line) if line else (str(error.full_key), _shown(error.value))
    parent = error.parent_node
    known = [str(k) for k in parent if k not in ("hydra", "_target_")] if isinstance(parent, DictConfig) else []
    inside = "" if str(error.full_key) in key else f" {error.full_key!r} in it"
    add = f"; to add an entry write +{key}=VALUE" if _is_open(parent) else ""
    return ConfigError(key, value, f"no such key{inside}; {did_you_mean(str(error.key), known)}{add}")


def _is_open(node: Any) -> bool:
    return isinstance(node, DictConfig) and node._metadata.object_type is dict and bool(node._get_full_key(None))


def _broken_interpolation(error: OmegaConfBaseException) -> ConfigError:
    parent, key = error.parent_node, str(error.full_key)
    raw = parent._get_node(error.key) if isinstance(parent, DictConfig | ListConfig) else None
    value = _shown(raw._value()) if raw is not None and not isinstance(raw, list) else ""
    if variable := re.search(r"Environment variable '([^']+)' not found", str(error)):
        return ConfigError(key, value, f"the environment variable {variable[1]} is not set; export it, or give {key}=VALUE")
    return ConfigError(key, value, _one_line(error))


def _wrong_type(error: OmegaConfBaseException, line: str | None) -> ConfigError:
    text, full_key = str(error.msg or error), str(error.full_key or "")
    if kind := re.search(r"could not be converted to (\w+)|incompatible with type hint '(\w+)'|is not a valid (bool)", text):
        name = kind[1] or (kind[2] or kind[3]).capitalize().replace("Int", "Integer").replace("Bool", "Boolean").replace("Str", "String")
        remedy = f"must be {_NOUNS.get(name, name)}"
    elif "not Optional" in text:
        remedy = "must not be null"
    elif "is not a ListConfig" in text:
        remedy = "must be a list, like [a, b]"
    elif group := re.search(r"is not a subclass of (\w+)", text):
        remedy = f"must be a group of keys as {group[1]} has them, like {{key: value}}"
    else:
        remedy = _one_line(error)
    if line is None:
        return ConfigError(full_key, error.value, remedy)
    key, value = _split(line)
    return ConfigError(key, value, remedy if key == full_key else f"{full_key}={_shown(error.value)} {remedy}")


def _list_of_options(text: str, overrides: Sequence[str]) -> ConfigError | None:
    line = next((line for line in overrides if re.fullmatch(r"\w+=\[.*\]", line)), None)
    if "is not a subclass of" not in text or line is None:
        return None
    key, value = _split(line)
    return ConfigError(key, value, f"a run takes one option; for a run of each write -m {key}={value[1:-1].replace(' ', '')}")


def _sweep_without_multirun(text: str, line: str | None) -> ConfigError | None:
    found = re.search(r"(?:Ambiguous value for argument|Sweep parameters) '(.+)'", text)
    if not found:
        return None
    key, value = _split(line or found[1])
    return ConfigError(key, value, f"is a sweep; add -m to run each of them, or write {key}=[...] for a list")


def _unfit_sweep(text: str, overrides: Sequence[str]) -> ConfigError | None:
    line = next((line for line in overrides if "interval(" in line), None)
    if "does not support sweep type" not in text or line is None:
        return None
    return ConfigError(*_split(line), "cannot be swept; write a list, like 1,2,3, or range(20)")


def _null_option(text: str, overrides: Sequence[str]) -> ConfigError | None:
    line = next((line for line in overrides if _split(line)[1].lower() == "null"), None)
    if "Config group override must be" not in text or line is None:
        return None
    return ConfigError(*_split(line), "is no option; choose one (hetsys run --help lists them)")


def _no_choice(text: str) -> ConfigError | None:
    if found := re.search(r"You must specify '([^']+)'", text):
        return ConfigError(found[1], "???", f"must be chosen; add {found[1]}=OPTION (hetsys run --help lists them)")
    return None


def _shown(value: Any) -> str:
    return "" if value is None else str(value)


def _one_line(error: object) -> str:
    text = re.sub(r"\s+(full_key|object_type|reference_type)[:=].*", "", str(error))
    text = re.sub(r"See https?://\S+.*|Config search path:.*", "", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", text).strip()
