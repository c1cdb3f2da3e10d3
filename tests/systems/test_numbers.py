"""Worked examples, to the digit, through the public policies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetsys.core.errors import SolverError
from hetsys.core.scheduling.users import Users
from hetsys.core.scheduling.view import TenantView
from hetsys.systems.check import require_feasible
from hetsys.systems.classes import merge
from tests.systems.views import devices, job, simple, system, utilities, view_of

TOY = [[1, 2], [1, 3], [1, 4]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("equal_split", (1, 4 / 3, 5 / 3)),
        ("gavel_agnostic", (1, 4 / 3, 5 / 3)),
        ("gavel_user", (54 / 49, 72 / 49, 90 / 49)),
        ("gavel", (54 / 49, 72 / 49, 90 / 49)),
        ("gavel_water_filling", (54 / 49, 72 / 49, 90 / 49)),
        ("gavel_finish_time", (54 / 49, 72 / 49, 90 / 49)),
        ("fifo", (3, 0, 0)),
        ("oef_coop", (1, 1.5, 2)),
        ("oef_noncoop", (18 / 13, 18 / 13, 18 / 13)),
        ("gandiva_fair", (10 / 9, 3 / 2, 16 / 9)),
        ("max_efficiency", (3 / 7, 4 / 7, 4)),
        ("best_kind_only", (2 / 3, 1, 4 / 3)),
    ],
)
def test_three_users_on_two_devices(name: str, expected: tuple[float, ...]) -> None:
    """Equal split in total 4, Gavel 4.408, cooperative 4.5, non-cooperative 4.154. Gavel's ratio to the entitlement is 54/49.
    Gandiva_fair by hand: the third buys 1/9 at price 3, the second 1/6 at price 2. Max efficiency: the slow device in
    proportion to 3 and 4, what the first two are entitled to."""
    np.testing.assert_allclose(utilities(name, TOY, (1, 1)), expected, rtol=1e-6)


def test_prices_and_levels_of_the_three_users() -> None:
    """Only the first user holds both kinds, so prices stand as its speeds do, 1 : 2, and with 3 u = 54/13 they add up to 18/13."""
    allocation, _ = system("oef_noncoop").allocate(simple(TOY, (1, 1)), None)
    assert list(allocation.levels.values()) == pytest.approx([18 / 13] * 3)
    assert allocation.prices == pytest.approx((6 / 13, 12 / 13))
    gavel, _ = system("gavel_user").allocate(simple(TOY, (1, 1)), None)
    assert list(gavel.levels.values()) == pytest.approx([54 / 49] * 3)


@pytest.mark.parametrize(
    ("report", "truly"),
    [(1.0, 2.333), (1.9, 2.026), (1.99, 2.003), (2.01, 2.993), (2.5, 2.667), (3, 2.4), (4, 2.0), (5, 1.714), (8, 1.2)],
)
def test_misreports_to_the_noncooperative_policy(report: float, truly: float) -> None:
    """Users (1, 4) and (1, 2) on one device of each kind: the first reports another speed for the fast kind. Too much never
    pays; 2.01 pays 50 %."""
    view = simple([[1, report], [1, 2]], (1, 1))
    got = devices(system("oef_noncoop").allocate(view, None)[0], view)[0]
    assert got @ [1, 4] == pytest.approx(truly, abs=5e-4)


def test_misreport_to_the_cooperative_policy() -> None:
    view = simple([[1, 2.9], *TOY[1:]], (1, 1))
    got = devices(system("oef_coop").allocate(view, None)[0], view)[0]
    assert got @ [1, 2] == pytest.approx(1.207, abs=5e-4)


@pytest.mark.parametrize(("name", "expected"), [("oef_coop", (2, 8)), ("oef_noncoop", (3, 6))])
def test_weights(name: str, expected: tuple[float, float]) -> None:
    np.testing.assert_allclose(utilities(name, [[1, 2], [1, 4]], (2, 2), weights=[1.0, 2.0]), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["oef_noncoop_plus", "ceei"])
def test_users_of_few_kinds_do_not_lower_the_others(name: str) -> None:
    np.testing.assert_allclose(utilities(name, [[1, 0], [1, 5]], (1, 1)), (1, 5), rtol=1e-5)
    np.testing.assert_allclose(utilities(name, [[1, 0, 0], [1, 2, 0], [1, 2, 9]], (1, 1, 1)), (1, 2, 9), rtol=1e-5)


def test_gavel_gives_no_job_more_than_its_time() -> None:
    """Jobs (1, 2) and (1, 4), one device of each kind. With the row sum_j x <= 1 nothing beats half and half, ratio 1; users with
    work for more reach 12/11."""
    jobs, _ = system("gavel").allocate(simple([[1, 2], [1, 4]], (1, 1), jobs=1), None)
    np.testing.assert_allclose([claim.devices for claim in jobs.claims], [[0.5, 0.5], [0.5, 0.5]], atol=1e-6)
    assert list(jobs.levels.values()) == pytest.approx([1, 1])
    users, _ = system("gavel_user").allocate(simple([[1, 2], [1, 4]], (1, 1)), None)
    assert list(users.levels.values()) == pytest.approx([12 / 11, 12 / 11])


def test_gavel_counts_jobs_and_gavel_user_tenants() -> None:
    view = simple([[1, 2], [1, 2]], (3, 3), jobs=6)
    view = replace(view, tenants=(replace(view.tenants[0], jobs=view.tenants[0].jobs[:2]), view.tenants[1]))
    for name, first in (("gavel", 2 / 8), ("gavel_user", 2 / 6)):  # the first tenant's two jobs: of 8 jobs; at most 2 of 6 devices
        shares = devices(system(name).allocate(view, None)[0], view)
        assert shares[0].sum() == pytest.approx(6 * first, rel=1e-6)


def test_demand_keeps_the_fastest_devices_and_the_rest_is_divided_again() -> None:
    """Entitled to 3 slow and 3 fast devices each, the first can use one: a fast one. The second takes what it leaves."""
    view = simple([[1, 2], [1, 2]], (6, 6), jobs=30)
    view = replace(view, tenants=(replace(view.tenants[0], jobs=view.tenants[0].jobs[:1]), view.tenants[1]))
    for name in ("equal_split", "oef_coop", "oef_noncoop", "gavel_user", "gandiva_fair", "ceei"):
        np.testing.assert_allclose(devices(system(name).allocate(view, None)[0], view), [[0, 1], [6, 5]], atol=1e-5, err_msg=name)


def test_market_prices() -> None:
    """Users (1, 4) and (1, 1) with half of the money each, two slow devices and a fast one: the first buys the fast one for
    1/2, the second the slow ones for 1/4 each."""
    allocation, _ = system("ceei").allocate(simple([[1, 4], [1, 1]], (2, 1)), None)
    np.testing.assert_allclose([claim.devices for claim in allocation.claims], [[0, 1], [2, 0]], atol=1e-5)
    assert allocation.prices == pytest.approx((1 / 4, 1 / 2), rel=1e-5)


def test_max_efficiency_is_the_optimum_under_demand() -> None:
    """One device of each kind, one job each: greedy by kind gives both best kinds to the first and reaches 13; best is 20.5."""
    got = utilities("max_efficiency", [[1, 10, 11], [1, 2, 10.5]], (1, 1, 1), jobs=1)
    np.testing.assert_allclose(got, (10, 10.5), rtol=1e-6)


def test_best_kind_only_leaves_nobody_waiting_for_ever() -> None:
    view = simple([[1, 2, 9], [1, 2, 9], [1, 2, 0], [1, 0, 0]], (5, 4, 2))
    allocation, _ = system("best_kind_only").allocate(view, None)
    assert not allocation.fill
    np.testing.assert_allclose(devices(allocation, view), [[0, 0, 1], [0, 0, 1], [0, 4, 0], [5, 0, 0]])


def test_trading_without_sweeps_is_the_equal_split() -> None:
    view = simple(TOY, (1, 1))
    untraded, _ = system("gandiva_fair", max_sweeps=0).allocate(view, None)
    np.testing.assert_allclose(devices(untraded, view), np.full((3, 2), 1 / 3))


@pytest.mark.parametrize(("name", "kept"), [("oef_coop", True), ("ceei", True), ("gavel_user", True), ("oef_noncoop", False)])
def test_a_user_with_little_to_run_keeps_at_least_its_slice_where_the_rule_promises_it(name: str, kept: bool) -> None:
    """Speeds (1, 1.1), two jobs, a quarter of (4, 4): its slice is worth 2.1. Three users of speeds (1, 4) would trade it many slow devices
    for the fast one; with two jobs it could use two of those, worth 2."""
    busy = simple([[1, 4]] * 3, (4, 4)).tenants
    flat = TenantView("flat", 1.0, tuple(job(f"flat.{i}", "flat", [1, 1.1]) for i in range(2)))
    view = view_of([flat, *busy], (4, 4))
    held = devices(system(name).allocate(view, None)[0], view)[0]
    assert (held @ [1, 1.1] >= 2.1 - 1e-9) == kept
    assert held.sum() <= 2 + 1e-9


def test_a_bundle_that_is_all_noise_is_nothing() -> None:
    """Solvers leave zeros as -1e-14; where such a number is a user's whole bundle nothing beside it shows that it is small."""
    speed = np.array([[1.0, 2.0], [1.0, 3.0]])
    users = Users(("a", "b"), ("a", "b"), (("a.0",), ("b.0",)), speed, np.array([4.0, 4.0]), np.ones(2), np.full(2, 8.0))
    classes = merge(users)
    fractions = np.array([[-1e-14, 0.0], [2.0, 2.0]])
    got = classes.devices(fractions)
    assert got.tolist() == [[0.0, 0.0], [4.0, 4.0]]
    require_feasible(users, got)
    with pytest.raises(SolverError, match="negative share"):
        require_feasible(users, classes.devices(np.array([[-1e-6, 0.0], [2.0, 2.0]])))
