"""Code that reads what comes from sockets and stores, without the sockets: it is given damaged
bytes, mostly with the right checksums."""

from __future__ import annotations

import random
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

import raystream as rs
from benchmarks.fuzz.noise import changed, noise
from benchmarks.fuzz.ports import BODIES, Reading
from benchmarks.fuzz.target import Struck, Wrong
from raystream.actors.network.wire import Decoder, Ticket, messages
from raystream.dataflow.pieces import Header
from raystream.durable.manifest import VERSION
from raystream.durable.manifest import decode as decode_manifest
from raystream.errors import InputError, JobError, RaystreamError, StateError
from raystream.io.push.bodies import ARROW, decoded
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.schema.types import KeyRange
from raystream.state.images.image import decode as decode_image
from raystream.state.log.epoch_log import LogEntry

KEYS = KeyRange(0, 4)
JOB = "struck"
MOST = 8 << 20
"""Bytes that a body may have once it is not compressed."""
_IMAGE, _CHECKED = struct.Struct("<8sHII"), 14
"""The beginning of an image (magic, version, checksum, size of its header), and the offset from
which on the checksum is computed."""


class Sample:
    """Bytes that are right.

    Args:
        read: reads such bytes.
        refusals: the errors by which it may refuse them.
        mended: gives damaged bytes their right checksum.
    """

    def __init__(
        self,
        kind: str,
        data: bytes,
        read: Callable[[bytes], Any],
        refusals: tuple[type[RaystreamError], ...],
        mended: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self.kind, self.data, self.read = kind, data, read
        self.refusals, self.mended = refusals, mended


class Stored:
    """Samples of one kind. The code has to read what is sent, or to refuse it in words.

    Args:
        samples: the samples, by name.
    """

    def __init__(self, samples: dict[str, Sample]) -> None:
        self._samples = samples

    def strike(self, draw: random.Random, struck: Struck) -> None:
        """Read a sample that is nearly right."""
        name = draw.choice([*self._samples])
        sample = self._samples[name]
        others = [each.data for each in self._samples.values()]
        data = changed(draw, sample.data, others) if draw.random() < 0.95 else noise(draw)
        if draw.random() < 0.9:
            data = sample.mended(data)
        try:
            sample.read(data)
        except sample.refusals:
            struck.note(len(data), f"{sample.kind} refused")
        except Exception as error:
            raise Wrong(f"{name}: {type(error).__name__}: {error} of {data[:2000]!r}") from error
        else:
            struck.note(len(data), f"{sample.kind} read")

    def lives(self) -> None:
        """Read all samples as they are; mending must not change them."""
        for name, sample in self._samples.items():
            sample.read(sample.data)
            if sample.mended(sample.data) != sample.data:
                raise Wrong(f"{name}: mended, it is another one")

    def close(self) -> None:
        """Nothing is open."""


def bodies() -> Stored:
    """Bodies of requests to a push source."""

    def read(kind: str) -> Callable[[bytes], Any]:
        return lambda data: decoded(Reading, data, arrow=kind == ARROW, most=MOST)

    return Stored(
        {
            path or "lines": Sample("body", data, read(kind), (InputError,))
            for path, (kind, data) in BODIES.items()
            if path in ("", "?arrow", "?zstd", "?lz4")
        }
    )


def wire() -> Stored:
    """Tickets, and messages of pieces: a head and a body, after the size of the head."""
    schema = record_schema(Reading)
    rows = from_records(schema, [Reading(n, "text" * n, n / 2) for n in range(12)])
    offsets = np.array([0, 3, 3, 7, 12], np.int64)
    entries = [
        LogEntry(1, Header(1, KEYS, 1), rows.slice(0, 0), np.zeros(5, np.int64)),
        LogEntry(2, Header(2, KEYS, 2, True), rows, offsets),
    ]
    (message,) = messages(entries, KEYS)
    body = b"".join(bytes(part) for part in message.body)
    whole = struct.pack("<I", len(message.head)) + message.head + body

    def pieces(data: bytes) -> None:
        size = int.from_bytes(data[:4], "little")
        content = np.frombuffer(data[4 + size :] + b"", np.uint8)
        for piece in Decoder(schema, KEYS).pieces(data[4 : 4 + size], content):
            if len(piece.rows):
                pc.sum(pc.binary_length(piece.rows.column("text")))

    def ticket(data: bytes) -> None:
        try:
            Ticket.unpack(data)
        except ValueError as error:  # what the server answers with "no"
            raise JobError(str(error)) from None

    asked = Ticket("token", "name/0", 3, KEYS, 1).pack()
    return Stored(
        {
            "ticket": Sample("ticket", asked, ticket, (JobError,)),
            "pieces": Sample("piece", whole, pieces, (JobError,)),
        }
    )


class Seen(rs.State):
    n: int = 0
    text: str = ""


@rs.operator(key="text")
def seen(reading: Reading, row: Seen) -> Iterator[Reading]:
    row.n += 1
    row.text = reading.text
    yield reading


@cache
def _saved() -> dict[str, bytes]:
    """The objects that a job has saved, by name."""
    flow = rs.Flow(JOB)
    rows = [Reading(n, f"key {n % 50}", n / 2) for n in range(1000)]
    source = flow.source(rs.io.iterable(rows, Reading), epochs=rs.by_time(seconds=100))
    source.through(seen).to(rs.io.callable(lambda batch: None))
    with tempfile.TemporaryDirectory() as folder:
        flow.run(durable=folder, checkpoint_every=3)
        files = [p for p in Path(folder).rglob("*") if p.is_file()]
        return {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}


def store() -> Stored:
    """Manifests and images of checkpoints."""

    def manifest(data: bytes) -> bytes:
        _, _, body = data.partition(b"\n")
        return b"raystream saved cut %d %08x\n" % (VERSION, zlib.crc32(body)) + body

    def image(data: bytes) -> bytes:
        if len(data) < _IMAGE.size:
            return data
        magic, version, _, size = _IMAGE.unpack_from(data)
        fixed = _IMAGE.pack(magic, version, zlib.crc32(data[_CHECKED:]), size)
        return fixed + data[_IMAGE.size :]

    def read_image(data: bytes) -> None:
        try:
            decode_image(data).validate()
        except ValueError as error:  # what `Saves` makes a StateError of
            raise StateError(str(error)) from None

    samples: dict[str, Sample] = {}
    for name, data in _saved().items():
        kind = name.split("/")[1]
        if kind == "cuts":
            samples[name] = Sample(
                "manifest", data, partial(decode_manifest, JOB, name), (StateError,), manifest
            )
        elif kind == "images":
            samples[name] = Sample("image", data, read_image, (StateError,), image)
    return Stored(samples)


KINDS: dict[str, Callable[[], Stored]] = {"bodies": bodies, "wire": wire, "store": store}


@contextmanager
def kind(name: str) -> Iterator[Stored]:
    """Samples of a kind."""
    yield KINDS[name]()
