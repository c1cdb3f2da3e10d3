"""What is said of the machine at hand, and nothing heavy is loaded for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hetsys.core import host
from tests import nvidia_smi


def test_facts_of_this_machine() -> None:
    facts = host.facts()
    assert facts["cpu"] and facts["cores"] >= host.usable_cores() >= 1 and facts["memory_bytes"] > 10**8
    assert len(facts["fingerprint"]) == 12


def test_gpus_are_read_from_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi.put(tmp_path, monkeypatch, nvidia_smi.THREE)
    assert [(gpu.index, gpu.name, gpu.memory_bytes) for gpu in host.gpus({})] == [
        (0, "NVIDIA A100-SXM4-80GB", 81920 * 2**20),
        (1, "Tesla T4", 15360 * 2**20),
        (2, "Tesla T4", 15360 * 2**20),
    ]


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("1,0", [(0, "Tesla T4"), (1, "NVIDIA A100-SXM4-80GB")]),
        ("GPU-bb3", [(0, "Tesla T4")]),
        ("0,7,1", [(0, "NVIDIA A100-SXM4-80GB")]),
        ("", []),
        ("-1", []),
    ],
)
def test_only_visible_gpus_count_and_are_numbered_as_cuda_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, names: list[tuple[int, str]]
) -> None:
    nvidia_smi.put(tmp_path, monkeypatch, nvidia_smi.THREE)
    assert [(gpu.index, gpu.name) for gpu in host.gpus({"CUDA_VISIBLE_DEVICES": visible})] == names


def test_no_gpu_where_nvidia_smi_is_missing_or_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi.put(tmp_path, monkeypatch, "NVIDIA-SMI has failed because it could not communicate with the driver\n", 9)
    assert host.gpus({}) == ()
    monkeypatch.setenv("PATH", "")
    assert host.gpus({}) == ()


def test_how_torch_is_built_is_known_without_importing_it() -> None:
    script = "import sys; from hetsys.core import host; b = host.torch_build(); assert 'torch' not in sys.modules; import torch; "
    script += "assert (b.version, b.cuda or None) == (str(torch.__version__), torch.version.cuda), b"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
