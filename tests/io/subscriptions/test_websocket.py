"""A real websocket as a source."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.sync.server import ServerConnection, serve

import raystream as rs
from raystream.errors import ConfigError, InputError
from raystream.testing import Collect
from tests.gates import LIMIT_SECONDS
from tests.io.subscriptions.reading import Reader, Reading
from tests.processes import free_port


class Feed:
    """Sends the readings of each connection, and then closes it or breaks it."""

    def __init__(self, *parts: int, breaks: bool = False) -> None:
        self.parts, self.breaks = list(parts), breaks
        self.heard: list[str] = []
        self.headers: list[str | None] = []
        self.sent = 0

    def __call__(self, socket: ServerConnection) -> None:
        self.headers.append(socket.request.headers.get("Authorization"))  # type: ignore[union-attr]
        self.heard.append(str(socket.recv(timeout=LIMIT_SECONDS)))
        for _ in range(self.parts.pop(0) if self.parts else 0):
            socket.send(json.dumps({"time": self.sent, "room": "hall"}))
            self.sent += 1
        if self.parts and self.breaks:
            socket.socket.close()


@pytest.fixture
def feed(request: Any) -> Iterator[tuple[Feed, str]]:
    parts, breaks = request.param
    made, port = Feed(*parts, breaks=breaks), free_port()
    with serve(made, "127.0.0.1", port) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield made, f"ws://127.0.0.1:{port}/rooms"
        server.shutdown()
        thread.join(LIMIT_SECONDS)


@pytest.mark.parametrize("feed", [([5], False)], indirect=True)
def test_a_job_ends_when_the_other_side_closes(feed: tuple[Feed, str]) -> None:
    there, url = feed
    source = rs.io.websocket(
        url, Reading, subscribe=["rooms"], headers={"Authorization": "Bearer x"}, again=False
    )
    flow, sink = rs.Flow("rooms"), Collect()
    flow.source(source, epochs=rs.by_arrival(seconds=0.01)).to(sink)
    flow.run()
    assert sink.records() == [Reading(t, "hall") for t in range(5)]
    assert (there.heard, there.headers) == (["rooms"], ["Bearer x"])


@pytest.mark.parametrize("feed", [([2, 3], True), ([2, 3], False)], indirect=True)
def test_a_connection_is_made_again(feed: tuple[Feed, str]) -> None:
    there, url = feed
    source = pickle.loads(pickle.dumps(rs.io.websocket(url, Reading, subscribe=["a"])))
    reader = Reader(source)
    assert [r.time for r in reader.take(5)] == [0, 1, 2, 3, 4]
    assert len(there.heard) >= 2
    reader.acknowledge()
    reader.stop()


def test_an_address_where_nobody_is_ends_the_job_in_words() -> None:
    source = rs.io.websocket(f"ws://127.0.0.1:{free_port()}/x?key=secret", Reading, give_up=0.2)
    with pytest.raises(InputError, match=r"could not be read for 0\.2 s") as raised:
        Reader(source).take(1)
    assert "secret" not in str(raised.value)
    with pytest.raises(InputError, match="cannot be read: ConnectionRefusedError"):
        rs.io.websocket(source.url, Reading).check()


def test_a_page_that_is_gone_for_a_while_is_waited_for() -> None:
    answers = [200, 404, 404, 200]

    def answer(there: Any, _: Any) -> Any:
        return None if (status := answers.pop(0)) == 200 else there.respond(status, "none")

    def feed(socket: ServerConnection) -> None:
        socket.send(json.dumps({"time": len(answers), "room": "hall"}))

    with serve(feed, "127.0.0.1", 0, process_request=answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host, port = server.socket.getsockname()
        reader = Reader(rs.io.websocket(f"ws://{host}:{port}", Reading))
        assert [r.time for r in reader.take(2)] == [3, 0]
        reader.stop()
        server.shutdown()


def test_a_server_that_lets_nobody_in_is_not_asked_again() -> None:
    def refuse(there: Any, _: Any) -> Any:
        return there.respond(401, "who are you?")

    with serve(lambda _: None, "127.0.0.1", 0, process_request=refuse) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host, port = server.socket.getsockname()
        source = rs.io.websocket(f"ws://{host}:{port}", Reading)
        for read in (source.check, lambda: Reader(source).take(1)):
            with pytest.raises(InputError, match=r"websocket ws://.* was refused: 401"):
                read()
        server.shutdown()


def test_what_cannot_be_is_refused() -> None:
    for url, options, match in (
        ("http://x", {}, "begins with ws://"),
        ("ws://x", {"give_up": 0}, "must be above 0"),
        ("ws://x", {"subscribe": "a"}, "a list of messages"),
        ("ws://x", {"headers": 3}, "a mapping"),
    ):
        with pytest.raises(ConfigError, match=match):
            rs.io.websocket(url, Reading, **options)  # type: ignore[arg-type]
