"""The books: what was ordered of each device and what was really done there, line by line; nothing is lost, doubled or moved unseen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from hetsys.core.costs import Op


@dataclass(frozen=True)
class Entry:
    """One line. `kind`: the operation's, "send", "receive", or the collective's; `num_bytes` (of messages and collectives): the target
    model's; `peer`: the other end of a message, or all devices of a collective joined by "+"."""

    device: str
    kind: str
    rows: float = 0
    kv_tokens: float = 0
    num_bytes: float = 0
    peer: str = ""

    def __str__(self) -> str:
        facts = {"rows": self.rows, "kv_tokens": self.kv_tokens, "bytes": self.num_bytes}
        shown = [f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in facts.items() if value]
        return " ".join([self.kind, *shown, *([f"with {self.peer}"] if self.peer else [])])


def compute_line(device: str, op: Op) -> Entry:
    """What an operation writes; its memory traffic is the target's alone and can't be counted, so it is left out."""
    return Entry(device, op.kind, op.rows, op.kv_tokens)


def message_lines(source: str, target: str, num_bytes: int) -> tuple[Entry, Entry]:
    """What a message writes: at its source when it begins, at its target when it has arrived."""
    return Entry(source, "send", num_bytes=num_bytes, peer=target), Entry(target, "receive", num_bytes=num_bytes, peer=source)


def collective_lines(kind: str, devices: Sequence[str], num_bytes: int) -> tuple[Entry, ...]:
    """What a collective writes at each of its devices."""
    return tuple(Entry(device, kind, num_bytes=num_bytes, peer="+".join(devices)) for device in devices)


class Ledger:
    """Lines in the order in which they were written, device by device; `settled` of each were compared already and are forgotten."""

    def __init__(self) -> None:
        self._lines: dict[str, list[Entry]] = {}
        self._settled: Counter[str] = Counter()

    def write(self, entry: Entry) -> None:
        self._lines.setdefault(entry.device, []).append(entry)

    def lines(self, device: str) -> Sequence[Entry]:
        """The open lines of `device`, oldest first."""
        return self._lines.get(device, ())

    @property
    def devices(self) -> list[str]:
        """Devices with open lines."""
        return sorted(device for device, lines in self._lines.items() if lines)

    def settled(self, device: str) -> int:
        """How many lines of `device` were taken out."""
        return self._settled[device]

    def take(self) -> list[Entry]:
        """All open lines, device by device; they are forgotten here, and only their number is kept."""
        taken = [entry for device in self.devices for entry in self._lines[device]]
        self._settled.update(entry.device for entry in taken)
        self._lines.clear()
        return taken


def mismatches(ordered: Ledger, done: Ledger) -> list[str]:
    """For each device whose open lines differ: the first that does, and the operations whose number is wrong. Empty: the books balance."""
    found = []
    for device in sorted({*ordered.devices, *done.devices}):
        wanted, had = ordered.lines(device), done.lines(device)
        if list(wanted) != list(had):
            found.append(_difference(device, ordered.settled(device), wanted, had))
    return found


def _difference(device: str, settled: int, ordered: Sequence[Entry], done: Sequence[Entry]) -> str:
    pairs = enumerate(zip_longest(ordered, done), settled + 1)
    number, (wanted, had) = next((number, pair) for number, pair in pairs if pair[0] != pair[1])
    text = f"{device}, line {number}: ordered {wanted or 'nothing more'}, done {had or 'nothing more'}"
    return "; ".join([text, *_miscounted(ordered, done)])


def _miscounted(ordered: Iterable[Entry], done: Iterable[Entry]) -> list[str]:
    """Operations of one device ordered and done a different number of times; at most three, the first ordered first."""
    wanted, had = Counter(ordered), Counter(done)
    wrong = [entry for entry in (wanted | had) if wanted[entry] != had[entry]]
    return [f"[{entry}] ordered {wanted[entry]} times, done {had[entry]} times" for entry in wrong[:3]]
