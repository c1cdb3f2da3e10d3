"""What we add to OEF: each addition by its numbers, where there is nothing to gain from it, and how far it goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from hetsys.core.cluster import Cluster
from hetsys.core.errors import ConfigError, SolverError
from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.record import RoundRecord
from hetsys.core.scheduling.trace import Job, JobTrace, Tenant
from hetsys.core.scheduling.view import ClusterView, TenantView
from hetsys.engines.scheduling.loop import run
from hetsys.engines.scheduling.sim import SimExecutor
from hetsys.systems import solve as door
from hetsys.systems.oef.tenants import best_use
from hetsys.systems.solve import SOLVERS
from tests.engines.builders import cluster
from tests.systems.views import Array, allocate_saturated, devices, job, saturated, simple, system, utilities, view_of

PLUS = ["oef_coop_plus", "oef_noncoop_plus"]
ABLATIONS: dict[str, dict[str, Any]] = {
    "no_rows": {"rows": "virtual"},
    "no_credit": {"rounding": "deviation"},
    "no_guard": {"guard": None},
    "no_lexicographic": {"lexicographic": False},
    "no_adjacency": {"adjacency": 0.0},
}


def tenant(name: str, *types: tuple[Sequence[float], int], weight: float = 1.0) -> TenantView:
    """A tenant with some jobs of gang 1 of each type, given as (speeds, number of jobs)."""
    number = count()
    jobs = [job(f"{name}.{next(number)}", name, row, job_type=f"type{i}") for i, (row, jobs) in enumerate(types) for _ in range(jobs)]
    return TenantView(name, weight, tuple(jobs))


def throughput(allocation: Allocation, types: dict[str, Sequence[float]]) -> float:
    """What the claims in `types` are worth together, at the speeds given there."""
    return sum(float(np.dot(types[claim.name], claim.devices)) for claim in allocation.claims if claim.name in types)


class TestAblations:
    @pytest.mark.parametrize("base", PLUS)
    def test_each_takes_one_addition_away(self, base: str) -> None:
        whole = system(base)
        for name, change in ABLATIONS.items():
            if name != "no_lexicographic" or "noncoop" in base:
                assert system(f"{base}_{name}") == replace(whole, **change)
                assert system(f"{base}_{name}") != whole

    @pytest.mark.parametrize("field", ["rows", "rounding", "guard", "adjacency", "shared_part"])
    def test_mistakes_name_the_key(self, field: str) -> None:
        parts = {"guard": [-0.1, float("nan")], "adjacency": [-0.1, 1.0], "shared_part": [-0.1, 1.1]}
        mistakes: dict[str, list[Any]] = {"rows": ["tenants"], "rounding": [""], **parts}
        for wrong in mistakes[field]:
            with pytest.raises(ConfigError, match=f"system.{field}="):
                system("oef_coop_plus", **{field: wrong})

    def test_the_plan_says_how_it_is_to_be_rounded(self) -> None:
        view = simple([[1, 2], [1, 3]], (2, 2))
        assert system("oef_noncoop").allocate(view, None)[0].rounding == "deviation"
        plus = system("oef_noncoop_plus", cross_kind=True).allocate(view, None)[0]
        assert (plus.rounding, plus.cross_kind) == ("credit", True)


class TestNothingToGain:
    @pytest.mark.parametrize("kind", ["coop", "noncoop"])
    @given(instance=saturated())
    def test_one_type_a_tenant_on_two_kinds(self, kind: str, instance: tuple[Array, Array, Array]) -> None:
        """No second type, no zeros, no gap, nothing measured: the same throughput as published."""
        speeds, capacity, weight = instance
        speeds, capacity = speeds[:, :2], capacity[:2]
        published, plus = (allocate_saturated(system(f"oef_{kind}{more}"), speeds, capacity, weight) for more in ("", "_plus"))
        np.testing.assert_allclose((speeds * plus).sum(axis=1), (speeds * published).sum(axis=1), rtol=1e-6)

    @pytest.mark.parametrize("kind", ["coop", "noncoop"])
    def test_three_users_in_the_order_of_their_ratios(self, kind: str) -> None:
        speeds = [[1, 2, 3], [1, 3, 7], [1, 4, 16]]
        published, plus = (devices(system(f"oef_{kind}{more}").allocate(simple(speeds, (4, 4, 4)), None)[0], simple(speeds, (4, 4, 4)))
                           for more in ("", "_plus"))  # fmt: skip
        np.testing.assert_allclose(plus, published, atol=1e-6)


class TestRows:
    """A tenant with types (1, 1.1) and (1, 10) beside one with (1, 10), on 1 slow and 10 fast devices."""

    def gain(self, system_name: str, reported: float, shared_part: float = 0.0) -> float:
        view = view_of([tenant("a", ([1, reported], 20), ([1, 10], 20)), tenant("c", ([1, 10], 40))], (1, 10))
        allocation, _ = system(system_name, **({"shared_part": shared_part} if "plus" in system_name else {})).allocate(view, None)
        return throughput(allocation, {"a/type0/1": [1, 1.1], "a/type1/1": [1, 10]})

    def test_virtual_users_pay_for_inflating_the_slow_type(self) -> None:
        assert self.gain("oef_noncoop", 1.1) == pytest.approx(18.0451, rel=1e-4)
        assert self.gain("oef_noncoop", 2) == pytest.approx(20.7941, rel=1e-4)
        assert self.gain("oef_noncoop_plus_no_rows", 2) == pytest.approx(20.7941, rel=2e-3)

    def test_one_row_does_not(self) -> None:
        """Truthful: half of everything, the fast devices to the fast type; of the tenth that types share, half to the slow one. Up to 10
        the report changes nothing; at 20 the tenant is taken to be (1, 20), gets 101 / 30 fast devices and gives them to its slow type."""
        for reported in (1.1, 2, 5, 9.99):
            assert self.gain("oef_noncoop_plus", reported) == pytest.approx(50.5, rel=1e-6)
            assert self.gain("oef_noncoop_plus", reported, 0.1) == pytest.approx(0.9 * 50.5 + 0.1 * (0.5 + 2.5 * 1.1 + 2.5 * 10), rel=1e-6)
        assert self.gain("oef_noncoop_plus", 20) == pytest.approx(1.1 * 101 / 30, rel=2e-3)

    @given(data=st.data())
    def test_no_overreport_of_any_type_pays_where_all_of_a_bundle_is_put_to_its_best_use(self, data: st.DataObject) -> None:
        """With `shared_part` some pay a little: the property table has one that pays 2.6 %."""
        speed = st.sampled_from([1.0, 2.0]) | st.floats(1, 9)
        types = [[1.0, *data.draw(st.lists(speed, min_size=2, max_size=2))] for _ in range(3)]
        lie, kind, factor = data.draw(st.integers(0, 1)), data.draw(st.integers(1, 2)), data.draw(st.floats(1, 5))
        told = [row.copy() for row in types]
        told[lie][kind] *= factor
        policy, gains = system("oef_noncoop_plus", adjacency=0.0, shared_part=0.0), []
        for rows in (types, told):
            view = view_of([tenant("a", (rows[0], 30), (rows[1], 30)), tenant("b", (rows[2], 60))], (3, 5, 4))
            allocation, _ = policy.allocate(view, None)
            gains.append(throughput(allocation, {"a/type0/1": types[0], "a/type1/1": types[1]}))
        assert gains[1] <= gains[0] * (1 + 1e-6)

    @pytest.mark.parametrize("name", PLUS)
    @given(data=st.data())
    def test_what_tenants_are_promised_as_tenants(self, name: str, data: st.DataObject) -> None:
        """Of the cooperative one neither envy nor loss; of the other equal throughput, a kind being worth what a tenant's best type makes
        of it, and the types really making that of it."""
        speed = st.sampled_from([1.0, 2.0, 4.0]) | st.floats(0.5, 9)
        row = st.lists(speed, min_size=3, max_size=3).map(lambda r: [value / r[0] for value in r])
        types = data.draw(st.lists(st.lists(row, min_size=1, max_size=3), min_size=2, max_size=4))
        weight = data.draw(st.lists(st.sampled_from([1.0, 2.0, 0.5]), min_size=len(types), max_size=len(types)))
        tenants = [tenant(f"t{i}", *((row, 12) for row in rows), weight=weight[i]) for i, rows in enumerate(types)]
        view = view_of(tenants, (3, 5, 4))
        allocation, _ = system(name, shared_part=0.0).allocate(view, None)
        assert allocation.status == "optimal", allocation.note
        best = np.array([np.max(rows, axis=0) for rows in types])
        share, part = devices(allocation, view), np.array(weight)[:, None]
        worth = best @ (share / part).T
        own = np.diag(worth)
        for i, rows in enumerate(types):
            speeds: dict[str, Sequence[float]] = {f"t{i}/type{q}/1": row for q, row in enumerate(rows)}
            assert throughput(allocation, speeds) == pytest.approx(own[i] * weight[i], rel=1e-6)
        if "noncoop" in name:
            np.testing.assert_allclose(own, own.mean(), rtol=1e-6)
        else:
            assert (worth <= own[:, None] * (1 + 1e-6)).all()
            assert (own * weight >= best @ view.capacity * np.array(weight) / sum(weight) * (1 - 1e-6)).all()

    def test_a_kind_that_a_tenant_cannot_use_up_goes_to_the_others(self) -> None:
        """Ten jobs run on slow devices only and one on fast ones only; whatever its row says, the tenant holds one fast device."""
        view = view_of([tenant("a", ([1, 0], 10), ([0, 1], 1)), tenant("b", ([1, 1.01], 20))], (4, 4))
        for name in PLUS:
            allocation, _ = system(name).allocate(view, None)
            shares = devices(allocation, view)
            assert shares[0, 1] <= 1 + 1e-9
            np.testing.assert_allclose(shares.sum(axis=0), [4, 4], rtol=1e-6)

    def test_no_type_is_left_with_nothing(self) -> None:
        """On every kind the second type is better; a tenth of the tenant's bundle is divided by jobs, 3 to 1."""
        view = view_of([tenant("a", ([1, 2], 15), ([1, 3], 5)), tenant("b", ([1, 3], 20))], (2, 4))
        for name in PLUS:
            claims = {claim.name: sum(claim.devices) for claim in system(name).allocate(view, None)[0].claims}
            bundle = claims["a/type0/1"] + claims["a/type1/1"]
            assert claims["a/type0/1"] >= 0.1 * 0.75 * bundle * (1 - 1e-9)
            none = {claim.name: claim.devices for claim in system(name, shared_part=0.0).allocate(view, None)[0].claims}
            assert none["a/type0/1"][1] == 0

    def test_levels_and_binding_rows_stand_with_claims(self) -> None:
        view = view_of([tenant("a", ([1, 2], 9), ([1, 3], 9)), tenant("b", ([1, 4], 18))], (2, 2))
        level = system("oef_noncoop_plus").allocate(view, None)[0].levels
        assert set(level) == {"a/type0/1", "a/type1/1", "b/type0/1"} and len({round(value, 9) for value in level.values()}) == 1
        binding = system("oef_coop_plus").allocate(view, None)[0].binding
        assert binding and {name for row in binding for name in row[:2]} <= {"a/type0/1", "b/type0/1"}


