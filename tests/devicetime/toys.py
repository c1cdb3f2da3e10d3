"""Two small engines that are written on a machine as the real ones will be: a pipeline of training messages, and a server whose attention
comes back late. The same code runs simulated, emulated and natively; each has a plain single-process reference."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hetsys.core.costs import Op
from hetsys.core.devicetime.machine import Done, Machine, Ticket, Work
from hetsys.runtime.machines.program import Books, Program

BYTES_PER_ROW = 1_000
WIDTH, ROWS = 6, 4


class Delayed(Program):
    """A program whose operations take random real time, up to `up_to_s`, and whose messages weigh BYTES_PER_ROW a row of the target."""

    def __init__(self, device: str, up_to_s: float) -> None:
        self._random, self._up_to_s = random.Random(device), up_to_s

    def dawdle(self) -> None:
        if self._up_to_s:
            time.sleep(self._random.uniform(0, self._up_to_s))

    def bytes_of(self, name: str, value: Any) -> int:
        return int(value.shape[0]) * BYTES_PER_ROW


# --- a pipeline ------------------------------------------------------------------------------------------------------------------------


def batch(microbatch: int) -> Any:
    import torch

    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1000 + microbatch), dtype=torch.float64)


def stage_layer(stage: int) -> Any:
    import torch

    generator = torch.Generator().manual_seed(stage)
    layer = torch.nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return layer


@dataclass(frozen=True)
class Stages:
    """Makes the program of each device of a pipeline."""

    devices: tuple[str, ...]
    up_to_s: float = 0.0

    def __call__(self, device: str, torch_device: str) -> Program:
        return Stage(device, self.devices.index(device), self.up_to_s)


class Stage(Delayed):
    """One linear layer and a tanh; the loss is the sum of squares of the last stage's output."""

    def __init__(self, device: str, index: int, up_to_s: float) -> None:
        super().__init__(device, up_to_s)
        self.layer = stage_layer(index)
        self.kept: dict[int, tuple[Any, Any]] = {}

    def load(self, books: Books, microbatch: int) -> Any:
        return self.forward(books, batch(microbatch), microbatch)

    def forward(self, books: Books, inputs: Any, microbatch: int) -> Any:
        self.dawdle()
        inputs = inputs.detach().requires_grad_()
        outputs = self.layer(inputs).tanh()
        books.note("forward", rows=inputs.shape[0])
        self.kept[microbatch] = inputs, outputs
        return outputs

    def loss_backward(self, books: Books, microbatch: int) -> Any:
        return self.backward(books, 2 * self.kept[microbatch][1].detach(), microbatch)

    def backward(self, books: Books, gradient: Any, microbatch: int) -> Any:
        self.dawdle()
        inputs, outputs = self.kept.pop(microbatch)
        outputs.backward(gradient)
        books.note("backward", rows=gradient.shape[0])
        return inputs.grad

    def gradients(self, books: Books) -> list[Any]:
        books.note("gradients")
        return [parameter.grad for parameter in self.layer.parameters()]


def pipeline_order(stage: int, num_stages: int, microbatches: int, schedule: str) -> list[tuple[str, int]]:
    """("f" or "b", microbatch) in the order of one stage."""
    warm_up = microbatches if schedule == "gpipe" else min(microbatches, num_stages - 1 - stage)
    order = [("f", m) for m in range(warm_up)]
    for m in range(microbatches - warm_up):
        order += [("f", warm_up + m), ("b", m)]
    return order + [("b", m) for m in range(microbatches - warm_up, microbatches)]


def run_pipeline(machine: Machine, devices: Sequence[str], microbatches: int, schedule: str) -> tuple[list[Any], list[Done]]:
    """One training step: everything is submitted at once, and the machine finds out what happens when. (gradients, completions)."""
    last = len(devices) - 1
    queues = [pipeline_order(stage, len(devices), microbatches, schedule) for stage in range(len(devices))]
    arrived: dict[tuple[str, int, int], Ticket] = {}
    while any(queues):
        for stage, queue in enumerate(queues):
            while queue and _submit_stage(machine, devices, stage, last, *queue[0], arrived):
                queue.pop(0)
    results = [machine.compute(device, Op("gradients"), Work("gradients", returns=True)) for device in devices]
    dones = []
    while (done := machine.next()) is not None:
        dones.append(done)
    return [machine.value(ticket) for ticket in results], dones


