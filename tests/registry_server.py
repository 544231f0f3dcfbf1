"""A schema registry for tests: the part of Confluent's HTTP interface that is used here."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

LOGIN = "ann:correct horse"
_NO_SUBJECT, _NO_SCHEMA = (404, 40401, "no subject"), (404, 40403, "no schema")


class RegistryServer:
    """Holds schemas by subject. A schema with other names of fields is not compatible. It lets in
    who says `LOGIN`."""

    def __init__(self) -> None:
        self.subjects: dict[str, list[dict[str, Any]]] = {}
        """By subject the schemas, as they were posted."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.place = f"http://127.0.0.1:{self._server.server_port}"
        self.settings = {"url": self.place, "basic.auth.user.info": LOGIN}
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, body: Any) -> Any:
        """An answer, or the status, code and words of an error."""
        match [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]:
            case ["subjects"]:
                return [*self.subjects]
            case ["subjects", name, "versions", "latest"]:
                there = self.subjects.get(name)
                return self._registered(name, len(there)) if there else _NO_SUBJECT
            case ["subjects", name, "versions"]:
                if not self._fits(name, body):
                    return 409, 409, "it is not compatible"
                there = self.subjects.setdefault(name, [])
                if body not in there:
                    there.append(body)
                return self._registered(name, there.index(body) + 1)
            case ["subjects", name]:
                there = self.subjects.get(name, [])
                return (
                    self._registered(name, there.index(body) + 1) if body in there else _NO_SCHEMA
                )
            case ["compatibility", "subjects", name, "versions", "latest"]:
                return {"is_compatible": self._fits(name, body)}
            case ["schemas", "ids", number]:
                known = {self._id(n, v): each for n, v, each in self._all()}
                return known.get(int(number), _NO_SCHEMA)
        return 404, 404, "HTTP 404 Not Found"

    def _all(self) -> list[tuple[str, int, dict[str, Any]]]:
        return [
            (n, i + 1, each) for n, all_ in self.subjects.items() for i, each in enumerate(all_)
        ]

    def _id(self, name: str, version: int) -> int:
        return 100 * ([*self.subjects].index(name) + 1) + version

    def _registered(self, name: str, version: int) -> dict[str, Any]:
        found = self.subjects[name][version - 1]
        return {**found, "subject": name, "version": version, "id": self._id(name, version)}

    def _fits(self, name: str, body: Any) -> bool:
        there = self.subjects.get(name)
        return not there or _names(there[-1]) <= _names(body)


def _names(body: Any) -> set[str]:
    return {f["name"] for f in json.loads(body["schema"])["fields"]}


def _handler(registry: RegistryServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answered(None)

        def do_POST(self) -> None:
            self._answered(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answered(self, body: Any) -> None:
            wanted = "Basic " + base64.b64encode(LOGIN.encode()).decode()
            found: Any = 401, 40101, "Unauthorized"
            if self.headers["Authorization"] == wanted:
                found = registry.answer(self.path, body)
            status = 200
            if isinstance(found, tuple):
                status, code, words = found
                found = {"error_code": code, "message": words}
            told = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: Any) -> None:
            """Nothing is printed."""

    return Handler
