"""What every test has: a results folder of its own, no wandb service, and as many random examples as the profile says."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background start with it ignored, and so would what they start
settings.register_profile(
    "ci", max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_unconfigure() -> None:
    """A process of tests ends without the last words of its modules: end here what they have started."""
    if local := sys.modules.get("hetsys.runtime.local"):
        local.end_server()


@pytest.fixture(autouse=True)
def results_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results folder of this test, empty and writable; HETSYS_RESULTS names it. wandb is off unless the test turns it on."""
    root = tmp_path / "results"
    monkeypatch.setenv("HETSYS_RESULTS", str(root))
    monkeypatch.setenv("WANDB_MODE", "disabled")
    return root


@pytest.fixture
def hetsys_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of real data; a test that asks for it is skipped where HETSYS_DATA is unset."""
    name = os.environ.get("HETSYS_DATA")
    if not name:
        pytest.skip("needs the data folder: set HETSYS_DATA")
    folder = Path(name).resolve()
    monkeypatch.setenv("HETSYS_DATA", str(folder))
    return folder
