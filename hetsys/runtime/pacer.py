"""How a CPU worker rests: after each step it sleeps so long that it has computed only a part of the time, and the rest of the cores' time
is left to the scheduler and the operating system."""

from __future__ import annotations

import time

CREDIT_S = 0.05
"""How far a worker that had to wait for a core may catch up by resting less; what it lost beyond that is lost."""
_SHORTEST_SLEEP_S = 5e-4
_OVERSHOOT_S = 6e-5


class Pacer:
    """Keeps the calling thread at `busy_fraction` of one core, by the CPU time that the thread itself spent; 1 never rests."""

    def __init__(self, busy_fraction: float) -> None:
        assert 0 < busy_fraction <= 1
        self.busy_fraction = busy_fraction
        self.restart()

    def restart(self) -> None:
        """Begin anew: what was spent or waited for until now does not count. Call it after any wait for others, and first in the thread."""
        self._spent_s = time.thread_time()
        self._due_s = time.perf_counter()

    def resume(self) -> None:
        """Go on after a wait for others: the wait counts as rest, what is still to be rested stays due."""
        self._spent_s = time.thread_time()
        self._due_s = max(self._due_s, time.perf_counter())

    def rest(self) -> None:
        """Sleep as long as the CPU time since the last call asks for. Waiting earns no credit beyond CREDIT_S."""
        if self.busy_fraction >= 1:
            return
        spent_s = time.thread_time()
        self._due_s += (spent_s - self._spent_s) / self.busy_fraction
        self._spent_s = spent_s
        early_s = self._due_s - time.perf_counter()
        if early_s >= _SHORTEST_SLEEP_S:
            time.sleep(early_s - _OVERSHOOT_S)
        elif early_s < -CREDIT_S:
            self._due_s -= CREDIT_S + early_s
