"""Who held which device when: as a Chrome trace (opens in Perfetto) and as spans for pictures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from hetsys.core.scheduling.record import Grant, JobRecord, RoundRecord, SchedulingRecord

_US = 1e6
_GAP_S = 1e-6

MOST_SPANS = 100_000
"""A Chrome trace holds the rounds up to the one that brings it to so many slices (some 20 MB; our choice)."""


@dataclass
class Span:
    """A job that held a device from `start_s` to `end_s`, over as many rounds as followed without a gap or a restart."""

    device: str
    kind: str
    job: str
    tenant: str
    start_s: float
    end_s: float
    gang: int
    steps: int = 0
    lost_steps: int = 0
    rounds: int = 0
    failed: bool = False


def device_spans(records: Iterable[SchedulingRecord], at_most: float = inf) -> list[Span]:
    """All spans in the order of their starts, or those of the rounds up to the one that brings them to `at_most`. A failed lease ends its
    span; `steps` are those of the whole gang."""
    spans: list[Span] = []
    latest: dict[str, Span] = {}
    for record in records:
        if isinstance(record, RoundRecord):
            for grant in record.grants:
                for device in grant.devices:
                    _extend(spans, latest, device, grant, record.start_s)
            if len(spans) >= at_most:
                break
    return spans


def _extend(spans: list[Span], latest: dict[str, Span], device: str, grant: Grant, start_s: float) -> None:
    span = latest.get(device)
    ended = span is None or span.job != grant.job or span.failed or grant.restarted or start_s - span.end_s > _GAP_S
    if span is None or ended:
        kind = device.rsplit("-", 2)[0] if grant.mix else grant.kind
        span = latest[device] = Span(device, kind, grant.job, grant.tenant, start_s, start_s, len(grant.devices))
        spans.append(span)
    span.end_s = start_s + grant.held_s
    span.steps += grant.steps
    span.lost_steps += grant.lost_steps
    span.rounds += 1
    span.failed = grant.failed


def chrome_trace(records: Sequence[SchedulingRecord], kinds: Sequence[str]) -> dict[str, Any]:
    """The run in Chrome's trace format: a process a kind (slow to fast), in it a track a device that was ever used.

    A slice for each span, an instant where a lease failed, a counter of idle devices a kind. Times: microseconds of device time. Of a run
    with more than MOST_SPANS spans only the beginning is drawn, and `otherData.note` says so.
    """
    rounds = [record for record in records if isinstance(record, RoundRecord)]
    spans = device_spans(rounds, MOST_SPANS)
    drawn = rounds if len(spans) < MOST_SPANS else [record for record in rounds if record.start_s <= spans[-1].start_s]
    types = {record.job: record.job_type for record in records if isinstance(record, JobRecord)}
    process = {kind: index + 1 for index, kind in enumerate(kinds)}
    track = {device: index for index, device in enumerate(sorted({span.device for span in spans}, key=natural))}
    kind_of = {span.device: span.kind for span in spans}
    events: list[dict[str, Any]] = []
    for kind, pid in process.items():
        events.append(_named("process_name", pid, 0, kind))
        events.append({"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}})
    for device, tid in track.items():
        events.append(_named("thread_name", process[kind_of[device]], tid, device))
    for span in spans:
        events += _slice(span, process[span.kind], track[span.device], types)
    events += _idle_counters(drawn, process)
    shown: dict[str, Any] = {"displayTimeUnit": "ms", "traceEvents": events}
    if len(drawn) < len(rounds):
        note = f"the first {len(drawn)} of {len(rounds)} rounds, which make {len(spans)} slices; all rounds are in records.jsonl"
        shown["otherData"] = {"note": note}
    return shown


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _slice(span: Span, pid: int, tid: int, types: Mapping[str, str]) -> list[dict[str, Any]]:
    where = {"pid": pid, "tid": tid}
    args: dict[str, Any] = {"tenant": span.tenant, "type": types.get(span.job, ""), "gang": span.gang, "steps": span.steps}
    event = {"ph": "X", "name": span.job, **where, "args": args}
    events = [{**event, "ts": _us(span.start_s), "dur": _us(span.end_s) - _us(span.start_s)}]
    if span.failed:
        events[0] |= {"cname": "terrible", "args": {**args, "failed": True}}
        events.append({"ph": "i", "name": "device failed", "s": "t", **where, "ts": _us(span.end_s), "args": {"job": span.job}})
    return events


def _idle_counters(rounds: Iterable[RoundRecord], process: Mapping[str, int]) -> list[dict[str, Any]]:
    """A sample for every round in which the number of idle devices of a kind changes, and a last one at the end."""
    events: list[dict[str, Any]] = []
    before: dict[str, int] = {}
    end_s = 0.0
    for record in rounds:
        end_s = record.start_s + record.length_s
        for (kind, pid), idle in zip(process.items(), record.idle, strict=True):
            if before.get(kind) != idle:
                before[kind] = idle
                events.append(_counter(pid, record.start_s, idle))
    return events + [_counter(process[kind], end_s, idle) for kind, idle in before.items()]


def _counter(pid: int, at_s: float, idle: int) -> dict[str, Any]:
    return {"ph": "C", "name": "idle devices", "pid": pid, "tid": 0, "ts": _us(at_s), "args": {"idle": idle}}


def _us(seconds: float) -> float:
    """Microseconds; a whole number where it is one, which is most of the time and shorter."""
    value = round(seconds * _US, 3)
    return int(value) if value == int(value) else value


def natural(name: str) -> list[tuple[int, int | str]]:
    """A sort key that puts v100-2-1 before v100-10-0."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name) if part]
