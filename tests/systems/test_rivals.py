"""The rivals that look at single jobs: water filling, finish-time fairness, Sia and FIFO, by hand and against independent solvers."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from hetsys.core.errors import ConfigError, SolverError
from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.rounding import round_gangs
from hetsys.core.scheduling.turns import Carried
from hetsys.core.scheduling.view import ClusterView, JobView, TenantView
from hetsys.systems.baselines.job_levels import Jobs, raise_levels
from tests.systems.views import Array, allocate_saturated, devices, job, saturated, simple, system, view_of, views


@given(data=st.data())
def test_a_market_with_budgets_far_apart_has_prices(data: st.DataObject) -> None:
    """What is nothing to the largest budget would be a multiple of the least: each must spend what it has, and no more."""
    speeds, capacity, _ = data.draw(saturated(zeros=True))
    n = len(speeds)
    weights = 10.0 ** np.array(data.draw(st.lists(st.floats(-8, 0), min_size=n, max_size=n)))
    bundle = allocate_saturated(system("ceei"), speeds, capacity, weights)
    worth = speeds @ (bundle / weights[:, None]).T
    assert (worth <= np.diag(worth)[:, None] * (1 + 1e-6)).all()


def one_tenant(jobs: list[JobView], capacity: list[int], **changes: Any) -> ClusterView:
    return replace(view_of([TenantView("t", 1.0, tuple(jobs))], capacity), **changes)


def claims(name: str, view: ClusterView, **options: Any) -> dict[str, tuple[float, ...]]:
    """Devices by job, of the jobs that get any."""
    allocation, _ = system(name, **options).allocate(view, None)
    assert allocation.status in ("optimal", "rule"), allocation.note
    return {claim.jobs[0]: claim.devices for claim in allocation.claims if any(claim.devices)}


@st.composite
def races(draw: st.DrawFn) -> Jobs:
    """Up to six jobs on up to six kinds; half of the time without a past, so that levels are speeds, with ties and zeros. Speeds are
    tenths: where two are all but equal, scipy's tolerance moves levels by a lot."""
    n, k = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    rate = st.one_of(st.sampled_from([0.0, 1.0, 2.0, 3.0]), st.integers(1, 500).map(lambda tenths: tenths / 10))
    rates = np.array([draw(st.lists(rate, min_size=k, max_size=k).filter(any)) for _ in range(n)])
    gang = np.array(draw(st.lists(st.sampled_from([1.0, 1.0, 2.0, 4.0]), min_size=n, max_size=n)))
    capacity = np.array(draw(st.lists(st.integers(1, 9), min_size=k, max_size=k)), dtype=float)
    work = np.array(draw(st.lists(st.sampled_from([1.0, 3.0, 40.0]) | st.floats(0.5, 5000), min_size=n, max_size=n)))
    if draw(st.booleans()):
        return Jobs(rates, gang, capacity, work, np.ones(n), np.zeros(n))
    spent = np.array(draw(st.lists(st.sampled_from([0.0, 100.0, 5000.0]), min_size=n, max_size=n)))
    alone = rates @ capacity / np.maximum(n * gang, capacity.sum())
    return Jobs(rates, gang, capacity, work, spent * draw(st.floats(0, 2)) + work / alone, spent)


def levels(jobs: Jobs, speed: Array) -> Array:
    return np.asarray(jobs.due / (jobs.spent + jobs.work / np.maximum(speed, 1e-300)))


def most(jobs: Jobs, speed: Array, index: int, others: Array) -> float:
    """The highest speed of job `index` while the `others` keep theirs, by scipy."""
    n, k = jobs.rate.shape
    own = np.kron(np.eye(n), np.ones(k))
    run = own * (jobs.rate / jobs.full[:, None]).reshape(-1)
    rows = np.vstack([own, -run[others], np.kron(jobs.gang, np.eye(k)).reshape(k, n * k)])
    limits = np.concatenate([np.ones(n), -(speed / jobs.full)[others] * (1 - 1e-9), jobs.capacity])
    bounds = [(0, None if rate > 0 else 0) for rate in jobs.rate.reshape(-1)]
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = linprog(-run[index], A_ub=rows, b_ub=limits, bounds=bounds, options=options)
    assert found.status == 0, found.message
    return float(-found.fun * jobs.full[index])


