"""One row of the program for each tenant, whatever types of jobs it has (our addition), and the division of its bundle among them.

With a row for each type, a tenant that inflates one of its types raises what its other types must receive. With one row it does not: the
bundle is worth to a tenant what the best use of it is worth, and the tenant's own jobs share it so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from hetsys.core.scheduling.users import Array, Users
from hetsys.systems.shares import Rows

_TIED = 1e-12
_NOTHING = 1e-12
_SLACK = 1e-9


@dataclass(frozen=True)
class TenantRows(Rows):
    """The users of a tenant as one owner: on each kind as fast as its fastest user there, with the weights and demands of all.

    `shared_part` of a bundle the users divide in proportion to their jobs, so that no type of jobs waits for the end of another; the rest
    goes where it is worth most.
    """

    shared_part: float = 0.0

    @cached_property
    def owners(self) -> Users:
        users, starts = self.users, self._starts
        weight, demand = (np.bincount(self.owner, values, len(starts)).astype(float) for values in (users.weight, users.demand))
        names = tuple(users.tenants[row] for row in starts)
        jobs: list[list[str]] = [[] for _ in starts]
        for owner, own in zip(self.owner.tolist(), users.jobs, strict=True):
            jobs[owner] += own
        speed = np.array([users.speed[own].max(axis=0) for own in self._members]).reshape(len(starts), users.speed.shape[1])
        return Users(names, names, tuple(map(tuple, jobs)), speed, users.capacity, weight, demand)

    @cached_property
    def owner(self) -> NDArray[np.intp]:
        index: dict[str, int] = {}
        return np.array([index.setdefault(tenant, len(index)) for tenant in self.users.tenants], dtype=np.intp)

    @cached_property
    def _starts(self) -> list[int]:
        return np.unique(self.owner, return_index=True)[1].tolist()  # type: ignore[no-any-return]

    @cached_property
    def _members(self) -> list[NDArray[np.intp]]:
        return [np.flatnonzero(self.owner == owner) for owner in range(len(self._starts))]

    @cached_property
    def _jobs(self) -> Array:
        return np.array([float(len(jobs)) for jobs in self.users.jobs])

    def key(self) -> bytes:
        return super().key() + self.owner.tobytes() + self._jobs.tobytes()

    def usable(self, owner: int, devices: Array) -> Array:
        if self._members[owner].size == 1:
            return super().usable(owner, devices)
        return np.asarray(self._use(owner, devices).sum(axis=0))

    def worth(self, owner: int, devices: Array) -> float:
        return float((self.users.speed[self._members[owner]] * self._use(owner, devices)).sum())

    def beyond_use(self, live: NDArray[np.intp], devices: Array) -> list[int]:
        """Those with more than their jobs can hold, all in all or of the kinds that some of them run on."""
        beyond = set(super().beyond_use(live, devices))
        for index, owner in enumerate(live.tolist()):
            if index not in beyond and self._members[owner].size > 1:
                held, own = float(devices[index].sum()), self._members[owner]
                everywhere = (self.users.speed[own][:, devices[index] > 0] > 0).all(axis=1)
                if self.users.demand[own][everywhere].sum() >= held:
                    continue  # while a device idles, one of those that run on all of them has room for it
                if self._use(owner, devices[index]).sum() < held * (1 - _SLACK):
                    beyond.add(index)
        return sorted(beyond)

    def divide(self, devices: Array) -> Array:
        found = np.zeros(self.users.speed.shape)
        for owner, members in enumerate(self._members):
            found[members] = devices[owner] if members.size == 1 else self._use(owner, devices[owner])
        return found

    def _use(self, owner: int, devices: Array) -> Array:
        own = self._members[owner]
        parts = (self.users.speed[own], self.users.demand[own], self._jobs[own], np.asarray(devices))
        return _mixed_use(self.shared_part, len(own), *(part.tobytes() for part in parts))


@lru_cache(maxsize=4096)
def _mixed_use(shared_part: float, types: int, *parts: bytes) -> Array:
    """The use of a bundle by the numbers in `parts`, read-only: from round to round most tenants' are the same. Where all types are taken
    to be equally fast, the best use is the one in proportion to jobs."""
    speed, demand, jobs, devices = (np.frombuffer(part) for part in parts)
    speed = speed.reshape(types, -1)
    found = best_use(speed, demand, jobs, devices)
    if shared_part:
        even = best_use((speed > 0).astype(float), demand, jobs, devices)
        found = (1 - shared_part) * found + shared_part * even
    found.setflags(write=False)
    return found


def best_use(speed: Array, demand: Array, jobs: Array, devices: Array) -> Array:
    """(T, k): `devices` (k,) divided among T types of jobs so that their total throughput is largest; no type has more than its `demand`
    (T,), and what is left over nobody can use. `speed` (T, k): 0 where a type cannot run.

    Where types are equally fast they share in proportion to their `jobs` (T,). Where demand does not allow that, one optimum is mixed with
    those that suit each type that it leaves with nothing, so that no type waits where another would do as well.
    """
    tied = (speed > 0) & (speed >= speed.max(axis=0) * (1 - _TIED))
    part = tied * jobs[:, None]
    found = np.asarray(part * (devices / np.maximum(part.sum(axis=0), 1e-300)))
    if (found.sum(axis=1) <= demand * (1 + _SLACK)).all():
        return found
    order = np.lexsort([jobs, demand, *speed.T])
    found = _transport(speed, demand, devices, order)
    nothing = found.sum(axis=1) <= 0
    weight = jobs / jobs.sum()
    found *= 1 - float(weight[nothing].sum())
    for row in np.flatnonzero(nothing).tolist():
        found += weight[row] * _transport(speed, demand, devices, np.r_[row, order[order != row]])
    return found


def _transport(speed: Array, demand: Array, devices: Array, order: NDArray[np.intp]) -> Array:
    """(T, k): max sum speed x  s.t.  sum_j x_ij <= demand_i,  sum_i x_ij <= devices_j,  x >= 0. Exact: each kind is handed out along the
    chains of exchanges that gain most, which keeps what is handed out so far optimal. Of equal types the one first in `order`.

    Numbers are few (ten types, three kinds) and looked at often: plain lists are three times as fast as arrays here.
    """
    rates, room = speed[order].tolist(), demand[order].tolist()
    held = [[0.0] * speed.shape[1] for _ in rates]
    least = _NOTHING * max(float(devices.sum()), 1e-300)
    margin = _TIED * float(speed.max())
    for kind, left in enumerate(devices.tolist()):
        while left > least and (moves := _best_chain(rates, held, room, least, margin, kind)):
            amount = min(left, *(held[row][there] if there >= 0 else room[row] for row, _, there in moves))
            for row, here, there in moves:
                held[row][here] += amount
                if there >= 0:
                    held[row][there] -= amount
                else:
                    room[row] -= amount
            left -= amount
    found = np.empty(speed.shape)
    found[order] = held
    return np.where(found > least, found, 0.0)


def _best_chain(
    rates: list[list[float]], held: list[list[float]], room: list[float], least: float, margin: float, kind: int
) -> list[tuple[int, int, int]]:
    """What to do with one more device of `kind`: moves (type, kind it takes, kind it gives up; -1: none, it had room), each handing what it
    gives up to the next; what the last gives up stays idle. Empty where nothing gains."""
    kinds = range(len(rates[0]))
    gain = [0.0 for _ in kinds]  # of a device of each kind, if nobody has to give up anything for it
    step: list[tuple[int, int] | None] = [None for _ in kinds]
    swaps: dict[tuple[int, int], tuple[float, int]] = {}
    for row, (rate, own) in enumerate(zip(rates, held, strict=True)):
        if room[row] > least:
            for j in kinds:
                if rate[j] > gain[j]:
                    gain[j], step[j] = rate[j], (row, -1)
        for there in kinds:
            if own[there] > least:
                for j in kinds:
                    more = rate[j] - rate[there]
                    if j != there and rate[j] > 0 and ((j, there) not in swaps or more > swaps[j, there][0]):
                        swaps[j, there] = (more, row)
    for _ in kinds:
        total: dict[int, tuple[float, tuple[int, int]]] = {}
        for (j, there), (more, row) in swaps.items():
            if more + gain[there] > max(gain[j] + margin, total[j][0] if j in total else 0.0):
                total[j] = (more + gain[there], (row, there))
        if not total:
            break
        for j, (value, move) in total.items():
            gain[j], step[j] = value, move
    moves: list[tuple[int, int, int]] = []
    while kind >= 0 and (chosen := step[kind]) is not None:
        moves.append((chosen[0], kind, chosen[1]))
        kind = chosen[1]
        assert len(moves) <= len(kinds), "a chain of exchanges runs in a circle"
    return moves
