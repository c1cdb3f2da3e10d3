"""Gavel's finish-time fairness (OSDI 2020, after Themis, NSDI 2020): nobody finishes much later than on its own part of the cluster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetsys.core.scheduling.isolated import isolated_rate
from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.users import Users
from hetsys.core.scheduling.view import ClusterView, JobView
from hetsys.systems.baselines.job_levels import Index, Jobs, job_devices
from hetsys.systems.shares import Shares, allocate, job_users, uncached


@dataclass(frozen=True)
class GavelFinishTime:
    """min max_i rho_i,  rho_i = (time since arrival + steps_i / (T_i . x_i)) / (isolated time so far + steps_i / isolated rate_i)
    s.t.  sum_i s_i x_ij <= m_j;  sum_j x_ij <= 1;  x >= 0.

    The isolated rate of a job is that on an equal part of the cluster. Time passes, so this is solved in every round. A job that is too
    late to reach the level of the others runs at full speed and holds nobody back; after the worst ratio the next one is made small, and
    so on (our choice; the plain program leaves open what all but the worst get). Speeds of 0 stay 0. Weights of tenants play no part.
    `levels`: each job's expected ratio.
    """

    def allocate(self, view: ClusterView, memo: object) -> tuple[Allocation, object]:
        users = job_users(view)
        live = {job.name: job for job in view.jobs}
        return allocate(_FinishTimes(view, tuple(live[name] for name in users.names)), users, uncached(memo), keep="all")


@dataclass(frozen=True)
class _FinishTimes:
    """The rule for one moment."""

    view: ClusterView
    live: tuple[JobView, ...]

    def shares(self, users: Users) -> Shares:
        count = len(self.view.jobs)
        work = np.array([float(job.steps_left) for job in self.live])
        spent = np.array([max(self.view.now_s - job.arrival_s, 0.0) for job in self.live])
        rate = np.array([job.steps_per_s for job in self.live])
        alone = np.array([isolated_rate(job, self.view.capacity, count) for job in self.live])
        able = alone > 0
        due = np.array([job.isolated_s for job in self.live]) + work / np.where(able, alone, np.inf)

        def jobs(rows: Index, kinds: Index) -> Jobs:
            return Jobs(rate[np.ix_(rows, kinds)], users.demand[rows], users.capacity[kinds], work[rows], due[rows], spent[rows])

        devices = job_devices(users, jobs)
        speed = (rate * devices).sum(axis=1) / users.demand
        levels = (spent + work / np.where(speed > 0, speed, np.inf)) / np.where(able, due, 1.0)
        return Shares(devices, "optimal", levels=np.where(able, levels, 0.0))
