"""Bytes that are nearly right: what was valid, with a few places changed."""

from __future__ import annotations

import random
from collections.abc import Sequence

EDGES = (
    b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\x00\x00\x00\x80",
    b"\xff\xff\xff\x7f", b"\xff" * 8, b"\x00" * 7 + b"\x80", b"\xff" * 7 + b"\x7f", b"\x00" * 8,
    b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\x91" * 40,
    b"[" * 3000, b'{"a":' * 2000, b"9" * 5000, b"1e999", b"\r\n\r\n", b"\0", b"%00", b"..%2f",
    b"Transfer-Encoding: chunked\r\n", b"Content-Length: 99999999999999999999\r\n", b"\xed\xa0\x80",
)  # fmt: skip
"""Bytes that changes put in: numbers at the edges of their types, sizes that are too large for
msgpack, and what parsers of text and HTTP may stumble over."""


def noise(draw: random.Random, most: int = 1 << 16) -> bytes:
    """Random bytes, mostly a few.

    Args:
        most: up to so many.
    """
    return draw.randbytes(int(most ** draw.random()))


def changed(draw: random.Random, sample: bytes, others: Sequence[bytes] = ()) -> bytes:
    """A sample with one to eight changes, mostly one.

    Args:
        others: samples whose parts may be put in.
    """
    data = bytearray(sample)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        at = draw.randint(0, len(data))
        end = min(len(data), at + draw.randint(1, draw.choice((4, 64, 1 + len(data) // 4))))
        what = draw.choice((0, 0, 0, 1, 1, 2, 3, 4, 5, 6))
        if what == 0 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif what == 1:
            edge = draw.choice(EDGES)
            data[at : at + len(edge)] = edge
        elif what == 2:
            data[at:at] = draw.choice(EDGES)
        elif what == 3:
            del data[at:end]
        elif what == 4:
            data[at:at] = data[at:end] * draw.randint(1, 4)
        elif what == 5 and others:
            other = draw.choice(others)
            begin = draw.randint(0, len(other))
            data[at:end] = other[begin : begin + draw.randint(0, 4096)]
        else:
            data[at:at] = noise(draw, 256)
        del data[1 << 20 :]  # no larger than a message of a socket
    return bytes(data)
