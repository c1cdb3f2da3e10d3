"""What must hold of this machine before a live run starts: its devices are there, and what is to train is known."""

from __future__ import annotations

from collections.abc import Sequence

from hetsys.core.experiment import Experiment
from hetsys.models.jobs.names import parse_program


def check_machine(experiments: Sequence[Experiment]) -> None:
    """Raise ConfigError unless this machine can carry out the live ones of `experiments`. Starts nothing and loads no torch."""
    from hetsys.runtime.devices import check_busy

    cases = {(id(item.cluster), id(item.workload)): item for item in reversed(experiments) if item.live}
    for experiment in cases.values():
        if experiment.source == "measured":
            check_busy(experiment.cluster)
        for job in experiment.workload.sample(experiment.seed, experiment.cluster).jobs:
            if job.program:
                parse_program(job.program, f"workload.jobs.{job.name}.program")