@given(races())
def test_levels_are_raised_one_after_the_other(jobs: Jobs) -> None:
    """Within capacity and time; and nobody could have a higher level, or more than a millionth of its full speed more, without lowering
    somebody who has no higher one."""
    shares = raise_levels(jobs)
    time = shares / jobs.gang[:, None]
    assert (shares >= 0).all() and not shares[jobs.rate == 0].any()
    assert (shares.sum(axis=0) <= jobs.capacity * (1 + 1e-9)).all() and (time.sum(axis=1) <= 1 + 1e-9).all()
    speed = (jobs.rate * time).sum(axis=1)
    reached = levels(jobs, speed)
    for index in range(len(speed)):
        not_higher = np.flatnonzero((reached <= reached[index] * (1 + 1e-5)) & (np.arange(len(speed)) != index))
        best = most(jobs, speed, index, not_higher)
        better = levels(jobs, np.where(np.arange(len(speed)) == index, best, speed))[index]
        assert best <= speed[index] + 1e-6 * jobs.full[index] or better <= reached[index] * (1 + 2e-3)


@given(races())
def test_lowest_level_is_as_high_as_it_goes(jobs: Jobs) -> None:
    """A millionth above the lowest level of those below full speed, no division serves everybody: by scipy."""
    speed = (jobs.rate * raise_levels(jobs) / jobs.gang[:, None]).sum(axis=1)
    reached = levels(jobs, speed)
    below = speed < jobs.full * (1 - 1e-6)
    if not below.any():
        return
    level = float(reached[below].min())
    assert not (below & (jobs.top < level * (1 - 1e-6))).any()
    n, k = jobs.rate.shape
    own = np.kron(np.eye(n), np.ones(k))
    need = jobs.need(level * (1 + 1e-6)) / jobs.full
    rows = np.vstack([own, -own * (jobs.rate / jobs.full[:, None]).reshape(-1), np.kron(jobs.gang, np.eye(k)).reshape(k, n * k)])
    load = np.concatenate([np.zeros(2 * n), -jobs.capacity])[:, None]
    limits = np.concatenate([np.ones(n), -need, np.zeros(k)])
    found = linprog(np.eye(n * k + 1)[-1], A_ub=np.hstack([rows, load]), b_ub=limits)
    assert found.status == 0 and found.fun >= 1 - 1e-6


@pytest.mark.parametrize("count", [300, 1500])
@pytest.mark.parametrize("kinds", [3, 6])
def test_many_jobs(count: int, kinds: int) -> None:
    rng = np.random.default_rng(count + kinds)
    rate = rng.uniform(0.5, 20, (40, kinds))[rng.integers(40, size=count)] * (rng.random((count, kinds)) > 0.1)
    rate[~rate.any(axis=1)] = 1.0
    gang, capacity = rng.choice([1.0, 2.0, 4.0, 8.0], count), np.full(kinds, 160.0)
    work, spent = 10 ** rng.uniform(2, 6, count), rng.uniform(0, 1e5, count) * rng.integers(0, 2, count)
    alone = rate @ capacity / np.maximum(count * gang, capacity.sum())
    jobs = Jobs(rate, gang, capacity, work, spent * rng.uniform(0.2, 1.5, count) + work / alone, spent)
    shares = raise_levels(jobs)
    assert (shares.sum(axis=0) <= capacity * (1 + 1e-9)).all() and (shares.sum(axis=1) <= gang * (1 + 1e-9)).all()
    speed = (rate * shares / gang[:, None]).sum(axis=1)
    waits = speed < jobs.full * (1 - 1e-6)
    assert waits.any() and not (waits & (speed <= 0)).any()
    assert shares.sum() == pytest.approx(capacity.sum(), rel=1e-6) or count < 500


def test_kinds_that_are_nearly_alike_are_no_failure() -> None:
    """The price that holds the first job back is a ten-millionth of that of the scarce kind."""
    jobs = [job("a", "t", (0, 0, 1)), *(job(f"b{i}", "t", (2.00001, 17, 2)) for i in range(3)), job("c", "t", (16, 0, 2))]
    allocation, _ = system("gavel_water_filling").allocate(one_tenant(jobs, [1, 1, 2]), None)
    assert allocation.status == "optimal", allocation.note
    assert list(allocation.levels.values())[:4] == pytest.approx([1.5217] * 4, rel=3e-3)


