"""The live executor of a run, with its checkpoints and its books in the run's folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hetsys.core.experiment import Experiment
from hetsys.core.scheduling.plan import SchedulingExecutor
from hetsys.core.scheduling.trace import JobTrace
from hetsys.metrics.common import Number, mean
from hetsys.runtime.launch import Launcher
from hetsys.tracking.folder import RunFolder


@contextmanager
def live_executor(
    experiment: Experiment, trace: JobTrace, folder: RunFolder, launcher: Launcher, more: dict[str, Number]
) -> Iterator[SchedulingExecutor]:
    """Real training processes, on this machine's devices or on emulated ones. Where all went well, `losses.json` is written and the
    figures of real work are in `more`; however it ends, no process and no checkpoint is left."""
    from hetsys.engines.scheduling.live.emulated import EmulatedExecutor
    from hetsys.engines.scheduling.live.native import NativeExecutor

    make = NativeExecutor if experiment.source == "measured" else EmulatedExecutor
    executor = make(trace, experiment.cluster, folder.path, experiment.seed, launcher, note=folder.note)
    try:
        yield executor
    finally:
        executor.close()
    folder.write_losses(executor.books.digests())
    more["loss_final_mean"] = mean([losses[-1] for losses in executor.books.losses.values() if losses])
    more |= executor.books.totals()
    if isinstance(executor, NativeExecutor):
        more["worker_cpu_share"] = executor.cpu_share
