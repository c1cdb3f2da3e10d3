"""Equal budgets, market prices (Nash welfare): each user buys what is best for it at prices at which everything is sold.

Envy-free, Pareto efficient and with the sharing incentive, close to the best envy-free total: the strongest simple rival of OEF.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from hetsys.core.errors import ConfigError, SolverError
from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import Array, Users
from hetsys.core.scheduling.view import ClusterView
from hetsys.systems.check import require_no_envy, require_no_idle, require_sharing_incentive
from hetsys.systems.classes import merge
from hetsys.systems.shares import Shares, allocate, tenant_users

_CENTRING = 0.1
_STEP = 0.95
_OVERSPENT = 1e-7


@dataclass(frozen=True)
class Ceei:
    """max sum_l pi_l log(w_l . x_l)  s.t.  sum_l x_l <= m;  x >= 0: the market equilibrium in which weights are budgets.

    By a primal-dual interior-point method, until no user could gain more than `tolerance` of its throughput at the prices, and none
    spends more than its budget: small ones would otherwise be exceeded by what is nothing to the large.
    `levels`: each user's throughput in units of what its entitlement is worth; `prices`: of a device, if all money together is 1.
    """

    tolerance: float = 1e-9
    max_iterations: int = 200

    def __post_init__(self) -> None:
        if not (isfinite(self.tolerance) and 0 < self.tolerance < 1):
            raise ConfigError("system.tolerance", self.tolerance, "must be above 0 and below 1")
        if self.max_iterations < 1:
            raise ConfigError("system.max_iterations", self.max_iterations, "must be 1 or more")

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        return allocate(self, tenant_users(view), memo, keep="slice")

    def shares(self, users: Users) -> Shares:
        classes = merge(users)
        kinds = np.asarray(classes.value.any(axis=0))
        fractions, prices = np.zeros(classes.value.shape), np.zeros(kinds.size)
        parts, prices[kinds] = self._market(classes.weight, classes.value[:, kinds])
        fractions[:, kinds] = parts / classes.weight[:, None]
        levels = classes.per_user((classes.value * fractions).sum(axis=1))
        shares = Shares(classes.devices(fractions), "rule", prices / np.maximum(users.capacity, 1e-300), levels)
        require_no_envy(users, shares.devices)
        require_sharing_incentive(users, shares.devices)
        require_no_idle(users, shares.devices)
        return shares

    def _market(self, budget: Array, value: Array) -> tuple[Array, Array]:
        """The part of each kind that each class buys (c, k), and what each kind earns (k,). `budget` (c,) sums to 1."""
        able = value > 0
        part = np.where(able, budget[:, None], 0.0)
        part /= part.sum(axis=0)
        price = budget @ value
        wish = budget[:, None] * value / (value * part).sum(axis=1)[:, None]
        loss = np.where(able, np.maximum(price - wish, _CENTRING * price), 0.0)
        for _ in range(self.max_iterations):
            sold, paid = part / part.sum(axis=0), price / price.sum()
            bought_best = budget * (value / paid).max(axis=1) <= (value * sold).sum(axis=1) * (1 + self.tolerance)
            if (bought_best & (sold @ paid <= budget * (1 + _OVERSPENT))).all():
                return sold, paid
            steps = _newton(budget, value, able, part, price, loss)
            length = min(1.0, _room(part, steps[0]), _room(loss, steps[2]))
            part, price, loss = part + length * steps[0], price + length * steps[1], loss + length * steps[2]
        raise SolverError(f"the market found no prices in {self.max_iterations} iterations")


def _newton(budget: Array, value: Array, able: NDArray[np.bool_], part: Array, price: Array, loss: Array) -> tuple[Array, Array, Array]:
    """The step towards  budget value / utility = price - loss,  sum_c part = 1,  part loss = a tenth of its mean.

    `loss` (c, k): what a class would lose for each bit of money spent on a kind. One block of k by k equations a class, joined by
    the prices. Raises SolverError where the equations have no solution.
    """
    kinds = value.shape[1]
    safe = np.where(able, part, 1.0)
    utility = (value * part).sum(axis=1)
    target = _CENTRING * (part * loss).sum() / able.sum()
    blocks = (budget / utility**2)[:, None, None] * value[:, :, None] * value[:, None, :]
    blocks[:, range(kinds), range(kinds)] += np.where(able, loss / safe, 1.0)
    pull = np.where(able, (budget / utility)[:, None] * value - price + target / safe, 0.0)
    try:
        inverse = np.linalg.inv(blocks) * (able[:, :, None] & able[:, None, :])
        d_price = np.linalg.solve(inverse.sum(axis=0), np.einsum("cij,cj->i", inverse, pull) - (1 - part.sum(axis=0)))
    except np.linalg.LinAlgError as error:
        raise SolverError(f"the market's equations have no solution: {error}") from error
    d_part = np.einsum("cij,cj->ci", inverse, np.where(able, pull - d_price, 0.0))
    d_loss = np.where(able, (target - loss * d_part) / safe - loss, 0.0)
    return d_part, d_price, d_loss


def _room(values: Array, steps: Array) -> float:
    """How much of `steps` can be taken while `values` stay above 0, with a margin."""
    falling = steps < 0
    return _STEP * float((-values[falling] / steps[falling]).min()) if falling.any() else 1.0