class TestBestUse:
    def test_by_hand(self) -> None:
        """2 slow and 3 fast devices; the fast type holds one device, so the slow type takes two fast ones: 10 + 2.2 + 2."""
        use = best_use(np.array([[1, 1.1], [1, 10]]), np.array([5.0, 1.0]), np.array([5.0, 1.0]), np.array([2.0, 3.0]))
        np.testing.assert_allclose(use, np.array([[2, 2], [0, 1]]), atol=1e-12)

    def test_equal_types_share_in_proportion_to_their_jobs(self) -> None:
        use = best_use(np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 3.0]]), np.full(3, 9.0), np.array([1.0, 3.0, 4.0]), np.array([4.0, 2.0]))
        np.testing.assert_allclose(use, np.array([[0.5, 0], [1.5, 0], [2, 2]]), atol=1e-12)

    def test_nobody_waits_where_it_would_do_as_well(self) -> None:
        """The third holds one fast device; what is left of the fast ones, and the slow ones, suit the first two equally."""
        speed = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 3.0]])
        use = best_use(speed, np.array([9.0, 9.0, 1.0]), np.ones(3), np.array([1.0, 3.0]))
        assert (use.sum(axis=1) > 0.9).all()
        assert (speed * use).sum() == pytest.approx(3 + 2 * 2 + 1)

    @given(data=st.data())
    def test_no_use_is_better(self, data: st.DataObject) -> None:
        types, kinds = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6))
        number = st.sampled_from([0.0, 1.0, 2.0, 3.0]) | st.floats(0.1, 9)
        some = st.lists(number, min_size=kinds, max_size=kinds)
        speed = np.array([data.draw(some) for _ in range(types)])
        demand = np.array(data.draw(st.lists(st.floats(0.5, 8) | st.sampled_from([1.0, 4.0]), min_size=types, max_size=types)))
        held = np.array(data.draw(some))
        use = best_use(speed, demand, np.arange(1.0, types + 1), held)
        assert (use >= 0).all() and not use[speed == 0].any()
        assert (use.sum(axis=0) <= held * (1 + 1e-9)).all() and (use.sum(axis=1) <= demand * (1 + 1e-8)).all()
        rows = np.vstack([np.kron(np.eye(types), np.ones(kinds)), np.tile(np.eye(kinds), types)])
        most = -linprog(-speed.reshape(-1), A_ub=rows, b_ub=np.concatenate([demand, held])).fun
        assert (speed * use).sum() == pytest.approx(most, rel=1e-7, abs=1e-9)


