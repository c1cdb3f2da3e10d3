"""`hetsys compare` and the closing table: what they say, and what they refuse to put side by side."""

from __future__ import annotations

import argparse
import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hetsys.core.errors import ConfigError
from hetsys.metrics.catalog import HEADLINE, metric
from hetsys.metrics.statistics import Effect
from hetsys.report.compare import against_itself, closing_table, compare, default_baseline, main
from hetsys.report.tables import as_csv, as_json, as_markdown, effect_text, show_table
from hetsys.tracking.stored import StoredRun, find_runs, of_frame
from tests.figures.results import write_results, write_run


def printed(comparison: Any, width: int = 110) -> str:
    out = io.StringIO()
    show_table(comparison, Console(file=out, width=width))
    return out.getvalue()


def test_pairs_by_hand(results_root: Path) -> None:
    """JCT ratios to the baseline 2, 2 and 2 x 2^1.5: geometric mean 2^1.5; the third seed of the baseline has no partner."""
    for seed, (mine, base) in enumerate([(20.0, 10.0), (8.0, 4.0), (2.0 * 2**1.5, 1.0)]):
        write_run(results_root, "gavel", seed, figures={"jct_mean_s": base, "envy_max": 0.5})
        write_run(results_root, "oef_coop", seed, figures={"jct_mean_s": mine, "envy_max": 0.1 * seed})
    write_run(results_root, "gavel", 3, figures={"jct_mean_s": 1e9})
    found = compare(find_runs(results_root), "gavel", ["jct_mean_s", "envy_max"])
    cell = found.cells["oef_coop"]["jct_mean_s"]
    assert cell.effect is not None and cell.effect.scale == "ratio" and cell.n == 3
    assert cell.effect.value == pytest.approx(2 ** ((1 + 1 + 2.5) / 3))
    assert cell.mean == pytest.approx((20 + 8 + 2 * 2**1.5) / 3)
    envy = found.cells["oef_coop"]["envy_max"].effect
    assert envy is not None and envy.scale == "difference" and envy.value == pytest.approx(0.1 - 0.5)
    assert cell.verdict == "descriptive only"
    assert "Too few seeds to judge" in printed(found) and "fewer seeds than the others: oef_coop (3)" in printed(found)


def test_twenty_seeds_are_judged_with_holms_correction(results_root: Path) -> None:
    write_results(results_root, 20)
    found = compare(find_runs(results_root), "gavel")
    assert found.metrics == HEADLINE and found.seeds == tuple(range(20)) and next(iter(found.labels)) == "gavel"
    words = {system: [found.cells[system][name].verdict for name in HEADLINE] for system in found.labels}
    assert words["gavel"] == [""] * 8
    assert words["oef_coop"] == ["better", "better", "better", "no loss", "better", "better", "no loss", "no loss"]
    assert words["equal_split"] == ["worse", "worse", "worse", "no loss", "better", "worse", "no loss", "no loss"]
    family = [cell for row in found.cells.values() for cell in row.values() if cell.effect]
    smallest = min(family, key=lambda cell: cell.effect.p if cell.effect and cell.effect.p is not None else 1.0)
    assert smallest.effect is not None and smallest.effect.p is not None and len(family) == 16
    assert smallest.p_holm == pytest.approx(16 * smallest.effect.p)


def test_a_zero_makes_the_whole_metric_a_difference(results_root: Path) -> None:
    for seed in range(3):
        for system, value in (("gavel", 2.0), ("oef_coop", 1.0), ("equal_split", 0.0)):
            write_run(results_root, system, seed, figures={"restarts_per_round": value})
    found = compare(find_runs(results_root), "gavel", ["restarts_per_round"])
    effects = [found.cells[system]["restarts_per_round"].effect for system in ("oef_coop", "equal_split")]
    assert [effect and (effect.scale, effect.value) for effect in effects] == [("difference", -1.0), ("difference", -2.0)]


