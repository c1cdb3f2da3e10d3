"""What the scheduler believes of speeds: what it is told, what leases show, and what must not touch either."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsys.core.scheduling.admission import AdmittedJob, admit
from hetsys.core.scheduling.plan import Lease, LeaseOutcome
from hetsys.core.scheduling.speeds import NEW_WEIGHT, SpeedBook
from hetsys.core.scheduling.trace import Job, JobTrace, Tenant
from tests.engines.builders import cluster

KINDS = ("slow", "fast")


def admitted(gang: int = 1, job_type: str = "type", **known: float) -> AdmittedJob:
    """Truly 2 and 6 steps/s; 3 on fast where it spans hosts, which a gang of 4 must there."""
    job = Job("j", "a", job_type, gang, 100, 0.0, {"slow": 2.0, "fast": 6.0}, {"fast": 3.0}, known or None)
    return admit(JobTrace((Tenant("a"),), (job,)), cluster(slow=(1, 4), fast=(2, 2)))[0][0]


def shown(steps: int, seconds: float, kind: str = "fast", spans: bool = False, **more: object) -> tuple[Lease, LeaseOutcome]:
    outcome = LeaseOutcome("j", steps, None, False, 0, 10**9, stepping_ns=round(seconds * 1e9))
    return Lease("j", kind, ("d",), 1.0, False, spans), replace(outcome, **more)  # type: ignore[arg-type]


def test_told_nothing_it_knows_the_truth_and_learns_nothing_unasked() -> None:
    book = SpeedBook(KINDS, learns=False)
    book.observe(admitted(), *shown(100, 1.0))
    assert book.of(admitted()) == (2.0, 6.0) and book.of(admitted(gang=4)) == (2.0, 3.0)
    assert book.version == 0


def test_what_it_is_told_stands_for_the_truth_until_a_lease_shows_it() -> None:
    item = admitted(slow=4.0, fast=4.0)
    book = SpeedBook(KINDS, learns=True)
    assert book.of(item) == (4.0, 4.0)
    book.observe(item, *shown(12, 2.0))
    assert book.of(item) == (4.0, 6.0)  # the first measurement replaces
    book.observe(item, *shown(16, 2.0))
    assert book.of(item) == (4.0, 6.0 + NEW_WEIGHT * 2.0)  # the next ones move it
    version = book.version
    book.observe(item, *shown(round(1e6 * book.of(item)[1]), 1e6))
    assert book.of(item)[1] == pytest.approx(6.6) and version == 2


def test_jobs_of_one_type_and_gang_share_what_is_measured_and_others_do_not() -> None:
    book = SpeedBook(KINDS, learns=True)
    book.observe(admitted(), *shown(50, 10.0))
    assert book.of(admitted()) == (2.0, 5.0)
    assert book.of(admitted(job_type="other")) == (2.0, 6.0) and book.of(admitted(gang=2)) == (2.0, 6.0)


def test_a_gang_across_hosts_is_another_measurement() -> None:
    book = SpeedBook(KINDS, learns=True)
    book.observe(admitted(gang=2), *shown(10, 10.0, spans=True))
    assert book.of(admitted(gang=2)) == (2.0, 6.0)  # placed well it is on one host
    book.observe(admitted(gang=4), *shown(10, 10.0, spans=True))
    assert book.of(admitted(gang=4)) == (2.0, 1.0)  # no host of kind fast holds it
    assert admitted(gang=4, slow=2.0, fast=8.0).told == (2.0, 4.0)  # told of one host: the same loss when spread


def test_lost_leases_count_by_their_lost_steps_and_lost_starts_not_at_all() -> None:
    book = SpeedBook(KINDS, learns=True)
    book.observe(admitted(), *shown(0, 4.0, failed=True, lost_steps=20))
    assert book.of(admitted()) == (2.0, 5.0)
    book.observe(admitted(), *shown(0, 0.0, failed=True, crashed=True))
    book.observe(admitted(), *shown(0, 7.0, failed=True, crashed=True))
    book.observe(admitted(), *shown(0, 5.0))
    assert book.of(admitted()) == (2.0, 5.0) and book.version == 1


def test_a_speed_of_zero_stays_zero() -> None:
    item = admitted(slow=1.0, fast=0.0)
    book = SpeedBook(KINDS, learns=True)
    book.observe(item, *shown(10, 1.0))
    assert book.of(item) == (1.0, 0.0)


def test_a_job_that_the_scheduler_believes_to_run_nowhere_is_parked() -> None:
    job = Job("j", "a", "type", 1, 10, 0.0, {"slow": 1.0}, known_steps_per_s={"fast": 2.0})
    jobs, parked = admit(JobTrace((Tenant("a"),), (job,)), cluster(slow=(1, 1), fast=(1, 1)))
    assert jobs == () and parked[0].reason == "the scheduler is told 0 steps/s for every kind that it runs on"
