"""`hetsys explain` on a run of three rounds worked out by hand, and what it says where there is nothing to explain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hetsys.__main__ import FAILED, MISTAKE, OK, main
from hetsys.core.scheduling.plan import Binding
from hetsys.core.scheduling.record import ParkedRecord, RoundRecord, SchedulingRecord, encode
from hetsys.metrics.fairness import envy_matrix, sharing_incentives
from hetsys.report.explain_facts import Records, Span, levels, lines, story
from hetsys.report.explain_rows import Row, binding_rows
from hetsys.tracking.folder import RunFolder
from tests.figures.results import write_run
from tests.metrics.records import KINDS, grant, job, round_, user

STEEP = (1.0, 4.0)
FIRST = (user("a", (2, 0)), user("b", (0, 1), speeds=STEEP), user("c", (0, 1), speeds=STEEP))
THEN = (user("a", (0, 1)), user("b", (2, 1), speeds=STEEP))
BINDING = (Binding("a", "b", 0.25),)
PRICES, LEVELS = (0.5, 1.5), {"a": 2.0, "b": 4.0}


def made() -> list[SchedulingRecord]:
    """Two rounds with a, b and c on two devices of each kind, one of a and b alone. To a, whose speeds are (1, 2), its share is worth 2
    throughout; b's 2, 2 and 4; its slice, a third and then half, 2, 2 and 3. z owns nothing."""
    live = dict.fromkeys("abcz", 1.0)
    z = grant("z.0", "z", ["fast-0-1"])
    first = round_(0, users=FIRST, progress=live, capacity=(2, 2), grants=[grant("a.0", "a", ["slow-0-0"]), z])
    first = replace(first, prices=PRICES, levels=LEVELS, binding=BINDING)
    second = replace(first, index=1, start_s=100.0)
    mixed = replace(grant("b.0", "b", ["slow-0-0", "fast-0-0"]), mix=(1, 1))
    third = round_(2, users=THEN, progress={"a": 1.0, "b": 1.0}, capacity=(2, 2), grants=[mixed])
    third = replace(third, prices=(1.0, 1.0), levels={"a": 5.0, "b": 4.0})
    crashed = replace(job("a.1", None, left_s=300.0, status="parked", restarts=2), reason="crashed 3 times in a row", crashes=3)
    refused = [ParkedRecord("a", "a.9", "gang 16 fits no kind"), ParkedRecord("y", None, "no jobs")]
    return [*refused, first, second, third, job("a.0", None, left_s=300.0), crashed, job("b.0", 300.0, tenant="b")]


def write(root: Path, rows: Sequence[SchedulingRecord], *, done: bool = True, **env: str) -> Path:
    folder = RunFolder.open(root / "demo" / "oef_coop" / "0-abc")
    known = {"domain": "scheduling", "source": "simulated", "label": "OEF, cooperative", "system": "oef_coop", "experiment": "demo"}
    folder.write_env({**known, **env})
    folder.write_plan({"kinds": list(KINDS)})
    for row in encode(rows):
        folder.append(row)
    if done:
        folder.finish({**known, "status": "finished", "seed": 0})
    else:
        folder.close()
    return folder.path


def of(tenant: str) -> tuple[Records, list[RoundRecord]]:
    run = Records.of(made(), KINDS)
    return run, [record for record in run.rounds if tenant in record.progress]


def test_shares_of_others_by_hand() -> None:
    run, rounds = of("a")
    found = story(run, "a", run.rounds)
    assert found.own is not None and found.alone is not None
    assert found.own.worth == pytest.approx(2) and found.own.devices == pytest.approx((4 / 3, 1 / 3)) and found.own.rounds == 3
    assert (found.alone.worth, found.alone.of_own) == pytest.approx((7 / 3, 7 / 6))
    b, c = found.others
    assert (b.name, b.rounds, b.worth, b.of_own, b.envy) == ("b", 3, *map(pytest.approx, (8 / 3, 4 / 3, 1 / 3)))
    assert (c.name, c.rounds, c.worth, c.of_own, c.envy) == ("c", 2, *map(pytest.approx, (2, 1, 0)))
    assert found.incentive == pytest.approx((1 + 1 + 2 / 3) / 3)
    assert found.share == pytest.approx((1 / 3 + 1 / 3 + 1 / 2) / 3)
    names, envy = envy_matrix(rounds)  # the same numbers as in the summary
    assert [b.envy, c.envy] == pytest.approx(envy[names.index("a"), [names.index("b"), names.index("c")]].tolist())
    assert found.incentive == pytest.approx(sharing_incentives(rounds)["a"])


