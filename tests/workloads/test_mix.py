"""The generator of Gavel's job mix: repeatable, in independent streams, with the published shares."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import log10

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsys.core.cluster import Cluster, DeviceSheet, NodeGroup
from hetsys.core.errors import ConfigError
from hetsys.core.scheduling.trace import JobTrace
from hetsys.workloads.mix import GANG_SHARES, GavelMix, gang_chances
from hetsys.workloads.throughputs import read_throughputs

BIG = GavelMix(tenants=400, jobs_per_tenant=25)


def _minutes(trace: JobTrace) -> np.ndarray:
    return np.array([job.num_steps / job.steps_per_s["v100"] / 60 for job in trace.jobs])


def test_default_is_twelve_tenants_with_five_jobs_of_one_type(cluster: Cluster) -> None:
    trace = GavelMix().sample(0, cluster)
    assert len(trace.tenants) == 12
    assert Counter(job.tenant for job in trace.jobs) == {tenant.name: 5 for tenant in trace.tenants}
    assert all(len({job.job_type for job in trace.jobs if job.tenant == tenant.name}) == 1 for tenant in trace.tenants)
    assert len({job.name for job in trace.jobs}) == 60
    assert {job.arrival_s for job in trace.jobs} == {0.0}
    assert (trace.round_s, trace.restart_s, trace.max_rounds, trace.failures) == (360.0, 20.0, 100_000, ())
    assert trace.provenance == "published"
    assert trace.data_sha256 == {"tables/gavel_throughputs.csv": read_throughputs().sha256}


def test_same_seed_same_trace_and_other_seed_another(cluster: Cluster) -> None:
    assert GavelMix().sample(3, cluster) == GavelMix().sample(3, cluster)
    assert GavelMix().sample(3, cluster).jobs != GavelMix().sample(4, cluster).jobs


def test_job_has_the_published_speeds_of_its_row(cluster: Cluster) -> None:
    rows = read_throughputs().rows
    for job in GavelMix().sample(1, cluster).jobs:
        assert job.steps_per_s == rows[job.job_type, job.gang].steps_per_s
        assert job.spread_steps_per_s == rows[job.job_type, job.gang].spread_steps_per_s


def test_every_job_has_something_that_trains(cluster: Cluster) -> None:
    jobs = BIG.sample(0, cluster).jobs
    families = {"ResNet": "conv", "CycleGAN": "conv", "LM": "lstm", "Transformer": "transformer", "Recommendation": "recommendation"}
    for job in jobs:
        family = next((family for name, family in families.items() if job.job_type.startswith(name)), "actor_critic")
        assert job.program == f"{family}/tiny"
    assert len({job.program for job in jobs}) == 5


def test_the_scheduler_is_told_speeds_with_an_error_of_its_own_for_each_type_gang_and_kind(cluster: Cluster) -> None:
    exact, told = BIG.sample(0, cluster), replace(BIG, profile_error=0.2).sample(0, cluster)
    assert all(job.known_steps_per_s is None for job in exact.jobs)
    assert [replace(job, known_steps_per_s=None) for job in told.jobs] == list(exact.jobs), "the jobs themselves are the same"
    errors = {}
    for job in told.jobs:
        assert job.known_steps_per_s is not None and job.known_steps_per_s.keys() == job.steps_per_s.keys()
        for kind, speed in job.steps_per_s.items():
            if speed:
                error = job.known_steps_per_s[kind] / speed
                assert errors.setdefault((job.job_type, job.gang, kind), error) == error
            else:
                assert job.known_steps_per_s[kind] == 0
    values = np.array(list(errors.values()))
    assert len(set(values)) == len(values) > 200 and (values > 0).all()
    assert values.mean() == pytest.approx(1.0, abs=0.05) and values.std() == pytest.approx(0.2, rel=0.2)


def test_what_rounds_say_reaches_the_trace(cluster: Cluster) -> None:
    assert (GavelMix().sample(0, cluster).learns, GavelMix().sample(0, cluster).max_crashes) == (False, 3)
    trace = GavelMix(learns=True, max_crashes=5).sample(0, cluster)
    assert (trace.learns, trace.max_crashes) == (True, 5)


def test_failures_departures_and_arrivals_leave_the_jobs_as_they_are(cluster: Cluster) -> None:
    plain = GavelMix().sample(7, cluster)
    upset = GavelMix(failures_per_device_day=0.5, leave_fraction=0.5, max_rounds=5000).sample(7, cluster)
    assert upset.jobs == plain.jobs
    assert len(upset.failures) > 0
    later = GavelMix(arrivals_per_hour=2.0).sample(7, cluster)
    at_once = sorted((replace(job, arrival_s=0.0) for job in later.jobs), key=lambda job: job.name)
    assert at_once == sorted(plain.jobs, key=lambda job: job.name)


def test_failures_have_the_asked_rate_and_never_overlap_on_a_device(cluster: Cluster) -> None:
    trace = GavelMix(failures_per_device_day=0.5, repair_s=7200.0, max_rounds=24_000).sample(0, cluster)
    days = 24_000 * 360 / 86_400
    expected = cluster.num_devices_by_kind["k80"] * 3 * days / (2.0 + 7200 / 86_400)
    assert abs(len(trace.failures) - expected) < 4 * expected**0.5
    assert [failure.at_s for failure in trace.failures] == sorted(failure.at_s for failure in trace.failures)
    for device in cluster.devices:
        own = [failure for failure in trace.failures if failure.device == device.name]
        assert all(a.at_s + a.down_s <= b.at_s for a, b in pairwise(own))


def test_a_devices_failures_do_not_depend_on_other_devices(cluster: Cluster) -> None:
    mix = GavelMix(failures_per_device_day=0.5, max_rounds=5000)
    sheet: DeviceSheet = cluster.sheets["k80"]
    alone = Cluster([NodeGroup("k80", 4)], {"k80": sheet})
    assert mix.sample(2, alone).failures == tuple(f for f in mix.sample(2, cluster).failures if f.device.startswith("k80-0-"))


def test_shares_over_many_jobs_are_the_published_ones(cluster: Cluster) -> None:
    trace = BIG.sample(0, cluster)
    counts = Counter(job.gang for job in trace.jobs)
    for gang, share in GANG_SHARES.items():
        assert counts[gang] / len(trace.jobs) == pytest.approx(share, abs=0.02)
    minutes = _minutes(trace)
    assert np.mean(minutes < 1000) == pytest.approx(0.80, abs=0.015)
    assert minutes.min() >= 0.98 * 10**1.5
    assert minutes.max() <= 1.02 * 10**4
    short, long = np.log10(minutes[minutes < 1000]), np.log10(minutes[minutes >= 1000])
    assert short.mean() == pytest.approx(2.25, abs=0.02)
    assert long.mean() == pytest.approx(3.5, abs=0.02)
    types = Counter(job.job_type for job in trace.jobs if job.name.endswith("-job-0"))
    assert len(types) == 26
    assert max(types.values()) < 3 * 400 / 26


def test_gang_chances_average_to_the_published_shares(cluster: Cluster) -> None:
    chances = gang_chances(read_throughputs(), cluster, max_gang=8)
    np.testing.assert_allclose(np.mean(list(chances.values()), axis=0), [0.70, 0.10, 0.15, 0.05])
    np.testing.assert_allclose(chances["A3C"], [1, 0, 0, 0])
    np.testing.assert_allclose(chances["LM (batch size 5)"], [1 - 0.3 * 26 / 19, 0.1 * 26 / 19, 0.15 * 26 / 19, 0.05 * 26 / 19])


def test_a_gang_too_large_counts_as_the_next_smaller_one(cluster: Cluster, small_k80_cluster: Cluster) -> None:
    table = read_throughputs()
    np.testing.assert_allclose(np.mean(list(gang_chances(table, cluster, 4).values()), axis=0), [0.70, 0.10, 0.20, 0])
    np.testing.assert_allclose(np.mean(list(gang_chances(table, cluster, 1).values()), axis=0), [1, 0, 0, 0])
    np.testing.assert_allclose(np.mean(list(gang_chances(table, small_k80_cluster, 8).values()), axis=0), [0.70, 0.30, 0, 0])
    jobs = GavelMix(tenants=60).sample(0, small_k80_cluster).jobs
    assert {job.gang for job in jobs} == {1, 2}
    assert all(job.steps_per_s["k80"] > 0 for job in jobs)


def test_duration_scale_scales_every_job(cluster: Cluster) -> None:
    full, tenth = GavelMix().sample(0, cluster), GavelMix(duration_scale=0.1).sample(0, cluster)
    np.testing.assert_allclose([job.num_steps for job in tenth.jobs], [0.1 * job.num_steps for job in full.jobs], rtol=0.2, atol=1)
    assert all(log10(_minutes(tenth)[i]) < 3.01 for i in range(len(tenth.jobs)))


def test_poisson_arrivals_have_the_asked_rate(cluster: Cluster) -> None:
    arrivals = np.array([job.arrival_s for job in replace(BIG, arrivals_per_hour=12.0).sample(0, cluster).jobs])
    assert (np.diff(arrivals) >= 0).all()
    gaps = np.diff(arrivals)
    assert gaps.mean() == pytest.approx(300.0, rel=0.05)
    assert gaps.std() == pytest.approx(300.0, rel=0.08)


def test_weights_and_departures(cluster: Cluster) -> None:
    trace = GavelMix(tenants=4, weights=[1, 2, 0, 0.5], leave_fraction=0.5, leaves_after_s=50.0).sample(0, cluster)
    assert [tenant.weight for tenant in trace.tenants] == [1.0, 2.0, 0.0, 0.5]
    assert sorted(str(tenant.leaves_s) for tenant in trace.tenants) == ["50.0", "50.0", "None", "None"]


def test_several_job_types_a_tenant(cluster: Cluster) -> None:
    trace = GavelMix(tenants=30, jobs_per_tenant=30, job_types_per_tenant=3).sample(0, cluster)
    types = [len({job.job_type for job in trace.jobs if job.tenant == tenant.name}) for tenant in trace.tenants]
    assert set(types) == {3}


def test_h100_is_refused(h100_cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.nodes\.kind='h100'"):
        GavelMix().sample(0, h100_cluster)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tenants": 0}, "workload.tenants=0: must be 1 or more"),
        ({"jobs_per_tenant": 0}, "workload.jobs_per_tenant=0"),
        ({"max_gang": 0}, "workload.max_gang=0"),
        ({"duration_scale": 0.0}, "workload.duration_scale=0.0"),
        ({"duration_scale": float("nan")}, "workload.duration_scale=nan: must be finite"),
        ({"arrivals_per_hour": 0.0}, "workload.arrivals_per_hour"),
        ({"weights": [1.0]}, r"workload.weights=\[1.0\]: has 1 entries for 12 tenants"),
        ({"tenants": 2, "weights": [1.0, -1.0]}, r"workload.weights\[1\]=-1.0: must be 0 or more"),
        ({"leave_fraction": 1.5}, "workload.leave_fraction=1.5: must be from 0 to 1"),
        ({"failures_per_device_day": -1.0}, "workload.failures_per_device_day"),
        ({"repair_s": 0.0}, "workload.repair_s"),
        ({"round_s": 0.0}, "workload.round_s"),
        ({"restart_s": float("inf")}, "workload.restart_s"),
        ({"max_rounds": 0}, "workload.max_rounds"),
        ({"max_crashes": 0}, "workload.max_crashes=0"),
        ({"profile_error": -0.1}, "workload.profile_error=-0.1"),
    ],
)
def test_bad_fields_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GavelMix(**fields)  # type: ignore[arg-type]


def test_too_many_job_types_and_a_negative_seed_are_refused(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match=r"workload.job_types_per_tenant=27: the throughput table has 26"):
        GavelMix(job_types_per_tenant=27).sample(0, cluster)
    with pytest.raises(ConfigError, match=r"seed=-1"):
        GavelMix().sample(-1, cluster)


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    tenants=st.integers(1, 6),
    jobs=st.integers(1, 5),
    types=st.integers(1, 4),
    max_gang=st.integers(1, 9),
)
def test_any_trace_can_run(seed: int, tenants: int, jobs: int, types: int, max_gang: int) -> None:
    sheet = DeviceSheet("any", 1, 1.0, {"fp32": 1.0}, 0.0, 0.0, "2024-01")
    cluster = Cluster([NodeGroup("k80", 2), NodeGroup("v100", 4)], {"k80": sheet, "v100": sheet})
    mix = GavelMix(tenants=tenants, jobs_per_tenant=jobs, job_types_per_tenant=types, max_gang=max_gang)
    trace = mix.sample(seed, cluster)
    assert len(trace.jobs) == tenants * jobs
    for job in trace.jobs:
        assert 1 <= job.gang <= min(max_gang, 4)
        assert job.num_steps >= 1
        assert read_throughputs().fits(job.job_type, job.gang, cluster)
