"""The errors that hetsys raises on purpose; anything else that escapes is a defect of hetsys itself."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class HetsysError(Exception):
    """Base of every error whose message is meant for the user."""


class ConfigError(HetsysError):
    """A mistake in what the user asked for: names the key, the value and the remedy, before anything starts."""

    def __init__(self, key: str, value: object, remedy: str) -> None:
        self.key, self.value, self.remedy = key, value, remedy
        super().__init__(f"{key}={value!r}: {remedy}")

    def __reduce__(self) -> tuple[type, tuple[str, object, str]]:
        return type(self), (self.key, self.value, self.remedy)


class NotMeasured(ConfigError):
    """A native cluster of which `hetsys profile` has measured nothing, while nothing else is known of it. `option`: of `conf/cluster`."""

    option = ""


class InfeasiblePlan(HetsysError):
    """A request that no plan can satisfy; the message holds the numbers that clash."""


class SolverError(HetsysError):
    """A solver failed, ran out of time, or returned an answer that an independent check refused."""


class EngineError(HetsysError):
    """A worker, device or executor was lost in mid-run; the message names it."""


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A remedy sentence for a misspelt `word`: the nearest of `choices` first, then all of them."""
    known = sorted(choices)
    near = get_close_matches(word, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}choices: {', '.join(known)}" if known else f"{hint}there are no choices"


def check_choice(key: str, value: str, choices: Iterable[str]) -> None:
    """Raise ConfigError unless `value` is one of `choices`."""
    choices = list(choices)
    if value not in choices:
        raise ConfigError(key, value, did_you_mean(value, choices))
