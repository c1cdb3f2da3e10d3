"""When which device is out of service: the device failures of a trace, as spans of device time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from hetsys.core.scheduling.trace import DeviceFailure
from hetsys.engines.scheduling.state import to_ns


class Outages:
    """The spans of each device, sorted and disjoint, in nanoseconds; overlapping failures are one span."""

    def __init__(self, failures: Iterable[DeviceFailure]) -> None:
        self._spans: dict[str, list[tuple[int, int]]] = {}
        for failure in sorted(failures, key=lambda failure: failure.at_s):
            start_ns, end_ns = to_ns(failure.at_s), to_ns(failure.at_s + failure.down_s)
            spans = self._spans.setdefault(failure.device, [])
            if spans and start_ns <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(spans[-1][1], end_ns))
            else:
                spans.append((start_ns, end_ns))

    def down_at(self, now_ns: int) -> frozenset[str]:
        """The devices that are out of service at `now_ns`."""
        return frozenset(name for name, spans in self._spans.items() if _covers(spans, now_ns))

    def first(self, devices: Iterable[str], start_ns: int, end_ns: int) -> int | None:
        """When the first of `devices` is lost in `[start_ns, end_ns)`: `start_ns` where one is down already, None where all hold out."""
        lost = []
        for name in devices:
            spans = self._spans.get(name, ())
            if _covers(spans, start_ns):
                return start_ns
            later = bisect_right(spans, start_ns, key=_start)
            if later < len(spans) and spans[later][0] < end_ns:
                lost.append(spans[later][0])
        return min(lost, default=None)


def _start(span: tuple[int, int]) -> int:
    return span[0]


def _covers(spans: Sequence[tuple[int, int]], now_ns: int) -> bool:
    """Whether one of `spans` (sorted, disjoint) holds `now_ns`."""
    index = bisect_right(spans, now_ns, key=_start)
    return index > 0 and now_ns < spans[index - 1][1]
