"""What travels: the driver's commands and the workers' reports (small and picklable), and values (tensors in one flat buffer)."""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hetsys.core.devicetime.ledger import Entry
from hetsys.core.devicetime.machine import Ticket, Work
from hetsys.runtime.machines.program import ProgramFactory

if TYPE_CHECKING:
    import torch

_ALIGNMENT = 64


@dataclass(frozen=True)
class Place:
    """A device as its worker needs to know it: see `DeviceSheet`. An emulated one has the defaults: it computes here and never rests."""

    device: str
    native: str = ""
    cuda_index: int = 0
    busy_fraction: float = 1.0


@dataclass(frozen=True)
class Charter:
    """What a worker is told at its start. `rank_of`: which worker hosts each device of the machine; `on_cuda`: the devices that are GPUs.
    `secret`: what workers know each other by. `reports`: tell the driver about every operation (the wall clock), and not only results."""

    name: str
    rank: int
    names: tuple[str, ...]
    places: tuple[Place, ...]
    rank_of: dict[str, int]
    on_cuda: frozenset[str]
    program: ProgramFactory
    secret: bytes
    timeout_s: float
    reports: bool


@dataclass(frozen=True)
class Meet:
    """Where the other workers are: by rank, where each takes in messages; and the port of the store by which collectives are set up."""

    addresses: dict[int, tuple[str, int]]
    store_port: int


@dataclass(frozen=True)
class Perform:
    """Run a method of the program of `device`."""

    ticket: Ticket
    device: str
    work: Work


@dataclass(frozen=True)
class Ship:
    """Begin a message: copy the values now, and send them. They are taken in at the other end as they come, whatever its devices do
    meanwhile, and nobody sees them before `Accept`."""

    ticket: Ticket
    source: str
    target: str
    work: Work


@dataclass(frozen=True)
class Accept:
    """The message has arrived on the machine's clock: put it into the store (after waiting for it, if it really comes later)."""

    ticket: Ticket
    source: str
    target: str
    gives: tuple[str, ...]


@dataclass(frozen=True)
class Join:
    """Take part in a collective for those of `devices` that live here."""

    ticket: Ticket
    kind: str
    devices: tuple[str, ...]
    work: Work


@dataclass(frozen=True)
class Settle:
    """Finish everything before this and hand in the books."""

    number: int


@dataclass(frozen=True)
class Stop:
    """End."""


Command = Meet | Perform | Ship | Accept | Join | Settle | Stop


@dataclass(frozen=True)
class Present:
    """The worker has made its programs. `address`: where it takes in messages; `store_port`: of the first worker, see `Meet`."""

    address: tuple[str, int]
    store_port: int


@dataclass(frozen=True)
class Ready:
    """The worker has met the others."""


@dataclass(frozen=True)
class Finished:
    """An operation is done: its start and end by the monotonic clock, and (result,) where the driver wants it."""

    ticket: Ticket
    start_ns: int
    end_ns: int
    result: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Settled:
    """Everything before `Settle(number)` is done; the lines written since the last time."""

    number: int
    lines: list[Entry]


@dataclass(frozen=True)
class PeerLost:
    """A transfer broke off: some other worker is gone. The one that has died is to be blamed, not this one."""

    text: str


@dataclass(frozen=True)
class Parcel:
    """A value on its way: a pickle with holes, and the tensors that fill them as one flat buffer of bytes on the CPU."""

    outline: bytes
    body: torch.Tensor
    shapes: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)


def pack(value: Any) -> Parcel:
    """Copy `value` (tensors inside lists, tuples, dicts and plain objects) into a parcel; autograd's history stays behind."""
    import torch

    tensors: list[torch.Tensor] = []
    buffer = io.BytesIO()
    _Outliner(buffer, tensors).dump(value)
    body = torch.empty(sum(_room(tensor.nbytes) for tensor in tensors), dtype=torch.uint8)
    start = 0
    for tensor in tensors:
        flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        body[start : start + tensor.nbytes].copy_(flat)
        start += _room(tensor.nbytes)
    shapes = [(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)) for tensor in tensors]
    return Parcel(buffer.getvalue(), body, shapes)


def _room(num_bytes: int) -> int:
    """What a tensor takes up in a parcel, so that the next one begins where any type of number may."""
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of `value`, in the order in which a parcel holds them."""
    tensors: list[torch.Tensor] = []
    _Outliner(io.BytesIO(), tensors).dump(value)
    return tensors


def unpack(parcel: Parcel, torch_device: str = "cpu") -> Any:
    """The value of `parcel`, its tensors on `torch_device`; on the CPU they lie in the parcel's own buffer."""
    import torch

    tensors, start = [], 0
    for dtype_name, shape in parcel.shapes:
        dtype = getattr(torch, dtype_name)
        size = dtype.itemsize * torch.Size(shape).numel()
        tensors.append(parcel.body[start : start + size].view(dtype).reshape(shape).to(torch_device))
        start += _room(size)
    return _Filler(io.BytesIO(parcel.outline), tensors).load()


class _Outliner(pickle.Pickler):
    """Leaves tensors out, numbered in the order in which they are met."""

    def __init__(self, buffer: io.BytesIO, tensors: list[torch.Tensor]) -> None:
        super().__init__(buffer)
        self._tensors = tensors

    def persistent_id(self, value: Any) -> int | None:
        import torch

        if not isinstance(value, torch.Tensor):
            return None
        self._tensors.append(value)
        return len(self._tensors) - 1


class _Filler(pickle.Unpickler):
    """Puts them back."""

    def __init__(self, buffer: io.BytesIO, tensors: list[torch.Tensor]) -> None:
        super().__init__(buffer)
        self._loaded = tensors

    def persistent_load(self, number: int) -> torch.Tensor:
        return self._loaded[number]