def test_a_failure_of_the_method_is_a_failure_of_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(jobs: Jobs) -> Array:
        raise SolverError("did not settle")

    good, memo = system("gavel_finish_time").allocate(simple([[1, 2], [1, 3]], (1, 1)), None)
    monkeypatch.setattr("hetsys.systems.baselines.job_levels.raise_levels", fail)
    kept, _ = system("gavel_finish_time").allocate(simple([[1, 2], [1, 3]], (1, 1)), memo)
    assert (kept.status, kept.note) == ("kept", "did not settle")
    for mine, theirs in zip(kept.claims, good.claims, strict=True):
        assert mine.jobs == theirs.jobs and mine.devices == pytest.approx(theirs.devices, rel=1e-12)
    monkeypatch.setattr("hetsys.systems.baselines.job_levels.raise_levels", lambda jobs: np.full(jobs.rate.shape, 1.0))
    assert system("gavel_water_filling").allocate(simple([[1, 2], [1, 3]], (1, 1), jobs=1), None)[0].status == "fallback"


def test_water_filling_raises_those_who_can_still_rise() -> None:
    """Nine jobs: five on a kind of their own, 9/5 each. Of the others two run equally fast on both kinds that are left and two three times
    as fast on the second. Gavel then makes the sum large, a kind each: 9/4 and 27/8. Water filling gives the former a fifth of the second
    kind, so that all have  4.5 x 1.2 / 2 = 6.75 x 0.8 / 2 = 2.7."""
    speeds = {"own": [(1, 0, 0)] * 5, "even": [(0, 1, 1)] * 2, "fast": [(0, 1, 3)] * 2}
    view = one_tenant([job(f"{name}{i}", "t", row) for name, rows in speeds.items() for i, row in enumerate(rows)], [1, 1, 1])
    for name, expected in (("gavel", (9 / 5, 9 / 4, 27 / 8)), ("gavel_water_filling", (9 / 5, 2.7, 2.7))):
        ratios = system(name).allocate(view, None)[0].levels
        assert [ratios[job] for job in ("own0", "even0", "fast0")] == pytest.approx(expected), name
        assert ratios["even1"] == pytest.approx(ratios["even0"])


def test_water_filling_gives_no_job_more_than_its_time() -> None:
    """The first is at full speed with one of three slow devices; the others take the fast one in turns, and a slow one in between."""
    got = claims("gavel_water_filling", one_tenant([job("a", "t", (1, 0)), job("b", "t", (1, 9)), job("c", "t", (1, 9))], [3, 1]))
    assert got == {"a": pytest.approx((1, 0)), "b": pytest.approx((0.5, 0.5)), "c": pytest.approx((0.5, 0.5))}


@given(views())
def test_water_filling_begins_where_gavel_ends(view: ClusterView) -> None:
    """The lowest ratio is the same."""
    plain, filled = (system(name).allocate(view, None)[0] for name in ("gavel", "gavel_water_filling"))
    able = [claim.name for claim in filled.claims if any(claim.devices)]
    if able:
        gavel = min(plain.levels[name] for name in able)
        assert min(filled.levels[name] for name in able) == pytest.approx(gavel, rel=1e-6)


