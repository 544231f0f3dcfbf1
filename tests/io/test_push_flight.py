"""Records that are put by Arrow Flight into a job in this process: as those of HTTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import raystream as rs
from raystream.errors import ConfigError
from raystream.io.push import lane as lanes
from raystream.push import Client
from raystream.security.certificates import made, write
from raystream.security.tokens import PUSH, signed
from tests.gates import LIMIT_SECONDS, until
from tests.io.test_push import TOKEN, Item, Job
from tests.processes import free_port

flight = pytest.importorskip("pyarrow.flight")

SOURCE = "pushed"


class FlightJob(Job):
    """A job that also listens for Flight."""

    def __init__(self, tls: Path | None = None, **options: Any) -> None:
        self.flight_port = free_port()
        super().__init__(tls, flight=self.flight_port, **options)

    def client(self, token: str = TOKEN, **tls: Any) -> FlightPusher:
        kind = "grpc+tls" if tls else "grpc"
        return FlightPusher(f"{kind}://127.0.0.1:{self.flight_port}", token, **tls)


class FlightPusher:
    """What a user would write around a client of Flight."""

    def __init__(self, url: str, token: str, **tls: Any) -> None:
        self._client = flight.connect(url, **tls)
        headers = [(b"authorization", f"Bearer {token}".encode())]
        self.options = flight.FlightCallOptions(timeout=LIMIT_SECONDS, headers=headers)
        until(self._is_there)

    def _is_there(self) -> bool:
        """Whether the server answers, whatever it says."""
        try:
            self.actions()
        except flight.FlightUnavailableError:
            return False
        except flight.FlightError:
            pass
        return True

    def put(self, *batches: list[int], path: tuple[str, ...] = (SOURCE,), data: Any = None) -> Any:
        """Put batches; what was answered."""
        tables = [data] if data is not None else [table(b) for b in batches]
        return once_served(lambda: self._put(tables, path))

    def _put(self, tables: list[Any], path: tuple[str, ...]) -> Any:
        to = flight.FlightDescriptor.for_path(*path)
        writer, reader = self._client.do_put(to, tables[0].schema, self.options)
        answers = []
        try:
            for each in tables:
                writer.write_batch(each)
                answers.append(json.loads(reader.read().to_pybytes()))
            writer.done_writing()
        finally:
            writer.close()
        return answers

    def end(self) -> Any:
        (told,) = once_served(lambda: list(self._client.do_action("end", self.options)))
        return json.loads(told.body.to_pybytes())

    def actions(self) -> list[str]:
        return [action.type for action in self._client.list_actions(self.options)]

    def close(self) -> None:
        self._client.close()


def once_served(call: Callable[[], Any]) -> Any:
    """What a call answers, made again until the job, which has just started, serves its lanes."""
    ends = time.monotonic() + LIMIT_SECONDS
    while True:
        try:
            return call()
        except flight.FlightUnavailableError as error:
            if "is not served yet" not in str(error) or time.monotonic() > ends:
                raise
            time.sleep(0.02)


def table(numbers: list[int]) -> Any:
    return pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int64())})


def extra(error: Any) -> dict[str, Any]:
    """What an error says besides."""
    said: dict[str, Any] = json.loads(error.value.extra_info)
    return said


def test_batches_are_answered_when_they_are_recorded() -> None:
    job = FlightJob()
    client = job.client()
    assert client.put([1, 2], [3]) == [{"records": 2}, {"records": 1}]
    assert client.put([4], [5, 6], path=(SOURCE, "meter", "41")) == [
        {"records": 1, "sequence": 41}, {"records": 2, "sequence": 42}
    ]  # fmt: skip
    assert client.actions() == ["end"]
    assert client.end() == {"ended": True}
    assert sorted(item.n for item in job.join()) == [*range(1, 7)]


def test_a_batch_that_is_put_again_counts_once_however_it_comes() -> None:
    """Sequences are those of HTTP: a client may change over."""
    job = FlightJob()
    client = job.client()
    path = (SOURCE, "meter", "1")
    assert client.put([1], [2], path=path) == client.put([1], [2], path=path)
    told = job.post(b'{"n": 2}', Raystream_Sender="meter", Raystream_Sequence="2")
    assert told == (200, {"records": 1, "sequence": 2})
    assert job.post(b'{"n": 3}', Raystream_Sender="meter", Raystream_Sequence="3")[0] == 200
    client.put([4], path=(SOURCE, "meter", "4"))
    with pytest.raises(flight.FlightUnavailableError, match=r"6 of meter does not follow 4") as gap:
        client.put([6], path=(SOURCE, "meter", "6"))
    assert extra(gap)["status"] == 409
    assert extra(gap)["sequence"] == 6
    client.end()
    assert [item.n for item in job.join()] == [1, 2, 3, 4]


def test_nobody_comes_in_without_the_token() -> None:
    job = FlightJob()
    over = signed(TOKEN, PUSH, time.time() - 1)
    for ask in (lambda c: c.put([1]), lambda c: c.end(), lambda c: c.actions()):
        for token in ("wrong", over):
            with pytest.raises(flight.FlightUnauthenticatedError, match="show the token"):
                ask(job.client(token))
    job.client(signed(TOKEN, PUSH, time.time() + 600)).end()
    assert job.join() == []


def test_what_is_no_record_is_refused_in_words() -> None:
    job = FlightJob()
    client = job.client()
    other = pa.RecordBatch.from_pydict({"m": [1]})
    with pytest.raises(flight.FlightError, match="n") as refused:
        client.put(data=other)
    assert extra(refused)["status"] == 400
    for path in (("other",), (SOURCE, "meter"), (SOURCE, "meter", "x"), (SOURCE, "a", "1", "2")):
        with pytest.raises(flight.FlightError, match="a descriptor has the path") as refused:
            client.put([1], path=path)
        assert extra(refused)["status"] == 400
    client.end()
    assert job.join() == []


def test_a_lane_that_is_full_or_over_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "LANE_REQUESTS", 1)
    job = FlightJob(lanes=1)
    (lane,) = _lanes(job)
    lane.held = 1  # as if another request were not recorded yet
    client = job.client()
    path = (SOURCE, "meter", "1")
    with pytest.raises(flight.FlightUnavailableError, match="not recorded yet") as full:
        client.put([1], path=path)
    assert extra(full) == {
        "status": 429, "error": "what has come is not recorded yet", "again": 0.1, "sequence": 1
    }  # fmt: skip
    lane.held, lane.ended = 0, True  # as if another client had ended the input
    with pytest.raises(flight.FlightCancelledError, match="the input has ended") as over:
        client.put([1], path=path)
    assert extra(over)["status"] == 410
    lane.ended = False
    time.sleep(extra(full)["again"])
    assert client.put([1], path=path) == [{"records": 1, "sequence": 1}]
    client.end()
    assert [item.n for item in job.join()] == [1]


def _lanes(job: Job) -> list[Any]:
    """The lanes of a job, once they are served. Only one whose test knows that looks there."""
    with Client(job.url, TOKEN) as client:
        client.request("")
    hub = next(h for h in _hubs if h._port == job.port)
    until(lambda: len(hub.lanes) == job.source.lanes)
    return [*hub.lanes.values()]


_hubs: list[Any] = []


@pytest.fixture(autouse=True)
def hubs(monkeypatch: pytest.MonkeyPatch) -> None:
    from raystream.io.push import hub

    begin = hub.Hub.__init__

    def noted(self: Any, *given: Any, **named: Any) -> None:
        _hubs.append(self)
        begin(self, *given, **named)

    monkeypatch.setattr(hub.Hub, "__init__", noted)


def test_the_client_of_the_page_goes_on_where_it_was_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "LANE_REQUESTS", 1)
    job = FlightJob(lanes=1)
    (lane,) = _lanes(job)
    page = Path(__file__).parents[2] / "docs/connectors/push.md"
    shown = page.read_text(encoding="utf-8").partition("```py\n")[2].partition("```")[0]
    text = shown.replace("HOST:7702", f"127.0.0.1:{job.flight_port}")
    text = text.replace('"sensor": ["a"], "value": [1.5]', '"n": [1]')
    text = text.replace("})], 0", '}) for _ in "ab"], 0')
    lane.held = 1
    threading.Timer(0.5, lambda: setattr(lane, "held", 0)).start()
    exec(compile(text, "push.md", "exec"), {})  # ends the input, too
    assert [item.n for item in job.join()] == [1, 1]


def test_with_tls_a_client_shows_a_certificate(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    certificates = made()
    write(certificates, folder)
    job = FlightJob(tls=folder)
    shown = {
        "tls_root_certs": (folder / "ca.crt").read_bytes(),
        "cert_chain": (folder / "tls.crt").read_bytes(),
        "private_key": (folder / "tls.key").read_bytes(),
        "override_hostname": "raystream",
    }
    with pytest.raises(flight.FlightError):
        flight.connect(
            f"grpc+tls://127.0.0.1:{job.flight_port}",
            tls_root_certs=shown["tls_root_certs"], override_hostname="raystream",
        ).wait_for_available(3)  # fmt: skip
    client = job.client(**shown)
    assert client.put([1, 2]) == [{"records": 2}]
    client.end()
    assert sorted(item.n for item in job.join()) == [1, 2]


def test_a_port_that_is_taken_is_said() -> None:
    job = FlightJob()
    flow = rs.Flow("second")
    source = rs.io.push(Item, port=free_port(), flight=job.flight_port, token=TOKEN)
    flow.source(source, epochs=rs.by_arrival()).to(rs.io.console())
    job.client()
    with pytest.raises(ConfigError, match=r"flight=.*another program listens there"):
        flow.run()
    job.client().end()
    job.join()
    with pytest.raises(ConfigError, match="another port than port="):
        rs.io.push(Item, port=7700, flight=7700)
    with pytest.raises(ConfigError, match="from 1 to 65535, or None"):
        rs.io.push(Item, flight=0)
