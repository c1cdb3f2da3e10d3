"""Training jobs of one rank: they learn, repeat bit for bit, go on where they stopped, and hardly feel the processor's generation."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from hetsys.core.errors import ConfigError, EngineError
from hetsys.models.jobs.families import BANK_STEPS, FAMILIES
from hetsys.models.jobs.trainer import Trainer, step_reduced_bytes
from tests.models import children

TINY = [f"{name}/tiny" for name in FAMILIES]
EVERY = [f"{name}/{size}" for name in FAMILIES for size in ("tiny", "full")]
GENERATIONS = {
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "DEFAULT": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"},
}
COMPARED = {**dict.fromkeys(TINY, 30), "conv/full": 30, "actor_critic/full": 30, "transformer/full": 10}


def losses(program: str, steps: int, seed: int = 7) -> list[float]:
    trainer = Trainer(program, seed)
    return [trainer.step() for _ in range(steps)]


def in_child(steps: dict[str, int]) -> tuple[str, dict[str, list[float]]]:
    return torch.backends.cpu.get_cpu_capability(), {program: losses(program, n) for program, n in steps.items()}


@pytest.mark.parametrize("program", TINY)
def test_the_loss_falls(program: str) -> None:
    found = losses(program, 256)
    assert sum(found[-32:]) < 0.7 * sum(found[:32])


@pytest.fixture(scope="module")
def here() -> dict[str, list[float]]:
    return in_child(COMPARED)[1]


def test_another_process_has_the_same_losses_bit_for_bit(here: dict[str, list[float]]) -> None:
    (_, there), (_, at_the_same_time) = children.values(in_child, (COMPARED,), (COMPARED,))
    assert there == here
    assert at_the_same_time == here


def test_another_seed_has_other_losses() -> None:
    assert all(a != b for a, b in zip(losses("conv/tiny", 3, seed=1), losses("conv/tiny", 3, seed=2), strict=True))


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_generation_of_processors_changes_losses_by_rounding_only(name: str, here: dict[str, list[float]]) -> None:
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("this processor has no instruction sets to take away")
    [(capability, there)] = children.values(in_child, (COMPARED,), env=GENERATIONS[name])
    assert capability == name
    for program, expected in here.items():
        assert there[program] == pytest.approx(expected, rel=1e-4), program
    if capability != torch.backends.cpu.get_cpu_capability():
        assert there != here


@pytest.mark.parametrize("program", EVERY)
def test_a_job_goes_on_exactly_where_it_stopped(program: str, tmp_path: Path) -> None:
    before, after = (3, 2) if program.endswith("full") else (BANK_STEPS - 2, 5)
    undisturbed = Trainer(program, 7)
    expected = [undisturbed.step() for _ in range(before + after)]
    stopped = Trainer(program, 7)
    found = [stopped.step() for _ in range(before)]
    stopped.save(tmp_path / "job.pt")
    drawn = torch.rand(3)
    torch.manual_seed(0)
    resumed = Trainer(program, 7)
    resumed.load(tmp_path / "job.pt")
    assert resumed.step_index == before
    assert torch.equal(torch.rand(3), drawn)
    assert [*found, *(resumed.step() for _ in range(after))] == expected
    assert torch.equal(resumed.gradients(), undisturbed.gradients())
    assert all(torch.equal(a, b) for a, b in zip(resumed.net.parameters(), undisturbed.net.parameters(), strict=True))


def die_while_saving(path: str) -> None:
    """Save with half of the file on the disk when the process is killed."""
    trainer = Trainer("lstm/tiny", 7)
    for _ in range(4):
        trainer.step()
    whole = torch.save

    def half(state: Any, file: Any) -> None:
        whole(state, file)
        file.truncate(file.tell() // 2)
        file.flush()
        os.fsync(file.fileno())
        os.kill(os.getpid(), signal.SIGKILL)

    torch.save = half
    trainer.save(path)


def test_a_kill_while_saving_leaves_the_old_checkpoint_whole(tmp_path: Path) -> None:
    path = tmp_path / "job.pt"
    trainer = Trainer("lstm/tiny", 7)
    trainer.step()
    trainer.save(path)
    old = path.read_bytes()
    [ended] = children.run(die_while_saving, (str(path),))
    assert ended.error == "died"
    assert len(list(tmp_path.iterdir())) == 2, "the child died before it wrote anything"
    assert path.read_bytes() == old
    trainer.step()
    trainer.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["job.pt"]
    resumed = Trainer("lstm/tiny", 7)
    resumed.load(path)
    assert resumed.step_index == 2


def test_a_checkpoint_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    trainer = Trainer("conv/tiny", 7)
    with pytest.raises(EngineError, match=r"nothing\.pt cannot be read: FileNotFoundError"):
        trainer.load(tmp_path / "nothing.pt")
    trainer.save(tmp_path / "job.pt")
    (tmp_path / "half.pt").write_bytes((tmp_path / "job.pt").read_bytes()[:1000])
    with pytest.raises(EngineError, match=r"half\.pt cannot be read"):
        trainer.load(tmp_path / "half.pt")
    with pytest.raises(EngineError, match=r"belongs to \(program, seed\) \('conv/tiny', 7\), this job is \('conv/tiny', 8\)"):
        Trainer("conv/tiny", 8).load(tmp_path / "job.pt")


@pytest.mark.parametrize("program", EVERY)
@pytest.mark.parametrize("world_size", [2, 4])
def test_the_slices_of_a_gang_are_the_batch(program: str, world_size: int) -> None:
    name, size = program.split("/")
    bank = FAMILIES[name].bank(size, 7)
    parts = [bank.slices(rank, world_size, torch.device("cpu")) for rank in range(world_size)]
    whole = bank.slices(0, 1, torch.device("cpu"))
    assert len(whole) == BANK_STEPS
    for step, batch in enumerate(whole):
        for k, tensor in enumerate(batch):
            assert len(tensor) == bank.batch
            assert torch.equal(torch.cat([part[step][k] for part in parts]), tensor)


def test_a_gang_that_does_not_divide_the_batch_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"gang=3: .* use a gang of 1, 2 or 4"):
        Trainer("conv/tiny", 7, rank=0, world_size=3)


def test_one_rank_reduces_nothing() -> None:
    trainer = Trainer("conv/tiny", 7)
    trainer.step()
    assert trainer.reduced_bytes == 0
    assert step_reduced_bytes("conv/tiny") == 4 + 4 * sum(parameter.numel() for parameter in trainer.net.parameters())
    trainer.close()
    trainer.close()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("program", TINY)
def test_a_gpu_agrees_with_the_processor(program: str, tmp_path: Path) -> None:
    expected = losses(program, 20)
    trainer = Trainer(program, 7, device="cuda:0")
    found = [trainer.step() for _ in range(10)]
    trainer.save(tmp_path / "job.pt")
    resumed = Trainer(program, 7, device="cuda:0")
    resumed.load(tmp_path / "job.pt")
    assert [*found, *(resumed.step() for _ in range(10))] == pytest.approx(expected, rel=1e-4)
