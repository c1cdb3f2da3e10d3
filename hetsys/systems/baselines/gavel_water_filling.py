"""Gavel's max-min with water filling (OSDI 2020): the lowest ratio first, then the next lowest, until no job can rise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import Users
from hetsys.core.scheduling.view import ClusterView
from hetsys.systems.baselines.job_levels import Index, Jobs, job_devices
from hetsys.systems.shares import Shares, allocate, job_users


@dataclass(frozen=True)
class GavelWaterFilling:
    """Lexicographic max-min of  (T_i . x_i) s_i / (T_i . xprop_i) / weight_i  over jobs i  s.t.  sum_i s_i x_ij <= m_j;  sum_j x_ij <= 1.

    The ratios of `Gavel`, but whoever can rise above the lowest does so evenly. The paper finds who can with a 0/1 program; here the prices
    of the kinds tell it (our choice: same answer, no tolerance to set). `levels`: each job's ratio for its weight.
    """

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        return allocate(self, job_users(view), memo, keep="all")

    def shares(self, users: Users) -> Shares:
        able = (users.speed * users.capacity).any(axis=1)
        part = users.weight / users.weight[able].sum()
        unit = (users.speed @ users.capacity) * part  # what a job's part of everything is worth to it

        def jobs(rows: Index, kinds: Index) -> Jobs:
            speed, gang = users.speed[np.ix_(rows, kinds)], users.demand[rows]
            ones = np.ones(len(rows))
            return Jobs(speed, gang, users.capacity[kinds], unit[rows] / gang, ones, 0 * ones)

        devices = job_devices(users, jobs)
        levels = (users.speed * devices).sum(axis=1) / np.where(able, unit, 1.0)
        return Shares(devices, "optimal", levels=levels)
