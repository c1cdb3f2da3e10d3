"""What an engine gives a machine to run on each device, and the books in which the device's program notes what it really did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hetsys.core.devicetime.ledger import Entry, Ledger


class Books:
    """One device's pen. `note` is called where the work is done, with numbers taken from what was worked on and not from the order."""

    def __init__(self, device: str, ledger: Ledger) -> None:
        self.device, self._ledger = device, ledger

    def note(self, kind: str, rows: float = 0, kv_tokens: float = 0) -> None:
        """One operation `kind` was done, on `rows` rows (the shape of its tensor) and `kv_tokens` cached tokens."""
        self._ledger.write(Entry(self.device, kind, rows, kv_tokens))


class Program:
    """Base of an engine's programs: each public method is a `Work.call`, called as `method(books, *values, *args)`.

    A program belongs to one device and may keep state of its own (weights, caches). Where the model that runs is a carrier, thinner than
    the one that is charged, `bytes_of` turns what was really moved into the target's bytes: rows counted from the tensor times the
    target's bytes a row, so that a wrong number of rows shows in the books.
    """

    def bytes_of(self, name: str, value: Any) -> int:
        """Bytes of `value`, which a message or a collective moves under `name` (the store's name for it); here those of its tensors."""
        from hetsys.runtime.machines.wire import tensors_in

        return sum(tensor.nbytes for tensor in tensors_in(value))


ProgramFactory = Callable[[str, str], Program]
"""(device's name, torch's name for where it computes: "cpu" or "cuda:0") -> its program. Must be picklable."""
