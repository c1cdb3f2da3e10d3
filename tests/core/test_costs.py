"""Durations: operations by hand, rooflines, interpolated tables, and both against published rows where the data folder is set."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from math import inf, nan
from pathlib import Path
from statistics import median

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hetsys.core.cluster import DeviceSheet
from hetsys.core.costs import (
    CostModel,
    Op,
    ProfileTable,
    Provenance,
    Roofline,
    Row,
    copy,
    decode_attention,
    linear,
    prefill_attention,
    reference_durations,
    sheet_duration_s,
    worst,
)
from hetsys.core.errors import ConfigError, InfeasiblePlan
from hetsys.core.model import ModelSpec
from hetsys.core.paths import shipped
from hetsys.workloads.condense import SELECTIONS, condensed_text
from hetsys.workloads.profiles import TABLES, load_table, read_condensed, read_table

TOY = DeviceSheet("toy", 10**9, 1e9, {"fp16": 1e12, "fp32": 1e11}, 1e-3, 1.0, "2026-01-01", 0.5, 0.8)
ORIGIN = Provenance("published", "a paper", "abc", "MIT")


@cache
def shipped_sheet(name: str) -> DeviceSheet:
    content = yaml.safe_load((shipped("conf") / "cluster" / "device" / f"{name}.yaml").read_text(encoding="utf-8"))
    return DeviceSheet(**{key: value for key, value in content.items() if key not in ("defaults", "_target_", "about")})


def table(points: dict[float, float], beyond: str = "refuse") -> ProfileTable:
    """A one-axis table of one device and phase."""
    rows = tuple(Row(("v100", "decode"), (x,), seconds) for x, seconds in points.items())
    return ProfileTable(("device", "phase"), ("rows",), rows, ORIGIN, beyond)


def at(made: ProfileTable, x: float) -> float:
    return made.at(("v100", "decode"), x).seconds


# Operations


def test_operations_by_hand() -> None:
    gemm = linear(2, 3, 5)
    assert (gemm.rows, gemm.flops, gemm.num_bytes) == (2, 60, 2 * (6 + 15 + 10))
    assert linear(2, 3, 5, "fp32").num_bytes == 4 * 31
    decode = decode_attention(rows=2, kv_tokens=10, num_heads=4, num_kv_heads=2, head_dim=8)
    assert decode.flops == 4 * 4 * 8 * 10
    assert decode.num_bytes == 2 * (2 * 10 * 2 * 8 + 2 * 2 * 4 * 8)
    prefill = prefill_attention(rows=3, past_tokens=10, num_heads=4, num_kv_heads=2, head_dim=8)
    assert prefill.flops == 4 * 4 * 8 * (11 + 12 + 13)
    assert prefill.kv_tokens == 13
    assert copy(100).num_bytes == 200


def test_a_prefill_of_one_token_is_a_decode() -> None:
    prefill, decode = prefill_attention(1, 9, 4, 2, 8), decode_attention(1, 10, 4, 2, 8)
    assert (prefill.flops, prefill.num_bytes) == (decode.flops, decode.num_bytes)


@pytest.mark.parametrize("value", [nan, inf, -1.0])
def test_operations_refuse_impossible_work(value: float) -> None:
    with pytest.raises(ConfigError, match=r"op\.linear\.flops"):
        Op("linear", flops=value)


# Roofline


def test_roofline_by_hand() -> None:
    """0.5 TFLOP/s and 0.8 GB/s are reached: 1 GFLOP takes 2 ms, 8 MB take 10 ms, and a launch 1 ms on top."""
    assert sheet_duration_s(TOY, Op("x", flops=1e9, num_bytes=1e3)) == pytest.approx(3e-3)
    assert sheet_duration_s(TOY, Op("x", flops=1e9, num_bytes=8e6)) == pytest.approx(11e-3)
    assert sheet_duration_s(TOY, Op("x", flops=1e9, num_bytes=1e3, dtype="fp32")) == pytest.approx(21e-3)
    assert sheet_duration_s(TOY, Op("x")) == pytest.approx(1e-3)


def test_reference_durations_by_hand() -> None:
    found = reference_durations(TOY)
    assert found["gemm_4096_fp16_s"] == pytest.approx(1e-3 + max(2 * 4096**3 / 0.5e12, 2 * 3 * 4096**2 / 0.8e9))
    assert found["copy_1gib_s"] == pytest.approx(1e-3 + 2 * 2**30 / 0.8e9)


def test_roofline_refuses_unknown_devices_and_dtypes() -> None:
    model: CostModel = Roofline({"v100": TOY})
    with pytest.raises(ConfigError, match="did you mean 'v100'"):
        model.duration_s("v10", copy(1))
    with pytest.raises(ConfigError, match="toy has no rate for it"):
        model.duration_s("v100", linear(1, 1, 1, "bf16"))


def test_roofline_is_derived_and_its_hash_follows_every_figure() -> None:
    model = Roofline({"v100": TOY})
    assert model.provenance.kind == "derived"
    assert model.hash == Roofline({"v100": replace(TOY)}).hash
    for other in (replace(TOY, launch_floor_s=2e-3), replace(TOY, flops_per_s={"fp16": 1e12}), replace(TOY, compute_fraction=0.4)):
        assert Roofline({"v100": other}).hash != model.hash


@given(work=st.tuples(st.floats(0, 1e15), st.floats(0, 1e12)), more=st.tuples(st.floats(0, 1e15), st.floats(0, 1e12)))
def test_more_work_never_takes_less_time(work: tuple[float, float], more: tuple[float, float]) -> None:
    less = sheet_duration_s(TOY, Op("x", flops=work[0], num_bytes=work[1]))
    greater = sheet_duration_s(TOY, Op("x", flops=work[0] + more[0], num_bytes=work[1] + more[1]))
    assert TOY.launch_floor_s <= less <= greater


@given(rows=st.integers(1, 4096), kv=st.integers(0, 10**6))
def test_a_faster_device_is_never_slower(rows: int, kv: int) -> None:
    p100, a100 = shipped_sheet("p100"), shipped_sheet("a100_80g")
    for op in (linear(rows, 4096, 4096), decode_attention(rows, kv, 32, 8, 128), prefill_attention(rows, kv, 32, 8, 128)):
        assert sheet_duration_s(a100, op) <= sheet_duration_s(p100, op)


def test_the_gap_between_a100_and_p100_depends_on_the_operation() -> None:
    """Hetis: an A100 is 24.5x faster on prefill MLPs; on decode attention only the ratio of bandwidths, 3.5x, is left."""
    p100, a100 = shipped_sheet("p100"), shipped_sheet("a100_80g")
    mlp, attention = linear(8192, 8192, 28672), decode_attention(64, 64 * 4096, 64, 8, 128)
    assert sheet_duration_s(p100, mlp) / sheet_duration_s(a100, mlp) == pytest.approx(24.5, rel=0.02)
    assert sheet_duration_s(p100, attention) / sheet_duration_s(a100, attention) == pytest.approx(1935 / 549, rel=0.02)


# Tables


def test_between_grid_points_lines_are_straight() -> None:
    made = table({10: 1.0, 20: 3.0, 40: 4.0})
    assert [at(made, x) for x in (10, 15, 20, 30, 40)] == pytest.approx([1.0, 2.0, 3.0, 3.5, 4.0])


def test_below_the_grid_the_floor_holds_and_is_marked_below_half() -> None:
    made = table({10: 1.0, 20: 3.0})
    assert (at(made, 6), at(made, 1)) == (1.0, 1.0)
    assert not made.at(("v100", "decode"), 5).extrapolated
    assert made.at(("v100", "decode"), 4.9).extrapolated


def test_above_the_grid_the_slope_of_the_upper_half_goes_on() -> None:
    """From 20 to 40 the times rise by 2, so 60 takes 2 more; the flat last step does not matter."""
    made = table({10: 1.0, 20: 3.0, 39: 5.0, 40: 5.0})
    assert at(made, 60) == pytest.approx(7.0)
    assert not made.at(("v100", "decode"), 80).extrapolated
    assert at(table({10: 5.0, 20: 3.0}), 40) == 3.0, "more work never takes less time beyond the grid"


def test_beyond_twice_the_grid_is_refused_with_the_range_or_marked() -> None:
    points = {10: 1.0, 20: 3.0, 40: 5.0}
    with pytest.raises(InfeasiblePlan, match=r"v100/decode: rows=81 lies beyond twice the measured range 10 to 40 \(a paper\)"):
        at(table(points), 81)
    marked = table(points, beyond="mark").at(("v100", "decode"), 120)
    assert marked.extrapolated and marked.seconds == pytest.approx(13.0)


def test_one_point_answers_for_itself_and_below_only() -> None:
    made = table({8: 2.0})
    assert (at(made, 8), at(made, 4)) == (2.0, 2.0)
    with pytest.raises(InfeasiblePlan, match="rows=9"):
        at(made, 9)


@pytest.mark.parametrize("x", [0, -1, nan, inf])
def test_no_work_has_no_duration(x: float) -> None:
    with pytest.raises(InfeasiblePlan):
        at(table({10: 1.0, 20: 2.0}), x)


def test_repeated_rows_are_averaged_and_rows_without_work_dropped() -> None:
    rows = tuple(Row(("v100", "decode"), (x,), s) for x, s in ((0, 0.0), (10, 1.0), (10, 3.0), (20, 4.0)))
    made = ProfileTable(("device", "phase"), ("rows",), rows, ORIGIN)
    assert at(made, 10) == 2.0
    assert at(made, 1) == 2.0
    assert made.provenance.n == 4
    assert made.provenance.sd_fraction == pytest.approx(2**0.5 / 2)
    assert made.knots(("v100", "decode")) == [((10,), 2.0), ((20,), 4.0)]


@pytest.mark.parametrize("bad", [nan, inf, -1.0])
def test_impossible_rows_are_refused_with_their_place(bad: float) -> None:
    for row in (Row(("v100", "decode"), (1.0,), bad, "times.csv:7"), Row(("v100", "decode"), (bad,), 1.0, "times.csv:7")):
        with pytest.raises(ConfigError, match=r"times\.csv:7"):
            ProfileTable(("device", "phase"), ("rows",), (row,), ORIGIN)


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(ConfigError, match="no row with work"):
        table({0: 1.0})


def test_unknown_keys_are_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'v100/decode'"):
        table({1: 1.0}).at(("v100", "decod"), 1)


def test_two_axes_are_exact_on_a_bilinear_function() -> None:
    def seconds(x: float, y: float) -> float:
        return 1 + 2 * x + 3 * y + 0.5 * x * y

    rows = tuple(Row(("d",), (x, y), seconds(x, y)) for x in (1, 2, 5) for y in (10, 20, 40))
    made = ProfileTable(("device",), ("rows", "kv_tokens"), rows, ORIGIN)
    for x, y in ((1, 10), (1.5, 15), (4, 33), (5, 40)):
        assert made.at(("d",), x, y).seconds == pytest.approx(seconds(x, y))
    assert made.duration_s("d", Op("attention", rows=2, kv_tokens=25)) == pytest.approx(seconds(2, 25))


def test_a_ragged_grid_is_judged_by_the_points_in_use() -> None:
    """Many rows were measured at short contexts only: a long context there is refused, though few rows know it."""
    rows = tuple(Row(("d",), (x, y), 1.0) for x, y in ((1, 10), (1, 1000), (8, 10), (8, 20)))
    made = ProfileTable(("device",), ("rows", "kv_tokens"), rows, ORIGIN)
    assert made.at(("d",), 1, 900).seconds == 1.0
    with pytest.raises(InfeasiblePlan, match="kv_tokens=900 lies beyond twice the measured range 10 to 20"):
        made.at(("d",), 8, 900)


def test_labels_of_an_operation_find_its_rows() -> None:
    made = table({10: 1.0, 20: 3.0})
    assert made.duration_s("v100", Op("layer", rows=15, labels=(("phase", "decode"), ("model", "x")))) == 2.0
    with pytest.raises(ConfigError, match="also asks for phase"):
        made.duration_s("v100", Op("layer", rows=15))


def test_the_hash_of_a_table_ignores_order_and_places_only() -> None:
    made = table({10: 1.0, 20: 3.0})
    assert replace(made, rows=tuple(replace(row, where="elsewhere") for row in reversed(made.rows))).hash == made.hash
    assert table({10: 1.0, 20: 3.1}).hash != made.hash
    assert table({10: 1.0, 20: 3.0}, beyond="mark").hash != made.hash


@given(
    points=st.dictionaries(st.integers(1, 1000), st.floats(0, 10), min_size=2, max_size=8),
    shares=st.lists(st.floats(0, 1), min_size=2, max_size=6),
)
def test_interpolation_stays_between_its_neighbours_and_keeps_order(points: dict[int, float], shares: list[float]) -> None:
    made = table({float(x): seconds for x, seconds in points.items()})
    low, high = min(points), max(points)
    for share in shares:
        x = low + share * (high - low)
        left, right = max(k for k in points if k <= x), min(k for k in points if k >= x)
        around = sorted((points[left], points[right]))
        assert around[0] - 1e-9 <= at(made, x) <= around[1] + 1e-9
    rising = table(dict(zip(map(float, sorted(points)), sorted(points.values()), strict=True)))
    times = [at(rising, low + share * (2 * high - low)) for share in sorted(shares)]
    assert all(a <= b + 1e-9 for a, b in pairwise(times)) and times[0] >= 0


def test_the_worst_provenance() -> None:
    assert worst([]) == "measured"
    assert worst(["measured", "derived", "published"]) == "derived"
    with pytest.raises(ConfigError, match="did you mean 'published'"):
        Provenance("publishd", "x")


# Files


def test_bad_files_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "helix.csv"
    layout = TABLES["helix_layers"].layout
    for cell in ("nan", "-1", "inf", "", "fast"):
        path.write_text(f"model,gpu,phase,batch_tokens,time_ms\nm,A100,decode,2,1.0\n\nm,A100,decode,4,{cell}\n")
        with pytest.raises(ConfigError, match=r"helix\.csv:4.*time_ms"):
            read_table(path, layout)
    path.write_text("model,gpu,phase,batch_token,time_ms\nm,A100,decode,2,1.0\n")
    with pytest.raises(ConfigError, match="did you mean 'batch_token'"):
        read_table(path, layout)
    path.write_text("")
    with pytest.raises(ConfigError, match="is empty"):
        read_table(path, layout)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_table(tmp_path / "absent.csv", layout)
    with pytest.raises(ConfigError, match="did you mean 'helix_layers'"):
        load_table("helix_layer")


def test_a_condensed_file_must_say_where_it_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("# kind: published\n# source: s\n# keys: device\n# axes: rows\n# unit: ms\ndevice,rows,time\na,1,2\n")
    with pytest.raises(ConfigError, match=r"commit.*licence"):
        read_condensed(path)


@pytest.mark.parametrize("name", TABLES)
def test_condensed_tables_need_no_data_folder(name: str) -> None:
    made = load_table(name)
    assert made.provenance.kind == "published"
    assert made.provenance.source and made.provenance.commit and made.provenance.licence in ("MIT", "Apache-2.0")
    for key in made.keys:
        assert all(seconds > 0 for _, seconds in made.knots(key))


def test_condensed_helix_answers_for_an_operation() -> None:
    """Published: a Llama-2 70B layer takes an A100 8 ms for 1,000 prompt tokens, a T4 59 ms: 7.4x; in decode only 4.7x."""
    made = load_table("helix_layers")
    work = ((1000, "prefill"), (100, "decode"))
    prompt, decode = (Op("layer", rows=n, labels=(("model", "llama2_70b"), ("phase", phase))) for n, phase in work)
    assert made.duration_s("t4", prompt) / made.duration_s("a100_40g", prompt) == pytest.approx(59 / 8, rel=0.15)
    assert made.duration_s("t4", decode) / made.duration_s("a100_40g", decode) == pytest.approx(11.7 / 2.5, rel=0.15)


# Against published rows (needs HETSYS_DATA)


def spread(errors: list[float]) -> str:
    return f"median error {median(errors):.2%}, p90 {np.quantile(errors, 0.9):.2%}"


def held_out_errors(full: ProfileTable, every: int) -> list[float]:
    """Relative errors of every `every`-th inner grid point of each curve, predicted from the others."""
    held = {(key, at) for key in full.keys for at, _ in full.knots(key)[1:-1][::every]}
    kept = tuple(row for row in full.rows if (row.key, row.at) not in held)
    rest = replace(full, rows=kept)
    points = {(key, at): seconds for key in full.keys for at, seconds in full.knots(key)}
    return [abs(rest.at(key, *at).seconds / points[key, at] - 1) for key, at in held if points[key, at] > 0]


@pytest.mark.parametrize("every", [2, 3])
@pytest.mark.parametrize("name", ["helix_layers", "vidur_linear", "vidur_network", "sailor_layers"])
def test_held_out_rows_are_met_within_ten_percent(name: str, every: int, hetsys_data: Path) -> None:
    errors = held_out_errors(load_table(name, hetsys_data), every)
    print(f"{name}, every {every}: {len(errors)} rows held out, {spread(errors)}")
    assert len(errors) > 300
    assert median(errors) < 0.10


@pytest.mark.parametrize("name", TABLES)
def test_condensed_tables_are_the_published_rows_and_stay_close(name: str, hetsys_data: Path) -> None:
    text = condensed_text(name, hetsys_data)
    assert (shipped("conf") / "tables" / f"{name}.csv").read_text(encoding="utf-8") == text, "python -m hetsys.workloads.condense"
    full, short = load_table(name, hetsys_data), load_table(name)
    by_curve = [[abs(short.at(key, *at).seconds / s - 1) for at, s in full.knots(key) if s > 0] for key in short.keys]
    errors = [error for curve in by_curve for error in curve]
    print(f"{name}: {len(short.rows)} of {len(errors)} times kept, {spread(errors)}")
    assert median(errors) < 0.05
    assert max(np.quantile(curve, 0.9) for curve in by_curve) <= SELECTIONS[name].tolerance + 0.01


def layer_gemms(spec: ModelSpec, rows: float) -> dict[str, Op]:
    """The four linear operations of one layer as vidur names them."""
    return {
        "attn_pre_proj": linear(rows, spec.hidden_size, spec.q_size + 2 * spec.kv_size),
        "attn_post_proj": linear(rows, spec.q_size, spec.hidden_size),
        "mlp_up_proj": linear(rows, spec.hidden_size, 2 * spec.ffn_size),
        "mlp_down_proj": linear(rows, spec.ffn_size, spec.hidden_size),
    }


def test_rooflines_beside_published_rows(hetsys_data: Path) -> None:
    """Reported, not gated, but for the order of magnitude: what rests on a roofline alone is marked `derived` for a reason."""
    specs = {
        "Llama-2-7b-hf": ModelSpec(32, 4096, 32, 32, 11008, 32000, 4096),
        "Llama-2-70b-hf": ModelSpec(80, 8192, 64, 8, 28672, 32000, 4096),
        "llama1_30b": ModelSpec(60, 6656, 52, 52, 17920, 32000, 2048),
        "llama2_70b": ModelSpec(80, 8192, 64, 8, 28672, 32000, 4096),
    }
    ratios: dict[str, list[float]] = {}
    vidur, helix = load_table("vidur_linear", hetsys_data), load_table("helix_layers", hetsys_data)
    for device in ("a100_80g", "h100"):
        for key in (key for key in vidur.keys if key[0] == device and key[2] == "1"):
            for (rows,), seconds in vidur.knots(key):
                predicted = sheet_duration_s(shipped_sheet(device), layer_gemms(specs[key[1]], rows)[key[3]])
                ratios.setdefault(f"vidur {device} GEMM", []).append(predicted / seconds)
    for device in ("a100_40g", "v100", "l4", "t4"):
        for key in (key for key in helix.keys if key[0] == device):
            for (rows,), seconds in helix.knots(key):
                predicted = sum(sheet_duration_s(shipped_sheet(device), op) for op in layer_gemms(specs[key[1]], rows).values())
                ratios.setdefault(f"helix {device} {key[2]} (dense part)", []).append(predicted / seconds)
    for name, found in ratios.items():
        print(f"roofline / published, {name}: median {median(found):.2f} of {len(found)}")
        assert 0.2 < median(found) < 3
