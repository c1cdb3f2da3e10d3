"""Every line of conf/tables/scheduling_properties.yaml: what holds on random instances, what does not in its stored case."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hetsys.core.paths import shipped
from tests.systems.cases import Case, Divided, gain_by_lying, violation
from tests.systems.views import Array, allocate_saturated, saturated, scheduling_systems, system

TABLE = yaml.safe_load((shipped("conf") / "tables" / "scheduling_properties.yaml").read_text(encoding="utf-8"))
PROPERTIES, SYSTEMS = TABLE["properties"], TABLE["systems"]
FOR_ALL = ("pareto_efficient", "envy_free", "sharing_incentive", "no_gain_by_overreport", "no_gain_by_misreport")
CASES = [(name, key) for name, row in SYSTEMS.items() for key, entry in row.items() if key != "as" and "case" in entry]
Instance = tuple[Array, Array, Array]


def row_of(name: str) -> dict[str, Any]:
    """The properties of a system, with what it has from another."""
    row = dict(SYSTEMS[name])
    return {**(row_of(row.pop("as")) if "as" in row else {}), **row}


def held(lies: bool, speeds: str) -> list[tuple[str, list[str]]]:
    """Of each system that has its own, the properties that hold, about lies or not, for any speeds or for positive ones only."""
    found = []
    for name, row in SYSTEMS.items():
        own = {key: entry for key, entry in row.items() if key != "as" and entry["holds"] and entry.get("speeds", "any") == speeds}
        keys = [key for key in own if key.startswith("no_gain") == lies]
        found += [(name, keys)] if keys else []
    return found


def test_every_scheduling_system_has_its_line() -> None:
    assert set(SYSTEMS) == set(scheduling_systems())
    for name in SYSTEMS:
        row = row_of(name)
        assert set(FOR_ALL) <= set(row) <= set(PROPERTIES), name
        assert not row["no_gain_by_misreport"]["holds"] or row["no_gain_by_overreport"]["holds"]
        for key, entry in row.items():
            assert entry["why"] in (("proof", "test") if entry["holds"] else ("counterexample",)), (name, key)
            assert ("case" in entry) == ("margin" in entry) and (entry["holds"] or "case" in entry), (name, key)


@pytest.mark.parametrize(("name", "key"), CASES)
def test_stored_counterexample(name: str, key: str) -> None:
    """Violated, by the stated margin. Where a property holds for positive speeds, the case shows that it does not with a 0 among them."""
    entry = SYSTEMS[name][key]
    assert entry["margin"] >= 0.005
    assert violation(key, system(name), entry["case"]) == pytest.approx(entry["margin"], rel=1e-3)
    assert not entry["holds"] or (entry["speeds"] == "positive" and any(0 in row for row in entry["case"]["speeds"]))


@pytest.mark.parametrize("name", [name for name, row in SYSTEMS.items() if "as" in row])
def test_options_share_the_counterexamples_of_what_they_vary(name: str) -> None:
    for key, entry in row_of(name).items():
        if not entry["holds"]:
            assert violation(key, system(name), entry["case"]) >= 0.9 * entry["margin"], key


def check_what_holds(name: str, keys: list[str], instance: Instance) -> None:
    found = Divided(*instance, allocate_saturated(system(name), *instance))
    for key in keys:
        assert getattr(found, key)() <= SYSTEMS[name][key].get("within", 0.0) + 1e-5, key


@pytest.mark.parametrize(("name", "keys"), held(False, "any"))
@given(instance=saturated(zeros=True))
def test_what_holds_for_any_speeds(name: str, keys: list[str], instance: Instance) -> None:
    check_what_holds(name, keys, instance)


@pytest.mark.parametrize(("name", "keys"), held(False, "positive"))
@given(instance=saturated())
def test_what_holds_for_positive_speeds(name: str, keys: list[str], instance: Instance) -> None:
    check_what_holds(name, keys, instance)


@st.composite
def lies(draw: st.DrawFn, key: str) -> Case:
    """A case in which one tenant reports one or several kinds faster than they are, or, for misreports, slower; its slowest too."""
    speeds, capacity, weight = draw(saturated())
    liar = draw(st.integers(0, len(speeds) - 1))
    down = key in ("no_gain_by_misreport", "no_gain_once_measured")
    factor = st.one_of(st.just(1.0), st.floats(1.0, 4.0), st.sampled_from([1.001, 2.0]), *([st.floats(0.2, 1.0)] if down else []))
    unit = st.one_of(st.just(1.0), st.floats(0.9, 1.1), st.floats(0.25, 4.0)) if down else st.just(1.0)
    factors = [draw(unit), *draw(st.lists(factor, min_size=len(capacity) - 1, max_size=len(capacity) - 1))]
    rows: list[Any] = speeds.tolist()
    report: list[Any] = [speed * by for speed, by in zip(rows[liar], factors, strict=True)]
    if key == "no_gain_by_overreport_of_one_type":
        other = [1.0, *draw(st.lists(st.floats(0.3, 12), min_size=len(capacity) - 1, max_size=len(capacity) - 1))]
        rows[liar], report = [rows[liar], other], [report, other]
    case = {"speeds": rows, "capacity": capacity.astype(int).tolist(), "weights": weight.tolist(), "liar": liar, "report": report}
    return {**case, "measured": True} if key == "no_gain_once_measured" else case


@pytest.mark.parametrize(("name", "key"), [(name, key) for of in ("any", "positive") for name, keys in held(True, of) for key in keys])
@given(data=st.data())
def test_lies_that_never_pay(name: str, key: str, data: st.DataObject) -> None:
    assert gain_by_lying(system(name), data.draw(lies(key))) <= SYSTEMS[name][key].get("within", 0.0) + 1e-5
