"""How much work a trace brings a cluster: the load factor, from the trace and the cluster alone, the same for every system."""

from __future__ import annotations

from collections.abc import Sequence

from hetsys.core.cluster import Cluster
from hetsys.core.scheduling.admission import AdmittedJob, admit
from hetsys.core.scheduling.trace import JobTrace


def load_factor(trace: JobTrace, cluster: Cluster) -> float | None:
    """Device time that the admitted jobs need on the average device that they can use, over the device time there is between the first
    arrival and the last (our definition; 1: the cluster is just busy while jobs arrive). None where all jobs arrive at once.

    Gangs are taken as packed, restarts and failures left out.
    """
    admitted, _ = admit(trace, cluster)
    arrivals_s = [item.job.arrival_s for item in admitted]
    span_s = max(arrivals_s, default=0.0) - min(arrivals_s, default=0.0)
    counts = list(cluster.num_devices_by_kind.values())
    return sum(device_s(item, counts) for item in admitted) / (span_s * sum(counts)) if span_s > 0 else None


def device_s(item: AdmittedJob, counts: Sequence[int]) -> float:
    """Device-seconds that a job takes at the mean speed of the devices it can use, `counts[j]` of kind j. For 100 steps of a gang of 2 at
    1 and 3 steps/s on as many devices each: 100 / 2 x 2 = 100."""
    usable = [(count, speed) for count, speed in zip(counts, item.speeds, strict=True) if speed > 0]
    mean = sum(count * speed for count, speed in usable) / sum(count for count, _ in usable)
    return item.job.gang * item.job.num_steps / mean
