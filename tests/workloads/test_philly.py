"""Philly's tenants: the published trace where it is there, and the generator fitted to it."""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hetsys.core.cluster import Cluster, NodeGroup
from hetsys.core.errors import ConfigError
from hetsys.core.paths import data_dir
from hetsys.core.scheduling.admission import admit
from hetsys.core.scheduling.load import device_s, load_factor
from hetsys.workloads.philly import (
    QUANTILES,
    STATISTICS,
    TRACE_FILE,
    PhillyTenants,
    VirtualCluster,
    generate_virtual_clusters,
    read_virtual_clusters,
    trace_path,
)
from hetsys.workloads.tables import read_csv
from hetsys.workloads.throughputs import read_throughputs

HEADER = "vc,job_type,total_steps,arrival_s,scale_factor\n"
GENERATED = PhillyTenants(trace="generated")


def _published() -> dict[str, VirtualCluster]:
    if data_dir() is None:
        pytest.skip("HETSYS_DATA is not set")
    return dict(read_virtual_clusters(trace_path())[0])


def _minutes(jobs: VirtualCluster) -> NDArray[np.float64]:
    rows = read_throughputs().rows
    speeds = np.array([rows[name, 1].steps_per_s["v100"] for name in jobs.job_types])
    return np.asarray(jobs.num_steps / speeds / 60.0)


def _data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    """A data folder whose trace has this text."""
    path = tmp_path / TRACE_FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(text.encode()))
    monkeypatch.setenv("HETSYS_DATA", str(tmp_path))
    return path


def test_generated_trace_is_repeatable_and_says_where_it_comes_from(cluster: Cluster) -> None:
    trace = GENERATED.sample(5, cluster)
    assert trace == GENERATED.sample(5, cluster)
    assert trace.jobs != GENERATED.sample(6, cluster).jobs
    assert trace.provenance == "derived"
    assert set(trace.data_sha256) == {"tables/gavel_throughputs.csv", STATISTICS}
    assert len(trace.tenants) == 15
    assert len(trace.jobs) == 240
    assert {job.tenant for job in trace.jobs} == {tenant.name for tenant in trace.tenants}
    assert all(0 <= job.arrival_s <= 60_480 for job in trace.jobs)


def test_failures_leave_the_jobs_as_they_are(cluster: Cluster) -> None:
    upset = PhillyTenants(trace="generated", failures_per_device_day=0.2, max_rounds=3000).sample(5, cluster)
    assert upset.jobs == GENERATED.sample(5, cluster).jobs
    assert upset.failures


def test_time_scale_keeps_the_load(cluster: Cluster) -> None:
    full = PhillyTenants(trace="generated", time_scale=1.0).sample(1, cluster)
    tenth = GENERATED.sample(1, cluster)
    np.testing.assert_allclose([job.arrival_s for job in tenth.jobs], [0.1 * job.arrival_s for job in full.jobs])
    np.testing.assert_allclose([job.num_steps for job in tenth.jobs], [0.1 * job.num_steps for job in full.jobs], atol=1)


def test_unmeasured_gangs_stay_without_speeds(cluster: Cluster) -> None:
    rows = read_throughputs().rows
    jobs = PhillyTenants(trace="generated", max_jobs=2000).sample(0, cluster).jobs
    bare = [job for job in jobs if not job.steps_per_s]
    assert bare
    assert all((job.job_type, job.gang) not in rows for job in bare)
    assert all(job.steps_per_s == rows[job.job_type, job.gang].steps_per_s for job in jobs if job.steps_per_s)


WHOLE: dict[str, Any] = {"window_s": None, "max_jobs": None, "time_scale": 1.0}


def test_without_a_window_every_job_is_in_and_all_clocks_start_together(cluster: Cluster) -> None:
    trace = PhillyTenants(trace="generated", **WHOLE).sample(0, cluster)
    made, _ = generate_virtual_clusters(0, read_throughputs())
    assert len(trace.jobs) == 15_264
    jobs = {job.name: job for job in trace.jobs}
    for name, own in made.items():
        assert [jobs[f"{name}-{i}"].arrival_s for i in range(len(own.arrival_s))] == own.arrival_s.tolist()
    assert min(job.arrival_s for job in trace.jobs) == 0.0


