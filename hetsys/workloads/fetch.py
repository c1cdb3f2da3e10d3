"""Public data: what hetsys can read, where it comes from, and how to get it (`hetsys fetch`)."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from hetsys.core.errors import ConfigError, HetsysError, did_you_mean
from hetsys.core.paths import data_dir, shipped
from hetsys.workloads.tables import as_integer, check_keys

REGISTRY = "tables/data.yaml"
CHUNK_BYTES = 1 << 16
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class DataFile:
    """A file of the data folder. `name` is its path in there; `address` gives exactly this file, or is None where `made` says how
    the file was made from `source`."""

    name: str
    size_bytes: int
    sha256: str
    source: str
    licence: str
    address: str | None = None
    made: str = ""


class FetchError(HetsysError):
    """A download that did not give the file that the registry describes; nothing was written."""


def main(names: list[str], list_only: bool, registry: Path | None = None) -> int:
    """`hetsys fetch`: list the public data, or download `names`, by default all that have an address.

    Returns the exit code: 0 done, 1 a download failed (the others were tried), 2 the user's mistake (nothing was tried).
    """
    try:
        files = read_registry(registry or shipped("conf") / REGISTRY)
        folder = data_dir() or Path("data").resolve()
        if list_only:
            _print_list(files, folder)
            return 0
        chosen = [_find(files, name) for name in names or (name for name, file in files.items() if file.address)]
    except ConfigError as error:
        print(f"hetsys: {error}", file=sys.stderr)
        return 2
    failed = [file.name for file in chosen if not _fetch_and_report(file, folder)]
    if not os.environ.get("HETSYS_DATA") and len(failed) < len(chosen):
        print(f"HETSYS_DATA is not set: say `export HETSYS_DATA={folder}` so that hetsys finds these files")
    return 1 if failed else 0


def read_registry(path: Path) -> dict[str, DataFile]:
    """The files by name. Raises ConfigError for an entry that lacks a field or has neither `address` nor `made`."""
    import yaml

    files: dict[str, DataFile] = {}
    for name, entry in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        where = f"{path}: {name}"
        check_keys(where, entry, ("size_bytes", "sha256", "source", "licence", "address", "made"))
        for key in ("size_bytes", "sha256", "source", "licence"):
            if key not in entry:
                raise ConfigError(where, key, "is missing")
        if ("address" in entry) == ("made" in entry):
            raise ConfigError(where, entry, "needs either `address` or `made`")
        as_integer(f"{where}: size_bytes", entry["size_bytes"], at_least=1)
        files[name] = DataFile(name, **entry)
    return files


def _find(files: Mapping[str, DataFile], name: str) -> DataFile:
    """The file called `name`: its whole path in the data folder, or its last part. Raises ConfigError if it has no address."""
    matches = [file for file in files.values() if name in (file.name, Path(file.name).name)]
    if not matches:
        hint = did_you_mean(name, files).partition("choices")[0]
        raise ConfigError("fetch", name, f"is no file of the registry; {hint}`hetsys fetch --list` shows all")
    if matches[0].address is None:
        remedy = f"has no plain download address. From {matches[0].source}: {matches[0].made}"
        raise ConfigError("fetch", matches[0].name, remedy)
    return matches[0]


def _fetch_and_report(file: DataFile, folder: Path) -> bool:
    from rich.console import Console
    from rich.progress import Progress

    path = folder / file.name
    if path.is_file() and _sha256(path) == file.sha256:
        print(f"{file.name}: already there, SHA-256 as it should be")
        return True
    try:
        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task(file.name, total=file.size_bytes)
            download(file, path, lambda num_bytes: bar.advance(task, num_bytes))
    except FetchError as error:
        print(f"hetsys: {error}", file=sys.stderr)
        return False
    print(f"{file.name}: {file.size_bytes:,} bytes, SHA-256 as it should be, now at {path}")
    return True


def download(file: DataFile, path: Path, advance: Callable[[int], object] = lambda num_bytes: None) -> None:
    """Fetch `file` to `path`, which appears only when size and SHA-256 are right. Raises FetchError, leaving nothing behind."""
    assert file.address is not None
    digest = hashlib.sha256()
    received = 0
    try:
        with urlopen(file.address, timeout=TIMEOUT_S) as answer, _temporary(path) as part, part.open("wb") as out:
            while received <= file.size_bytes and (chunk := answer.read(CHUNK_BYTES)):
                out.write(chunk)
                digest.update(chunk)
                received += len(chunk)
                advance(len(chunk))
            out.flush()
            os.fsync(out.fileno())
            _check(file, received, digest.hexdigest())
            os.replace(part, path)
    except HTTPError as error:
        raise FetchError(f"{file.name}: {file.address} answers {error.code} {error.reason}") from None
    except URLError as error:
        raise FetchError(f"{file.name}: cannot fetch {file.address}: {error.reason}; is there a network?") from None
    except (OSError, HTTPException) as error:
        raise FetchError(f"{file.name}: cannot fetch {file.address} to {path}: {error}") from None


def _check(file: DataFile, received: int, sha256: str) -> None:
    if received != file.size_bytes:
        more = " or more" if received > file.size_bytes else ""
        what = f"{received:,} bytes{more}, not {file.size_bytes:,}"
        raise FetchError(f"{file.name}: {file.address} gave {what}; it has changed or broke off, nothing was kept")
    if sha256 != file.sha256:
        what = f"SHA-256 {sha256}, not {file.sha256}"
        raise FetchError(f"{file.name}: {file.address} gave {what}; it has changed, nothing was kept")


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _print_list(files: Mapping[str, DataFile], folder: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Public data; the data folder is {folder}", title_justify="left", show_lines=True)
    for heading in ("file and SHA-256", "bytes", "licence", "here", "where from"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "bytes" else "left")
    for file in files.values():
        origin = file.address or f"no plain address; from {file.source}: {file.made}"
        here = "yes" if (folder / file.name).is_file() else "no"
        table.add_row(f"{file.name}\n{file.sha256}", f"{file.size_bytes:,}", file.licence, here, origin)
    console = Console() if sys.stdout.isatty() else Console(width=200)
    console.print(table)
