"""Collectives between workers: torch.distributed's own, by gloo where processors compute and by NCCL where CUDA devices do."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

class PeerGone(Exception):
    """A collective broke off or timed out: the fault lies with another process."""


def open_store(port: int, timeout_s: float) -> TCPStore:
    """The store on this machine through which workers set up collectives: its server where `port` is 0, else a connection to it."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    with _named("setting up collectives"):
        return TCPStore("127.0.0.1", port, is_master=port == 0, timeout=timedelta(seconds=timeout_s), wait_for_workers=False)


class Peers:
    """This worker's place among all workers of a machine. Every call waits for the others, at most `timeout_s`."""

    def __init__(self, rank: int, world_size: int, store: TCPStore, on_cuda: bool, timeout_s: float) -> None:
        """`on_cuda`: whether there are GPUs among the devices; then tensors that lie there are joined by NCCL."""
        import torch.distributed as dist

        os.environ.setdefault("GLOO_SOCKET_IFNAME", _loopback())
        backend = "cpu:gloo,cuda:nccl" if on_cuda else "gloo"
        limit = timedelta(seconds=timeout_s)
        with _named("finding the other workers"):
            dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=limit)
        self._timeout_s = timeout_s
        self._groups: dict[tuple[int, ...], Any] = {}

    def gather(self, ranks: Sequence[int], value: Any) -> list[Any]:
        """What each worker of `ranks` gave, in their order: any picklable value."""
        import torch.distributed as dist

        ordered = sorted(ranks)
        gathered: list[Any] = [None] * len(ordered)
        with _named("gathering"):
            dist.all_gather_object(gathered, value, group=self._group(ranks))
        return [gathered[ordered.index(rank)] for rank in ranks]

    def collective(self, kind: str, ranks: Sequence[int], tensor: torch.Tensor | None) -> torch.Tensor:
        """One of COLLECTIVES among the workers `ranks`, in their order, as `Work` describes it; `tensor` is None for a receiver of a
        broadcast."""
        with _named(kind):
            group = self._group(ranks)
            if kind == "broadcast":
                return _broadcast(ranks[0], tensor, group)
            assert tensor is not None
            tensor = tensor.detach().contiguous()
            if kind == "all_reduce":
                return _all_reduce(tensor, group)
            if kind == "all_gather":
                return _all_gather(ranks, tensor, group)
            pieces = split(kind, tensor, len(ranks))
            in_rank_order = [pieces[list(ranks).index(rank)] for rank in sorted(ranks)]
            return _reduce_scatter(in_rank_order, group) if kind == "reduce_scatter" else _all_to_all(ranks, in_rank_order, group)

    def _group(self, ranks: Sequence[int]) -> Any:
        import torch.distributed as dist

        key = tuple(sorted(ranks))
        if key not in self._groups:
            timeout = timedelta(seconds=self._timeout_s)
            self._groups[key] = dist.new_group(list(key), timeout=timeout, use_local_synchronization=True)
        return self._groups[key]

    def close(self) -> None:
        import torch.distributed as dist

        dist.destroy_process_group()


def combine(kind: str, given: Sequence[torch.Tensor | None], index: int) -> torch.Tensor:
    """What participant `index` gets of a collective, from what all handed in: used where one process hosts several of them."""
    import torch

    if kind == "broadcast":
        assert given[0] is not None
        return given[0].detach().clone()
    tensors = [tensor.detach() for tensor in given if tensor is not None]
    assert len(tensors) == len(given)
    if kind == "all_gather":
        return torch.cat(tensors)
    if kind == "all_to_all":
        return torch.cat([split(kind, tensor, len(tensors))[index] for tensor in tensors])
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        total += tensor
    return split(kind, total, len(tensors))[index].clone() if kind == "reduce_scatter" else total


def split(kind: str, tensor: torch.Tensor, parts: int) -> list[torch.Tensor]:
    """Equal pieces of the first dimension."""
    assert tensor.shape[0] % parts == 0, f"{kind}: the first dimension of {tuple(tensor.shape)} does not divide by {parts}"
    return list(tensor.chunk(parts))


def _broadcast(root: int, tensor: torch.Tensor | None, group: Any) -> torch.Tensor:
    import torch
    import torch.distributed as dist

    facts: list[Any] = [None if tensor is None else (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tensor.device.type)]
    dist.broadcast_object_list(facts, src=root, group=group)
    dtype_name, shape, where = facts[0]
    out = torch.empty(shape, dtype=getattr(torch, dtype_name), device=where) if tensor is None else tensor.detach().clone().contiguous()
    dist.broadcast(out, src=root, group=group)
    return out


def _all_reduce(tensor: torch.Tensor, group: Any) -> torch.Tensor:
    import torch.distributed as dist

    out = tensor.clone()
    dist.all_reduce(out, group=group)
    return out


def _all_gather(ranks: Sequence[int], tensor: torch.Tensor, group: Any) -> torch.Tensor:
    import torch
    import torch.distributed as dist

    out = [torch.empty_like(tensor) for _ in ranks]
    dist.all_gather(out, tensor, group=group)
    return torch.cat([out[sorted(ranks).index(rank)] for rank in ranks])


def _reduce_scatter(pieces: Sequence[torch.Tensor], group: Any) -> torch.Tensor:
    import torch
    import torch.distributed as dist

    out = torch.empty_like(pieces[0])
    dist.reduce_scatter(out, [piece.contiguous() for piece in pieces], group=group)
    return out


def _all_to_all(ranks: Sequence[int], pieces: Sequence[torch.Tensor], group: Any) -> torch.Tensor:
    import torch
    import torch.distributed as dist

    out = [torch.empty_like(piece) for piece in pieces]
    dist.all_to_all(out, [piece.contiguous() for piece in pieces], group=group)
    return torch.cat([out[sorted(ranks).index(rank)] for rank in ranks])


@contextmanager
def _named(what: str) -> Iterator[None]:
    """torch.distributed reports a lost peer as a plain RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        raise PeerGone(f"{what}: {str(error).splitlines()[0]}") from error


def _loopback() -> str:
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), names[0])
