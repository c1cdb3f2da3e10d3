"""Independent checks of an allocation: what a policy claims is computed again from the answer itself, never from a solver's
word."""

from __future__ import annotations

import numpy as np

from hetsys.core.errors import SolverError
from hetsys.core.scheduling.users import Array, Users
from hetsys.systems.classes import unique_rows

TOLERANCE = 1e-6


def throughput(users: Users, devices: Array) -> Array:
    """(n,): normalised throughput `w_l . x_l` of each user."""
    return np.asarray((users.speed * devices).sum(axis=1))


def max_envy(users: Users, devices: Array) -> float:
    """The largest relative gain of any user from another's bundle, scaled to its own weight (`w_l x_i / pi_i` against
    `w_l x_l / pi_l`); 0 or less where nobody envies anybody. Users that can use nothing envy nobody. Equal speeds and equal bundles are
    looked at once, so that thousands of users of few types take no n^2 numbers."""
    bundles = devices / users.weight[:, None]
    own = (users.speed * bundles).sum(axis=1)
    speeds, of, _ = unique_rows(users.speed)
    offers = bundles[unique_rows(np.round(bundles / np.maximum(np.abs(bundles).max(axis=0), 1e-300), 12))[2]]
    best = np.concatenate([(part @ offers.T).max(axis=1) for part in np.array_split(speeds, len(speeds) // 1024 + 1)])[of]
    return float(np.max((best - own) / np.where(best > 0, best, 1.0)))


def min_sharing_incentive(users: Users, devices: Array) -> float:
    """The smallest ratio of a user's throughput to that of its entitlement; 1 where no user is entitled to anything that it can
    use."""
    fair = throughput(users, users.entitlement())
    has = fair > 0
    return float(np.min(throughput(users, devices)[has] / fair[has])) if has.any() else 1.0


def require_feasible(users: Users, devices: Array) -> None:
    """Raise SolverError unless `devices` is finite, 0 or more and within capacity."""
    if devices.shape != users.speed.shape or not np.isfinite(devices).all():
        raise SolverError("the allocation holds a number that is not finite")
    if (devices < 0).any():
        raise SolverError(f"the allocation holds a negative share, {devices.min():.3g} devices")
    excess = devices.sum(axis=0) - users.capacity
    if (excess > TOLERANCE * np.maximum(users.capacity, 1.0)).any():
        raise SolverError(f"the allocation exceeds the capacity by {excess.max():.3g} devices of kind {int(excess.argmax())}")


def require_no_idle(users: Users, devices: Array) -> None:
    """Raise SolverError if a kind that some user could use is not fully handed out."""
    wanted = (users.speed > 0).any(axis=0)
    idle = np.where(wanted, users.capacity - devices.sum(axis=0), 0.0)
    if (idle > TOLERANCE * np.maximum(users.capacity, 1.0)).any():
        raise SolverError(f"the allocation leaves {idle.max():.3g} usable devices of kind {int(idle.argmax())} to nobody")


def require_no_envy(users: Users, devices: Array) -> None:
    """Raise SolverError if a user would rather have another's bundle."""
    if (envy := max_envy(users, devices)) > TOLERANCE:
        raise SolverError(f"the allocation is not envy-free: a user would gain {envy:.3g} of its throughput from another's bundle")


def require_sharing_incentive(users: Users, devices: Array) -> None:
    """Raise SolverError if a user has less than its entitlement is worth to it."""
    if (least := min_sharing_incentive(users, devices)) < 1 - TOLERANCE:
        raise SolverError(f"the allocation leaves a user {least:.6g} of what its entitlement is worth")


def require_levels(users: Users, devices: Array, levels: Array, yardstick: Array) -> None:
    """Raise SolverError unless each user's throughput for its weight, in units of its `yardstick`, is its level."""
    reached = throughput(users, devices) / users.weight / yardstick
    if not np.allclose(reached, levels, rtol=TOLERANCE, atol=TOLERANCE * max(float(np.max(levels, initial=0.0)), 1e-300)):
        raise SolverError("the allocation does not give each user the level that the solver reports")
