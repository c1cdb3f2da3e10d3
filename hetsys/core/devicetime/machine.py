"""The contract between an engine and the machine that it drives: operations, messages and collectives go in, completions come out in
the order of the clock. Three machines keep it: simulated (times), emulated (times, and live workers for values), native (wall clock)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hetsys.core.costs import Op

Ticket = int
"""Names something submitted; tickets count up from 0."""


@dataclass(frozen=True)
class Work:
    """What is really done for an operation, on the device where it is charged.

    Each device has a program (an object that the engine supplies) and a store of named values, which stay there.
    - compute: the program's method `call` gets the values that `takes` names, then `args` (picklable). What it results in is kept under
      `gives`; with `returns` there is one thing more, last, that goes to the driver for `Machine.value`. Several things come as a tuple,
      a single one as it is; where there is none the result is dropped.
    - message: the values that `takes` names go to the other end, which keeps them under `gives` (empty: the same names). They are copied
      when the message begins and can be seen at the other end when it has arrived, not before. `call` is empty.
    - collective: every device hands in its tensor `takes[0]` and keeps its result as `gives[0]`. For broadcast only the first device hands
      one in; all_gather joins, reduce_scatter and all_to_all split the first dimension, in the order of `devices`. `call` is empty.

    `frees` names values of the store that are forgotten afterwards (of a message: at its source).
    """

    call: str = ""
    args: tuple[Any, ...] = ()
    takes: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    frees: tuple[str, ...] = ()
    returns: bool = False


def given_names(message: Work) -> tuple[str, ...]:
    """What a message's values are called at its target."""
    assert not message.gives or len(message.gives) == len(message.takes), f"{message.takes} cannot become {message.gives}"
    return message.gives or message.takes


@dataclass(frozen=True)
class Done:
    """A completion. `where`: the device, or "source->target" for a message, or the devices of a collective joined by "+", or the host's
    lane. A message starts when it takes its wires and ends when it has arrived."""

    ticket: Ticket
    where: str
    start_ns: int
    end_ns: int


class Machine(Protocol):
    """Integer nanoseconds since the run began.

    - A device executes its operations one after the other in the order of submission (one stream); one that has to wait holds up those
      behind it. A collective stands in the streams of all its devices. Different devices know no order.
    - Each direction of a node's NIC and of a device's own link (PCIe, NVLink) carries one message at a time. A message takes all it passes
      through at once, and whoever became ready first goes first (ties: lower ticket); only what can't begin yet is passed. A collective
      holds the wires of its devices and of the nodes that it spans. Messages take no time of the devices.
    - Nothing starts before it is submitted, before everything in `after` is done, or in idle time that has passed.
    - `after` names earlier tickets. On a machine that executes, every compute, send and collective comes with a `Work`, or is refused.
    - Durations are the cost model's, to the nearest nanosecond. A sheet's `host_overhead_s` belongs to an engine's step, not to one
      operation: the engine charges it through `host`.
    """

    source: str
    """"simulated", "emulated" or "measured"."""

    @property
    def now_ns(self) -> int: ...

    def compute(self, device: str, op: Op, work: Work | None = None, after: Sequence[Ticket] = ()) -> Ticket:
        """Queue `op` on `device`, to start when the device is free and everything in `after` is done."""
        ...

    def send(self, source: str, target: str, num_bytes: int, work: Work | None = None, after: Sequence[Ticket] = ()) -> Ticket:
        """Queue a message between two devices. It holds what it passes through (NIC out and NIC in between nodes, both devices' own links
        inside one) for `num_bytes` over the link's bandwidth, and arrives a latency later."""
        ...

    def collective(
        self, kind: str, devices: Sequence[str], num_bytes: int, work: Work | None = None, after: Sequence[Ticket] = ()
    ) -> Ticket:
        """Queue one operation of all `devices` together, `kind` one of COLLECTIVES, priced by formulas or by a table. `num_bytes`: what one
        device hands in."""
        ...

    def host(self, lane: str, duration_ns: int, after: Sequence[Ticket] = ()) -> Ticket:
        """Time of the host, a decision that was charged; what one lane is given passes one after the other. Natively it has passed already,
        and this is done when `after` is."""
        ...

    def next(self, until_ns: int | None = None) -> Done | None:
        """The earliest completion that was not handed out yet, moving the clock to it; None, with the clock at `until_ns`, where that
        comes first. With nothing under way and no `until_ns`: None. Raises EngineError if a worker is lost.

        On device time those of one instant come by ticket, and `until_ns` itself still counts. On the wall clock completions come as the
        driver learns of them, and the clock has moved on to at least `until_ns` when None is returned."""
        ...

    def value(self, ticket: Ticket) -> Any:
        """The result of a completed operation whose work `returns`; may be asked for once. Refuses (AssertionError) what is not done yet on
        the clock: a late result does not exist before its time. Waits for the worker, never for the clock. None on a simulated machine."""
        ...

    def settle(self) -> None:
        """Wait until what has begun is done by the workers and compare the books; EngineError names the first lines that differ. Nothing to
        do on a simulated machine. An engine calls it where it wants a check (the end of a round); `close` does it in any case."""
        ...

    def close(self) -> None:
        """Settle the books and release every process. Safe to call twice."""
        ...
