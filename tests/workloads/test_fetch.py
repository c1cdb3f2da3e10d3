"""`hetsys fetch`: the registry is complete, downloads are verified and atomic, mistakes end with 2. Served from this process."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from hetsys.core.errors import ConfigError
from hetsys.core.paths import data_dir, shipped
from hetsys.workloads.fetch import REGISTRY, main, read_registry

CONTENT = b"vc,job_type\n" * 20_000


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="session")
def loopback() -> None:
    """Skips where this process cannot reach itself, as in a network namespace whose loopback is down."""
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            socket.create_connection(listener.getsockname(), timeout=2.0).close()
        except OSError as error:
            pytest.skip(f"127.0.0.1 cannot be reached: {error}")


@pytest.fixture
def address(tmp_path: Path, loopback: None) -> Iterator[str]:
    """A server of one file, `good.csv`, and of a path that answers 404."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "good.csv").write_bytes(CONTENT)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("HETSYS_DATA", str(folder))
    return folder


def _registry(tmp_path: Path, address: str, size: int = len(CONTENT), sha256: str | None = None, origin: str = "") -> Path:
    digest = sha256 or hashlib.sha256(CONTENT).hexdigest()
    origin = origin or f"address: '{address}'"
    path = tmp_path / "data.yaml"
    path.write_text(f"cluster/f.csv:\n  size_bytes: {size}\n  sha256: '{digest}'\n  source: us\n  licence: MIT\n  {origin}\n")
    return path


def _is_empty(folder: Path) -> bool:
    return not [path for path in folder.rglob("*") if path.is_file()]


def test_a_download_is_verified_and_placed(tmp_path: Path, address: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    registry = _registry(tmp_path, f"{address}/good.csv")
    assert main(["cluster/f.csv"], False, registry) == 0
    assert (data / "cluster/f.csv").read_bytes() == CONTENT
    assert [path.name for path in (data / "cluster").iterdir()] == ["f.csv"]
    assert "240,000 bytes" in capsys.readouterr().out


def test_a_file_that_is_there_is_not_fetched_again(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "cluster").mkdir()
    (data / "cluster/f.csv").write_bytes(CONTENT)
    assert main(["f.csv"], False, _registry(tmp_path, "http://127.0.0.1:1/gone")) == 0
    assert "already there" in capsys.readouterr().out


def test_without_data_folder_it_goes_to_data_here(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HETSYS_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["f.csv"], False, _registry(tmp_path, f"{address}/good.csv")) == 0
    assert (tmp_path / "data/cluster/f.csv").read_bytes() == CONTENT
    assert "export HETSYS_DATA=" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sha256": "0" * 64}, "gave SHA-256"),
        ({"size": len(CONTENT) + 1}, "gave 240,000 bytes, not 240,001"),
        ({"size": 100_000}, "or more, not 100,000"),
    ],
)
def test_wrong_content_leaves_nothing(
    tmp_path: Path, address: str, data: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object], message: str
) -> None:
    assert main(["f.csv"], False, _registry(tmp_path, f"{address}/good.csv", **change)) == 1  # type: ignore[arg-type]
    assert message in capsys.readouterr().err
    assert _is_empty(data)


def test_network_failures_are_one_line_and_leave_nothing(
    tmp_path: Path, address: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["f.csv"], False, _registry(tmp_path, f"{address}/none.csv")) == 1
    assert "answers 404" in capsys.readouterr().err
    assert main(["f.csv"], False, _registry(tmp_path, "http://127.0.0.1:1/f.csv")) == 1
    error = capsys.readouterr().err
    assert "is there a network?" in error
    assert error.count("hetsys:") == 1
    assert _is_empty(data)


def test_without_a_network_errors_are_plain_lines_and_no_folder_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HETSYS_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["f.csv", "f.csv"], False, _registry(tmp_path, "http://127.0.0.1:1/f.csv")) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == second and "is there a network?" in first
    assert not (tmp_path / "data").exists()


def test_a_failed_download_keeps_the_old_file(tmp_path: Path, address: str, data: Path) -> None:
    (data / "cluster").mkdir()
    (data / "cluster/f.csv").write_bytes(b"old")
    assert main(["f.csv"], False, _registry(tmp_path, f"{address}/good.csv", sha256="0" * 64)) == 1
    assert (data / "cluster/f.csv").read_bytes() == b"old"


def test_mistakes_exit_with_2(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = _registry(tmp_path, "http://127.0.0.1:1/f.csv")
    assert main(["cluster/f.cvs"], False, registry) == 2
    assert "did you mean 'cluster/f.csv'" in capsys.readouterr().err
    assert main(["f.csv"], False, _registry(tmp_path, "", origin="made: by hand")) == 2
    assert "has no plain download address. From us: by hand" in capsys.readouterr().err
    monkeypatch.setenv("HETSYS_DATA", str(tmp_path / "none"))
    assert main(["f.csv"], False, registry) == 2
    assert "HETSYS_DATA=" in capsys.readouterr().err


def test_without_names_it_fetches_all_that_have_an_address(tmp_path: Path, address: str, data: Path) -> None:
    registry = _registry(tmp_path, f"{address}/good.csv")
    made = "cluster/made.csv:\n  size_bytes: 1\n  sha256: '0'\n  source: us\n  licence: MIT\n  made: by hand\n"
    registry.write_text(registry.read_text() + made)
    assert main([], False, registry) == 0
    assert [path.name for path in (data / "cluster").iterdir()] == ["f.csv"]


def test_list_shows_every_file(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], True) == 0
    shown = capsys.readouterr().out
    for name, file in read_registry(shipped("conf") / REGISTRY).items():
        assert name in shown
        assert file.sha256 in shown
        assert f"{file.size_bytes:,}" in shown


@pytest.mark.parametrize(("origin", "message"), [("note: x", "unknown key"), ("address: a\n  made: b", "needs either")])
def test_a_bad_registry_is_refused(tmp_path: Path, origin: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_registry(_registry(tmp_path, "", origin=origin))


def test_registry_describes_the_data_folder() -> None:
    folder = data_dir()
    if folder is None:
        pytest.skip("HETSYS_DATA is not set")
    files = read_registry(shipped("conf") / REGISTRY)
    assert len(files) == 39
    for file in files.values():
        content = (folder / file.name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size_bytes, file.sha256), file.name
