"""Decisions are sent to a collector once, and a job does not wait for one that is gone."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from raystream.actors.control.exporter import AGAIN_SECONDS, Tracer
from tests.controller.reporting.test_traces import ENTRY, MOVED
from tests.gates import LIMIT_SECONDS


class Collector(HTTPServer):
    """Takes what is posted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.taken: list[tuple[str, Any]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def names(self) -> list[str]:
        spans = [body["resourceSpans"][0]["scopeSpans"][0]["spans"] for path, body in self.taken]
        return [s["name"] for each in spans for s in each if "parentSpanId" not in s]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Collector)
        self.server.taken.append((self.path, json.loads(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    yield server
    server.shutdown()
    server.server_close()


def machine(started: float, committed: int = 0, **of_entry: Any) -> Any:
    said = [SimpleNamespace(image_bytes=10, image_seconds=0.5), SimpleNamespace(image_bytes=0)]
    return SimpleNamespace(
        journal=replace(ENTRY, started=started, committed=committed, **of_entry),
        commits=SimpleNamespace(committed_at=started + 20),
        progress=lambda: said,
    )


def test_each_decision_is_sent_once(collector: Collector) -> None:
    tracer = Tracer("shop", "shop-1", f"http://127.0.0.1:{collector.server_port}", print)
    began = time.time() - 30
    tracer.look(machine(0.0))  # it has not begun
    tracer.look(machine(began))
    tracer.look(machine(began, committed=10))
    tracer.look(machine(began, committed=10, moved=(MOVED, replace(MOVED, t=20.0))))
    tracer.close(machine(began, committed=20))
    assert {path for path, _ in collector.taken} == {"/v1/traces"}
    assert collector.names == ["recovery", "move", "upgrade", "checkpoint", "move", "checkpoint"]


def test_a_controller_that_is_restarted_does_not_send_what_is_old(collector: Collector) -> None:
    url = f"http://127.0.0.1:{collector.server_port}/otlp/traces"
    tracer = Tracer("shop", "shop-1", url, print)
    began = time.time() - AGAIN_SECONDS - 11.0  # the recovery and the move had ended before
    tracer.close(machine(began))
    assert {path for path, _ in collector.taken} == {"/otlp/traces"}
    assert collector.names == ["upgrade"]


def test_what_a_collector_does_not_take_is_said(collector: Collector) -> None:
    collector.shutdown()
    collector.server_close()
    said: list[str] = []
    heard = threading.Event()

    def note(text: str) -> None:
        said.append(text)
        heard.set()

    url = f"http://me:secret@127.0.0.1:{collector.server_port}"
    tracer = Tracer("shop", "shop-1", url, note)
    tracer.look(machine(time.time()))
    assert heard.wait(LIMIT_SECONDS)
    assert "does not take traces" in said[0] and "secret" not in said[0]
