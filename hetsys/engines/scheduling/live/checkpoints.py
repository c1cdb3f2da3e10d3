"""Where the jobs of a run lie saved: the last two checkpoints of each, until it leaves."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import quote

from hetsys.core.errors import EngineError

KEPT = 2


class Checkpoints:
    """Files `<folder>/<job>/round-<index>.pt`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[str, list[Path]] = {}

    def latest(self, job: str) -> str:
        """The file to go on from; "" where nothing is saved yet."""
        return str(self._written[job][-1]) if self._written.get(job) else ""

    def place(self, job: str, index: int) -> Path:
        """Where `job` is to be saved at the end of round `index`; its folder exists."""
        folder = self._of(job)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"round-{index:06d}.pt"

    def wrote(self, job: str, path: Path) -> None:
        """Take `path` as the latest of `job` and drop what is too old. Raises EngineError, naming the job, if it is not there."""
        if not (path.is_file() and path.stat().st_size):
            raise EngineError(f"the books do not balance: job {job}: a checkpoint was reported and {path.name} is missing or empty")
        kept = self._written[job] = [*self._written.get(job, []), path][-KEPT:]
        for other in self._of(job).iterdir():
            if other not in kept:
                other.unlink()

    def forget(self, job: str) -> None:
        """The job has left: remove what was saved of it."""
        self._written.pop(job, None)
        shutil.rmtree(self._of(job), ignore_errors=True)

    def close(self) -> None:
        """Remove everything. Safe to call twice."""
        self._written.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _of(self, job: str) -> Path:
        name = quote(job, safe=" ")
        return self._folder / (name if name.strip(".") else f"%{name}")