def test_another_share_counts_for_the_weight() -> None:
    """To a, of weight 1, half of b's (2, 2) counts: (1, 1), worth 3; its own 1.5."""
    record = round_(users=[user("a", (1.5, 0)), user("b", (2, 2), weight=2.0)], capacity=(4, 2), progress={"a": 1.0, "b": 1.0})
    found = story(Records.of([record], KINDS), "a", [record])
    assert found.others[0].devices == (1.0, 1.0) and found.others[0].worth == 3.0 and found.others[0].envy == pytest.approx(1.0)
    assert found.weight == 1.0 and found.slice_rounds == pytest.approx((4 / 3, 2 / 3))


def test_prices_and_levels_by_hand() -> None:
    """Mean prices (2/3, 4/3): to a, at half the price of speed 2, both kinds cost the same; to b, at speed 4, the fast one is cheaper."""
    run, rounds = of("a")
    (a,), (b,) = story(run, "a", rounds).users, story(run, "b", rounds).users
    assert a.cost == pytest.approx((2 / 3, 2 / 3)) and b.cost == pytest.approx((2 / 3, 1 / 3)) and b.cheapest == "fast"
    assert levels(run, "a", rounds) == pytest.approx({"a": (2 + 2 + 5) / 3})
    free = [replace(record, prices=(0.0, 0.0)) for record in rounds]
    assert story(run, "b", free).users[0].cheapest is None
    raised = [replace(record, prices=(1.0, 0.0)) for record in rounds]
    assert story(run, "b", raised).users[0].cheapest is None, "a kind that is free at the lowest level is no cheapest one"


def test_a_binding_row_stands_for_all_that_are_alike() -> None:
    """c equals b in speeds and share, so a would envy c as well, and the row concerns c though it does not name it."""
    _, rounds = of("a")
    row = Row(("a",), ("b", "c"), 2, 0.25)
    assert all(binding_rows(tenant, rounds) == (row,) for tenant in "abc")
    assert binding_rows("a", rounds[2:]) == ()
    assert binding_rows("z", rounds) == ()


def test_rounds_and_entitlement_by_hand() -> None:
    run, rounds = of("a")
    a, b = story(run, "a", rounds), story(run, "b", rounds)
    assert a.spans == (Span(0, 1, (("a.0", 1, "slow"),)), Span(2, 2, ()))
    assert (a.rounds, a.waiting, b.waiting) == (3, 1, 2)
    assert b.spans[1].held == (("b.0", 2, "1 slow + 1 fast"),)
    assert a.slice_rounds == pytest.approx((7 / 3, 7 / 3)) and a.allotted_rounds == (4.0, 1.0) and a.held_rounds == (2.0, 0.0)
    assert b.held_rounds == (1.0, 1.0)
    assert a.parked == (("a.9", "gang 16 fits no kind"), ("a.1", "crashed 3 times in a row"))
    assert (a.jobs, a.restarts, a.crashes) == ({"unfinished": 1, "parked": 1}, 3, 3)


def test_a_line_a_tenant() -> None:
    run, _ = of("a")
    found = {line.tenant: line for line in lines(run, run.rounds)}
    assert list(found) == ["a", "b", "c", "y", "z"]
    a, y, z = found["a"], found["y"], found["z"]
    assert (a.envied, a.envy, a.incentive) == ("b", pytest.approx(1 / 3), pytest.approx(8 / 9))
    assert (a.allotted, a.held, a.parked) == (pytest.approx((4 / 3, 1 / 3)), pytest.approx((2 / 3, 0)), 2)
    assert (y.rounds, y.parked, y.incentive) == (0, 1, None)
    assert (z.weight, z.rounds, z.held, z.envied, z.envy) == (0.0, 2, (0.0, 1.0), None, None)
    assert [line.tenant for line in lines(run, run.rounds[2:])] == ["a", "b"]


