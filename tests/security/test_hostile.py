"""Hostile bytes at each port and in what is stored: read or refused, and nothing else.

`python -m benchmarks fuzz --bytes 100000000` does the same for longer.
"""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fuzz.command import TARGETS
from benchmarks.fuzz.ports import TOKEN, Listening
from benchmarks.fuzz.target import strike
from raystream.actors.network.wire import Decoder, Ticket
from raystream.durable.manifest import decode, manifest_name
from raystream.durable.saves import MANIFEST_BYTES, Saves
from raystream.durable.store import FolderStore
from raystream.errors import InputError, InternalError, JobError, StateError
from raystream.io.push.bodies import decoded
from raystream.io.push.requests import NotTaken
from raystream.io.push.sealing import _sealed
from raystream.push import arrow_body
from raystream.schema.records import record_schema
from raystream.schema.types import KeyRange
from raystream.security import ipc_sizes
from tests.durable.memory import Memory

ROOT = Path(__file__).parents[2]


class Item(NamedTuple):
    n: int = 0
    text: str = ""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Servers tell of each request that is none."""
    told = [logging.getLogger(n) for n in ("asyncio", "aiohttp.server", "uvicorn.error")]
    before = [each.level for each in told]
    for each in told:
        each.setLevel(logging.CRITICAL)
    yield
    for each, level in zip(told, before, strict=True):
        each.setLevel(level)


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_bytes_are_refused(name: str) -> None:
    stored = name in ("bodies", "wire", "store")
    with TARGETS[name]() as target:
        struck = strike(target, 7, 1 << 40, strikes=300 if stored else 40, every=20)
    assert sum(struck.answers.values()) == struck.strikes > 0


PACKED = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary() | st.text(),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)
"""What msgpack can say."""


@given(PACKED | st.lists(PACKED, min_size=6, max_size=6), st.binary(max_size=64))
def test_whatever_msgpack_says_is_a_ticket_or_none_and_a_piece_or_damaged(
    said: Any, body: bytes
) -> None:
    import msgpack

    data = msgpack.packb(said)
    try:
        ticket = Ticket.unpack(data)
    except ValueError:
        pass
    else:
        assert [*map(type, (ticket.token, ticket.instance, ticket.edge))] == [str, str, int]
    decoder = Decoder(record_schema(Item), KeyRange(0, 4))
    with suppress(JobError):  # what an instance ends a subscription with
        pieces = [*decoder.pieces(data, np.frombuffer(body, np.uint8))]
        assert all(len(piece.rows) == 0 for piece in pieces)


def ipc(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_what_is_small_only_because_it_is_compressed_is_refused(compression: str) -> None:
    zeros = pa.table({"n": np.zeros(100_000, np.int64)})
    body = ipc(zeros, compression)
    assert len(body) < 10_000
    assert len(decoded(Item, body, arrow=True, most=1 << 20)) == 100_000
    with pytest.raises(InputError, match="more than 700,000 bytes once they are not compressed"):
        decoded(Item, body, arrow=True, most=700_000)


def test_what_is_small_only_because_of_a_dictionary_is_refused() -> None:
    values = pa.DictionaryArray.from_arrays(np.zeros(1000, np.int8), ["x" * 10_000])
    body = arrow_body(pa.table({"text": values}))
    assert len(body) < 20_000
    assert decoded(Item, body, arrow=True, most=10_000_000)["text"].nbytes >= 10_000_000
    with pytest.raises(InputError, match="'text' has more than 9,000,000 bytes without its"):
        decoded(Item, body, arrow=True, most=9_000_000)


def test_more_rows_than_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without a column of the record would be made of defaults."""
    monkeypatch.setattr(ipc_sizes, "MOST_ROWS", 1000)
    for body, arrow in (
        (arrow_body(pa.table({"else": pa.nulls(1001)})), True),
        (b"{}\n" * 1001, False),
    ):
        with pytest.raises(InputError, match="more than 1,000 records"):
            decoded(Item, body, arrow=arrow)


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"n":' * 100_000, b'{"n": ' + b"9" * 5000 + b"}"]
)
def test_json_that_is_deep_or_long_is_refused(body: bytes) -> None:
    with pytest.raises(InputError, match="line 1"):
        decoded(Item, body, arrow=False)


