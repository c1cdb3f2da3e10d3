"""Messages between workers: TCP connections, one a direction and pair, made when first used; taken in whatever the devices are doing."""

from __future__ import annotations

import hmac
import pickle
import queue
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from hetsys.runtime.machines.wire import Parcel

if TYPE_CHECKING:
    import torch

_HEADER = struct.Struct("<qqqq")
_AT_ONCE_BYTES = 1 << 16
_CONNECT_S = 10.0

Received = Callable[[int, int, Parcel], None]
"""Called in a thread of its own with (ticket, when the message began by the sender's clock, what it brought)."""


class MailLost(Exception):
    """A message could not be sent: its receiver is gone."""


class Mail:
    """One worker's letter box and post. A small message is sent at once; a large one by a thread, so that the device goes on meanwhile.

    Messages to one worker arrive in the order in which they are sent. Whoever connects has to show `secret`, since what comes is unpickled.
    That a sender has died is for the driver to notice: here its connection just ends.
    """

    def __init__(self, secret: bytes, received: Received, failed: Callable[[MailLost], None]) -> None:
        """`failed` is called where a message that was sent by a thread did not go."""
        self._secret, self._received, self._failed = secret, received, failed
        self._addresses: dict[int, tuple[str, int]] = {}
        self._routes: dict[int, _Route] = {}
        self._box = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._open_box, daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        """Where others connect to."""
        host, port = self._box.getsockname()
        return host, port

    def meet(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        """Where the other workers, by their ranks, are to be found."""
        self._addresses = dict(addresses)

    def post(self, to: int, ticket: int, start_ns: int, parcel: Parcel) -> None:
        """Send `parcel` to the worker `to`. Raises MailLost where that is known to fail."""
        if to not in self._routes:
            self._routes[to] = _Route(self._addresses[to], self._secret, self._failed)
        self._routes[to].post(ticket, start_ns, parcel)

    def _open_box(self) -> None:
        while True:
            connection, _ = self._box.accept()
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        try:
            if not hmac.compare_digest(_read_exactly(connection, len(self._secret)), self._secret):
                return
            while True:
                self._received(*_read_message(connection))
        except (EOFError, ConnectionError):
            pass  # the sender has ended
        finally:
            connection.close()


class _Route:
    """A connection to one other worker."""

    def __init__(self, address: tuple[str, int], secret: bytes, failed: Callable[[MailLost], None]) -> None:
        self._failed = failed
        self._queue: queue.Queue[tuple[int, int, Parcel]] = queue.Queue()
        try:
            self._socket = socket.create_connection(address, _CONNECT_S)
            self._socket.settimeout(None)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(secret)
        except OSError as error:
            raise MailLost(f"no connection to another worker: {error}") from error
        threading.Thread(target=self._work, daemon=True).start()

    def post(self, ticket: int, start_ns: int, parcel: Parcel) -> None:
        if parcel.body.nbytes <= _AT_ONCE_BYTES and not self._queue.unfinished_tasks:
            self._send(ticket, start_ns, parcel)
        else:
            self._queue.put((ticket, start_ns, parcel))

    def _work(self) -> None:
        while True:
            try:
                self._send(*self._queue.get())
            except MailLost as error:
                self._failed(error)
                return
            self._queue.task_done()

    def _send(self, ticket: int, start_ns: int, parcel: Parcel) -> None:
        outline = pickle.dumps((parcel.outline, parcel.shapes))
        header = _HEADER.pack(ticket, start_ns, len(outline), parcel.body.nbytes)
        try:
            self._socket.sendall(header + outline)
            if parcel.body.nbytes:
                self._socket.sendall(_bytes_of(parcel.body))
        except OSError as error:
            raise MailLost(f"message {ticket} was not sent: {error}") from error


def _read_message(connection: socket.socket) -> tuple[int, int, Parcel]:
    import torch

    ticket, start_ns, outline_bytes, body_bytes = _HEADER.unpack(_read_exactly(connection, _HEADER.size))
    outline, shapes = pickle.loads(_read_exactly(connection, outline_bytes))
    body = torch.empty(body_bytes, dtype=torch.uint8)
    _read_into(connection, _bytes_of(body))
    return ticket, start_ns, Parcel(outline, body, shapes)


def _read_exactly(connection: socket.socket, num_bytes: int) -> bytes:
    read = bytearray(num_bytes)
    _read_into(connection, memoryview(read))
    return bytes(read)


def _read_into(connection: socket.socket, where: memoryview) -> None:
    """Fill `where`. Raises EOFError where the connection ends before."""
    while where.nbytes:
        count = connection.recv_into(where)
        if not count:
            raise EOFError
        where = where[count:]


def _bytes_of(body: torch.Tensor) -> memoryview:
    return body.numpy().data