class TestFinishTime:
    def test_equal_jobs_share_equally(self) -> None:
        got = claims("gavel_finish_time", one_tenant([job("a", "t", (1, 2)), job("b", "t", (1, 2))], [1, 1]))
        assert got["a"] == pytest.approx(got["b"]) and got["a"] == pytest.approx((0.5, 0.5))

    def test_who_is_late_gets_more(self) -> None:
        """One kind, one device, two jobs with 100 steps left at one step/s; alone each would take 200 s. `late` has been here for 100 s
        without a step, so equal ratios mean  100 + 100 / x = 100 / (1 - x):  x = (3 - sqrt 5) / 2 is its rival's part."""
        late, new = (replace(job(name, "t", (1,)), steps_left=100, arrival_s=at) for name, at in (("late", 0.0), ("new", 100.0)))
        view = one_tenant([late, new], [1], now_s=100.0)
        allocation, _ = system("gavel_finish_time").allocate(view, None)
        shares = {claim.name: claim.devices[0] for claim in allocation.claims}
        part = (3 - 5**0.5) / 2
        assert (shares["late"], shares["new"]) == pytest.approx((1 - part, part))
        assert list(allocation.levels.values()) == pytest.approx([100 / part / 200] * 2)

    def test_progress_counts_by_what_it_would_have_taken_alone(self) -> None:
        ahead, behind = (replace(job(name, "t", (1,)), steps_left=100, isolated_s=done) for name, done in (("a", 500.0), ("b", 0.0)))
        got = claims("gavel_finish_time", one_tenant([ahead, behind], [1], now_s=1.0))
        assert got["b"][0] > got["a"][0]

    def test_a_job_too_late_for_the_level_runs_at_full_speed_and_holds_nobody_back(self) -> None:
        lost = replace(job("lost", "t", (1, 2)), steps_left=10, arrival_s=-1e6)
        others = [job(f"o{i}", "t", (1, 2)) for i in range(3)]
        got = claims("gavel_finish_time", one_tenant([lost, *others], [1, 2]))
        assert got["lost"] == pytest.approx((0, 1))
        for other in others:
            assert got[other.name] == pytest.approx((1 / 3, 1 / 3))

    def test_zeros_stay(self) -> None:
        """The slow job cannot use the fast kind; nobody hands it any."""
        view = one_tenant([job("slow", "t", (1, 0)), job("fast", "t", (1, 100))], [1, 1])
        assert claims("gavel_finish_time", view) == {"slow": pytest.approx((1, 0)), "fast": pytest.approx((0, 1))}

    def test_time_passes_whatever_is_remembered(self) -> None:
        view = one_tenant([replace(job("a", "t", (1,)), arrival_s=0.0), replace(job("b", "t", (1,)), arrival_s=90.0)], [1], now_s=100.0)
        policy = system("gavel_finish_time")
        _, memo = policy.allocate(view, None)
        later = replace(view, now_s=5000.0)
        assert policy.allocate(later, memo)[0] == policy.allocate(later, None)[0] != policy.allocate(view, None)[0]