class TestLexicographic:
    """Users that run on few kinds: equality holds everybody down to them, the lexicographic step does not."""

    @pytest.mark.parametrize(("speeds", "raised"), [([[1, 0], [1, 5]], [1, 5]), ([[1, 0, 0], [1, 2, 0], [1, 2, 9]], [1, 2, 9])])
    def test_by_hand(self, speeds: list[list[float]], raised: list[float]) -> None:
        capacity = (1,) * len(speeds[0])
        for name in ("oef_noncoop", "oef_noncoop_plus_no_lexicographic"):
            np.testing.assert_allclose(utilities(name, speeds, capacity), np.ones(len(speeds)), rtol=2e-3)
        np.testing.assert_allclose(utilities("oef_noncoop_plus", speeds, capacity), np.array(raised), rtol=2e-3)

    def test_published_leaves_devices_over_and_says_nothing_is_wrong(self) -> None:
        view = simple([[1, 0], [1, 5]], (1, 1))
        allocation, _ = system("oef_noncoop").allocate(view, None)
        assert allocation.status == "optimal" and allocation.fill
        assert devices(allocation, view)[:, 1].sum() < 0.5


def measured(view: ClusterView, name: str, speeds: Sequence[float]) -> ClusterView:
    """`view` with what was measured of the jobs of one tenant."""

    def seen(tenant: TenantView) -> TenantView:
        return replace(tenant, jobs=tuple(replace(job, measured_steps_per_s=tuple(speeds)) for job in tenant.jobs))

    return replace(view, tenants=tuple(seen(tenant) if tenant.name == name else tenant for tenant in view.tenants))


