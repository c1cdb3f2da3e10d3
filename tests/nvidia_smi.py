"""A stand-in for nvidia-smi, so that machines with GPUs can be imagined on one without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

THREE = "GPU-aa1, NVIDIA A100-SXM4-80GB, 81920\nGPU-bb2, Tesla T4, 15360\nGPU-bb3, Tesla T4, 15360\n"


def put(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, code: int = 0) -> None:
    """Put an nvidia-smi on PATH, in `folder`, that prints `text` and ends with `code`; all GPUs are visible."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
