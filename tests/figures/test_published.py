"""What OEF's authors claim: read from the table, with where we read it, and drawn in a panel of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsys.core.errors import ConfigError
from hetsys.metrics.catalog import METRICS
from hetsys.report import published
from hetsys.report.drawing import canvas, style


def test_the_claims_say_how_well_we_know_them() -> None:
    known = published.published()
    throughput, jct = known.claims["throughput_normalized"], known.claims["jct_mean_s"]
    assert (throughput.low_percent, throughput.high_percent, throughput.knowledge) == (None, 32, "abstract")
    assert (jct.low_percent, jct.high_percent, jct.knowledge) == (-19, -17, "secondary")
    assert (throughput.range_text(), jct.range_text()) == ("up to +32 %", "−19 to −17 %")
    assert "2403.18545" in known.address and "not stated" in known.cluster
    assert set(known.claims) <= set(METRICS) and all(claim.text and claim.against and claim.source for claim in known.claims.values())


def test_the_panel_shows_both_ranges_and_their_sources(tmp_path: Path) -> None:
    with style():
        figure = canvas(3.0, 3.0)
        axes = figure.add_axes((0.1, 0.2, 0.85, 0.65))
        published.published_panel(axes)
        figure.savefig(tmp_path / "panel.svg")
    bars = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches)
    assert bars == [pytest.approx((-19, -17)), pytest.approx((0, 32))]
    text = (tmp_path / "panel.svg").read_text()
    assert all(words in text for words in ("Published, not ours", "says the abstract", "says a summary by others", "up to +32 %"))


def test_what_was_not_claimed_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'jct_mean_s'"):
        published.published_panel(canvas(1, 1).add_axes((0, 0, 1, 1)), ["jct_p95_s"])
    with pytest.raises(ConfigError, match="choices: oef"):
        published.published("gavel")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    knowledge: abstract", "    knowledge: rumour", "throughput_normalized.knowledge='rumour'"),
        ("    high_percent: -17", "    high_percent: -20", "not below low_percent"),
        ("    high_percent: 32", "    most: 32", "must have exactly"),
        ("paper:", "title:", "oef_published.yaml: paper"),
    ],
)
def test_a_wrong_table_is_refused_by_name(old: str, new: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (published.shipped("conf") / "tables" / "oef_published.yaml").read_text()
    assert old in text
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "oef_published.yaml").write_text(text.replace(old, new, 1))
    monkeypatch.setattr(published, "shipped", lambda name: tmp_path)
    with pytest.raises(ConfigError, match=said):
        published.published()
