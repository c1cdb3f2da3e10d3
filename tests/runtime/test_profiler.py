"""What is measured of two devices of this machine: the ratio of their speeds comes out the same twice, whatever else the machine does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from hetsys import profile
from hetsys.core import calibration as files
from hetsys.core import host
from hetsys.core.cluster import Cluster, NodeGroup
from hetsys.core.errors import ConfigError
from hetsys.profile import Effort, TrainingJobs
from hetsys.runtime.here import sheets
from hetsys.runtime.local import LocalLauncher
from hetsys.runtime.operations import grid
from hetsys.runtime.profiler import Bench, Stretch, seats_of

BRIEF = Effort(turns=3, stretch_s=0.15, op_s=0.002, quick=True)
ATTEMPTS = 3


@pytest.fixture(scope="module")
def launcher() -> Iterator[LocalLauncher]:
    one = LocalLauncher()
    yield one
    one.close()


@pytest.fixture
def generations(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    if "avx2" not in host.instruction_sets():
        pytest.skip("this processor has one generation only")
    monkeypatch.setattr(host, "usable_cores", lambda: 2)
    return Cluster([NodeGroup("cpu_sse41", 1), NodeGroup("cpu_full", 1)], sheets())


def test_the_ratio_of_two_generations_comes_out_the_same_twice(generations: Cluster, launcher: LocalLauncher) -> None:
    differences = []
    for _ in range(ATTEMPTS):
        samples = profile.measure(generations, launcher, ["conv/full"], BRIEF)
        first, second = samples.ratios("conv/full", *generations.kinds)
        assert first > 1.3 and second > 1.3, "a convolutional network gains from a newer processor"
        differences.append(abs(second / first - 1))
        if differences[-1] <= profile.TOLERANCE:
            break
    assert min(differences) <= profile.TOLERANCE
    assert set(samples.restarts) == set(generations.kinds) and all(0 < t < 60 for times in samples.restarts.values() for t in times)
    assert {op.kind for _, op, _ in samples.ops} == {"linear", "decode_attention", "prefill_attention", "copy"}


def test_what_was_measured_is_printed_and_kept(
    generations: Cluster, launcher: LocalLauncher, results_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(profile, "PROGRAMS", ("conv/tiny",))
    monkeypatch.setattr(profile, "QUICK", replace(BRIEF, turns=1, stretch_s=0.05))
    profile.main(generations, "cpu_generations", results_root, Console(width=140), quick=True)
    shown = capsys.readouterr().out
    for words in ("conv/tiny", "ratio", "pass 2", "GFLOP/s", "restart on cpu_full", "cpu_generations-"):
        assert words in shown
    kept = files.find(generations, results_root)
    assert kept is not None and kept.units["steps_per_s"] and kept.source == "measured"
    assert set(kept.steps_per_s("conv/tiny")) == {"cpu_sse41", "cpu_full"}
    op, shape = next(grid(("fp32",)))
    labelled = replace(op, labels=(("shape", shape), ("dtype", "fp32")))
    assert 0 < kept.table("linear").duration_s("cpu_sse41", labelled) < 1


def test_a_gang_trains_together(launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "usable_cores", lambda: 2)
    pair = Cluster([NodeGroup("cpu_full", 2)], sheets())
    with Bench.of(pair, launcher, TrainingJobs()) as bench:
        made = bench.train_gangs(2, {"conv/tiny": {"cpu_full": 30.0}}, seconds=0.1, turns=2)
        assert [stretch.steps for stretch in made["conv/tiny", "cpu_full"]] == [3, 3]
        bench.open("conv/tiny")
        assert len(bench.train(["conv/tiny"] * 2, 0.01)) == 2, "and afterwards each alone again"


def test_speeds_count_the_cpu_time_of_one_worker_and_the_wall_of_others(generations: Cluster) -> None:
    seat = seats_of(generations)[0]
    stretch = Stretch(steps=100, wall_s=4.0, thread_s=1.7)
    assert stretch.steps_per_s(seat) == pytest.approx(100 * 0.85 / 1.7)
    assert stretch.steps_per_s(seat, gang=2) == stretch.steps_per_s(replace(seat, native="cuda")) == 25.0


def test_a_cluster_that_is_not_here_cannot_be_measured(results_root: Path) -> None:
    with pytest.raises(ConfigError, match="not here"):
        profile.calibrate(Cluster([NodeGroup("v100", 1)], sheets()), "v100", results_root, Console())