def test_seeds_are_all_the_same_only_where_nothing_is_drawn() -> None:
    def seeded(**more: Any) -> bool:
        return PhillyTenants(**{"trace": "file", **WHOLE, **more}).seeded

    assert not seeded()
    drawn = {"trace": "generated", "window_s": 9.0, "max_jobs": 99, "num_tenants": 14, "failures_per_device_day": 0.1}
    assert all(seeded(**{name: value}) for name, value in drawn.items())


def test_split_runs_unmeasured_gangs_as_the_largest_measured_one_below(cluster: Cluster) -> None:
    rows = read_throughputs().rows
    parked = {job.name: job for job in PhillyTenants(trace="generated", max_jobs=2000).sample(0, cluster).jobs}
    split = {job.name: job for job in PhillyTenants(trace="generated", max_jobs=2000, oversize="split").sample(0, cluster).jobs}
    assert parked.keys() == split.keys()
    gangs: Counter[tuple[int, int]] = Counter()
    for name, job in split.items():
        asked = parked[name]
        assert (job.job_type, job.num_steps, job.arrival_s) == (asked.job_type, asked.num_steps, asked.arrival_s)
        assert job.steps_per_s == rows[job.job_type, job.gang].steps_per_s
        if asked.steps_per_s:
            assert job == asked
        else:
            measured = [gang for name, gang in rows if name == job.job_type and gang <= asked.gang]
            assert job.gang == max(measured) < asked.gang
            gangs[asked.gang, job.gang] += 1
    assert gangs[4, 1] and gangs[16, 8] and gangs[8, 1]


@pytest.mark.parametrize("load", [0.5, 1.3])
def test_jobs_are_kept_until_the_load_is_reached(cluster: Cluster, load: float) -> None:
    """24 devices: the few jobs that a load of 0.5 leaves are all of 15 tenants, and one of them may be longer than the week."""
    counts = list(cluster.num_devices_by_kind.values())
    workload = PhillyTenants(trace="generated", max_jobs=None, oversize="split", load=load)
    for seed in range(5):
        trace, everything = workload.sample(seed, cluster), replace(workload, load=None).sample(seed, cluster)
        kept, every = ({job.name: job for job in jobs} for jobs in (trace.jobs, everything.jobs))
        assert kept.items() <= every.items() and {job.tenant for job in trace.jobs} == {job.tenant for job in everything.jobs}
        needed = [device_s(item, counts) for item in admit(trace, cluster)[0]]
        reached = sum(needed) / (60_480.0 * sum(counts))
        one_more = max(device_s(item, counts) for item in admit(everything, cluster)[0]) / (60_480.0 * sum(counts))
        assert abs(reached - load) <= one_more / 2 or len(kept) == 15
    plenty = replace(workload, load=1e6).sample(0, cluster)
    assert plenty.jobs == replace(workload, load=None).sample(0, cluster).jobs


def test_the_published_trace_as_a_whole_has_its_known_totals(hetsys_data: Path, cluster: Cluster) -> None:
    """What `oef_philly` runs: jobs, tenants, those that are parked where gangs are not split, and the load on 160 devices of each kind."""
    cluster = Cluster([NodeGroup(kind, 8, count=20) for kind in cluster.kinds], cluster.sheets)
    split = PhillyTenants(trace="file", oversize="split", **WHOLE).sample(0, cluster)
    assert (len(split.jobs), len(split.tenants)) == (15_264, 15) and not admit(split, cluster)[1]
    assert split.jobs[-1].arrival_s == 10_817_570.0
    assert load_factor(split, cluster) == pytest.approx(0.8328, abs=1e-4)
    assert Counter(job.gang for job in split.jobs) == {1: 11_761, 2: 336, 4: 1497, 8: 1670}
    parking = PhillyTenants(trace="file", **WHOLE).sample(0, cluster)
    parked = admit(parking, cluster)[1]
    gangs = Counter(job.gang for job in parking.jobs if not job.steps_per_s)
    assert len(parked) == gangs.total() == 1548
    assert gangs == {2: 127, 4: 549, 7: 2, 8: 511, 12: 6, 16: 255, 20: 1, 24: 5, 32: 91, 64: 1}
    assert load_factor(parking, cluster) == pytest.approx(0.7942, abs=1e-4)