class TestSia:
    def test_the_faster_job_has_the_fast_kind(self) -> None:
        assert claims("sia", one_tenant([job("a", "t", (1, 2)), job("b", "t", (1, 9))], [1, 1])) == {"a": (1.0, 0.0), "b": (0.0, 1.0)}

    def test_by_hand(self) -> None:
        """Gains 1.1 - 0.01 - G^-0.5, with 4 devices of a kind: the gang of 4, G = 4, gains 0.59; four single jobs 0.09 each."""
        view = one_tenant([*(job(f"s{i}", "t", (1,)) for i in range(4)), job("gang", "t", (1,), gang=4)], [4])
        assert claims("sia", view) == {"gang": (4.0,)}
        assert len(claims("sia", view, power=-0.01, idle_cost=1.2)) == 4  # G hardly counts: four jobs rather than one

    def test_a_job_that_holds_devices_keeps_them(self) -> None:
        old, new = job("b", "t", (1, 4)), replace(job("a", "t", (1, 4)), held_kind=1)
        assert claims("sia", one_tenant([old, new], [0, 1])) == {"a": (0.0, 1.0)}

    @pytest.mark.parametrize(("age_s", "restarts", "kind"), [(10_000.0, 0, 1), (100.0, 3, 0)])
    def test_moving_must_pay(self, age_s: float, restarts: int, kind: int) -> None:
        """On the slow kind, a faster one is free. Restarts of 50 s: r is nearly 1, or 0 where restarts took longer than the job is old."""
        held = replace(job("a", "t", (1, 2)), held_kind=0, restarts=restarts)
        got = claims("sia", one_tenant([held], [1, 1], now_s=age_s, restart_s=50.0))
        assert got["a"][kind] == 1.0

    @given(views())
    def test_no_choice_is_better(self, view: ClusterView) -> None:
        """All choices, one by one, where they are few."""
        view = replace(view, tenants=view.tenants[:2], capacity=tuple(min(up, 3) for up in view.capacity))
        view = replace(view, tenants=tuple(replace(t, jobs=t.jobs[:2]) for t in view.tenants))
        jobs = [job for tenant in view.tenants if tenant.weight > 0 for job in tenant.jobs]
        gain = np.array([self.gains(job, view) for job in jobs]).reshape(len(jobs), len(view.kinds))
        best = 0.0
        for choice in product(range(len(view.kinds) + 1), repeat=len(jobs)):
            load = [sum(job.gang for job, kind in zip(jobs, choice, strict=True) if kind == j) for j in range(len(view.kinds))]
            if all(used <= up for used, up in zip(load, view.capacity, strict=True)):
                best = max(best, sum(gain[i, kind] for i, kind in enumerate(choice) if kind < len(view.kinds)))
        got = claims("sia", view, gap=0.0)
        index = {job.name: i for i, job in enumerate(jobs)}
        assert sum(gain[index[name], int(np.argmax(row))] for name, row in got.items()) == pytest.approx(best, abs=1e-6)

    @staticmethod
    def gains(job: JobView, view: ClusterView) -> list[float]:
        """The objective's formula, once more and by itself."""
        slowest = min(speed for speed in job.steps_per_s if speed > 0)
        age_s, found = view.now_s - job.arrival_s, []
        for kind, speed in enumerate(job.steps_per_s):
            stays = job.held_kind == kind
            factor = 1.0 if stays or job.held_kind < 0 else max(0.0, (age_s - job.restarts * view.restart_s) / (age_s + view.restart_s))
            good = factor * speed / slowest * job.gang
            found.append(1.1 - good**-0.5 - (0.0 if stays else 0.01) if good > 0 else -inf)
        return found

    def test_a_solver_that_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: Any, **__: Any) -> Any:
            raise SolverError("no answer within 10 s")

        before = one_tenant([job("a", "t", (1, 2)), job("b", "t", (1, 9))], [0, 1])
        good, memo = system("sia").allocate(before, None)
        monkeypatch.setattr("hetsys.systems.solve.solve", fail)
        kept, _ = system("sia").allocate(replace(before, now_s=360.0), memo)
        assert (kept.status, kept.note, kept.claims) == ("kept", "no answer within 10 s", good.claims)
        assert system("sia").allocate(before, None)[0].status == "fallback"

    @pytest.mark.parametrize(
        ("field", "value"), [("power", 0.0), ("power", -11.0), ("idle_cost", 0.0), ("move_cost", 1.2), ("gap", 1.0), ("gap", float("nan"))]
    )
    def test_mistakes_in_fields_name_the_key(self, field: str, value: float) -> None:
        with pytest.raises(ConfigError, match=f"system.{field}="):
            system("sia", **{field: value})


class TestFifo:
    def test_first_come_first_served_on_the_fastest_kind_with_room(self) -> None:
        jobs = [replace(job(name, "t", (1, 2)), arrival_s=at) for name, at in (("late", 3.0), ("first", 1.0), ("second", 2.0))]
        assert claims("fifo", one_tenant(jobs, [1, 1])) == {"first": (0.0, 1.0), "second": (1.0, 0.0)}

    def test_who_runs_stays_where_it_is(self) -> None:
        runs = replace(job("runs", "t", (1, 2)), arrival_s=5.0, held_kind=0)
        waits = replace(job("waits", "t", (1, 2)), arrival_s=1.0)
        assert claims("fifo", one_tenant([waits, runs], [1, 1])) == {"runs": (1.0, 0.0), "waits": (0.0, 1.0)}

    def test_nobody_overtakes_a_gang_that_waits(self) -> None:
        jobs = [replace(job(f"j{at}", "t", (1,), gang=gang), arrival_s=at) for at, gang in ((0.0, 2), (1.0, 4), (2.0, 1))]
        assert claims("fifo", one_tenant(jobs, [5])) == {"j0.0": (2.0,)}

    def test_a_gang_that_fits_nowhere_now_holds_nobody_up(self) -> None:
        jobs = [replace(job("big", "t", (1,), gang=8)), replace(job("small", "t", (1,)), arrival_s=1.0)]
        assert claims("fifo", one_tenant(jobs, [5])) == {"small": (1.0,)}

    def test_when_devices_fail_the_latest_gives_way(self) -> None:
        jobs = [replace(job(name, "t", (1,), gang=2), arrival_s=at, held_kind=0) for name, at in (("b", 2.0), ("a", 1.0))]
        assert claims("fifo", one_tenant(jobs, [3])) == {"a": (2.0,)}


