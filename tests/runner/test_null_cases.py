"""Where nothing can be gained, the comparison itself must not make a difference: the null cases of `oef_null`, run in short."""

from __future__ import annotations

import time

import numpy as np
import pytest

from hetsys.config import compose_experiments
from hetsys.core.experiment import Experiment
from hetsys.core.scheduling.record import RoundRecord
from hetsys.engines.scheduling.loop import run
from hetsys.engines.scheduling.sim import SimExecutor
from hetsys.metrics.fairness import share_fairness

ROUNDS = 36
COARSE = {"gavel", "oef_coop", "oef_noncoop"}
CASES = compose_experiments(["experiment=oef_null", f"workload.max_rounds={ROUNDS}", "tracker=files"]).experiments


@pytest.mark.parametrize("experiment", CASES, ids=lambda one: f"{one.system}-{one.workload.speeds[0][-1]}")
def test_no_policy_gains_anything(experiment: Experiment) -> None:
    """24 devices, 8 a kind, are worth 8 times the sum of the speeds, whoever holds them; no share is envied. Over 36 rounds everybody makes
    a twelfth of all, to a tenth of that; to a third under a policy of jobs, whose shares are smaller, and where deviations are carried: in
    the first round all shares are below one device, and who came first takes what is idle."""
    trace = experiment.workload.sample(0, experiment.cluster)
    executor = SimExecutor(trace)
    records = list(run(trace, experiment.cluster, experiment.policy, executor, time.perf_counter, experiment.charge))
    rounds = [record for record in records if isinstance(record, RoundRecord)]
    worth = 8 * sum(experiment.workload.speeds[0]) * ROUNDS * trace.round_s
    total = sum(sum(record.progress.values()) for record in rounds)
    assert total == pytest.approx(worth, rel=0.005)
    fairness = share_fairness(rounds)
    assert fairness.envy_max is not None and fairness.envy_max < 1e-4
    assert fairness.sharing_incentive_min == pytest.approx(1.0, abs=1e-4)
    made = np.sum([[*record.progress.values()] for record in rounds], axis=0) * len(trace.tenants) / worth
    assert made == pytest.approx(1.0, abs=0.34 if experiment.system in COARSE else 0.1)
