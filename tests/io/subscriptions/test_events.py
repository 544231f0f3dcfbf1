"""Server-sent events of a real server as a source."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import raystream as rs
from raystream.errors import ConfigError, InputError
from raystream.io.subscriptions.events import ServerEvent, parsed
from raystream.testing import Collect
from tests.io.subscriptions.reading import Reader, Reading, Text
from tests.processes import free_port


class Events(ThreadingHTTPServer):
    """Sends readings from the one after `Last-Event-ID` on; a few in each answer."""

    def __init__(self, ids: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.asked: list[str | None] = []
        self.tokens: list[str | None] = []
        self.ids = ids
        self.there, self.each = 10, 4
        self.gone = 0
        """How many of the next requests it does not know."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/readings?key=secret"


class _Answer(BaseHTTPRequestHandler):
    server: Events

    def do_GET(self) -> None:
        server, last = self.server, self.headers.get("Last-Event-ID")
        server.asked.append(last)
        server.tokens.append(self.headers.get("Authorization"))
        if self.path.startswith("/nowhere") or server.gone:
            server.gone = max(server.gone - 1, 0)
            self.send_error(404)
            return
        first = int(last.removeprefix(server.ids)) + 1 if last else 0
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b": hello\nevent: other\ndata: x\n\n")
        for i in range(first, min(first + server.each, server.there)):
            data = f'{{"time": {i},\ndata: "room": "hall"}}'
            self.wfile.write(f"id: {server.ids}{i}\ndata: {data}\n\n".encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(params=["", "x-"])
def server(request: Any) -> Iterator[Events]:
    with Events(request.param) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_it_reads_on_after_the_last_event(server: Events) -> None:
    reader = Reader(rs.io.events(server.url, Reading, event="message"))
    assert [r.time for r in reader.take(10)] == [*range(10)]
    reader.stop()
    ids = [None, f"{server.ids}3", f"{server.ids}7"]
    assert server.asked[:3] == ids
    numbers = [] if server.ids else [("at", n) for n in range(10)]
    assert reader.numbers() == numbers  # whole numbers tell what was recorded


def test_another_process_reads_on_after_what_is_recorded(server: Events) -> None:
    server.ids = ""
    reader = Reader(rs.io.events(server.url, Reading, event="message"), known=6)
    assert [r.time for r in reader.take(3)] == [7, 8, 9]
    reader.stop()
    assert server.asked[0] == "6"


def test_a_page_that_is_gone_for_a_while_is_waited_for(server: Events) -> None:
    """A server before it that is started again may say so."""
    reader = Reader(rs.io.events(server.url, Reading, event="message"))
    assert [r.time for r in reader.take(4)] == [0, 1, 2, 3]
    server.gone = 2
    assert [r.time for r in reader.take(4)] == [4, 5, 6, 7]
    assert server.asked.count(f"{server.ids}3") == 3
    reader.stop()


def test_a_job_ends_when_the_other_side_does(server: Events) -> None:
    flow, sink = rs.Flow("rooms"), Collect()
    source = rs.io.events(server.url, Reading, event="message", again=False)
    flow.source(source, epochs=rs.by_arrival(seconds=0.01)).to(sink)
    flow.run()
    assert [r.time for r in sink.records()] == [0, 1, 2, 3]


def test_events_of_one_name_have_a_format_and_a_request_has_headers(server: Events) -> None:
    token = {"Authorization": "Bearer secret"}
    form = rs.io.formats.raw()
    source = rs.io.events(server.url, Text, event="other", headers=token, format=form)
    reader = Reader(source)
    assert reader.take(2) == [Text("x"), Text("x")]
    reader.stop()
    assert server.tokens[:2] == ["Bearer secret"] * 2
    assert "secret" not in repr(source)


def test_events_that_are_no_records_are_a_stream_of_their_own(server: Events) -> None:
    flow, good, bad = rs.Flow("rooms"), Collect(), Collect()
    source = rs.io.events(server.url, Reading, bad="stream", again=False)
    stream = flow.source(source, epochs=rs.by_arrival(seconds=0.01))
    stream[Reading].to(good)
    stream[rs.io.BadMessage].to(bad)
    flow.run()
    assert [r.time for r in good.records()] == [0, 1, 2, 3]
    assert [r.data for r in bad.records()] == [b"x"]


def test_a_server_that_is_not_there_is_given_up() -> None:
    nobody = rs.io.events(f"http://127.0.0.1:{free_port()}/", Reading, give_up=0.2)
    with pytest.raises(InputError, match=r"could not be read for 0\.2 s"):
        Reader(nobody).take(1)
    with pytest.raises(InputError, match="cannot be read: ConnectionRefusedError"):
        rs.io.events(nobody.url, Reading).check()  # which does not wait for 300 s


def test_lines_become_events() -> None:
    lines = ["id: 1", "data: a", "data:b", "", ": c", "event: x", "data", "", "id", "data: c", ""]
    assert [e for e in parsed(lines) if e is not None] == [
        ServerEvent("message", "1", "a\nb"),
        ServerEvent("x", "1", ""),
        ServerEvent("message", "", "c"),
    ]  # fmt: skip


def test_what_is_refused_is_said_without_secrets(server: Events) -> None:
    url = server.url.replace("readings", "nowhere")
    with pytest.raises(InputError, match="cannot be read: 404") as raised:
        Reader(rs.io.events(url, Reading)).take(1)
    assert "headers=" in raised.value.hint
    assert "secret" not in str(raised.value)
    with pytest.raises(InputError, match=r"is no|JSON"):
        Reader(rs.io.events(server.url, Reading)).take(1)  # the other event is no reading
    with pytest.raises(ConfigError, match="begins with http://"):
        rs.io.events("ws://x", Reading)
