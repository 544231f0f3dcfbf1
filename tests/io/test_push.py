"""Records that are pushed over HTTP into a job in this process."""

from __future__ import annotations

import asyncio
import http.client
import json
import pickle
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import raystream as rs
from raystream import push
from raystream.errors import ConfigError, InputError, JobError
from raystream.io.push import lane as lanes
from raystream.io.push.bodies import decoded
from raystream.io.push.handling import lane_of
from raystream.io.push.hub import Hub
from raystream.push import ARROW, AsyncClient, Client
from raystream.schema.types import LocalDirectory, SourceContext
from raystream.security.certificates import made, write
from raystream.security.contexts import connecting
from tests.gates import LIMIT_SECONDS
from tests.processes import free_port

TOKEN = "secret"


class Item(NamedTuple):
    n: int
    text: str = ""
    at: datetime | None = None


class Job:
    """A job that collects what is pushed."""

    def __init__(self, tls: Path | None = None, **options: Any) -> None:
        self.port = free_port()
        self.tls = tls
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.found: list[Item] = []
        self.errors: list[BaseException] = []
        self.source = rs.io.push(Item, port=self.port, **{"token": TOKEN, "lanes": 3} | options)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        flow = rs.Flow("pushed")
        items = flow.source(self.source, epochs=rs.by_arrival(seconds=0.01))
        items.to(rs.io.callable(lambda batch: self.found.extend(batch.records())))
        try:
            flow.run(tls=self.tls)
        except BaseException as error:
            self.errors.append(error)

    def post(self, body: bytes = b"", path: str = "/push", **headers: str) -> tuple[int, Any]:
        """The status and body of the answer to a request."""
        shown = {"Authorization": f"Bearer {TOKEN}"} | {
            k.replace("_", "-"): v for k, v in headers.items()
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_SECONDS)
        try:
            connection.request("POST", path, body, shown)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def join(self) -> list[Item]:
        """All that was pushed, once the job has ended."""
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self.errors:
            raise self.errors[0]
        return self.found


@contextmanager
def running(**options: Any) -> Iterator[Job]:
    job = Job(**options)
    client = Client(job.url, job.source.token, give_up=20, tls=job.tls)
    try:
        client._until("/push", b"", {})  # it listens
        yield job
    finally:
        client.end()
        client.close()
        job.join()


def test_a_client_pushes_and_ends_the_input() -> None:
    job = Job()
    with Client(job.url, TOKEN, batch=100, give_up=20) as client:
        for n in range(1050):
            client.push(Item(n, f"item {n}"))
        assert client.sequence == 11
        client.push({"n": 1050, "at": datetime(2026, 1, 2, tzinfo=UTC)})
    with Client(job.url, TOKEN) as other:
        other.push_arrow(pa.table({"n": [1051, 1052], "text": ["a", "b"]}))
        other.end()
    found = job.join()
    assert [item.n for item in found if item.n <= 1050] == [*range(1051)]  # in order: one lane
    assert sorted(found)[-3:] == [
        Item(1050, "", datetime(2026, 1, 2, tzinfo=UTC)),
        Item(1051, "a"),
        Item(1052, "b"),
    ]


def ask(connection: http.client.HTTPConnection) -> None:
    """Ask for what a client may know, with the token."""
    connection.request("GET", "/push", headers={"Authorization": f"Bearer {TOKEN}"})
    connection.getresponse().read()


