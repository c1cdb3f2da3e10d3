"""Jobs for native devices are as long as the calibration says, and a run's configuration holds the speeds that it used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hetsys.core import calibration as files
from hetsys.core import host
from hetsys.core.calibration import Calibration, JobRow
from hetsys.core.cluster import Cluster, DeviceSheet, NodeGroup
from hetsys.core.errors import ConfigError
from hetsys.workloads.native_mix import SHIPPED, NativeMix

SPEEDS = {"conv/full": (20.0, 60.0), "lstm/full": (10.0, 50.0), "recommendation/full": (90.0, 80.0)}
SHEET = DeviceSheet("any", 10**9, 1e9, {"fp32": 1e9}, 0.0, 0.0, "", native="cpu", busy_fraction=0.85)


@pytest.fixture
def generations() -> Cluster:
    return Cluster([NodeGroup("cpu_sse41", 1), NodeGroup("cpu_full", 1)], {"cpu_sse41": SHEET, "cpu_full": SHEET})


@pytest.fixture
def calibrated(generations: Cluster, results_root: Path) -> Calibration:
    slow, fast = generations.kinds
    made = Calibration(
        cluster="cpu_generations",
        devices={slow: 1, fast: 1},
        busy_fraction={slow: 0.85, fast: 0.85},
        ops=[],
        jobs=[JobRow(program, kind, 1, both[i], 0.01, 6) for program, both in SPEEDS.items() for i, kind in enumerate((slow, fast))],
        restart_s={slow: 0.5, fast: 0.1},
        host=dict(host.facts()),
        torch=host.torch_build().version,
        commit="abc",
        command="hetsys profile",
        made_at="2026-01-02T03:04:05+00:00",
    )
    files.write(made, results_root)
    return made


def test_jobs_take_as_long_as_was_measured(generations: Cluster, calibrated: Calibration) -> None:
    workload = NativeMix(tenants=4, shortest_s=2.0, longest_s=2.0)
    trace = workload.sample(0, generations)
    conv, lstm, recommendation = ("Convolutional network (full)", "LSTM (full)", "Recommendation (full)")
    assert [job.job_type for job in trace.jobs] == [conv, conv, lstm, lstm, recommendation, recommendation, conv, conv]
    assert [job.num_steps for job in trace.jobs] == [120, 120, 100, 100, 180, 180, 120, 120]
    first = trace.jobs[0]
    assert (first.program, first.gang, dict(first.steps_per_s)) == ("conv/full", 1, {"cpu_sse41": 20.0, "cpu_full": 60.0})
    assert (trace.restart_s, trace.learns, trace.provenance) == (0.3, True, "measured")
    assert list(trace.data_sha256.values()) == [calibrated.hash]


def test_seeds_change_lengths_within_their_bounds(generations: Cluster, calibrated: Calibration) -> None:
    one, two = (NativeMix().sample(seed, generations).jobs for seed in (0, 1))
    assert one == NativeMix().sample(0, generations).jobs and one != two
    seconds = [job.num_steps / max(job.steps_per_s.values()) for job in (*one, *two)]
    assert all(2.95 <= length <= 7.05 for length in seconds) and len(set(seconds)) == 12


def test_what_is_filled_in_is_all_that_a_later_run_needs(generations: Cluster, calibrated: Calibration, results_root: Path) -> None:
    filled = NativeMix().for_cluster(generations)
    assert (filled.calibration, filled.calibration_hash) == (f"cpu_generations-{host.facts()['fingerprint']}", calibrated.hash)
    before = filled.sample(3, generations)
    files.file_of("cpu_generations", results_root).unlink()
    assert filled.for_cluster(generations) == filled and filled.sample(3, generations) == before
    assert NativeMix(restart_s=0.0).for_cluster(generations).restart_s == 0.0


def test_without_a_calibration_the_shipped_table_says_so(generations: Cluster, calibrated: Calibration, results_root: Path) -> None:
    files.write(replace(calibrated, torch="0.1"), results_root)
    filled = NativeMix().for_cluster(generations)
    assert filled.calibration == SHIPPED and "measured on another machine" in filled.notice
    assert filled.restart_s and filled.restart_s > 0 and NativeMix().sample(0, generations).provenance == "measured"
    files.write(calibrated, results_root)
    assert NativeMix(calibration="shipped").for_cluster(generations) == filled != NativeMix().for_cluster(generations)
    path = str(files.file_of("cpu_generations", results_root))
    assert NativeMix(calibration=path).for_cluster(generations) == NativeMix().for_cluster(generations)
    assert NativeMix().for_cluster(generations).notice == ""


def test_every_family_is_in_the_shipped_table(generations: Cluster) -> None:
    families = ("conv", "lstm", "transformer", "recommendation", "small_lm", "actor_critic")
    speeds = NativeMix(families=families, calibration="shipped").for_cluster(generations).steps_per_s
    assert speeds is not None
    speedups = {program: by_kind["cpu_full"] / by_kind["cpu_sse41"] for program, by_kind in speeds.items()}
    assert len(speedups) == 6 and max(speedups.values()) > 2 * min(speedups.values()), "the families' speed-ups really differ"


def test_mistakes_are_named(generations: Cluster, calibrated: Calibration) -> None:
    with pytest.raises(ConfigError, match="did you mean 'conv'"):
        NativeMix(families=("con",))
    with pytest.raises(ConfigError, match=r"workload\.longest_s"):
        NativeMix(shortest_s=5.0, longest_s=4.0)
    with pytest.raises(ConfigError, match="hetsys profile"):
        NativeMix().sample(0, Cluster([NodeGroup("mine", 1)], {"mine": SHEET}))
    with pytest.raises(ConfigError, match="transformer/full"):
        NativeMix(families=("transformer",)).for_cluster(generations)
    with pytest.raises(ConfigError, match=r"workload\.restart_s"):
        NativeMix(steps_per_s={}).for_cluster(generations)
    with pytest.raises(ConfigError, match=r"workload\.steps_per_s\.lstm/full\.cpu_sse41"):
        NativeMix(steps_per_s={"conv/full": {"cpu_sse41": 1.0, "cpu_full": 2.0}}, restart_s=0.0).for_cluster(generations)


def test_speeds_of_ones_own(generations: Cluster) -> None:
    own = NativeMix(steps_per_s={"conv/full": {"cpu_sse41": 1.0, "cpu_full": 2.0}}, restart_s=0.0, families=("conv",), longest_s=3.0)
    trace = own.sample(0, generations)
    assert trace.provenance == "derived" and {job.num_steps for job in trace.jobs} == {6}
