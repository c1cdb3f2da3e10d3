"""Files that are there whole or not at all, whenever the process or the machine stops."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, suffix: str = ".part") -> Iterator[BinaryIO]:
    """A file to write into; it takes the place of `path` once it is on the disk. Where the block is left by an exception, or the process
    dies in it, what was there before stays as it is. `suffix`: of the unfinished file; where several processes may write the same one, give
    each its own."""
    part = path.with_name(path.name + suffix)
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    fsync(path.parent)


def fsync(path: Path) -> None:
    """Have the system put a file, or the names in a folder, on the disk now."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
