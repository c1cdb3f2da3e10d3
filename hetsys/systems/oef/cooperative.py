"""OEF for users that cooperate (Middleware 2024): the largest total throughput of all allocations in which nobody envies
anybody."""

from __future__ import annotations

from dataclasses import dataclass

from hetsys.core.errors import ConfigError
from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import Users
from hetsys.core.scheduling.view import ClusterView
from hetsys.systems.check import require_no_envy, require_no_idle, require_sharing_incentive
from hetsys.systems.classes import merge
from hetsys.systems.envy import most_without_envy
from hetsys.systems.shares import Shares, allocate, tenant_users
from hetsys.systems.solve import Solver
from hetsys.systems.warm import Start


@dataclass(frozen=True)
class OefCooperative(Solver):
    """max sum_l w_l . x_l  s.t.  w_l . x_l / pi_l >= w_l . x_i / pi_i for all users l, i;  sum_l x_l <= m;  x >= 0.

    Envy-free, hence each user has at least what its entitlement is worth to it. Pareto efficient among envy-free allocations only:
    others may be better for everyone. Up to `full_rows_up_to` classes of users the program has all its envy rows; above, rows are
    added where they are violated until none is, which ends at the same optimum.
    """

    full_rows_up_to: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.full_rows_up_to < 0:
            raise ConfigError("system.full_rows_up_to", self.full_rows_up_to, "must be 0 or more classes of users")

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        return allocate(self, tenant_users(view), memo, keep="slice", rounding="deviation")

    def shares(self, users: Users) -> Shares:
        """Throughput in units of the slowest kind that a user supports. `prices`: total throughput that one more device would add;
        `binding`: of the users of equal speeds one stands for all. Raises SolverError."""
        return self.shares_from(users, None)

    def shares_from(self, users: Users, warm: object) -> Shares:
        """`shares`, faster with the `warm` of an earlier answer."""
        classes = merge(users)
        found = most_without_envy(classes, self, self.full_rows_up_to, warm if isinstance(warm, Start) else None)
        member = classes.first().tolist()
        per_weight = found.duals * users.weight[classes.member >= 0].sum()
        binding = [(member[c], member[d], dual) for (c, d), dual in zip(found.pairs.tolist(), per_weight.tolist(), strict=True)]
        shares = Shares(classes.devices(found.fractions), "optimal", found.prices, None, tuple(binding), found.start)
        require_no_envy(users, shares.devices)
        require_sharing_incentive(users, shares.devices)
        require_no_idle(users, shares.devices)
        return shares