def test_with_tls_only_those_with_a_certificate_of_the_job_push(tmp_path: Path) -> None:
    ours, theirs = made(), made()
    for name, pem in (
        ("ours", ours),
        ("theirs", theirs),
        ("stranger", theirs._replace(authority=ours.authority)),
    ):
        write(pem, tmp_path / name)
    with running(tls=tmp_path / "ours") as job:
        with Client(job.url, TOKEN, tls=tmp_path / "ours") as client:
            client.push(Item(1))
            client.flush()
        with pytest.raises(ConfigError, match="no address for TLS"):
            Client(job.url.replace("https", "http"), TOKEN, tls=tmp_path / "ours")
        with Client(job.url, TOKEN, tls=tmp_path / "theirs", give_up=0.1) as client:
            client.push(Item(2))
            with pytest.raises(JobError, match="certificate verify failed"):
                client.flush()
            client._forget()
        context = connecting(theirs._replace(authority=ours.authority))
        strangers = [{"context": context}, {"context": ssl._create_unverified_context()}, {}]
        for options in strangers:
            kind = http.client.HTTPSConnection if options else http.client.HTTPConnection
            asked = kind("localhost", job.port, timeout=LIMIT_SECONDS, **options)
            with closing(asked), pytest.raises((OSError, http.client.HTTPException)):
                ask(asked)
    assert job.found == [Item(1)]


def test_what_curl_posts_is_answered_when_it_is_recorded_and_a_repeated_request_counts_once() -> (
    None
):
    with running() as job:
        assert job.post(b'{"n": 1}\n{"n": 2}\n') == (200, {"records": 2})
        sent = {"Raystream_Sender": "p", "Raystream_Sequence": "7"}
        for _ in range(2):
            assert job.post(b'{"n": 3}', **sent) == (200, {"records": 1, "sequence": 7})
        assert job.post(b'{"n": 4}', **sent | {"Raystream_Sequence": "8"})[0] == 200
        assert job.post(b"\n") == (200, {"records": 0})
    assert sorted(item.n for item in job.found) == [1, 2, 3, 4]


def test_what_cannot_be_taken_is_refused_with_the_reason_and_nothing_of_it_is_taken() -> None:
    with running(max_bytes=1000) as job:
        status, said = job.post(b'{"n": 1}\n{"n": "x"}\n')
        assert (status, said["error"].partition(":")[0]) == (400, "line 2")
        assert job.post(b'{"n": 1}\n\xff')[1]["error"] == "line 2: it is not UTF-8"
        assert job.post(b"no arrow", Content_Type=ARROW)[0] == 400
        assert job.post(b"x" * 1001)[0] == 413
        assert job.post(b"{}", Authorization="Bearer other")[0] == 401
        assert job.post(b"{}", Authorization="")[0] == 401
        assert job.post(b"{}", Raystream_Sender="p")[0] == 400
        assert job.post(b"{}", Raystream_Sender="p", Raystream_Sequence="-1")[0] == 400
        assert job.post(b"{}", Raystream_Sender="p", Raystream_Sequence=str(2**63))[0] == 400
        assert job.post(b"{}", Raystream_Sender="p" * 201, Raystream_Sequence="1")[0] == 400
        assert job.post(b"{}", Raystream_Lane="3")[0] == 400
        with (
            Client(job.url, "other") as stranger,
            pytest.raises(ConfigError, match="does not accept the token"),
        ):
            stranger.end()
        with Client(job.url, TOKEN) as client:
            client.push({"n": None})
            with pytest.raises(InputError, match="line 1"):
                client.flush()
    assert job.found == []


def test_a_lane_that_is_full_says_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "LANE_REQUESTS", 0)
    full = threading.Event()
    plain = lanes.Lane.full

    def crowded(lane: lanes.Lane, nbytes: int) -> bool:
        return not full.is_set() or plain(lane, nbytes)

    monkeypatch.setattr(lanes.Lane, "full", crowded)
    job = Job()
    with Client(job.url, TOKEN, give_up=20) as client:
        client.push(Item(1))
        threading.Timer(0.5, full.set).start()
        client.flush()
        assert full.is_set()
        client.end()
    assert job.join() == [Item(1)]


def test_full_is_by_bytes_and_by_number_and_one_alone_is_taken() -> None:
    import asyncio

    loop = asyncio.new_event_loop()
    lane = lanes.Lane(0, loop)
    assert not lane.full(lanes.LANE_BYTES + 1)
    lane.held, lane.held_bytes = 1, lanes.LANE_BYTES
    assert lane.full(1) and not lane.full(0)
    lane.held = lanes.LANE_REQUESTS
    assert lane.full(0)
    loop.close()