@pytest.mark.parametrize(
    ("key", "env"),
    [
        ("source", {"source": "emulated"}),
        ("frame", {"frame_hash": "beef"}),
        ("frame", {"name": "other"}),
        ("commit", {"code_id": "badc0de"}),
    ],
)
def test_mixtures_are_refused_with_what_was_found(results_root: Path, key: str, env: dict[str, Any]) -> None:
    write_results(results_root, 2)
    write_run(results_root, "gavel", 7, **env)
    with pytest.raises(ConfigError) as caught:
        compare(find_runs(results_root), "gavel")
    assert caught.value.key == key
    assert "(6 runs)" in str(caught.value) and "(1 runs)" in str(caught.value)
    assert next(iter(env.values())) in str(caught.value)


def test_a_frame_is_chosen_by_the_first_digits_of_its_hash(results_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(results_root, 2, frame_hash="71c1aa5500")
    write_run(results_root, "gavel", 7, frame_hash="b30d5500aa", variant="8", source="emulated")
    with pytest.raises(ConfigError, match=r"source=.*choose one: --frame 71c1aa \(demo, simulated, runs: 6\), --frame b30d55"):
        compare(find_runs(results_root))
    write_run(results_root, "gavel", 7, frame_hash="71c2000000", variant="9")
    with pytest.raises(ConfigError, match=r"frame=.*choose one: --frame 71c1aa \(demo, simulated, runs: 6\), --frame 71c200"):
        compare([run for run in find_runs(results_root) if run.source == "simulated"])
    assert main(arguments(results_root, frame="71c1")) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["frame_hash"] == "71c1aa5500" and said["seeds"] == [0, 1] and len(said["rows"]) == 24
    with pytest.raises(ConfigError, match=r"several frames.*71c1aa5500 \(6 runs\), 71c2000000 \(1 runs\)$"):
        main(arguments(results_root, frame="71c"))
    with pytest.raises(ConfigError, match=r"--frame='beef'.*b30d5500aa \(1 runs\)"):
        main(arguments(results_root, frame="beef"))


def test_the_frame_of_one_keeps_what_failed_before_it_had_one(results_root: Path) -> None:
    write_results(results_root, 1)
    write_run(results_root, "gavel", 3, done=False, frame_hash="")
    write_run(results_root, "gavel", 4, done=False, frame_hash="beef")
    assert [run.seed for run in of_frame(find_runs(results_root), "f0") if run.status != "finished"] == [3]


def test_several_commits_share_a_table_only_where_asked_to(results_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(results_root, 2)
    write_run(results_root, "gavel", 2, code_id="badc0de")
    with pytest.raises(ConfigError, match=r"commit=.*--any-commit"):
        main(arguments(results_root))
    assert main(arguments(results_root, any_commit=True, format="markdown")) == 0
    out = capsys.readouterr().out
    assert "commits differ: badc0de (1 runs), c0ffee (6 runs); a difference may be the code's" in out and "In brackets: " in out
    assert main(arguments(results_root, any_commit=True)) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["commits"] == {"badc0de": 1, "c0ffee": 6} and said["commit"] == "several"
    paths = [run.path for run in find_runs(results_root)]
    for any_commit in (False, True):
        text = io.StringIO()
        closing_table(paths, "gavel", Console(file=text, width=110), any_commit)
        assert ("commits differ: " in text.getvalue(), "No table: " in text.getvalue()) == (any_commit, not any_commit)


def test_a_label_of_two_lines_leaves_no_empty_line(results_root: Path) -> None:
    write_run(results_root, "gavel", 0)
    write_run(results_root, "oef", 0, label="OEF, non-cooperative")
    for baseline in ("gavel", None):
        table = printed(compare(find_runs(results_root), baseline)).partition("─\n")[2].splitlines()
        assert table[2].startswith("OEF,") and table[3].startswith("non-cooperative") and table[4].startswith(("Second", "source"))


def test_two_settings_of_one_system_are_refused(results_root: Path) -> None:
    write_results(results_root, 2)
    write_run(results_root, "gavel", 1, variant="9")
    with pytest.raises(ConfigError, match="two settings"):
        compare(find_runs(results_root), "gavel")


def test_an_invalid_seed_counts_for_nobody_and_unfinished_runs_are_named(results_root: Path) -> None:
    write_results(results_root, 3)
    write_run(results_root, "gavel", 1, variant="8", done=False)
    write_run(results_root, "oef_coop", 5, figures={"valid": False})
    write_run(results_root, "gavel", 5)
    found = compare(find_runs(results_root), "gavel")
    assert found.frame.invalid_seeds == (5,) and found.seeds == (0, 1, 2)
    assert found.frame.unfinished == ("gavel seed 1: unfinished",)
    text = printed(found)
    said = "invalid seeds, left out for all systems: 5 (1 of 4); OEF cooperative (re-implemented): its runs failed their own checks"
    assert said in text and "gavel seed 1: unfinished" in text


def test_every_seed_invalid_nothing_finished_and_bad_names(results_root: Path) -> None:
    results_root.mkdir()
    with pytest.raises(ConfigError, match="no finished run"):
        compare(find_runs(results_root))
    write_run(results_root, "gavel", 0, figures={"valid": False})
    with pytest.raises(ConfigError, match="valid: false"):
        compare(find_runs(results_root))
    write_run(results_root, "gavel", 1)
    with pytest.raises(ConfigError, match="did you mean 'gavel'"):
        compare(find_runs(results_root), "gavell")
    with pytest.raises(ConfigError, match="did you mean 'jct_mean_s'"):
        compare(find_runs(results_root), "gavel", ["jct_mean"])


def test_the_closing_table_fits_and_says_where_its_numbers_come_from(results_root: Path) -> None:
    folder = write_results(results_root, 20)
    out = io.StringIO()
    closing_table([run.path for run in find_runs(folder)], "gavel", Console(file=out, width=80))
    lines = out.getvalue().splitlines()
    assert max(len(line) for line in lines[:9]) <= 110
    for word in ("OEF cooperative", "Equal split", "baseline", "✓", "✗"):
        assert word in out.getvalue()
    assert lines[-1] == "source: simulated, 20 seeds, provenance published, experiment demo, commit c0ffee"
    assert out.getvalue().index("OEF cooperative") < out.getvalue().index("Equal split")  # more throughput first


def test_the_closing_table_copes_with_odd_sweeps(results_root: Path) -> None:
    alone = write_run(results_root, "oef_coop", 0)
    out = io.StringIO()
    closing_table([alone], "gavel", Console(file=out, width=110))
    assert "One system, so means only." in out.getvalue()
    other = write_run(results_root, "gavel", 0, code_id="badc0de")
    closing_table([alone, other], "gavel", Console(file=out, width=110))
    assert "No table: commit=" in out.getvalue()
    before = len(out.getvalue())
    closing_table([results_root / "demo" / "gavel" / "9-none"], None, Console(file=out))
    assert len(out.getvalue()) == before


def test_a_narrow_terminal_gets_the_columns_in_parts(results_root: Path) -> None:
    write_results(results_root, 2)
    out = io.StringIO()
    show_table(compare(find_runs(results_root), "gavel"), Console(file=out, width=60, force_terminal=True, color_system=None))
    table = [line for line in out.getvalue().splitlines() if "Second line" not in line and "source:" not in line]
    assert max(map(len, table)) <= 60 and sum("demo" in line for line in table) == 2


def test_formats_hold_the_same_numbers(results_root: Path) -> None:
    write_results(results_root, 3)
    found = compare(find_runs(results_root), "gavel", ["jct_mean_s", "envy_max"])
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    loaded = json.loads(as_json(found))
    assert len(rows) == len(loaded["rows"]) == 6 and loaded["source"] == "simulated" and loaded["seeds"] == [0, 1, 2]
    for row, other in zip(rows, loaded["rows"], strict=True):
        assert float(row["mean"]) == other["mean"] and row["verdict"] == other["verdict"] and row["source"] == "simulated"
    text = as_markdown(found)
    assert text.startswith("| system | mean JCT (h) | envy max |") and "| Gavel (re-implemented) (baseline) |" in text


def arguments(root: Path, **more: Any) -> argparse.Namespace:
    given = {"paths": [], "results": root, "baseline": None, "metric": None, "format": "json", "aa": False}
    return argparse.Namespace(**given | {"frame": None, "any_commit": False} | more)


def test_the_command_takes_its_baseline_from_the_configuration(results_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_results(results_root, 2)
    assert default_baseline(find_runs(folder)) == "gavel"
    assert default_baseline(find_runs(folder / "oef_coop")) is None
    assert main(arguments(results_root, metric=["jain_index"])) == 0
    assert json.loads(capsys.readouterr().out)["baseline"] == "gavel"
    assert main(arguments(results_root, paths=[folder / "gavel", folder / "oef_coop"], baseline="oef_coop", format="csv")) == 0
    assert "equal_split" not in capsys.readouterr().out


def test_aa_runs_the_baseline_once_more(results_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On device time everything but the host's timings repeats exactly, so the noise floor is 0; here `plan_s` doubles."""
    folder = write_results(results_root, 3)
    again: list[Path] = []

    def rerun(path: Path) -> dict[str, Any]:
        again.append(path)
        summary = StoredRun(path).summary
        return {**summary, "plan_s": 2 * summary["plan_s"]}

    found = against_itself(find_runs(folder), None, ["jct_mean_s", "plan_s"], rerun)
    assert [path.parent.name for path in again] == ["gavel"] * 3
    cells = found.cells["gavel (again)"]
    assert cells["jct_mean_s"].effect == Effect("ratio", 3, 1.0, 1.0, 1.0, 1.0)
    assert cells["plan_s"].effect is not None and cells["plan_s"].effect.value == pytest.approx(2.0)
    assert main(arguments(results_root, aa=True, baseline="oef_coop"), rerun) == 0
    assert "oef_coop (again)" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="--aa"):
        main(arguments(results_root, aa=True))


@pytest.mark.parametrize(
    ("effect", "name", "text"),
    [
        (Effect("ratio", 20, 1.041, 1.038, 1.044, 0.0), "jain_index", "+4.1±0.3%"),
        (Effect("ratio", 20, 0.8, 0.78, 0.82, 0.0), "jain_index", "−20±2.0%"),
        (Effect("ratio", 3, 0.55, 0.001, 994.0, 0.8), "jain_index", "−45±>100%"),
        (Effect("ratio", 3, 1.2, 0.2, 2.2, 0.6), "jain_index", "+20±100%"),
        (Effect("ratio", 2, 1.2, 0.2, 2.2, 0.6), "jain_index", "+20%"),
        (Effect("ratio", 20, 3.21, 3.0, 3.4, 0.0), "jain_index", "×3.21"),
        (Effect("ratio", 1, 1.1, None, None, None), "jain_index", "+10%"),
        (Effect("difference", 20, -0.123, -0.153, -0.093, 0.0), "envy_max", "−0.12±.03"),
        (Effect("difference", 20, -1e-9, -2e-9, 0.0, 0.0), "envy_max", "0.00±.00"),
        (Effect("difference", 20, 7200.0, 3600.0, 10800.0, 0.0), "jct_mean_s", "+2.00±1.0"),
    ],
)
def test_effects_are_short_enough_for_a_column(effect: Effect, name: str, text: str) -> None:
    assert effect_text(effect, metric(name)) == text and len(text) <= 10


def test_short_times_are_printed_in_seconds_and_empty_columns_are_left_out(results_root: Path) -> None:
    for system, jct_s in (("gavel", 20.0), ("oef_coop", 25.0)):
        write_run(results_root, system, 0, figures={"jct_mean_s": jct_s, "finish_time_fairness_p95": None})
    found = compare(find_runs(results_root), "gavel")
    assert "finish_time_fairness_p95" not in found.metrics
    text = printed(found)
    assert "(s) ↓" in text and "(h)" not in text and "25.0" in text and "+25%" in text
    assert "mean JCT (s)" in as_markdown(found)
    write_run(results_root, "equal_split", 0, figures={"jct_mean_s": 7200.0})
    assert "(h) ↓" in printed(compare(find_runs(results_root), "gavel"))


def test_missing_fairness_figures_are_explained(results_root: Path) -> None:
    write_results(results_root, 1)
    assert not any("no fairness figures" in line for line in compare(find_runs(results_root)).frame.caveats)
    for run in find_runs(results_root):
        summary = {**run.summary, "jain_index": None}
        (run.path / "summary.json").write_text(json.dumps(summary))
    assert any("no fairness figures" in line for line in compare(find_runs(results_root)).frame.caveats)