class TestGuard:
    VIEW = simple([[1, 2.01], [1, 2]], (10, 10))

    @pytest.mark.parametrize("factor", [1.03, 1 / 1.03, 1.049, 1.0])
    def test_noise_is_let_pass(self, factor: float) -> None:
        told, _ = system("oef_noncoop_plus").allocate(self.VIEW, None)
        seen, _ = system("oef_noncoop_plus").allocate(measured(self.VIEW, "t0", (factor, 2.01 * factor)), None)
        assert seen == told and not seen.note

    @pytest.mark.parametrize("true", [(1.0, 4.0), (1.0, 1.5), (0.5, 2.01)])
    def test_what_was_measured_counts_and_is_said(self, true: tuple[float, float]) -> None:
        seen, _ = system("oef_noncoop_plus").allocate(measured(self.VIEW, "t0", true), None)
        honest, _ = system("oef_noncoop_plus").allocate(simple([true, [1, 2]], (10, 10)), None)
        np.testing.assert_allclose(devices(seen, self.VIEW), devices(honest, self.VIEW), atol=1e-9)
        assert seen.note == "guard: 1 speeds as measured, not as told"
        unguarded, _ = system("oef_noncoop_plus_no_guard").allocate(measured(self.VIEW, "t0", true), None)
        assert unguarded == system("oef_noncoop_plus_no_guard").allocate(self.VIEW, None)[0]

    def test_what_nobody_has_run_on_stays_as_told(self) -> None:
        view = simple([[1, 2.01, 0], [1, 2, 3]], (4, 4, 4))
        policy = system("oef_noncoop_plus")
        assert policy.allocate(measured(view, "t0", (0, 0, 7)), None)[0] == policy.allocate(view, None)[0]


