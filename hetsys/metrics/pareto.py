"""How far a division of devices is from Pareto efficient: the most that could be added without anybody having less."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetsys.core.scheduling.record import UserShare
from hetsys.metrics.fairness import Array, bundle_value

MOST_OWNERS = 200
"""One linear program of owners x kinds unknowns: milliseconds for tens of owners, too slow for thousands (None then)."""


def pareto_gap(owners: Sequence[UserShare], capacity: Sequence[float]) -> float | None:
    """`max sum_l (w_l . y_l - u_l) / sum_l u_l  s.t.  w_l . y_l >= u_l,  sum_l y_l <= m,  sum_j y_l^j <= demand_l,  y >= 0`; 0: efficient.

    `u_l`: worth to an owner of what it holds (`bundle_value`); `m`: `capacity` (k,). None above MOST_OWNERS owners, or where nothing
    is worth anything to anybody.
    """
    if not owners or len(owners) > MOST_OWNERS:
        return None
    speeds, demand = np.array([owner.speeds for owner in owners]), np.array([owner.demand for owner in owners])
    held = _used(np.array([owner.devices for owner in owners], dtype=float), speeds, demand)
    total = float((speeds * held).sum())
    return _most_added(speeds, demand, held, np.array(capacity, dtype=float)) / total if total > 0 else None


def _used(devices: Array, speeds: Array, demand: Array) -> Array:
    """(n, k): of each owner's devices those that it uses: the best kinds first, up to its demand."""
    used, left = np.zeros_like(devices), demand.astype(float)
    for kind in np.argsort(-speeds, axis=1, kind="stable").T:
        at = (np.arange(len(devices)), kind)
        used[at] = np.where(speeds[at] > 0, np.minimum(devices[at], left), 0.0)
        left = left - used[at]
    assert np.allclose((used * speeds).sum(axis=1), bundle_value(devices, speeds, demand))
    return used


def _most_added(speeds: Array, demand: Array, held: Array, capacity: Array) -> float:
    """Solved in terms of the change to `held`, so that no change is an answer whatever the rounding."""
    from scipy.optimize import linprog

    n, k = speeds.shape
    own = np.kron(np.eye(n), np.ones(k))
    rows = np.vstack([-own * speeds.reshape(-1), np.tile(np.eye(k), n), own])
    room = [np.zeros(n), np.maximum(capacity - held.sum(axis=0), 0.0), np.maximum(demand - held.sum(axis=1), 0.0)]
    bounds = [(-float(value), None) for value in held.reshape(-1)]
    found = linprog(-speeds.reshape(-1), A_ub=rows, b_ub=np.concatenate(room), bounds=bounds, options={"presolve": False})
    assert found.status == 0, found.message
    return max(float(-found.fun), 0.0)