def test_generated_tenants_have_the_fitted_statistics() -> None:
    made, _ = generate_virtual_clusters(0, read_throughputs())
    rows, _ = read_csv(Path(__file__).parents[2] / "conf" / STATISTICS, "statistics", ["tenant"])
    assert sorted(made) == sorted(row.cells["tenant"] for row in rows)
    assert sum(len(jobs.gang) for jobs in made.values()) == 15_264
    for row in (row for row in rows if int(row.cells["jobs"]) >= 900):
        jobs = made[row.cells["tenant"]]
        assert jobs.arrival_s[0] == 0.0
        assert jobs.arrival_s[-1] == pytest.approx(row.number("span_s"))
        share = row.number("gang_1") / row.number("jobs")
        assert np.mean(jobs.gang == 1) == pytest.approx(share, abs=0.05)
        minutes = _minutes(jobs)
        assert np.mean(minutes <= row.number("minutes_50")) == pytest.approx(0.5, abs=0.06)
        assert np.mean(minutes <= row.number("minutes_90")) == pytest.approx(0.9, abs=0.04)


def test_published_trace_has_its_known_totals() -> None:
    clusters = _published()
    assert len(clusters) == 15
    gangs = Counter(int(gang) for jobs in clusters.values() for gang in jobs.gang)
    total = sum(gangs.values())
    assert total == 15_264
    shares = {1: 0.686583, 2: 0.030333, 4: 0.133910, 8: 0.125524}
    assert {gang: round(gangs[gang] / total, 6) for gang in shares} == shares
    assert all(jobs.arrival_s[0] == 0 and (np.diff(jobs.arrival_s) >= 0).all() for jobs in clusters.values())


def test_shipped_statistics_are_those_of_the_published_trace() -> None:
    clusters = _published()
    rows, _ = read_csv(Path(__file__).parents[2] / "conf" / STATISTICS, "statistics", ["tenant"])
    assert {row.cells["tenant"] for row in rows} == set(clusters)
    for row in rows:
        jobs = clusters[row.cells["tenant"]]
        assert row.integer("jobs") == len(jobs.gang)
        assert row.number("span_s") == jobs.arrival_s[-1]
        counts = {int(name[5:]): int(count) for name, count in row.cells.items() if name.startswith("gang_") and count != "0"}
        assert counts == Counter(jobs.gang.tolist())
        gaps, minutes = np.diff(jobs.arrival_s), _minutes(jobs)
        np.testing.assert_allclose([row.number(f"gap_{q}_s") for q in QUANTILES], np.percentile(gaps, QUANTILES), rtol=6e-4)
        np.testing.assert_allclose([row.number(f"minutes_{q}") for q in QUANTILES], np.percentile(minutes, QUANTILES), rtol=6e-4)


def test_generated_and_published_lengths_agree() -> None:
    published = _published()
    made, _ = generate_virtual_clusters(1, read_throughputs())
    for name in (name for name, jobs in published.items() if len(jobs.gang) >= 900):
        ours, theirs = np.log10(_minutes(made[name])), np.log10(_minutes(published[name]))
        assert ours.mean() == pytest.approx(theirs.mean(), abs=0.15)
        assert ours.std() == pytest.approx(theirs.std(), abs=0.15)


def test_published_windows_differ_by_seed_and_hold_published_jobs(cluster: Cluster) -> None:
    clusters = _published()
    workload = PhillyTenants(trace="file", time_scale=1.0)
    trace = workload.sample(0, cluster)
    assert trace.provenance == "published"
    assert TRACE_FILE in trace.data_sha256
    assert trace == workload.sample(0, cluster)
    assert trace.jobs != workload.sample(1, cluster).jobs
    for job in trace.jobs:
        own, i = clusters[job.tenant], int(job.name.rpartition("-")[2])
        assert (job.job_type, job.gang, job.num_steps) == (own.job_types[i], own.gang[i], own.num_steps[i])
        assert 0 <= job.arrival_s < 604_800.0


