"""What a paper claims, quoted beside our own numbers and never on their axis: another cluster, other jobs, another baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hetsys.core.errors import ConfigError, check_choice
from hetsys.core.paths import shipped
from hetsys.metrics.catalog import metric
from hetsys.report.drawing import GREY, PALE

KNOWLEDGE = {"abstract": "says the abstract", "secondary": "says a summary by others"}
_FIELDS = ("low_percent", "high_percent", "text", "against", "knowledge", "source")


@dataclass(frozen=True)
class Claim:
    """A published change of `metric` in per cent, from `low_percent` (None: "up to") to `high_percent`. `knowledge`: how we know it."""

    metric: str
    low_percent: float | None
    high_percent: float
    text: str
    against: str
    knowledge: str
    source: str

    def range_text(self) -> str:
        """`up to +32 %`, `−19 to −17 %`."""
        high = f"{self.high_percent:+g} %".replace("-", "−")
        return f"up to {high}" if self.low_percent is None else f"{self.low_percent:+g} to {high}".replace("-", "−")


@dataclass(frozen=True)
class Published:
    """The claims of one paper, by the metric of ours that is nearest to what they speak of."""

    paper: str
    address: str
    cluster: str
    claims: dict[str, Claim]


def published(system: str = "oef") -> Published:
    """The claims in `conf/tables/<system>_published.yaml`. Raises ConfigError, naming the entry, where the file is not as described in
    its head."""
    import yaml

    path = shipped("conf") / "tables" / f"{system}_published.yaml"
    if not path.is_file():
        known = sorted(file.name.removesuffix("_published.yaml") for file in path.parent.glob("*_published.yaml"))
        check_choice("published", system, known)
    loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    for key in ("paper", "address", "cluster", "claims"):
        if not loaded.get(key):
            raise ConfigError(f"{path.name}: {key}", loaded.get(key), "must be given")
    claims = {name: _claim(path.name, name, dict(fields)) for name, fields in loaded["claims"].items()}
    return Published(loaded["paper"], loaded["address"], loaded["cluster"], claims)


def _claim(file: str, name: str, fields: dict[str, Any]) -> Claim:
    if set(fields) != set(_FIELDS):
        raise ConfigError(f"{file}: {name}", sorted(fields), f"must have exactly {', '.join(_FIELDS)}")
    check_choice(f"{file}: {name}.knowledge", fields["knowledge"], KNOWLEDGE)
    low, high = fields["low_percent"], fields["high_percent"]
    if not isinstance(high, int | float) or (low is not None and low > high):
        raise ConfigError(f"{file}: {name}.high_percent", high, "must be a number, and not below low_percent")
    return Claim(name, **fields)


def published_panel(axes: Any, metrics: Sequence[str] = ("throughput_normalized", "jct_mean_s"), *, system: str = "oef") -> None:
    """Draw what the paper of `system` claims of `metrics` into `axes`, a panel of its own: the range in per cent, and where we read it.

    "Up to" is a hatched bar from 0. Raises ConfigError for a metric of which nothing was claimed.
    """
    known = published(system).claims
    for name in metrics:
        check_choice("published", name, known)
    claims = [known[name] for name in metrics]
    for row, claim in enumerate(claims):
        low = 0.0 if claim.low_percent is None else claim.low_percent
        open_end = claim.low_percent is None
        colour, edge = (PALE, {"hatch": "////"}) if open_end else (GREY, {})
        axes.barh(row, claim.high_percent - low, left=low, height=0.34, color=colour, edgecolor="white", linewidth=0.5, **edge)
        axes.text(0.0, row - 0.26, _title(claim), fontsize=8, color="black", ha="center", va="bottom")
        said = f"{claim.range_text()}, {KNOWLEDGE[claim.knowledge]}"
        axes.text(0.0, row + 0.24, said, fontsize=6.5, color=GREY, ha="center", va="top")
        axes.plot([0.0, 0.0], [row - 0.22, row + 0.22], color="black", lw=0.8)
    reach = 1.25 * max(abs(value) for claim in claims for value in (claim.high_percent, claim.low_percent or 0.0))
    axes.set_xlim(-reach, reach)
    axes.set_ylim(len(claims) - 0.35, -0.65)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("claimed change (%)")
    axes.set_title("Published, not ours", pad=8)


def _title(claim: Claim) -> str:
    return metric(claim.metric).title.partition(" (")[0]
