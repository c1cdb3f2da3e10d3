"""One warm launcher for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hetsys.runtime.local import LocalLauncher


@pytest.fixture(scope="session")
def launcher() -> Iterator[LocalLauncher]:
    made = LocalLauncher()
    yield made
    made.close()
