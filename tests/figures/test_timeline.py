"""The timeline: spans of a run worked out by hand, and a Chrome trace that a viewer can open."""

from __future__ import annotations

import json

import pytest

from hetsys.core.scheduling.record import Grant
from hetsys.report.timeline import chrome_trace, device_spans, natural
from tests.figures.results import records
from tests.metrics.records import round_


def test_spans_by_hand() -> None:
    """Six rounds of 100 s: a.0 holds two devices throughout; b.0's lease ends at 340 s with its device; b.1 starts in round 1."""
    spans = device_spans(records())
    found = {(s.device, s.job, s.start_s, s.end_s, s.rounds, s.failed) for s in spans}
    assert found == {
        ("slow-0-0", "a.0", 0.0, 600.0, 6, False),
        ("slow-0-1", "a.0", 0.0, 600.0, 6, False),
        ("fast-0-0", "b.0", 0.0, 340.0, 4, True),
        ("fast-0-0", "b.0", 400.0, 600.0, 2, False),
        ("fast-0-10", "b.1", 100.0, 600.0, 5, False),
    }
    first = spans[0]
    assert (first.steps, first.lost_steps, first.gang, first.kind, first.tenant) == (60, 0, 2, "slow", "a")
    assert next(s for s in spans if s.failed).lost_steps == 9


def test_a_restart_a_gap_and_another_job_each_begin_a_new_span() -> None:
    def grant(job: str, restarted: bool = False) -> Grant:
        return Grant(job, "a", "slow", ("slow-0-0",), 1, 100.0, restarted=restarted)

    rounds = [round_(0, grants=[grant("x")]), round_(1, grants=[grant("x", True)]), round_(2, grants=[grant("y")]), round_(3)]
    rounds.append(round_(4, grants=[grant("y")]))
    assert [(s.job, s.start_s, s.end_s) for s in device_spans(rounds)] == [
        ("x", 0.0, 100.0), ("x", 100.0, 200.0), ("y", 200.0, 300.0), ("y", 400.0, 500.0)
    ]  # fmt: skip


def test_the_trace_has_a_track_a_device_and_says_what_failed() -> None:
    trace = chrome_trace(records(), ("slow", "fast"))
    events = json.loads(json.dumps(trace, allow_nan=False))["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert processes == {1: "slow", 2: "fast"}
    assert list(tracks.values()) == ["fast-0-0", "fast-0-10", "slow-0-0", "slow-0-1"]
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == 5 and all((e["pid"], e["tid"]) in tracks for e in slices)
    failed = [e for e in slices if e["args"].get("failed")]
    assert [(e["name"], e["ts"], e["dur"], e["args"]["type"], e["args"]["tenant"]) for e in failed] == [
        ("b.0", 0.0, 340e6, "type b", "b")
    ]  # fmt: skip
    assert [(e["ts"], e["args"]["job"]) for e in events if e["ph"] == "i"] == [(340e6, "b.0")]
    idle = [(processes[e["pid"]], e["ts"], e["args"]["idle"]) for e in events if e["ph"] == "C"]
    assert idle == [("slow", 0.0, 0), ("fast", 0.0, 1), ("fast", 100e6, 0), ("slow", 600e6, 0), ("fast", 600e6, 0)]


def test_a_long_run_is_drawn_up_to_a_bound_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "otherData" not in chrome_trace(records(), ("slow", "fast"))
    monkeypatch.setattr("hetsys.report.timeline.MOST_SPANS", 4)
    trace = chrome_trace(records(), ("slow", "fast"))
    slices = [(e["name"], e["ts"], e["dur"]) for e in trace["traceEvents"] if e["ph"] == "X"]
    assert slices == [("a.0", 0, 200e6), ("a.0", 0, 200e6), ("b.0", 0, 200e6), ("b.1", 100e6, 100e6)]
    assert max(e["ts"] for e in trace["traceEvents"] if e["ph"] == "C") == 200e6
    assert trace["otherData"]["note"] == "the first 2 of 6 rounds, which make 4 slices; all rounds are in records.jsonl"


def test_a_gang_on_several_kinds_is_drawn_where_its_devices_are() -> None:
    mixed = Grant("x", "a", "slow", ("slow-0-0", "fast-0-1"), 1, 100.0, mix=(1, 1))
    assert {(s.device, s.kind) for s in device_spans([round_(grants=[mixed])])} == {("slow-0-0", "slow"), ("fast-0-1", "fast")}


def test_an_empty_run_has_a_valid_trace() -> None:
    assert {e["ph"] for e in chrome_trace([], ("slow",))["traceEvents"]} == {"M"}


def test_names_sort_by_their_numbers() -> None:
    names = ["v100-10-0", "v100-2-1", "v100-2-0", "k80-0-0"]
    assert sorted(names, key=natural) == ["k80-0-0", "v100-2-0", "v100-2-1", "v100-10-0"]
