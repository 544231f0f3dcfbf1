"""The process of a host: it serves slices, passes on those of others, and receives.

It runs as a file of its own (`python -I host.py`) and imports only the standard library, so that it
begins quickly. Each line of stdin is a JSON object that says what to receive. The answer is a JSON
object on stdout.

A *ticket* names a branch of a plan: how many bytes of which slices this host sends, and the
branches below it. It comes over the connection on which the bytes go back, in frames:
slice u32 · offset u64 · length u32 · bytes. A frame of length 0 ends a branch.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading
import time
from typing import Any

PORT = 7000
FRAME = struct.Struct("!IQI")
SIZE = struct.Struct("!I")
PIECE = 256 << 10
END = 0xFFFFFFFF
WAIT_S = 300.0
"""Seconds that a connection may be silent."""

Ticket = dict[str, Any]


def read(sock: socket.socket, into: memoryview) -> None:
    """Fill a buffer.

    Raises:
        ConnectionError: the other side has closed.
    """
    while into:
        n = sock.recv_into(into)
        if not n:
            raise ConnectionError("closed")
        into = into[n:]


def ask(ticket: Ticket) -> socket.socket:
    """Open a branch: connect to its host, and send the ticket."""
    sock = socket.create_connection((ticket["address"], PORT), timeout=WAIT_S)
    said = json.dumps(ticket).encode()
    sock.sendall(SIZE.pack(len(said)) + said)
    return sock


def pieces(sock: socket.socket, buffer: bytearray) -> Any:
    """The frames of a branch, each read into the buffer: its slice, its offset, and its bytes in
    the buffer with the header."""
    view = memoryview(buffer)
    while True:
        read(sock, view[: FRAME.size])
        number, offset, length = FRAME.unpack_from(buffer)
        if not length:
            return
        read(sock, view[FRAME.size : FRAME.size + length])
        yield number, offset, FRAME.size + length


def serve(sock: socket.socket) -> None:
    """Send the slices of a ticket, and pass on what the branches below it send."""
    with sock:
        size = bytearray(SIZE.size)
        read(sock, memoryview(size))
        said = bytearray(SIZE.unpack(size)[0])
        read(sock, memoryview(said))
        ticket = json.loads(said)
        time.sleep(ticket["delay"])  # the request is under way
        lock = threading.Lock()
        below = [
            threading.Thread(target=pass_on, args=(child, sock, lock, ticket["delay"]))
            for child in ticket["children"]
        ]
        for thread in below:
            thread.start()
        time.sleep(ticket["delay"])  # the first byte is under way
        send(sock, lock, ticket["slices"])
        for thread in below:
            thread.join()
        sock.sendall(FRAME.pack(END, 0, 0))


def send(sock: socket.socket, lock: threading.Lock, slices: list[tuple[int, int]]) -> None:
    """Send slices."""
    buffer = bytearray(FRAME.size) + os.urandom(PIECE)
    view = memoryview(buffer)
    for number, nbytes in slices:
        for offset in range(0, nbytes, PIECE):
            length = min(PIECE, nbytes - offset)
            FRAME.pack_into(buffer, 0, number, offset, length)
            with lock:
                sock.sendall(view[: FRAME.size + length])


def pass_on(ticket: Ticket, to: socket.socket, lock: threading.Lock, delay: float) -> None:
    """Pass on what a branch sends. A branch that fails is not told of here: the receiver counts the
    bytes that are missing."""
    buffer, first = bytearray(FRAME.size + PIECE), True
    view = memoryview(buffer)
    try:
        with ask(ticket) as sock:
            for _, _, length in pieces(sock, buffer):
                if first:
                    time.sleep(delay)
                    first = False
                with lock:
                    to.sendall(view[:length])
    except OSError:
        return


def listen(server: socket.socket) -> None:
    """Serve each connection, on a thread of its own."""
    while True:
        sock, _ = server.accept()
        threading.Thread(target=serve, args=(sock,), daemon=True).start()


def receive(roots: list[Ticket], slices: dict[int, int]) -> dict[str, Any]:
    """Gather slices.

    Args:
        roots: the branches to open.
        slices: the bytes of each slice, by its number.

    Returns:
        The seconds that it took; the bytes that are missing, by slice; and what went wrong, such as
        bytes of a slice that came out of order.
    """
    got = dict.fromkeys(slices, 0)
    wrong: list[str] = []

    def take(ticket: Ticket) -> None:
        buffer = bytearray(FRAME.size + PIECE)
        try:
            with ask(ticket) as sock:
                for number, offset, length in pieces(sock, buffer):
                    if offset != got[number]:
                        wrong.append(f"slice {number} came at {offset}, not at {got[number]}")
                    got[number] += length - FRAME.size
        except OSError as error:
            wrong.append(f"{ticket['address']}: {error}")

    began = time.perf_counter()
    threads = [threading.Thread(target=take, args=(ticket,)) for ticket in roots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    missing = {n: nbytes - got[n] for n, nbytes in slices.items() if got[n] != nbytes}
    return {"seconds": time.perf_counter() - began, "missing": missing, "wrong": wrong}


def main(address: str) -> None:
    """Listen, say on stdout that this host is ready, and receive what stdin asks for."""
    server = socket.create_server((address, PORT), backlog=64)
    threading.Thread(target=listen, args=(server,), daemon=True).start()
    print("ready", flush=True)
    for said in sys.stdin:
        asked = json.loads(said)
        slices = {int(number): nbytes for number, nbytes in asked["slices"].items()}
        print(json.dumps(receive(asked["roots"], slices)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
