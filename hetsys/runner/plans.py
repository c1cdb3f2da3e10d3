"""`plan_only=true`: what each system decides first and what it predicts, without executing anything."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsys.core.errors import HetsysError
from hetsys.core.experiment import Experiment
from hetsys.core.scheduling.plan import Allocation
from hetsys.core.scheduling.view import ClusterView
from hetsys.engines.scheduling.sim import SimExecutor
from hetsys.engines.scheduling.state import SchedulingState
from hetsys.tracking.folder import RunFolder

if TYPE_CHECKING:
    from rich.console import Console

_ROWS = 12


def plan_sweep(experiments: Sequence[Experiment], console: Console) -> list[Path]:
    """Plan the first seed of each system, print each plan with what it predicts, write `plan.json`, execute nothing."""
    from rich.table import Table

    first = {experiment.system: experiment for experiment in reversed(experiments)}
    chosen = [experiment for experiment in experiments if first[experiment.system] is experiment]
    paths = []
    for experiment in chosen:
        view, allocation, plan = _first_plan(experiment)
        paths.append(_write_plan_only(experiment, plan))
        table = Table(title=_title(experiment, plan), title_justify="left", pad_edge=False)
        table.add_column("claim")
        for kind, up in zip(view.kinds, view.capacity, strict=True):
            table.add_column(f"{kind} (of {up})", justify="right")
        for claim in allocation.claims[:_ROWS]:
            table.add_row(claim.name, *(f"{count:.3f}" for count in claim.devices))
        if len(allocation.claims) > _ROWS:
            table.add_row(f"... and {len(allocation.claims) - _ROWS} more in plan.json")
        console.print(table)
    return paths


def plan_dict(view: ClusterView, allocation: Allocation) -> dict[str, Any]:
    """What a policy decided for `view`, with the normalised throughput that its shares would give if they ran for ever."""
    from hetsys.core.scheduling.users import normalised_speed

    speed = {job.name: normalised_speed(job) for job in view.jobs}
    rates = {claim.name: float(speed[claim.jobs[0]] @ claim.devices) for claim in allocation.claims}
    return {
        "now_s": view.now_s, "kinds": list(view.kinds), "capacity": list(view.capacity), "status": allocation.status,
        "note": allocation.note, "prices": None if allocation.prices is None else list(allocation.prices),
        "predicted_throughput_normalized": sum(rates.values()),
        "claims": [
            {
                "name": claim.name, "tenant": claim.tenant, "jobs": list(claim.jobs), "devices": list(claim.devices),
                "predicted_throughput_normalized": rates[claim.name], "level": allocation.levels.get(claim.name),
            }
            for claim in allocation.claims
        ],
    }  # fmt: skip


def _first_plan(experiment: Experiment) -> tuple[ClusterView, Allocation, dict[str, Any]]:
    """The allocation of the first round in which somebody is there. Raises HetsysError where every job is parked."""
    trace = experiment.workload.sample(experiment.seed, experiment.cluster)
    state = SchedulingState(trace, experiment.cluster)
    state.skip_idle()
    state.open_round(SimExecutor(trace).down_at(state.now_ns))
    if not state.live:
        reasons = "; ".join(dict.fromkeys(record.reason for record in state.parked)) or "the trace has no jobs"
        raise HetsysError(f"nothing to plan: no job can run on this cluster ({reasons})")
    view = state.view()
    began = time.perf_counter()
    allocation, _ = experiment.policy.allocate(view, None)
    plan = plan_dict(view, allocation)
    plan["plan_s"] = time.perf_counter() - began
    return view, allocation, plan


def _write_plan_only(experiment: Experiment, plan: dict[str, Any]) -> Path:
    """`plan.json` in the run's folder, to be filled in by a later run; where the run stands finished, its own plan stands too."""
    if not (experiment.folder / "summary.json").exists():
        folder = RunFolder.open(experiment.folder)
        try:
            folder.write_config(experiment.config_yaml)
            folder.write_plan(plan)
        finally:
            folder.close()
    return experiment.folder / "plan.json"


def _title(experiment: Experiment, plan: dict[str, Any]) -> str:
    label = experiment.system_about.label or experiment.system
    return (
        f"{label}, seed {experiment.seed}: devices a claim in round 0, {plan['status']}, predicted normalised throughput "
        f"{plan['predicted_throughput_normalized']:.2f}, planned in {1000 * plan['plan_s']:.1f} ms"
    )
