"""A server on loopback that answers as EC2's instance metadata service does (IMDSv2)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeMetadata:
    """entries: by path, what is there; others are 404. tokens: those that are valid. failing: the
    code that every question is answered with, if any."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.tokens: list[str] = []
        self.given = 0
        self.failing = 0
        self.url = ""

    def answer(self, method: str, path: str, headers: Any) -> tuple[int, str]:
        if self.failing:
            return self.failing, "out of order"
        if path == "/latest/api/token":
            if method != "PUT" or not headers["X-aws-ec2-metadata-token-ttl-seconds"]:
                return 400, "a token is put, and for how long"
            self.given += 1
            self.tokens.append(f"token-{self.given}")
            return 200, self.tokens[-1]
        if headers["X-aws-ec2-metadata-token"] not in self.tokens:
            return 401, "no token, or an old one"
        entry = self.entries.get(path.removeprefix("/latest/meta-data/"))
        return (200, entry) if entry is not None else (404, "")


@contextmanager
def fake_metadata() -> Iterator[FakeMetadata]:
    fake = FakeMetadata()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, text = fake.answer(self.command, self.path, self.headers)
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