def test_the_command_says_it_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, made())
    assert main(["explain", "oef_coop/0-", "--tenant", "a", "--results", str(tmp_path)]) == OK
    shown = " ".join(capsys.readouterr().out.split())
    for words in (
        "OEF, cooperative, seed 0 of demo (simulated): 3 rounds, 5 tenants",
        "a had live jobs in 3 rounds, 0 to 2. Its weight is 1, 38.9 % of all weight then.",
        "By sharing it lost 11.1 % over its own slice. It envies b most, by 33.3 %.",
        "with any less it would envy b, c; dual 0.25, in 2 rounds",
        "Level reached (what the policy evens out): 3 (a).",
        "It held devices in 2 of its 3 rounds and waited in 1.",
        "parked: job a.9: gang 16 fits no kind",
        "parked: job a.1: crashed 3 times in a row",
    ):
        assert words in shown, words
    assert main(["explain", "oef_coop/0-", "--tenant", "c", "--round", "1", "--results", str(tmp_path)]) == OK
    shown = " ".join(capsys.readouterr().out.split())
    assert "round 1 of 3" in shown and "with any more for it and b, a would envy it; dual 0.25, in 1 round" in shown
    assert "At these prices its cheapest kind is fast" in shown
    assert main(["explain", "oef_coop/0-", "--results", str(tmp_path)]) == OK
    assert capsys.readouterr().out.count("0 of 0") == 3  # c, y and z have no record of a job


def test_who_owns_nothing_and_who_never_lived(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(tmp_path, made()))
    assert main(["explain", path, "--tenant", "z"]) == OK
    assert "it owns nothing and ran on devices that nobody claimed" in capsys.readouterr().out
    assert main(["explain", path, "--tenant", "y"]) == OK
    shown = capsys.readouterr().out
    assert "y had a live job in no round." in shown and "parked: the tenant: no jobs" in shown


def test_json_holds_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(tmp_path, made()))
    assert main(["explain", path, "--tenant", "a", "--format", "json"]) == OK
    said = json.loads(capsys.readouterr().out)
    assert (said["system"], said["kinds"], said["rounds"], said["round"]) == ("oef_coop", ["slow", "fast"], 3, None)
    assert said["tenants"][0]["others"][0]["name"] == "b" and len(said["tenants"][0]["spans"]) == 2
    assert main(["explain", path, "--round", "2", "--format", "json"]) == OK
    said = json.loads(capsys.readouterr().out)
    assert [line["tenant"] for line in said["tenants"]] == ["a", "b"]
    assert said["pareto_gap_fraction"] == pytest.approx(2 / 8)  # a's fast device for b's two slow ones: b has 2 more of 8


def test_an_unfinished_run_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(tmp_path, made()[:3], done=False))
    assert main(["explain", path]) == OK
    assert "This run is unfinished: what follows is all that was recorded" in capsys.readouterr().out


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(tmp_path, made()))
    mistakes = {
        ("--tenant", "aa"): "did you mean 'a'?",
        ("--round", "3"): "the run has rounds 0 to 2",
        ("--tenant", "c", "--round", "2"): "c had no live job then; it had some between rounds 0 and 1",
        ("--tenant", "y", "--round", "2"): "in no round",
    }
    for words, said in mistakes.items():
        assert main(["explain", path, *words]) == MISTAKE
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    assert main(["explain", "nobody", "--results", str(tmp_path)]) == MISTAKE
    assert "no runs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rows", "env", "said"),
    [
        (made(), {"domain": "serving"}, "is of the domain 'serving', of which nothing is explained"),
        ([], {}, "has no record of a round"),
        (made()[:2], {}, "has no record of a round"),
    ],
)
def test_nothing_to_explain(
    rows: list[SchedulingRecord], env: dict[str, str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, rows, **env)
    assert main(["explain", str(path)]) == MISTAKE
    assert said in capsys.readouterr().err


def test_a_damaged_run_is_no_mistake_of_the_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_run(tmp_path, "gavel", 0)
    text = (path / "records.jsonl").read_text().splitlines()
    (path / "records.jsonl").write_text("\n".join([text[0], "{torn", *text[1:]]))
    assert main(["explain", str(path)]) == FAILED
    assert "line 2 is damaged" in capsys.readouterr().err
