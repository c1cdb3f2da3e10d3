"""docs/oef.md says what the code does: its numbers are computed again here, and the tests it names exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from hetsys.workloads.throughputs import KINDS, read_throughputs
from tests.systems.views import Array, allocate_saturated, simple, system, utilities

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "oef.md"
SYSTEMS = ("oef_noncoop", "gavel_user", "ceei", "gandiva_fair", "equal_split", "max_efficiency")
INSTANCES, USERS, DEVICES = 60, 20, 8


def tables() -> list[list[list[str]]]:
    """The tables of the page: rows of cells, the heading first."""
    found: list[list[list[str]]] = [[]]
    for line in PAGE.read_text().splitlines():
        if line.startswith("|"):
            cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
            found[-1] += [] if set("".join(cells)) <= set("-:") else [cells]
        elif found[-1]:
            found.append([])
    return [table for table in found if table]


def table(*columns: str) -> list[list[str]]:
    """The rows below the heading that begins with `columns`."""
    return next(rows[1:] for rows in tables() if tuple(rows[0][: len(columns)]) == columns)


def job_types(family: str) -> Array:
    """Normalised speeds of the published job types on K80, P100, V100 ("all"), or of those that are never slower on a newer GPU."""
    if family == "narrow":
        return np.array([[1.0, 1 + gain / 2, 1 + gain] for gain in np.linspace(0.39, 1.15, 20)])
    published = read_throughputs()
    steps = np.array([[published.rows[name, 1].steps_per_s[kind] for kind in KINDS] for name in published.job_types])
    speeds = steps / steps[:, :1]
    return speeds if family == "all" else speeds[(np.diff(speeds, axis=1) >= 0).all(axis=1)]


@cache
def totals(family: str) -> dict[str, Array]:
    """Total throughput over that of cooperative OEF, by system, on INSTANCES clusters of 8 + 8 + 8 devices with 20 users each."""
    kinds, draw = job_types(family), np.random.default_rng(0)
    policies = {name: system(name) for name in ("oef_coop", *SYSTEMS)}
    found: dict[str, list[float]] = {name: [] for name in policies}
    for _ in range(INSTANCES):
        speeds = kinds[draw.integers(len(kinds), size=USERS)]
        for name, policy in policies.items():
            shares = allocate_saturated(policy, speeds, np.full(3, float(DEVICES)), np.ones(USERS))
            found[name].append(float((speeds * shares).sum()))
    return {name: np.array(values) / found["oef_coop"] for name, values in found.items()}


@pytest.mark.parametrize("family", ["all", "monotone", "narrow"])
def test_totals_of_the_programs_are_as_written(family: str) -> None:
    row = next(row for row in table("job types") if row[0].startswith(family))
    measured = totals(family)
    assert [float(cell) for cell in row[1:]] == pytest.approx([measured[name].mean() for name in SYSTEMS], abs=0.0011)


def test_no_program_gains_the_published_third_over_gavel() -> None:
    """Over Gavel's max-min at user level: 0.1 to 1.6 % in the mean, at most 11 %; over an equal split 5 to 26 %, at most 47 %."""
    gains = [1 / totals(family)["gavel_user"] - 1 for family in ("narrow", "monotone", "all")]
    assert [gain.mean() for gain in gains] == pytest.approx([0.001, 0.012, 0.016], abs=6e-4)
    assert max(gain.max() for gain in gains) == pytest.approx(0.11, abs=0.005)
    split = [1 / totals(family)["equal_split"] - 1 for family in ("narrow", "monotone", "all")]
    assert [gain.mean() for gain in split] == pytest.approx([0.05, 0.16, 0.26], abs=0.006)
    assert max(gain.max() for gain in split) == pytest.approx(0.47, abs=0.005)
    assert all((totals(family)["oef_noncoop"] <= 1 + 1e-9).all() for family in ("narrow", "monotone", "all"))


def test_speeds_that_only_rise_do_not_make_kinds_adjacent() -> None:
    """(1, 1, 2) and (1, 3, 4), a device of each kind: the ratios are 1, 3, 2, so not ordered, and the only optimum gives the first user the
    slowest and the fastest kind. Prices (1, p, 2) with 1 < p < 1.5 prove it: the first likes only kinds 1 and 3, the second only kind 2."""
    speeds = np.array([[1.0, 1, 2], [1, 3, 4]])
    for name, fast in (("oef_noncoop", 1.0), ("gavel_user", 5 / 8)):  # Gavel: 9/8 of their slices, worth 2 and 4
        shares = allocate_saturated(system(name), speeds, np.ones(3), np.ones(2))
        np.testing.assert_allclose(shares, [[1, 0, fast], [0, 1, 1 - fast]], atol=1e-6)
    ratio = speeds / np.array([1.0, 1.25, 2.0])
    assert ratio[0].tolist() == [1.0, 0.8, 1.0] and ratio[1].argmax() == 1


@pytest.mark.parametrize("report", [2.01, 2.5, 3.0, 3.8, 4.0, 5.0, 8.0])
def test_what_a_report_of_the_fast_kind_brings(report: float) -> None:
    """Users (1, 4) and (1, 2) on a device of each kind: above 2 the first holds 3 / (r + 2) of the fast one, truly worth 12 / (r + 2);
    below, what is left of it and the slow one, 1 + 4 / (r + 2)."""
    view = simple([[1, report], [1, 2]], (1, 1))
    allocation, _ = system("oef_noncoop").allocate(view, None)
    assert np.array(allocation.claims[0].devices) @ [1, 4] == pytest.approx(12 / (report + 2), rel=1e-6)
    below = utilities("oef_noncoop", [[1, 1.5], [1, 2]], (1, 1))
    assert below[0] == pytest.approx(1 + 1.5 / 3.5, rel=1e-6)  # in its own report's units: all of the slow one and 1 / (r + 2) of the other


def test_the_reports_are_as_written() -> None:
    rows = {row[0]: row for row in table("reported")}
    assert len(rows) >= 9
    for report, row in rows.items():
        r = float(report)
        true = 12 / (r + 2) if r > 2 else 1 + 4 / (r + 2)
        assert float(row[1]) == pytest.approx(true, abs=6e-4), report


def property_table() -> list[list[str]]:
    """The systems of conf/tables/scheduling_properties.yaml that are no ablation of another, as the page shows them."""
    known = yaml.safe_load((ROOT / "conf" / "tables" / "scheduling_properties.yaml").read_text())
    rows = [["system", *(about["label"] for about in known["properties"].values())]]
    for name, said in known["systems"].items():
        if "as" not in said:
            rows.append([name, *(_cell(said.get(key)) for key in known["properties"])])
    return rows


def _cell(said: dict[str, Any] | None) -> str:
    if said is None:
        return "–"
    if not said["holds"]:
        return "no"
    if "within" in said:
        return f"within {100 * said['within']:g} %"
    return "yes, w > 0" if said.get("speeds") == "positive" else "yes"


def test_the_properties_are_as_stored() -> None:
    heading, *rows = property_table()
    assert table(*heading) == rows
    assert len(rows) >= 16


def test_the_tests_that_are_named_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE.read_text())
    assert len(named) > 5
    for path, function in named:
        assert (ROOT / path).is_file(), path
        assert not function or f"def {function}(" in (ROOT / path).read_text(), f"{path}::{function}"