def test_a_sequence_that_leaves_one_out_is_refused_and_the_one_before_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running() as job:

        def post(sequence: int, body: bytes = b'{"n": 1}') -> tuple[int, Any]:
            return job.post(body, Raystream_Sender="p", Raystream_Sequence=str(sequence))

        assert post(5)[0] == 200  # the first one of a sender may be any
        status, said = post(7)
        assert (status, "does not follow 5" in said["error"]) == (409, True)
        assert post(6, b'{"n": "x"}')[0] == 400  # what is refused has not come
        assert post(7)[0] == 409
        assert post(6, b'{"n": 2}')[0] == post(7, b'{"n": 3}')[0] == post(6)[0] == 200
        monkeypatch.setattr(push, "GAP_SECONDS", 0.3)
        with Client(job.url, TOKEN, sender="p", sequence=9) as late:
            late.push(Item(9))
            with pytest.raises(InputError, match="send 8 first"):
                late.flush()
        with Client(job.url, TOKEN, sender="p", sequence=8) as client:
            client.push_arrow(pa.table({"n": pa.array([], pa.int64())}))  # takes no number
            client.push(Item(4))
    assert sorted(item.n for item in job.found) == [1, 2, 3, 4]


def test_a_lane_says_what_it_takes() -> None:
    with running() as job, Client(job.url, TOKEN) as client:
        said = client.request("")
        assert said == {"lanes": 3, "max_bytes": 16 << 20, "fields": ["n", "text", "at"]}


def test_the_end_is_answered_when_it_is_recorded() -> None:
    directory, port = LocalDirectory(), free_port()
    first, second = hub(directory, port), hub(directory, port)
    lane, answers = first.serve(0), list[tuple[int, Any]]()
    second.ended(1)  # its lane had ended when that process took it over
    client = Client(f"127.0.0.1:{port}", TOKEN, give_up=20)
    thread = threading.Thread(
        target=lambda: answers.append(client._once("POST", "/push/end", b"", {})[:2])
    )
    thread.start()
    while not lane.over:
        assert thread.is_alive()
    assert answers == []
    first.ended(0)
    second.knows(0, {"p": 3})  # of a lane that is served elsewhere: nothing comes of it
    thread.join(20)
    assert answers == [(200, {"ended": True})]
    client.end()  # once more: it has ended
    client.push(Item(1))
    with pytest.raises(JobError, match="has ended"):
        client.flush()
    client._forget()
    client.close()
    first.close()
    second.close()


def test_after_the_end_nothing_is_taken() -> None:
    job = Job()
    with Client(job.url, TOKEN, give_up=20) as client:
        client.end()
        try:
            client.push(Item(1))
            client._give_up = 0.0
            with pytest.raises(JobError):
                client.flush()
        finally:
            client._forget()
    assert job.join() == []


def test_a_port_that_is_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flow = rs.Flow("pushed")
        source = rs.io.push(Item, port=taken.getsockname()[1], token=TOKEN)
        flow.source(source).to(rs.io.console())
        with pytest.raises(ConfigError, match="another program listens there"):
            flow.run()


def test_the_token_is_said_where_nobody_has_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TOKEN not in rs.io.push(Item, token=TOKEN).note
    source = rs.io.push(Item)
    assert source.token in source.note
    assert source.token not in repr(source)
    assert pickle.loads(pickle.dumps(source)).token == source.token
    monkeypatch.setenv("RAYSTREAM_PUSH_TOKEN", "of the environment")
    assert (rs.io.push(Item).token, rs.io.push(Item).note) == ("of the environment", "")


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": 0},
        {"lanes": 0},
        {"path": "push"},
        {"path": "/{x}"},
        {"token": ""},
        {"max_bytes": 0},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        rs.io.push(Item, **wrong)


