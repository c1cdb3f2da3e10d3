"""Native devices: what this machine can be, what it refuses and why, and that workers are what their kind says."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hetsys.core import host
from hetsys.core.cluster import Cluster, DeviceSheet, NodeGroup
from hetsys.core.errors import ConfigError
from hetsys.runtime.devices import check_busy, enter_device, expected_capability, worker_env
from hetsys.runtime.here import LocalCluster, sheets
from hetsys.runtime.launch import Link
from hetsys.runtime.local import LocalLauncher
from hetsys.runtime.pacer import Pacer
from tests import nvidia_smi

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def launcher() -> Iterator[LocalLauncher]:
    one = LocalLauncher()
    yield one
    one.close()


@pytest.fixture
def with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "torch_build", lambda: host.TorchBuild("2.13.0", "12.8"))


def cpus(number: int, busy_fraction: float, native: str = "cpu") -> Cluster:
    sheet = DeviceSheet("any", 10**9, 1e9, {"fp32": 1e9}, 0.0, 0.0, "", native=native, busy_fraction=busy_fraction)
    return Cluster([NodeGroup("any", number)], {"any": sheet})


@pytest.mark.parametrize(("number", "busy", "cores"), [(2, 0.85, 2), (1, 0.7, 1), (4, 0.925, 4), (3, 0.1, 0.6)])
def test_workers_that_leave_the_scheduler_its_part_are_accepted(number: int, busy: float, cores: float) -> None:
    check_busy(cpus(number, busy), cores)
    with pytest.raises(ConfigError):
        check_busy(cpus(number + 1, busy), cores)


def test_too_many_busy_workers_are_refused_with_number_reason_and_remedy() -> None:
    with pytest.raises(ConfigError) as refused:
        check_busy(cpus(3, 0.85), cores=2)
    message = str(refused.value)
    for words in ("3 CPU workers", "2.55 cores", "2 - 0.3", "timings are of contention", "at most 2", "busy_fraction to 0.56", "=sim"):
        assert words in message
    check_busy(cpus(3, 0.56), cores=2)


def test_a_generation_that_the_processor_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "instruction_sets", lambda: ("sse4_1", "avx"))
    check_busy(cpus(1, 0.5, "cpu:sse41"), cores=2)
    with pytest.raises(ConfigError, match="needs a processor with avx2; this one has: sse4_1, avx"):
        check_busy(cpus(1, 0.5, "cpu:avx2"), cores=2)


def test_gpus_that_are_not_here_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi.put(tmp_path, monkeypatch, nvidia_smi.THREE)
    gpu = replace(sheets()["t4"], native="cuda", cuda_indices=(1, 2))
    two = Cluster([NodeGroup("t4", 2)], {"t4": gpu})
    monkeypatch.setattr(host, "torch_build", lambda: host.TorchBuild("2.13.0+cpu", ""))
    with pytest.raises(ConfigError, match="built without CUDA"):
        check_busy(two)
    monkeypatch.setattr(host, "torch_build", lambda: host.TorchBuild("2.13.0", "12.8"))
    check_busy(two)
    with pytest.raises(ConfigError, match="3 visible GPUs"):
        check_busy(Cluster(two.nodes, {"t4": replace(gpu, cuda_indices=(2, 3))}))
    with pytest.raises(ConfigError, match="1 GPU indices for 2 devices"):
        check_busy(Cluster(two.nodes, {"t4": replace(gpu, cuda_indices=(2,))}))


def test_the_local_cluster_is_the_gpus_slow_to_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_cuda: None) -> None:
    nvidia_smi.put(tmp_path, monkeypatch, nvidia_smi.THREE + "GPU-cc1, NVIDIA GeForce RTX 3090, 24576\nGPU-dd1, Some RTX 3090 Ti, 24576\n")
    made = LocalCluster().resolve()
    assert dict(made.num_devices_by_kind) == {"t4": 2, "some_rtx_3090_ti": 1, "rtx3090": 1, "a100_80g": 1} and made.native
    assert {kind: made.sheets[kind].cuda_indices for kind in made.kinds} == {
        "t4": (1, 2), "some_rtx_3090_ti": (4,), "rtx3090": (3,), "a100_80g": (0,),
    }  # fmt: skip
    assert made.sheets["t4"].memory_bytes == 15360 * 2**20
    assert "no sheet of this card" in made.sheets["some_rtx_3090_ti"].sources["memory_bandwidth_bytes_per_s"]
    check_busy(made)
    assert dict(LocalCluster(max_devices=2).resolve().num_devices_by_kind) == {"t4": 1, "a100_80g": 1}


@pytest.mark.parametrize(("cores", "workers", "busy"), [(1, 1, 0.7), (2, 2, 0.85), (8, 8, 0.96)])
def test_without_gpus_it_is_the_cpu_cores(monkeypatch: pytest.MonkeyPatch, cores: int, workers: int, busy: float) -> None:
    monkeypatch.setattr(host, "torch_build", lambda: host.TorchBuild("2.13.0+cpu", ""))
    monkeypatch.setattr(host, "usable_cores", lambda: cores)
    made = LocalCluster().resolve()
    assert dict(made.num_devices_by_kind) == {"cpu_full": workers}
    assert (made.sheets["cpu_full"].busy_fraction, made.sheets["cpu_full"].native) == (busy, "cpu")
    check_busy(made)
    assert LocalCluster(max_devices=1).resolve().sheets["cpu_full"].busy_fraction == min(1.0, cores - 0.3)


def tell_capability(link: Link, native: str) -> None:
    import torch

    device = enter_device(native)
    link.send((device, torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()))


@pytest.mark.parametrize("native", ["cpu", "cpu:avx2", "cpu:sse41"])
def test_a_worker_has_the_instruction_set_of_its_kind(launcher: LocalLauncher, native: str) -> None:
    if "avx2" not in host.instruction_sets():
        pytest.skip("this processor has one generation only")
    worker = launcher.start(native, tell_capability, (native,), worker_env(native))
    device, capability, threads = worker.recv(PATIENCE_S)
    worker.stop()
    assert device == "cpu" and threads == 1
    assert capability == (expected_capability(native) or ("AVX512" if "avx512f" in host.instruction_sets() else "AVX2"))


def test_a_worker_that_is_not_capped_is_found_out(launcher: LocalLauncher) -> None:
    if "avx2" not in host.instruction_sets():
        pytest.skip("this processor has one generation only")
    worker = launcher.start("careless", tell_capability, ("cpu:sse41",), worker_env("cpu"))
    with pytest.raises(Exception, match="should be capped at DEFAULT"):
        worker.recv(PATIENCE_S)
    worker.stop()


def test_a_worker_rests_as_its_busy_fraction_says() -> None:
    pacer = Pacer(0.4)
    began, began_cpu = time.perf_counter(), time.thread_time()
    while time.perf_counter() - began < 0.5:
        sum(range(20_000))
        pacer.rest()
    share = (time.thread_time() - began_cpu) / (time.perf_counter() - began)
    assert share < 0.44, "never above its share; below it where others take the core"


def test_waiting_earns_little_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"wall": 0.0, "cpu": 0.0}
    slept: list[float] = []
    monkeypatch.setattr(time, "perf_counter", lambda: now["wall"])
    monkeypatch.setattr(time, "thread_time", lambda: now["cpu"])
    monkeypatch.setattr(time, "sleep", slept.append)
    pacer = Pacer(0.5)

    def work(cpu_s: float, wall_s: float) -> float:
        now["cpu"] += cpu_s
        now["wall"] += wall_s
        slept.clear()
        pacer.rest()
        now["wall"] += sum(slept)
        return sum(slept)

    assert work(0.1, 0.1) == pytest.approx(0.1, abs=1e-3)
    assert work(0.1, 1.1) == 0.0, "it has waited for a core for a second"
    assert work(0.1, 0.1) == pytest.approx(0.05, abs=1e-3), "and may catch up by 50 ms, not by a second"
    now["wall"] += 5.0
    pacer.restart()
    assert work(0.1, 0.1) == pytest.approx(0.1, abs=1e-3)
    total = 0.0
    for _ in range(100):
        pacer.resume()
        total += work(1e-4, 1e-4)
    assert total == pytest.approx(0.01, abs=1e-3), "operations shorter than a sleep add up"
    now["wall"] += 5.0
    pacer.resume()
    assert work(0.1, 0.1) == pytest.approx(0.1, abs=1e-3), "a wait is no credit"


def test_the_driver_side_loads_no_torch() -> None:
    script = "import sys, hetsys.runtime.devices, hetsys.runtime.here, hetsys.runtime.profiler, hetsys.runtime.operations, hetsys.profile\n"
    script += "from hetsys.runtime.here import LocalCluster; LocalCluster().resolve(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=PATIENCE_S).returncode == 0