def _submit_stage(
    machine: Machine, devices: Sequence[str], stage: int, last: int, what: str, m: int, arrived: dict[tuple[str, int, int], Ticket]
) -> bool:
    """Submit one operation and the message that follows it; False where what it needs was not submitted yet."""
    from_loss = what == "b" and stage == last
    if stage == (0 if what == "f" else last):
        after = [arrived[("f", m, last + 1)]] if from_loss else []
    elif (what, m, stage) in arrived:
        after = [arrived[(what, m, stage)]]
    else:
        return False
    call = {"f": "load" if stage == 0 else "forward", "b": "loss_backward" if from_loss else "backward"}[what]
    takes = () if call in ("load", "loss_backward") else (f"{what}.{m}",)
    there = stage + (1 if what == "f" else -1)
    work = Work(call, (m,), takes, gives=(f"{what}.{m}.out",), frees=takes)
    done = machine.compute(devices[stage], Op({"f": "forward", "b": "backward"}[what], rows=ROWS), work, after)
    if 0 <= there <= last:
        ship = Work(takes=work.gives, gives=(f"{what}.{m}",), frees=work.gives)
        done = machine.send(devices[stage], devices[there], ROWS * BYTES_PER_ROW, ship, after=[done])
    arrived[(what, m, there)] = done
    return True


def plain_gradients(num_stages: int, microbatches: int) -> list[Any]:
    """What one process finds."""
    layers = [stage_layer(stage) for stage in range(num_stages)]
    for m in range(microbatches):
        outputs = batch(m)
        for layer in layers:
            outputs = layer(outputs).tanh()
        outputs.square().sum().backward()
    return [[parameter.grad for parameter in layer.parameters()] for layer in layers]


# --- a server whose attention comes back late ------------------------------------------------------------------------------------------

VOCABULARY, PROMPT = 31, 3


class TinyModel:
    """One attention layer, one head; a row's numbers depend on that row alone."""

    def __init__(self) -> None:
        import torch

        def matrix(seed: int, *shape: int) -> Any:
            return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

        self.embedding = matrix(1, VOCABULARY, WIDTH)
        self.qkv, self.out, self.head = matrix(2, 3 * WIDTH, WIDTH), matrix(3, WIDTH, WIDTH), matrix(4, VOCABULARY, WIDTH)

    def project(self, token: int) -> Any:
        """[3, WIDTH]: query, key, value."""
        return (self.qkv @ self.embedding[token]).reshape(3, WIDTH)

    def next_token(self, token: int, attention: Any) -> int:
        return int((self.head @ (self.embedding[token] + self.out @ attention)).argmax())


class Cache:
    """Keys and values of some sequences."""

    def __init__(self, model: TinyModel, rows: Sequence[int]) -> None:
        self.kept: dict[int, list[Any]] = {row: [model.project(token) for token in prompt(row)[:-1]] for row in rows}

    def attend(self, row: int, query_key_value: Any) -> Any:
        """Append the row's new key and value, and attend to all of them."""
        import torch

        self.kept[row].append(query_key_value)
        _, keys, values = torch.stack(self.kept[row], dim=1)
        return torch.softmax(keys @ query_key_value[0], dim=0) @ values


def prompt(row: int) -> list[int]:
    return [(7 * row + 3 * i + 1) % VOCABULARY for i in range(PROMPT)]


def plain_tokens(row: int, count: int) -> list[int]:
    """The tokens of a row by the plain loop."""
    model, token, tokens = TinyModel(), prompt(row)[-1], []
    cache = Cache(model, [row])
    for _ in range(count):
        token = model.next_token(token, cache.attend(row, model.project(token)))
        tokens.append(token)
    return tokens


@dataclass(frozen=True)
class Server:
    """Where each row's attention is done; makes the programs of all devices."""

    gpu: str
    attention_at: tuple[str, ...]
    up_to_s: float = 0.0

    def rows_at(self, device: str) -> list[int]:
        return [row for row, where in enumerate(self.attention_at) if where == device]

    def __call__(self, device: str, torch_device: str) -> Program:
        return Decoder(self, device)


