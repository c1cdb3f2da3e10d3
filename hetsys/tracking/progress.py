"""Shows how far a sweep is: bars on a terminal, a plain line every few seconds elsewhere, nothing where it should be quiet."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console

_LINE_PERIOD_S, _LINE_PERIOD_WITHIN_S = 5.0, 15.0
_ENDED = ("finished", "skipped", "failed")


class SweepProgress(Protocol):
    def advance(self, label: str, status: str) -> None:
        """Run `label` is now `running`, or has ended as `finished`, `skipped` (was there already) or `failed`."""

    def within(self, label: str, fraction: float) -> None:
        """Run `label` has come so far, from 0 to 1."""


@dataclass
class Tally:
    """Counts of a sweep of `total` runs, and how long the rest will take."""

    total: int
    start_s: float = field(default_factory=lambda: time.monotonic())
    running: set[str] = field(default_factory=set)
    ended: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_ENDED, 0))
    parts: dict[str, float] = field(default_factory=dict)

    def note(self, label: str, status: str) -> None:
        self.parts.pop(label, None)
        if status == "running":
            self.running.add(label)
            return
        self.running.discard(label)
        self.ended[status] += 1

    @property
    def done(self) -> int:
        return sum(self.ended.values())

    @property
    def part(self) -> float:
        """How much of the runs that have not ended is done, in runs."""
        return sum(self.parts.values())

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.start_s

    @property
    def left_s(self) -> float | None:
        """At the pace of what was executed; None before the first run has ended, or said how far it is."""
        executed = self.done - self.ended["skipped"] + self.part
        return self.elapsed_s / executed * (self.total - self.done - self.part) if executed else None

    def text(self) -> str:
        parts = [f"{self.done}/{self.total} done"]
        parts += [f"{self.ended['skipped']} of them were there already"] if self.ended["skipped"] else []
        parts += [f"{len(self.running)} running"] if self.running else []
        parts += [f"{label} at {fraction:.0%}" for label, fraction in self.parts.items()]
        parts += [f"{self.ended['failed']} failed"] if self.ended["failed"] else []
        parts.append(f"{clock(self.elapsed_s)} elapsed")
        if self.left_s is not None and self.done < self.total:
            parts.append(f"about {clock(self.left_s)} left")
        return ", ".join(parts)


def clock(seconds: float) -> str:
    """`3:07`, or `1:02:09` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def sweep_progress(total: int, console: Console, describe: str) -> Iterator[SweepProgress]:
    """Progress of `total` runs under the title `describe`, on `console` (bars need a terminal).

    Silent with a quiet console and where HETSYS_PROGRESS is `off`.
    """
    if console.quiet or os.environ.get("HETSYS_PROGRESS") == "off":
        yield _Quiet()
    elif console.is_terminal:
        with _bars(total, console, describe) as bars:
            yield bars
    else:
        lines = _Lines(Tally(total), console, describe)
        try:
            yield lines
        finally:
            lines.show()


class _Quiet:
    def advance(self, label: str, status: str) -> None: ...

    def within(self, label: str, fraction: float) -> None: ...


@dataclass
class _Lines:
    tally: Tally
    console: Console
    describe: str
    shown_s: float = field(default_factory=lambda: time.monotonic())
    shown: str = ""

    def advance(self, label: str, status: str) -> None:
        self.tally.note(label, status)
        if status == "failed":
            self._print(f"{self.describe}: {label} failed")
        self._show_when_due(_LINE_PERIOD_S)

    def within(self, label: str, fraction: float) -> None:
        self.tally.parts[label] = fraction
        self._show_when_due(_LINE_PERIOD_WITHIN_S)

    def _show_when_due(self, period_s: float) -> None:
        if time.monotonic() - self.shown_s >= period_s:
            self.show()

    def show(self) -> None:
        self.shown_s = time.monotonic()
        line = f"{self.describe}: {self.tally.text()}"
        if line != self.shown:
            self.shown = line
            self._print(line)

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


@dataclass
class _Bars:
    tally: Tally
    bar: Any
    task: Any

    def advance(self, label: str, status: str) -> None:
        self.tally.note(label, status)
        if status == "failed":
            self.bar.console.print(f"{label} failed", markup=False, style="red")
        self._update()

    def within(self, label: str, fraction: float) -> None:
        self.tally.parts[label] = fraction
        self._update()

    def _update(self) -> None:
        self.bar.update(self.task, completed=self.tally.done + self.tally.part, tally=self.tally.text())


@contextmanager
def _bars(total: int, console: Console, describe: str) -> Iterator[_Bars]:
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[tally]}", markup=False))
    tally = Tally(total)
    with Progress(*columns, console=console, refresh_per_second=4) as bar:
        yield _Bars(tally, bar, bar.add_task(describe, total=total, tally=tally.text()))