@pytest.mark.parametrize("name", ["sia", "fifo"])
@given(view=views(), data=st.data())
def test_whole_gangs_are_granted_as_chosen(name: str, view: ClusterView, data: st.DataObject) -> None:
    """Jobs come and go, devices fail and return; each round runs the chosen gangs and, for tenants with a weight, no others."""
    carried, held = Carried(), dict[str, int]()
    for index in range(4):
        up = tuple(data.draw(st.sampled_from([most, most // 2])) for most in view.capacity)
        away = data.draw(st.integers(0, 7))
        tenants = []
        for tenant in view.tenants:
            live = [job for number, job in enumerate(tenant.jobs) if number != away]
            tenants.append(replace(tenant, jobs=tuple(replace(job, held_kind=held.get(job.name, -1)) for job in live)))
        now = replace(view, now_s=view.now_s + 360 * index, capacity=up, tenants=tuple(tenant for tenant in tenants if tenant.jobs))
        allocation: Allocation = system(name).allocate(now, None)[0]
        grants, carried = round_gangs(allocation, now, carried, held, 0.1)
        chosen = {claim.jobs[0]: int(np.argmax(claim.devices)) for claim in allocation.claims if any(claim.devices)}
        others = {job.name for tenant in now.tenants if tenant.weight == 0 for job in tenant.jobs}
        held = {grant.job: grant.kind for grant in grants if grant.job not in others}
        assert held == chosen


def test_tenants_of_weight_0_only_have_what_is_left() -> None:
    for name in ("sia", "fifo", "gavel_finish_time", "gavel_water_filling"):
        view = simple([[1, 2], [1, 2]], (2, 2), [0.0, 1.0])
        assert not devices(system(name).allocate(view, None)[0], view)[0].any()


def test_a_job_that_is_nearly_too_late_has_a_level() -> None:
    """Its need rises from nothing to full speed within a millionth of the level at which it is too late."""
    rate = np.array([[48.00390625, 3.0, 0.0, 0.0, 43.25], [0.0, 0.0, 1.0, 1.0, 2.0]])
    due, spent = np.array([5.89010437e-02, 2.84867e04]), np.array([1e4, 4228.0])
    jobs = Jobs(rate, np.array([4.0, 1.0]), np.array([2.0, 6.0, 2.0, 6.0, 6.0]), np.array([1.0, 24337.0]), due, spent)
    devices = raise_levels(jobs)
    assert (devices.sum(axis=0) <= jobs.capacity * (1 + 1e-6)).all() and (devices.sum(axis=1) <= jobs.gang * (1 + 1e-6)).all()


def test_levels_between_nearly_and_wholly_too_late_are_not_skipped() -> None:
    """The fourth job fills the first kind at full speed, and three others need a millionth of it: the level lies just below."""
    rate = np.array([[1.0, 0.0, 0.0]] * 3 + [[47.60412530563434, 0.0, 42.0818627949917], [0.0, 0.0, 1.0]])
    due, spent = np.array([5.25] * 3 + [0.07730782304044476, 2.3333333333333335]), np.full(5, 1e4)
    jobs = Jobs(rate, np.array([1.0, 1.0, 1.0, 4.0, 1.0]), np.array([4.0, 8.0, 9.0]), np.ones(5), due, spent)
    devices = raise_levels(jobs)
    assert (devices.sum(axis=0) <= jobs.capacity * (1 + 1e-6)).all() and ((rate * devices).sum(axis=1) > 0).all()


def test_without_a_solver_the_last_answer_for_other_kinds_is_no_answer() -> None:
    policy = replace(system("oef_coop"), time_limit_s=1e-12)
    _, memo = system("oef_coop").allocate(simple([[1, 2], [1, 3]], (2, 2)), None)
    allocation, _ = policy.allocate(simple([[1, 2, 4], [1, 3, 4]], (2, 2, 2)), memo)
    assert allocation.status in ("fallback", "optimal")
