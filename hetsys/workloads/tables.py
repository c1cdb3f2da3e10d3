"""Small text tables and hand-written values: parsing whose every complaint names the file, the line and the cell."""

from __future__ import annotations

import csv
import gzip
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from hetsys.core.errors import ConfigError, did_you_mean

LARGEST = 1e15
"""More than any count, time in seconds, speed or weight needs; what lies above it would overflow somewhere later."""


@dataclass(frozen=True)
class Row:
    """One line of a CSV file; `cells` maps column to text, blanks included."""

    path: Path
    line: int
    cells: dict[str, str]

    def key(self, column: str) -> str:
        """How messages name a cell: `file:line: column`."""
        return f"{self.path}:{self.line}: {column}"

    def number(self, column: str, at_least: float | None = 0.0) -> float:
        return as_number(self.key(column), self.cells[column], at_least)

    def integer(self, column: str, at_least: int = 0) -> int:
        return as_integer(self.key(column), self.cells[column], at_least)


def as_number(key: str, value: object, at_least: float | None = 0.0) -> float:
    """`value` (a number, or text that spells one) as a finite float. Raises ConfigError that names `key` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ConfigError(key, value, "must be a number")
    try:
        number = float(value)
    except ValueError:
        raise ConfigError(key, value, "must be a number") from None
    except OverflowError:
        number = LARGEST * 10
    if not isfinite(number):
        raise ConfigError(key, value, "must be finite, not NaN or infinite")
    if number > LARGEST:
        raise ConfigError(key, value, f"must be {LARGEST:g} or less")
    if at_least is not None and number < at_least:
        raise ConfigError(key, value, f"must be {at_least:g} or more")
    return number


def as_integer(key: str, value: object, at_least: int = 0) -> int:
    """`value` as a whole number; "1e5" and 100000.0 count as whole. Raises ConfigError that names `key` otherwise."""
    number = as_number(key, value, at_least)
    if number != int(number):
        raise ConfigError(key, value, "must be a whole number")
    return int(number)


def read_file(path: Path, what: str) -> tuple[str, str]:
    """(text, SHA-256 of the bytes on disk) of a UTF-8 file, unpacked where its name ends in `.gz`. Raises ConfigError."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(what, str(path), "no such file; check the path (relative ones start at the current folder)") from None
    except OSError as error:
        raise ConfigError(what, str(path), f"cannot be read: {error.strerror}") from None
    try:
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except (OSError, EOFError):
        raise ConfigError(what, str(path), "does not unpack as gzip; fetch it again") from None
    except UnicodeDecodeError as error:
        raise ConfigError(what, str(path), f"is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    return text, hashlib.sha256(raw).hexdigest()


def read_csv(path: Path, what: str, required: Iterable[str]) -> tuple[list[Row], str]:
    """(rows, SHA-256) of a CSV file with a header line; blank lines and lines that start with `#` are skipped.

    Raises ConfigError for a missing file, a missing or repeated column, or a row with too many or too few cells.
    """
    text, digest = read_file(path, what)
    rows: list[Row] = []
    header: list[str] | None = None
    for line, content in enumerate(text.splitlines(), start=1):
        if not content.strip() or content.startswith("#"):
            continue
        try:
            cells = [cell.strip() for cell in next(csv.reader([content], skipinitialspace=True))]
        except csv.Error as error:
            raise ConfigError(f"{path}:{line}", f"{content[:40]}...", f"is not valid CSV: {error}") from None
        if header is None:
            header = cells
            _check_header(f"{path}:{line}", header, required)
        elif len(cells) != len(header):
            raise ConfigError(f"{path}:{line}", content, f"has {len(cells)} cells, the header names {len(header)} columns")
        else:
            rows.append(Row(path, line, dict(zip(header, cells, strict=True))))
    if header is None:
        raise ConfigError(what, str(path), f"is empty; its first line must name the columns {', '.join(required)}")
    return rows, digest


def _check_header(where: str, header: list[str], required: Iterable[str]) -> None:
    for column in required:
        if column not in header:
            raise ConfigError(where, ",".join(header), f"the header lacks the column {column!r}")
    for column in header:
        if header.count(column) > 1:
            raise ConfigError(where, column, "the header names this column twice")


def check_keys(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ConfigError for a key of `given` that is not among `known`, with the nearest known one."""
    known = list(known)
    for key in given:
        if key not in known:
            raise ConfigError(where, key, f"unknown key; {did_you_mean(key, known)}")
