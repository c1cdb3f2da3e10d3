"""The keeper of device time: events by integer nanosecond, those of one instant together, in the order in which they were submitted."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

Event = TypeVar("Event")
NS = 1_000_000_000


def to_ns(seconds: float) -> int:
    """Nearest nanosecond: the one place where a duration in seconds becomes one that can be added up in any order."""
    assert seconds >= 0, f"a duration of {seconds} s"
    return round(seconds * NS)


class EventHeap(Generic[Event]):
    """Events wait until their time; ties are broken by `order` (a ticket), then by who came first."""

    def __init__(self) -> None:
        self._events: list[tuple[int, int, int, Event]] = []
        self._pushed = 0

    def push(self, at_ns: int, order: int, event: Event) -> None:
        heappush(self._events, (at_ns, order, self._pushed, event))
        self._pushed += 1

    @property
    def next_ns(self) -> int | None:
        """When the earliest event is due; None where there is none."""
        return self._events[0][0] if self._events else None

    def pop_instant(self) -> tuple[int, list[Event]]:
        """The earliest instant and all of its events."""
        at_ns = self._events[0][0]
        events = []
        while self._events and self._events[0][0] == at_ns:
            events.append(heappop(self._events)[3])
        return at_ns, events