def test_a_seal_that_is_deep_is_refused() -> None:
    with pytest.raises(NotTaken, match="a JSON object with query"):
        _sealed(b'{"query": ' + b"[" * 100_000, 2)


# ---------------------------------------------------------------------------- what is stored


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", ".hidden", "a/.b", ""])
def test_no_object_is_outside_of_its_folder(tmp_path: Path, name: str) -> None:
    store = FolderStore(tmp_path / "store")
    (tmp_path / "x").write_bytes(b"outside")
    for ask in (store.get, lambda n: store.put(n, b""), lambda n: store.delete([n])):
        with pytest.raises(InternalError, match="is not the name of an object"):
            ask(name)
    assert (tmp_path / "x").read_bytes() == b"outside"


def test_a_manifest_names_only_images_of_its_job() -> None:
    import zlib

    image = ["../../other", 0, 1, 10, 0]
    values = {
        "job": "job", "number": 1, "run": "run", "checkpoint": 1, "checkpoint_every": 1,
        "layout": {"groups": 4, "ticks": 1, "shapes": {"v": ""}, "edges": []},
        "chains": {"v": [[[0, 4], [image]]]}, "splits": {}, "clock": None, "register": [],
    }  # fmt: skip
    name = manifest_name("job", 1, 1)
    for names in ("../../other", "other/images/000001/v/0-4/0-1-00000000", "job/runs/1"):
        image[0] = names
        body = json.dumps(values).encode()
        with pytest.raises(StateError, match="is no image of it"):
            decode("job", name, b"raystream saved cut 3 %08x\n" % zlib.crc32(body) + body)
    body = b"[" * 100_000
    with pytest.raises(StateError, match="RecursionError"):
        decode("job", name, b"raystream saved cut 3 %08x\n" % zlib.crc32(body) + body)


def test_a_manifest_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Memory()
    name = manifest_name("job", 1, 1)
    monkeypatch.setattr(store, "sizes", lambda folder: {name: MANIFEST_BYTES + 1})
    monkeypatch.setattr(store, "get", lambda name: pytest.fail("it was read"))
    found = Saves(store, "job").newest()
    assert found.saved is None and "no manifest is so large" in found.refused[0]


# ---------------------------------------------------------------------------- who listens

LISTENING = {
    "raystream/actors/network/connections.py": "the ports of data and claims: the run's token",
    "raystream/actors/network/listener.py": "their server",
    "raystream/actors/client/state_server.py": "rows of state over HTTP: its token",
    "raystream/io/push/hub.py": "the push ports: the token of the source",
    "raystream/page/serving.py": "the page: its token",
}
"""Where a socket is opened that others can connect to, and what it asks for."""
OPENS = {"create_server", "listen", "start_server", "SockSite", "TCPSite", "run_app",
         "HTTPServer", "ThreadingHTTPServer", "TCPServer", "FlightServerBase",
         "start_unix_server", "UnixSite"}  # fmt: skip
"""Calls that open one."""


def test_nothing_listens_but_what_asks_for_a_token() -> None:
    found = set()
    for path in (ROOT / "raystream").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            name = getattr(called, "attr", getattr(called, "id", ""))
            ui = (
                name == "run"
                and isinstance(called, ast.Attribute)
                and (isinstance(called.value, ast.Name) and called.value.id == "ui")
            )
            if name in OPENS or ui:
                found.add(str(path.relative_to(ROOT)))
    assert found == set(LISTENING)


def own_listening() -> set[int]:
    """The ports at which this process listens."""
    import psutil

    return {
        c.laddr.port for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN
    }


@pytest.mark.parametrize("name", ["data", "claims", "push", "page"])
def test_each_socket_that_a_part_opens_says_no_without_a_token(name: str) -> None:
    before = own_listening()
    with TARGETS[name]():
        opened = own_listening() - before
        assert opened
        for port in opened:
            listening = Listening(f"127.0.0.1:{port}", None)
            for asked in (
                b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                b"GET /push HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                Ticket("", "sink/0", 0, KeyRange(0, 256), 1).pack().rjust(100, b"\0"),
            ):
                said = listening.said(asked, tls=False)
                refused = said[9:12] in (b"400", b"401", b"403") or said[:1] in (b"", b"\x03")
                assert refused and TOKEN.encode() not in said, said[:200]
