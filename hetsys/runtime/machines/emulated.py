"""The emulated machine: the simulated one, whose operations are also executed. Device time decides what happens when; workers only follow.

Orders go out in the order of device time, which no worker can deadlock on: whatever an order needs was ordered before. So nothing sleeps,
and neither the workers' speed nor how the devices are spread over them can change a time or an order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hetsys.core.cluster import Cluster
from hetsys.core.costs import CostModel
from hetsys.core.devicetime.collectives import CollectiveCost
from hetsys.core.devicetime.machine import Done, Ticket, given_names
from hetsys.core.devicetime.simulated import SimMachine, Task
from hetsys.runtime.launch import Launcher
from hetsys.runtime.machines import wire
from hetsys.runtime.machines.crew import TIMEOUT_S, Crew, Crewed
from hetsys.runtime.machines.program import ProgramFactory

_SETTLE_EVERY = 20_000


class EmulatedMachine(Crewed, SimMachine):
    """Workers do each operation when it begins on device time, and are waited for only where a value is asked for or the books are settled.

    `hosts`: device -> name of the worker process that hosts it (several may share one; see `spread`); None gives each device its own. Only
    devices named there can be used. `debug` settles the books at every instant at which something is done. Leaving a `with` block closes
    the machine, or ends its workers at once where an exception passes.
    """

    source = "emulated"

    def __init__(
        self,
        cluster: Cluster,
        cost: CostModel,
        launcher: Launcher,
        program: ProgramFactory,
        hosts: Mapping[str, str] | None = None,
        collectives: CollectiveCost | None = None,
        debug: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        super().__init__(cluster, cost, collectives)
        self._debug = debug
        self._unsettled = 0
        self._returns: set[Ticket] = set()
        self._hosts = dict(hosts) if hosts is not None else {device.name: device.name for device in cluster.devices}
        places = [wire.Place(self._device(name).name) for name in self._hosts]
        self._crew = Crew(launcher, self._hosts, places, program, reports=False, timeout_s=timeout_s)

    def next(self, until_ns: int | None = None) -> Done | None:
        self._crew.require_life()
        self._crew.look()
        return super().next(until_ns)

    def value(self, ticket: Ticket) -> Any:
        self._require_done(ticket)
        return self._result(ticket)

    def settle(self) -> None:
        self._unsettled = 0
        super().settle()

    def _submit(self, task: Task, after: Sequence[Ticket]) -> Ticket:
        assert task.work is not None or task.kind == "host", f"{task.kind} on {task.where} is charged; its work is missing"
        for device in task.devices:
            assert device in self._hosts, f"{device} is hosted by no worker"
        return super()._submit(task, after)

    def _advance(self) -> None:
        super()._advance()
        if self._debug or self._unsettled >= _SETTLE_EVERY:
            self.settle()

    def _begun(self, task: Task) -> None:
        self._unsettled += 1
        if task.work is None:
            return
        if task.kind == "compute":
            if task.work.returns:
                self._returns.add(task.ticket)
            self._crew.order(task.devices[0], wire.Perform(task.ticket, task.devices[0], task.work))
        elif task.kind == "send":
            source, target = task.devices
            self._crew.order(source, wire.Ship(task.ticket, source, target, task.work))
        else:
            for device in {self._hosts[device]: device for device in task.devices}.values():
                self._crew.order(device, wire.Join(task.ticket, task.kind, task.devices, task.work))

    def _ended(self, task: Task) -> None:
        if task.kind == "send" and task.work is not None:
            source, target = task.devices
            self._crew.order(target, wire.Accept(task.ticket, source, target, given_names(task.work)))
