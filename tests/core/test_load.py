"""The load factor by hand, and the isolated yardsticks against a plain computation."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsys.core.scheduling.admission import AdmittedJob, admit
from hetsys.core.scheduling.isolated import isolated_jcts, isolated_rate
from hetsys.core.scheduling.load import device_s, load_factor
from hetsys.core.scheduling.trace import Job, JobTrace, Tenant
from hetsys.core.scheduling.view import JobView
from tests.engines.builders import cluster, job

MACHINE = cluster(slow=(1, 4), fast=(2, 2))


def _admitted(*jobs: Job) -> tuple[AdmittedJob, ...]:
    return admit(JobTrace((Tenant("a"),), jobs), MACHINE)[0]


def test_device_time_is_counted_on_the_average_device_that_a_job_can_use() -> None:
    """4 slow and 4 fast devices. a: mean (1 + 3) / 2 = 2 steps/s, gang 2, 100 steps: 100 s. b runs on slow devices only, at 1 step/s."""
    a, b = _admitted(job("a", steps=100, gang=2, slow=1.0, fast=3.0), job("b", steps=70, slow=1.0))
    assert (device_s(a, [4, 4]), device_s(b, [4, 4])) == (100.0, 70.0)
    assert device_s(a, [3, 1]) == pytest.approx(100 * 2 / 1.5)  # three of four devices are slow


def test_the_load_factor_divides_by_the_time_between_first_and_last_arrival() -> None:
    jobs = (
        job("a", steps=100, gang=2, arrival_s=50.0, slow=1.0, fast=3.0),
        job("b", steps=300, arrival_s=100.0, slow=1.0),
        job("parked", steps=10**6, gang=64, arrival_s=900.0, slow=1.0),
    )
    assert load_factor(JobTrace((Tenant("a"),), jobs), MACHINE) == pytest.approx((100 + 300) / (50 * 8))
    assert load_factor(JobTrace((Tenant("a"),), jobs[:1]), MACHINE) is None
    assert load_factor(JobTrace((), ()), MACHINE) is None


def _plainly(jobs: tuple[AdmittedJob, ...], devices: list[float], round_s: float, restart_s: float) -> dict[str, float]:
    """Job by job, from event to event."""
    left = {item.job.name: float(item.job.num_steps) for item in jobs}
    starts = {item.job.name: ceil(item.job.arrival_s / round_s) * round_s + restart_s for item in jobs}
    done: dict[str, float] = {}
    now = min(starts.values())
    while len(done) < len(jobs):
        live = [item for item in jobs if item.job.name not in done and starts[item.job.name] <= now]
        rates: dict[str, float] = {}
        for item in live:
            shares = [count / (len(live) * item.job.gang) for count in devices]
            rate = sum(share * speed for share, speed in zip(shares, item.speeds, strict=True))
            rates[item.job.name] = rate / max(1.0, sum(shares))
        ends = [now + left[name] / rate for name, rate in rates.items()]
        until = min(ends + [start for start in starts.values() if start > now])
        for item in live:
            left[item.job.name] -= rates[item.job.name] * (until - now)
            if left[item.job.name] <= 1e-9 * item.job.num_steps:
                done[item.job.name] = until - item.job.arrival_s
        now = until
    return done


@given(
    st.lists(
        st.tuples(st.integers(50, 900), st.sampled_from([1, 2, 4]), st.floats(0, 300), st.floats(1, 5), st.floats(1, 9)),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([[1.0, 0.5], [4.0, 4.0], [0.0, 2.0]]),
)  # fmt: skip
def test_isolated_times_agree_with_a_plain_computation(specs: list[tuple[int, int, float, float, float]], devices: list[float]) -> None:
    jobs = [job(f"j{i}", steps=n, gang=g, arrival_s=at, slow=slow, fast=fast) for i, (n, g, at, slow, fast) in enumerate(specs)]
    admitted = _admitted(*jobs)
    found, plain = isolated_jcts(admitted, devices, 100.0, 10.0), _plainly(admitted, devices, 100.0, 10.0)
    assert found == pytest.approx(plain, rel=1e-5)


def test_isolated_rate_by_hand() -> None:
    """2 slow, 1 fast. Of 2 jobs each has (1, 1/2) of a device: at gang 1 fractions (1, .5) sum to 1.5, so (1*1 + .5*4) / 1.5 = 2 steps/s;
    at gang 2 fractions (.5, .25): .5*1 + .25*4 = 1.5 steps/s."""
    assert isolated_rate(JobView("a", "t", "x", 1, (1.0, 4.0), 1, 0.0), (2, 1), 2) == pytest.approx(2.0)
    assert isolated_rate(JobView("a", "t", "x", 2, (1.0, 4.0), 1, 0.0), (2, 1), 2) == pytest.approx(1.5)