class Decoder(Delayed):
    """Steps the dense layers of all rows, or attends for some; every device can do both."""

    def __init__(self, server: Server, device: str) -> None:
        super().__init__(device, server.up_to_s)
        self.model = TinyModel()
        self.cache = Cache(self.model, server.rows_at(device))
        self.last = {row: prompt(row)[-1] for row in range(len(server.attention_at))}
        self.ready: dict[int, Any] = {}

    def bytes_of(self, name: str, value: Any) -> int:
        return BYTES_PER_ROW

    def step(self, books: Books, *attention_then_args: Any) -> Any:
        """(attention of each row of `late`, in their order; `late`; `fresh`) -> (projection of each of them, then {row: token})."""
        *attention, late, fresh = attention_then_args
        self.dawdle()
        self.ready |= dict(zip(late, attention, strict=True))
        tokens = {row: self.model.next_token(self.last[row], result) for row, result in self.ready.items()}
        books.note("step", rows=len(tokens) + len(fresh))
        self.last |= tokens
        projected = {row: self.model.project(self.last[row]) for row in (*tokens, *fresh)}
        self.ready = {row: self.cache.attend(row, projected[row]) for row in projected if row in self.cache.kept}
        sent = [projected[row] for row in (*late, *fresh) if row not in self.cache.kept]
        return (*sent, tokens) if sent else tokens

    def attend(self, books: Books, projected: Any, row: int) -> Any:
        self.dawdle()
        result = self.cache.attend(row, projected)
        books.note("attention", rows=1, kv_tokens=len(self.cache.kept[row]))
        return result


@dataclass
class Served:
    """Tokens of each row, the step at which each late result of a row came on board, and all completions."""

    tokens: dict[int, list[int]]
    boarded: dict[int, list[int]]
    dones: list[Done] = field(default_factory=list)


def serve(machine: Machine, server: Server, steps: int) -> Served:
    """`steps` decode steps. At each boundary exactly those late results come on board that have arrived by then."""
    rows = range(len(server.attention_at))
    late_rows = [row for row in rows if server.attention_at[row] != server.gpu]
    served = Served({row: [] for row in rows}, {row: [] for row in late_rows})
    under_way: dict[Ticket, int] = {}
    context = dict.fromkeys(rows, PROMPT - 1)
    arrived: list[int] = []
    fresh: tuple[int, ...] = tuple(rows)
    for step in range(1, steps + 1):
        late, arrived = tuple(sorted(arrived)), []
        ticket = _submit_step(machine, server, late, fresh, late_rows)
        for row in late:
            served.boarded[row].append(step)
        sent = [row for row in (*late, *fresh) if row in late_rows]
        _wait_for(machine, ticket, under_way, arrived, served)
        for row, token in machine.value(ticket).items():
            served.tokens[row].append(token)
        for row in sent:
            context[row] += 1
            under_way[_submit_attention(machine, server, row, context[row], ticket)] = row
        fresh = ()
    return served


def _submit_step(machine: Machine, server: Server, late: tuple[int, ...], fresh: tuple[int, ...], late_rows: Sequence[int]) -> Ticket:
    local = len(server.attention_at) - len(late_rows)
    gives = tuple(f"projected.{row}" for row in (*late, *fresh) if row in late_rows)
    takes = tuple(f"attention.{row}" for row in late)
    work = Work("step", (late, fresh), takes, gives, frees=takes, returns=True)
    return machine.compute(server.gpu, Op("step", rows=len(late) + (len(fresh) or local)), work)


def _submit_attention(machine: Machine, server: Server, row: int, context: int, step: Ticket) -> Ticket:
    """Out, attend, and back: the ticket of the answer."""
    where, projected, attention = server.attention_at[row], (f"projected.{row}",), (f"attention.{row}",)
    out = machine.send(server.gpu, where, BYTES_PER_ROW, Work(takes=projected, frees=projected), after=[step])
    work = Work("attend", (row,), projected, attention, frees=projected)
    attended = machine.compute(where, Op("attention", rows=1, kv_tokens=context), work, after=[out])
    return machine.send(where, server.gpu, BYTES_PER_ROW, Work(takes=attention, frees=attention), after=[attended])


def _wait_for(machine: Machine, step: Ticket, under_way: dict[Ticket, int], arrived: list[int], served: Served) -> None:
    """Until the step is done, then whatever else is there by then; not a nanosecond longer."""
    over = False
    while (done := machine.next(machine.now_ns if over else None)) is not None:
        served.dones.append(done)
        over = over or done.ticket == step
        if done.ticket in under_way:
            arrived.append(under_way.pop(done.ticket))
