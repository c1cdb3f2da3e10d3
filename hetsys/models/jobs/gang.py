"""How the processes of a training job find each other and train as one, by accelerate's data parallelism."""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

LOOPBACK = {"linux": "lo", "darwin": "lo0"}
ONE_BUCKET_MB = 1024
GATHERED_BYTES = 1 << 20
"""Gradients up to this size are gathered and added on every rank: gloo's ring takes twice as many turns to reduce as to gather."""


def join(rank: int, world_size: int, rendezvous: str, device: torch.device | str = "cpu", timeout_s: float = 60.0) -> None:
    """Enter a gang as rank `rank`; returns when all `world_size` ranks have come. `rendezvous`: the path of a file that is not there yet,
    the same for all ranks of this gang and never used again; it stands in for a network port, which another program might take.

    A rank that stays away or is lost makes the others' waits raise RuntimeError: at once where its end is seen, else after `timeout_s`.
    """
    device = torch.device(device)
    _tell_accelerate(rank, world_size, device)
    if device.type == "cuda":
        os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")  # so that a lost peer raises here instead of ending the process
        torch.cuda.set_device(device)
    elif sys.platform in LOOPBACK:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK[sys.platform])
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=Path(rendezvous).absolute().as_uri(),
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout_s),
    )
    _accelerator(device)


def leave() -> None:
    """Leave the gang that this process is in, if any."""
    AcceleratorState._reset_state(reset_partial_state=True)
    if dist.is_initialized():
        dist.destroy_process_group()


class DataParallel:
    """`net` on this rank of the gang. `reduced_bytes`: what this rank has put into reductions, counted in the hook that reduces."""

    def __init__(self, net: nn.Module, device: torch.device, example: tuple[Tensor, ...]) -> None:
        """`example`: a batch, used for one backward pass whose result is dropped: after its first pass torch lays the gradients out anew,
        and where one lies decides in which order four ranks add it up; so no pass that counts may be the first."""
        self.reduced_bytes = 0
        self._with_loss = _WithLoss(net).to(device)
        module = _accelerator(device).prepare_model(self._with_loss)
        assert isinstance(module, DistributedDataParallel), f"accelerate made {type(module).__name__} of the net, not data parallelism"
        module.register_comm_hook(self, _reduce)
        self._module = module
        self.backward(example)
        self.reduced_bytes = 0

    def backward(self, batch: tuple[Tensor, ...]) -> Tensor:
        """Leaves in the net's parameters the mean over the gang of their gradients; returns the mean loss."""
        self._with_loss.carrier.grad = None
        self._module(*batch).backward()
        mean_loss = self._with_loss.carrier.grad
        assert mean_loss is not None
        return mean_loss


class _WithLoss(nn.Module):
    """A net, and a parameter that stays 0 and whose gradient is the loss: so the loss is averaged in the same reduction."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.carrier = nn.Parameter(torch.zeros(()))

    def forward(self, *batch: Tensor) -> Tensor:
        loss: Tensor = self.net(*batch)
        return loss + self.carrier * loss.detach()


def _reduce(state: DataParallel, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
    """The mean over the ranks of a bucket of gradients: how torch's hooks are called."""
    gradients = bucket.buffer()
    gradients.div_(dist.get_world_size())
    if gradients.is_cuda or gradients.numel() * gradients.element_size() > GATHERED_BYTES:
        dist.all_reduce(gradients)
    else:
        of_ranks = gradients.new_empty(dist.get_world_size(), gradients.numel())
        dist.all_gather(list(of_ranks.unbind()), gradients)
        torch.sum(of_ranks, 0, out=gradients)
    state.reduced_bytes += gradients.numel() * gradients.element_size()
    gpu = [gradients.device] if gradients.is_cuda else None  # a future must be told which GPU its value lies on
    done: torch.futures.Future[Tensor] = torch.futures.Future(devices=gpu)
    done.set_result(gradients)
    return done


def _accelerator(device: torch.device) -> Accelerator:
    """accelerate in the gang that this process is in. accelerate goes on alone, without a word, where it does not see the gang."""
    layout = DistributedDataParallelKwargs(gradient_as_bucket_view=True, bucket_cap_mb=ONE_BUCKET_MB)
    accelerator = Accelerator(cpu=device.type == "cpu", device_placement=False, kwargs_handlers=[layout])
    seen = (accelerator.num_processes, accelerator.process_index, accelerator.device.type)
    wanted = (dist.get_world_size(), dist.get_rank(), device.type)
    assert seen == wanted, f"accelerate sees (processes, rank, device) {seen}, the gang is {wanted}"
    return accelerator


def _tell_accelerate(rank: int, world_size: int, device: torch.device) -> None:
    """Put into the environment what accelerate reads, and take out what a user's settings for other programs might turn it to."""
    for name in [name for name in os.environ if name.startswith("ACCELERATE_")]:
        del os.environ[name]
    local = rank if device.type == "cpu" else device.index
    told = {"RANK": rank, "WORLD_SIZE": world_size, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": world_size, "OMP_NUM_THREADS": 1}
    os.environ.update({name: str(value) for name, value in told.items()})