def play(name: str, told: Sequence[float] | None, rounds: int = 50, **options: Any) -> tuple[list[float], list[str]]:
    """Devices of the slowest kind that the liar's progress was worth in each round, and the notes: 10 slow and 10 fast devices, 20 jobs of
    true speeds (1, 4) and 20 of (1, 2)."""
    kinds = ("slow", "fast")
    site: Cluster = cluster(slow=(1, 10), fast=(1, 10))
    lie = None if told is None else dict(zip(kinds, told, strict=True))
    jobs = [
        Job(f"{owner}.{q}", owner, owner, 1, 10**9, 0.0, dict(zip(kinds, true, strict=True)), known_steps_per_s=known)
        for owner, true, known in (("liar", (1.0, 4.0), lie), ("other", (1.0, 2.0), None))
        for q in range(20)
    ]
    trace = JobTrace((Tenant("liar"), Tenant("other")), tuple(jobs), restart_s=0.0, max_rounds=rounds)
    records = [r for r in run(trace, site, system(name, **options), SimExecutor(trace), lambda: 0.0) if isinstance(r, RoundRecord)]
    return [record.progress["liar"] / record.length_s for record in records], [record.note for record in records]


class TestGuardOverRounds:
    """Truth is worth 20 a round. Reporting 2.01 for 4 is worth 29.93, as long as it is believed."""

    def test_underreports_pay_without_it(self) -> None:
        honest, _ = play("oef_noncoop_plus_no_guard", None, adjacency=0.0)
        lying, notes = play("oef_noncoop_plus_no_guard", (1.0, 2.01), adjacency=0.0)
        assert np.mean(honest) == pytest.approx(20, rel=0.01)
        assert np.mean(lying) == pytest.approx(29.93, rel=0.01)
        assert not any(notes)

    def test_underreports_pay_for_one_round_with_it(self) -> None:
        lying, notes = play("oef_noncoop_plus", (1.0, 2.01))
        assert sum(lying) <= 50 * 20 + 12
        assert np.mean(lying[2:]) == pytest.approx(20, rel=0.01)
        assert not notes[0] and all(note.startswith("guard: 1 ") for note in notes[1:])

    @pytest.mark.parametrize("told", [(1.0, 5.0), (1.0, 8.0), (1.0, 40.0), (1.0, 4.1)])
    def test_overreports_do_not_pay(self, told: tuple[float, float]) -> None:
        assert sum(play("oef_noncoop_plus", told)[0]) <= 50 * 20 * 1.003

    def test_how_far_it_goes(self) -> None:
        """Nothing shows that the slow kind is slower than told, or is no kind that it cannot run on, to a tenant that never runs there."""
        assert np.mean(play("oef_noncoop_plus", (2.0, 4.02))[0]) > 25
        assert np.mean(play("oef_noncoop_plus", (0.0, 4.0))[0]) > 35

    def test_a_probe_shows_the_slowest_kind_too(self) -> None:
        """A tenth of a gang a round: after ten rounds or so the lie is worth nothing. Who says that it cannot run there is believed."""
        lying, notes = play("oef_noncoop_plus_probe", (2.0, 4.02), rounds=100)
        assert np.mean(lying[:8]) > 25 and np.mean(lying[20:]) == pytest.approx(20, rel=0.01)
        assert any("probe: 1 " in note for note in notes[:15]) and not any("probe" in note for note in notes[20:])
        assert np.mean(play("oef_noncoop_plus_probe", (0.0, 4.0))[0]) > 35

    def test_a_probe_costs_the_honest_next_to_nothing(self) -> None:
        plain, probing = (play(name, None, rounds=100)[0] for name in ("oef_noncoop_plus", "oef_noncoop_plus_probe"))
        assert sum(probing) >= 0.995 * sum(plain)

    @given(instance=saturated(zeros=True), data=st.data())
    def test_a_probe_stays_within_capacity_and_bundles(self, instance: tuple[Array, Array, Array], data: st.DataObject) -> None:
        speeds, capacity, weight = instance
        view = simple(speeds.tolist(), [int(count) for count in capacity], weight.tolist(), jobs=int(capacity.sum()))
        ran = data.draw(st.lists(st.booleans(), min_size=len(speeds), max_size=len(speeds)))
        for index, row in enumerate(speeds.tolist()):
            unit = next(kind for kind, speed in enumerate(row) if speed > 0)
            if ran[index]:
                view = measured(view, f"t{index}", [0.0 if kind == unit else speed for kind, speed in enumerate(row)])
        allocation, _ = system("oef_noncoop_plus_probe").allocate(view, None)
        plain, _ = system("oef_noncoop_plus").allocate(view, None)
        rows, before = (np.array([claim.devices for claim in found.claims]) for found in (allocation, plain))
        assert (rows >= 0).all() and (rows.sum(axis=0) <= capacity * (1 + 1e-9)).all()
        assert (rows.sum(axis=1) <= before.sum(axis=1) * (1 + 1e-9)).all()