def test_auto_takes_the_file_only_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HETSYS_DATA", raising=False)
    assert PhillyTenants().resolve().trace == "generated"
    monkeypatch.setenv("HETSYS_DATA", str(tmp_path))
    assert PhillyTenants().resolve().trace == "generated"
    _data(tmp_path, monkeypatch, HEADER)
    assert PhillyTenants().resolve().trace == "file"
    assert GENERATED.resolve() is GENERATED
    assert PhillyTenants().notice == ""
    assert GENERATED.notice.startswith("the Philly trace is not read (workload.trace=generated): tenants are generated")
    monkeypatch.delenv("HETSYS_DATA")
    assert PhillyTenants().notice.startswith("the Philly trace is not here (HETSYS_DATA): tenants are generated")


def test_auto_without_data_samples_the_generated_trace(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HETSYS_DATA", raising=False)
    assert PhillyTenants().sample(2, cluster) == GENERATED.sample(2, cluster)


def test_small_trace_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    _data(tmp_path, monkeypatch, HEADER + "a,A3C,100,0,1\na,A3C,7,50,16\nb,CycleGAN,10,0,1\n")
    workload = PhillyTenants(trace="file", num_tenants=2, window_s=1e9, time_scale=0.5)
    jobs = {job.name: job for job in workload.sample(0, cluster).jobs}
    assert set(jobs) == {"a-0", "a-1", "b-0"}
    assert (jobs["a-0"].num_steps, jobs["a-1"].num_steps, jobs["a-1"].gang) == (50, 4, 16)
    assert jobs["a-1"].steps_per_s == {}
    assert jobs["a-1"].arrival_s - jobs["a-0"].arrival_s == pytest.approx(25.0)


def test_file_without_data_folder_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HETSYS_DATA", raising=False)
    with pytest.raises(ConfigError, match=r"HETSYS_DATA=''.*workload\.trace=generated"):
        PhillyTenants(trace="file").sample(0, cluster)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + "a,A3C,100,zero,1\n", r"csv\.gz:2: arrival_s='zero': must be a number"),
        (HEADER + "a,A3C,100,-1,1\n", r"csv\.gz:2: arrival_s='-1': must be 0 or more"),
        (HEADER + "a,A3C,0,1,1\n", r"csv\.gz:2: total_steps='0': must be 1 or more"),
        (HEADER + "a,A3C,9,1,1\na,A3C,9,1,0\n", r"csv\.gz:3: scale_factor='0': must be 1 or more"),
        (HEADER + "a,A3C,9,1\n", r"csv\.gz:2=.*has 4 cells"),
        (HEADER, "has no jobs"),
        ("vc,job_type\n", "the header lacks the column 'total_steps'"),
    ],
)
def test_a_bad_trace_is_refused_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster, text: str, message: str
) -> None:
    _data(tmp_path, monkeypatch, text)
    with pytest.raises(ConfigError, match=message):
        PhillyTenants(trace="file").sample(0, cluster)


def test_a_torn_archive_and_a_missing_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    path = _data(tmp_path, monkeypatch, HEADER + "a,A3C,9,1,1\n")
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(ConfigError, match=r"does not unpack as gzip"):
        PhillyTenants(trace="file").sample(0, cluster)
    path.unlink()
    with pytest.raises(ConfigError, match=r"no such file"):
        PhillyTenants(trace="file").sample(0, cluster)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"trace": "fil"}, "workload.trace='fil': did you mean 'file'"),
        ({"num_tenants": 0}, "workload.num_tenants=0"),
        ({"window_s": 0.0}, "workload.window_s"),
        ({"time_scale": -1.0}, "workload.time_scale"),
        ({"oversize": "cut"}, "workload.oversize='cut'"),
        ({"load": 0.0}, "workload.load"),
        ({"load": 1.0, "window_s": None}, "workload.load=1.0: needs a window to fill"),
        ({"max_jobs": 5}, "workload.max_jobs=5: must be at least one job a tenant, 15"),
    ],
)
def test_bad_fields_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PhillyTenants(**fields)  # type: ignore[arg-type]


def test_too_many_tenants_and_unknown_kinds_are_refused(cluster: Cluster, h100_cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match=r"workload.num_tenants=16: the trace has 15 tenants"):
        PhillyTenants(trace="generated", num_tenants=16).sample(0, cluster)
    with pytest.raises(ConfigError, match=r"cluster\.nodes\.kind='h100'"):
        GENERATED.sample(0, h100_cluster)
