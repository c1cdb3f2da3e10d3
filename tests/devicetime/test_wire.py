"""What travels between workers arrives as it was sent: any tensor, small and large, in order, and from those who know the secret only."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from hetsys.runtime.machines.mail import Mail, MailLost
from hetsys.runtime.machines.wire import Parcel, pack, tensors_in, unpack

SECRET = b"s" * 32
WAIT_S = 30


@dataclass
class Box:
    """A worker's end of the post, and what has come to it."""

    mail: Mail
    received: queue.Queue[tuple[int, int, Parcel]]
    failed: queue.Queue[MailLost]


@pytest.fixture
def pair() -> Iterator[tuple[Box, Box]]:
    boxes = []
    for _ in range(2):
        received: queue.Queue[tuple[int, int, Parcel]] = queue.Queue()
        failed: queue.Queue[MailLost] = queue.Queue()
        boxes.append(Box(Mail(SECRET, lambda *what, to=received: to.put(what), failed.put), received, failed))
    addresses = {rank: box.mail.address for rank, box in enumerate(boxes)}
    for box in boxes:
        box.mail.meet(addresses)
    yield boxes[0], boxes[1]


VALUES: list[Any] = [
    torch.tensor(3.5, dtype=torch.bfloat16),
    torch.zeros(0, 4),
    torch.arange(6).reshape(2, 3).T,
    {"mask": torch.tensor([True, False, True]), "many": [torch.randn(3), (torch.randn(2, 2, dtype=torch.float64), "text", 7)]},
    ("nothing", None),
]


def flat(value: Any) -> list[Any]:
    return [(tensor.dtype, tensor.tolist()) for tensor in tensors_in(value)]


@pytest.mark.parametrize("value", VALUES, ids=["scalar", "empty", "transposed", "nested", "no tensor"])
def test_a_parcel_brings_back_what_was_packed(value: Any) -> None:
    found = unpack(pack(value))
    assert flat(found) == flat(value)
    assert type(found) is type(value)


def test_a_parcel_is_a_copy_without_history() -> None:
    weights = torch.ones(3, requires_grad=True)
    parcel = pack(weights)
    with torch.no_grad():
        weights.mul_(5)
    found = unpack(parcel)
    assert found.tolist() == [1, 1, 1]
    assert not found.requires_grad


def test_messages_large_and_small_arrive_in_order(pair: tuple[Box, Box]) -> None:
    left, right = pair
    sizes = [10, 1_000_000, 10, 300_000, 0, 10]
    for ticket, size in enumerate(sizes):
        left.mail.post(1, ticket, 100 + ticket, pack(torch.full((size,), float(ticket))))
    right.mail.post(0, 77, 5, pack("back"))
    for ticket, size in enumerate(sizes):
        found, start_ns, parcel = right.received.get(timeout=WAIT_S)
        assert (found, start_ns) == (ticket, 100 + ticket)
        assert torch.equal(unpack(parcel), torch.full((size,), float(ticket)))
    assert left.received.get(timeout=WAIT_S)[:2] == (77, 5)


def test_who_does_not_know_the_secret_is_not_listened_to(pair: tuple[Box, Box]) -> None:
    with socket.create_connection(pair[0].mail.address) as stranger:
        stranger.sendall(b"x" * 32)
        stranger.settimeout(WAIT_S)
        assert stranger.recv(1) == b""
    pair[1].mail.post(0, 1, 0, pack("hello"))
    assert unpack(pair[0].received.get(timeout=WAIT_S)[2]) == "hello"


def test_a_receiver_that_is_gone_is_noticed(pair: tuple[Box, Box]) -> None:
    left, _ = pair
    gone = socket.create_server(("127.0.0.1", 0))
    accepted = threading.Thread(target=lambda: gone.accept()[0].close())
    accepted.start()
    left.mail.meet({1: gone.getsockname()})
    with pytest.raises(MailLost):
        for ticket in range(1_000):
            left.mail.post(1, ticket, 0, pack(torch.zeros(1_000)))
            accepted.join()
    gone.close()
    left.mail.meet({2: gone_address()})
    with pytest.raises(MailLost, match="no connection to another worker"):
        left.mail.post(2, 0, 0, pack(None))


def gone_address() -> tuple[str, int]:
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
    return host, port


def test_a_large_message_that_cannot_go_is_reported(pair: tuple[Box, Box]) -> None:
    left, _ = pair
    gone = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=lambda: gone.accept()[0].close()).start()
    left.mail.meet({1: gone.getsockname()})
    left.mail.post(1, 9, 0, pack(torch.zeros(5_000_000)))
    assert "message 9 was not sent" in str(left.failed.get(timeout=WAIT_S))
    gone.close()