def gaps(speeds: Array, shares: Array) -> int:
    """How many users hold a kind on either side of one that they run on and do not hold."""
    held = shares > 1e-6
    below, above = np.logical_or.accumulate(held, axis=1), np.logical_or.accumulate(held[:, ::-1], axis=1)[:, ::-1]
    return int((below & above & ~held & (speeds > 0)).any(axis=1).sum())


class TestAdjacency:
    @pytest.mark.parametrize("kind", ["coop", "noncoop"])
    @given(instance=saturated(zeros=True))
    def test_it_costs_no_more_than_it_may(self, kind: str, instance: tuple[Array, Array, Array]) -> None:
        """At most 0.1 % of the total, without envy; or of each level, all alike."""
        speeds, _, weight = instance
        plain, tidy = (allocate_saturated(system(f"oef_{kind}_plus{less}"), *instance) for less in ("_no_adjacency", ""))
        before, after = ((speeds * shares).sum(axis=1) for shares in (plain, tidy))
        if kind == "noncoop":
            assert (after >= before * (1 - 0.001 - 1e-6)).all()
            np.testing.assert_allclose(after / before, (after / before).mean(), rtol=1e-6)
        else:
            assert after.sum() >= before.sum() * (1 - 0.001 - 1e-6)
            worth = speeds @ (tidy / weight[:, None]).T
            assert (worth <= np.diag(worth)[:, None] * (1 + 1e-6)).all()

    @pytest.mark.parametrize("kind", ["coop", "noncoop"])
    @pytest.mark.parametrize("num_kinds", [3, 4])
    def test_fewer_users_have_gaps(self, kind: str, num_kinds: int) -> None:
        found = {"_no_adjacency": 0, "": 0}
        for seed in range(12):
            rng = np.random.default_rng(seed)
            n = int(rng.integers(3, 16))
            speeds = np.cumprod(np.column_stack([np.ones(n), rng.uniform(1, 2.5, (n, num_kinds - 1))]), axis=1, dtype=float)
            for less in found:
                shares = allocate_saturated(system(f"oef_{kind}_plus{less}"), speeds, np.full(num_kinds, 8.0), np.ones(n))
                found[less] += gaps(speeds, shares)
        assert found["_no_adjacency"] > 0
        assert found[""] <= 0.75 * found["_no_adjacency"]

    def test_where_the_solver_fails_on_it_the_optimum_stays_and_the_note_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = door.solve

        def solve(program: Any, **options: Any) -> Any:
            if program.name == "adjacency":
                raise SolverError("crash")
            return honest(program, **options)

        rng = np.random.default_rng(1)
        view = simple(np.cumprod(np.column_stack([np.ones(9), rng.uniform(1, 2.5, (9, 3))]), axis=1).tolist(), (8, 8, 8, 8))
        assert system("oef_coop_plus").allocate(view, None)[0].status == "optimal"
        monkeypatch.setattr(door, "solve", solve)
        for name in PLUS:
            plain, (allocation, _) = system(f"{name}_no_adjacency").allocate(view, None)[0], system(name).allocate(view, None)
            assert (allocation.status, allocation.note) == ("optimal", "adjacency left out: crash")
            assert allocation.claims == plain.claims


@pytest.mark.parametrize("name", PLUS)
@pytest.mark.parametrize("seed", range(3))
def test_solvers_agree(name: str, seed: int) -> None:
    """Eight digits of CBC are enough, and rows that it keeps less exactly are not asked for for ever."""
    rng = np.random.default_rng(seed)
    speeds = np.column_stack([np.ones(6), rng.uniform(0.5, 6, (6, 3))])[[0, 1, 2, 3, 4, 5, 0]]
    instance = (speeds, np.full(4, 4.0), np.array([1.0, 1, 0.5, 2, 1, 1, 1]))
    totals = [(speeds * allocate_saturated(system(name, solver=solver), *instance)).sum() for solver in SOLVERS]
    np.testing.assert_allclose(totals, totals[0], rtol=1e-6)
