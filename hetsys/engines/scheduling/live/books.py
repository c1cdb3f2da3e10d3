"""The books of the real training behind a scheduling run: what every process counted against what it was ordered to do, round by round."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hetsys.core.errors import EngineError
from hetsys.core.scheduling.plan import Lease
from hetsys.core.scheduling.trace import Job
from hetsys.engines.scheduling.live.orders import Report

TOTALS = ("executed_steps", "checkpoints", "reduced_bytes", "ledger_lines", "ledger_mismatches")
Note = Callable[[dict[str, Any]], None]


@dataclass
class _Account:
    """A job's steps that stand, and their losses."""

    losses: list[float] = field(default_factory=list)
    digest: Any = field(default_factory=hashlib.sha256)


class Books:
    """Keeps an account a job. `note` receives one line for each rank of each lease and round, as plain JSON values."""

    def __init__(self, jobs: Sequence[Job], note: Note | None, kind_of: Mapping[str, str] | None = None) -> None:
        """`kind_of`: the kind of each device; without it, all devices of a lease are of its kind."""
        self._kind_of = kind_of or {}
        self._jobs = {job.name: job for job in jobs}
        self._accounts = {job.name: _Account() for job in jobs}
        self._note = note
        self._totals: Counter[str] = Counter()

    def steps_done(self, job: str) -> int:
        """The steps of `job` that stand: made, reported, and not lost since."""
        return len(self._accounts[job].losses)

    @property
    def losses(self) -> dict[str, list[float]]:
        """The loss of every step that stands, by job."""
        return {name: list(account.losses) for name, account in self._accounts.items()}

    def digests(self) -> dict[str, str]:
        """SHA-256 over (step, loss) of every step that stands, by job: equal digests, equal losses, bit for bit."""
        return {name: account.digest.hexdigest() for name, account in self._accounts.items()}

    def totals(self) -> dict[str, int]:
        """What was executed in all: `executed_steps` (over ranks, lost ones included), `checkpoints` and `reduced_bytes`; the
        `ledger_lines` that were compared with what was ordered, and the `ledger_mismatches` among them."""
        return {name: self._totals[name] for name in TOTALS}

    def check(self, index: int, lease: Lease, reports: Sequence[Report], steps: int, saves: bool) -> None:
        """Compare the reports of round `index`, one a rank in order, with the orders: `steps` steps from where the job stood, and a
        checkpoint where it `saves`. Raises EngineError that names the first thing that differs, with both numbers."""
        job = self._jobs[lease.job]
        first_step = self.steps_done(lease.job)
        bytes_a_step = reduced_bytes_a_step(job.program) if job.gang > 1 else 0
        for rank, (device, report) in enumerate(zip(lease.devices, reports, strict=True)):
            ordered = {
                "job": lease.job, "rank": rank, "device": device, "kind": self._kind_of.get(device, lease.kind), "first_step": first_step,
                "steps": steps, "last_step": first_step + steps, "saved_step": first_step + steps if saves and rank == 0 else -1,
                "reduced_bytes": steps * bytes_a_step,
            }  # fmt: skip
            counted = {name: getattr(report, name) for name in ordered} | {"losses": len(report.losses)}
            for name, value in (ordered | {"losses": steps if rank == 0 else 0}).items():
                self._totals["ledger_lines"] += 1
                if counted[name] != value:
                    self._totals["ledger_mismatches"] += 1
                    where = f"job {lease.job}, rank {rank} on {device}, round {index}"
                    raise EngineError(f"the books do not balance: {where}: {name} ordered {value}, counted {counted[name]}")
            self._totals["executed_steps"] += report.steps
            self._totals["checkpoints"] += report.saved_step >= 0
            self._totals["reduced_bytes"] += report.reduced_bytes

    def enter(self, index: int, reports: Sequence[Report], wall_s: float, stands: bool) -> None:
        """Note the (checked) reports; where the round `stands`, its steps are added to the account."""
        if stands:
            account = self._accounts[reports[0].job]
            for loss in reports[0].losses:
                account.digest.update(struct.pack("<qd", len(account.losses), loss))
                account.losses.append(loss)
        for report in reports if self._note else ():
            self._write(
                {
                    "round": index, "job": report.job, "rank": report.rank, "device": report.device, "kind": report.kind,
                    "first_step": report.first_step, "steps": report.steps, "stands": stands, "checkpoints": int(report.saved_step >= 0),
                    "reduced_bytes": report.reduced_bytes, "first_loss": report.losses[0] if report.losses else None,
                    "last_loss": report.losses[-1] if report.losses else None, "wall_s": wall_s,
                }
            )  # fmt: skip

    def lose(self, index: int, lease: Lease, reason: str) -> None:
        """Note that the lease was lost, with all that was done in the round."""
        self._write({"round": index, "job": lease.job, "devices": list(lease.devices), "kind": lease.kind, "lost": reason})

    def _write(self, line: dict[str, Any]) -> None:
        if self._note:
            self._note(line)


@cache
def reduced_bytes_a_step(program: str) -> int:
    """What every rank of a gang of `program` puts into reductions for one step, from the size of its net."""
    from hetsys.models.jobs.trainer import step_reduced_bytes

    return step_reduced_bytes(program)