@pytest.mark.parametrize("address", ["ftp://a:1", "http://", "http://a:b"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="no address"):
        Client(address, TOKEN)


# --------------------------------------------------------------- several processes


def hub(directory: LocalDirectory, port: int) -> Hub:
    context = SourceContext("run", "source", "127.0.0.1", True, directory)
    return Hub(context, port, 2, record=Item, path="/push", token=TOKEN, biggest=1000)


def recording(owner: Hub, number: int, found: list[int], stop: threading.Event) -> None:
    """Reads a lane as a job would, and says at once that all is recorded."""
    lane, n = owner.serve(number), 0
    while not stop.is_set():
        if (request := lane.take(0.01)) is not None:
            n += 1
            lane.taken(n, request)
            found.extend(item.n for item in request.batch.records())
            lane.recorded(n)
    owner.leave(lane)


def test_requests_are_passed_on_and_another_process_takes_the_port() -> None:
    directory, port = LocalDirectory(), free_port()
    first, second = hub(directory, port), hub(directory, port)
    sender = next(name for name in "abcdef" if lane_of(name, 2) == 1)
    found: list[int] = []
    stop = threading.Event()
    reader = threading.Thread(target=recording, args=(second, 1, found, stop))
    client = Client(f"127.0.0.1:{port}", TOKEN, sender=sender, give_up=20)
    client.push(Item(1))
    threading.Timer(0.3, reader.start).start()  # until then nobody owns the lane
    client.flush()
    first.close()
    client.push(Item(2))
    client.flush()  # the second process listens there by now
    stop.set()
    reader.join()
    assert found == [1, 2]
    client.push(Item(3))
    client._give_up = 0.0
    with pytest.raises(JobError, match="not recorded within"):
        client.flush()
    client._forget()
    client.close()
    second.close()


def test_what_is_not_recorded_when_a_lane_is_left_is_to_be_sent_again() -> None:
    directory, port = LocalDirectory(), free_port()
    only = hub(directory, port)
    lane = only.serve(0)
    client = Client(f"127.0.0.1:{port}", TOKEN, sender="abcdef"[0], give_up=0.0)
    client.sender = next(name for name in "abcdef" if lane_of(name, 2) == 0)
    client.push(Item(1))

    def leave() -> None:
        request = lane.take(10)
        assert request is not None
        lane.taken(1, request)
        only.leave(lane)

    thread = threading.Thread(target=leave)
    thread.start()
    with pytest.raises(JobError, match="not known whether this was recorded"):
        client.flush()
    thread.join()
    client._forget()
    client.close()
    only.close()


def test_bodies_are_decoded() -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"n": pa.array([1, 2], pa.int32()), "other": ["x", "y"]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in [*table.to_batches(max_chunksize=1)]:
            writer.write(batch)
    found = decoded(Item, sink.getvalue().to_pybytes(), arrow=True)
    assert [*found.records()] == [Item(1), Item(2)]
    with pytest.raises(InputError, match="n"):
        decoded(Item, _ipc(pa.table({"n": ["x"]})), arrow=True)
    with pytest.raises(InputError):
        decoded(Item, _ipc(pa.table({"n": [1, None]})), arrow=True)
    assert len(decoded(Item, _ipc(table.slice(0, 0)), arrow=True)) == 0


def _ipc(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return bytes(sink.getvalue().to_pybytes())


def test_tasks_of_a_loop_push_through_one_client() -> None:
    job = Job()

    async def feed() -> None:
        async with AsyncClient(job.url, TOKEN, batch=7) as client:
            await client.push({"n": "no number"})
            with pytest.raises(InputError):
                await client.flush()

            async def task(first: int) -> None:
                for n in range(first, first + 25):
                    await client.push(Item(n))
                    await asyncio.sleep(0)

            await asyncio.gather(*(task(25 * i) for i in range(4)))
            await client.end()

    asyncio.run(feed())
    job.join()
    assert sorted(item.n for item in job.found) == [*range(100)]
