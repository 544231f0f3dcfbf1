"""A client reads rows of state at the shells of a job, over sockets; the controller is played."""

from __future__ import annotations

import asyncio
import datetime
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

import raystream as rs
from raystream.actors.client import querying
from raystream.actors.client.committed import CommittedRows
from raystream.actors.client.state_server import KEYS_MAX, StateServer, serve_state
from raystream.actors.client.state_text import plain
from raystream.actors.control.state_routes import StateRoutes, state_routes
from raystream.controller.protocol.journal import JournalEntry
from raystream.dataflow.assignment import Assignment
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.errors import ConfigError, JobError, StateError
from raystream.security.credentials import Credentials
from raystream.simulation.references import other_version, plan_of
from raystream.state.counts import LEFT
from raystream.testing import Collect
from tests.actors.helpers.shells import TOKEN, Shells, shells_of
from tests.flows import CountWords, running, running_batch, word_flow
from tests.gates import until

RUN = "words-1"


@dataclass
class Controller:
    """Tells clients where rows are. Notes how often it was asked."""

    job: Shells
    asked: int = 0
    tell: Callable[[StateRoutes], StateRoutes | None] = lambda routes: routes
    state_routes: Any = field(init=False)

    def __post_init__(self) -> None:
        self.state_routes = SimpleNamespace(remote=lambda: self._routes)

    def _routes(self) -> StateRoutes | None:
        self.asked += 1
        entry = JournalEntry(assignment=self.job.assignment, started=7.5)
        routes = state_routes(self.job.plan, entry, Credentials(TOKEN, None))
        assert routes is not None
        return self.tell(routes)


@pytest.fixture(params=[running, running_batch], ids=["Python", "structured"])
def operator(request: pytest.FixtureRequest) -> Any:
    return request.param


def ended(operator: Any) -> Iterator[tuple[Shells, dict[Any, int]]]:
    sink = Collect()
    name = operator.__name__ if hasattr(operator, "__name__") else "CountWords"
    with shells_of(word_flow(sink, operator), instances={name: 2}, checkpoint_every=10) as job:
        job.start()
        job.until(lambda: all(s.machine.ended for s in job.shells))
        yield job, {n.word: n.n for n in sink.records() if hasattr(n, "word")}


@pytest.fixture
def played(operator: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A job, what its words were counted to, and its controller."""
    for job, counted in ended(operator):
        controller = Controller(job)
        play(controller, monkeypatch)
        yield SimpleNamespace(
            job=job, counted=counted, controller=controller, name=operator.__name__
        )


def play(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(querying, "visited", lambda address: nullcontext())
    monkeypatch.setattr(querying, "running", lambda: [RUN])
    monkeypatch.setattr(querying, "actor", lambda run, process: controller)
    monkeypatch.setattr(querying.ray, "get", lambda call, timeout: call())


def test_rows_are_read_by_key_in_the_order_of_the_keys(played: Any) -> None:
    with rs.query("words", played.name) as reader:
        assert reader.key_names == ("word",)
        keys = [*played.counted, "never", *played.counted]
        found = reader.get_many(keys)
        assert [f.key for f in found] == keys
        assert [None if f.row is None else f.row["n"] for f in found] == [
            played.counted.get(key) for key in keys
        ]
        assert {f.moment.run for f in found} == {7}
        assert reader.seen == max(f.moment for f in found) > (7, 0)
        key = next(iter(played.counted))
        assert reader.get(key).row == {"n": played.counted[key]}
        assert reader.get_many([]) == []
        assert played.controller.asked == 1, "the connections and the assignment are kept"


def test_more_keys_than_a_query_may_have_go_in_several(played: Any) -> None:
    key = next(iter(played.counted))
    with rs.query("words", played.name) as reader:
        found = reader.get_many([key] * (2 * KEYS_MAX + 1))
    assert [f.row["n"] for f in found if f.row] == [played.counted[key]] * (2 * KEYS_MAX + 1)


def test_no_answer_is_of_an_earlier_epoch_than_was_seen(played: Any) -> None:
    shells = [s for s in played.job.shells if s.machine.table is not None]
    position = shells[0].machine.position
    for shell in shells:
        shell.machine.ended = False
    try:
        with rs.query("words", played.name, seen=(7, position)) as reader:
            assert reader.get("a").moment.epoch == position
        with rs.query("words", played.name, seen=(6, position + 1)) as reader:
            assert reader.get("a").moment == (7, position), "another run has its own epochs"
        ahead = rs.query("words", played.name, seen=(7, position + 1), wait=0.3)
        with ahead, pytest.raises(JobError, match=f"has not come to epoch {position + 1}"):
            ahead.get("a")
        with pytest.raises(JobError, match="run 8 was seen already"):
            rs.query("words", played.name, seen=(8, 1))
    finally:
        for shell in shells:
            shell.machine.ended = True


def test_rows_of_another_class_are_not_taken_for_those_of_before(played: Any) -> None:
    """The job is upgraded: until the controller tells of the new class, nothing is decoded."""

    def old(routes: StateRoutes) -> StateRoutes:
        if played.controller.asked > 2:
            return routes
        kept = routes.operators[played.name]._replace(words="Other(n: int64) by word: str")
        return routes._replace(operators={played.name: kept})

    played.controller.tell = old
    key = next(iter(played.counted))
    with rs.query("words", played.name) as reader:
        assert reader.get(key).row == {"n": played.counted[key]}
    assert played.controller.asked == 3
    played.controller.asked = -1000
    reader = rs.query("words", played.name, wait=0.3)
    with reader, pytest.raises(JobError, match="has no checkpoint since its upgrade"):
        reader.get(key)


def test_each_read_is_at_the_checkpoint_that_is_committed_then(
    played: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the keepers still hold the one of the read before."""
    committed = iter([10, 10, 20, 30, 30])
    played.controller.tell = lambda routes: routes._replace(committed=next(committed))
    read: list[int] = []

    def rows_at(keepers: Any, place: Any, checkpoint: int, versions: Any) -> CommittedRows:
        read.append(checkpoint)
        return CommittedRows([], ended=False)

    monkeypatch.setattr(querying, "rows_at", rows_at)
    with rs.query("words", played.name) as reader:
        for epoch in (10, 20, 30):
            assert reader.scan().num_rows == 0
            assert reader.seen.epoch == epoch
        assert reader.get("a", committed=True).moment.epoch == 30
    assert read == [10, 20, 30, 30]


@pytest.mark.parametrize(("committed", "new"), [(5, False), (6, True)])
def test_after_an_upgrade_rows_are_of_the_class_of_the_committed_checkpoint(
    committed: int, new: bool
) -> None:
    wanted = other_version("words")
    version = CodeVersion(number=1, after=5, code=wanted.code, settled=True, shapes=wanted.shapes)
    assignment = Assignment(3, (), versions=(version,))
    entry = JournalEntry(assignment=assignment, committed=committed, started=7.5)
    routes = state_routes(plan_of("words"), entry, Credentials(TOKEN, None))
    assert routes is not None
    kept = routes.operators["count"]
    assert ("tenths" in kept.rows.names, "n" in kept.rows.names) == (new, not new)
    assert kept.words.startswith("TenthsTally" if new else "Tally")


def test_the_newest_assignment_is_asked_for_when_an_owner_is_gone(played: Any) -> None:
    """The first answers of the controller are old: they name instances that do not answer."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"

    def old(routes: StateRoutes) -> StateRoutes:
        if played.controller.asked > 2:
            return routes
        serving = tuple(replace(s, address=address) for s in routes.assignment.serving)
        assignment = replace(routes.assignment, serving=serving)
        return routes._replace(assignment=assignment)

    played.controller.tell = old
    with rs.query("words", played.name) as reader:
        key = next(iter(played.counted))
        assert reader.get(key).row == {"n": played.counted[key]}
    assert played.controller.asked > 2


def test_what_cannot_be_answered_is_said(played: Any) -> None:
    with pytest.raises(ConfigError, match="no operator 'x' that keeps rows"):
        rs.query("words", "x")
    with pytest.raises(ConfigError, match="which operator of words") as refused:
        rs.query("words", "")
    assert refused.value.hint == f"Those that keep rows: {played.name}."
    with pytest.raises(ConfigError, match="names"):
        rs.query(7, "x")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="wait"):
        rs.query("words", "x", wait=0)
    with rs.query("words", played.name, wait=0.3) as reader:
        for key in (7, ("a", "b"), datetime.date(2026, 1, 1), None):
            with pytest.raises(ConfigError, match=f"is no key of {played.name}"):
                reader.get(key)
        with pytest.raises(ConfigError, match="7 is no key"):
            reader.get_many(["a", 7, "b"])
        with pytest.raises(JobError, match="no committed checkpoint yet"):
            reader.get("a", committed=True)
        machine = next(s.machine for s in played.job.shells if s.machine.table is not None)
        counts = type(machine.counts)(len(machine.keys), {LEFT: bytes(8 * len(machine.keys))})
        before = [s.machine.counts for s in played.job.shells]
        for shell in played.job.shells:
            if shell.machine.table is not None:
                shell.machine.counts = counts
        with pytest.raises(StateError, match="rows are gone"):
            reader.get_many(list(played.counted))
        for shell, kept in zip(played.job.shells, before, strict=True):
            shell.machine.counts = kept
        played.controller.tell = lambda routes: None
        for shell in played.job.shells:
            shell.stop()
        with pytest.raises(JobError, match="has not begun yet"):
            reader.get("a")


def test_windows_are_asked_for_by_key_and_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for job, _ in ended(CountWords()):
        play(Controller(job), monkeypatch)
        with rs.query("words", "CountWords") as reader:
            assert reader.key_names == ("word", "window_start")
            assert reader.get(("a", 0)).row is None, "all windows are closed at the end"
            with pytest.raises(ConfigError, match="word: string, window_start: int64"):
                reader.get("a")


# ---------------------------------------------------------------- HTTP


@dataclass
class Server:
    url: str = ""
    failed: str = ""

    def post(self, operator: str, body: Any, token: str = "secret") -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=60)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", f"/{operator}", data, {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text.startswith(b"{") else text


@pytest.fixture
def server(played: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made, closing = Server(), threading.Event()
    loops: list[Any] = []
    closed = StateServer.close

    def close(self: StateServer) -> None:
        closed(self)
        closing.set()

    monkeypatch.setattr(StateServer, "close", close)

    def tell(url: str) -> None:
        loops.append(asyncio.get_running_loop())
        made.url = url

    def serve() -> None:
        try:
            serve_state(
                "words", "auto", host="127.0.0.1", port=0, token="secret", wait=0.5, tell=tell
            )
        except (asyncio.CancelledError, RuntimeError):
            pass
        except BaseException as error:
            made.failed = repr(error)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    until(lambda: made.url or made.failed)
    assert not made.failed
    yield SimpleNamespace(post=made.post, **vars(played))
    loop = loops[0]
    loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
    thread.join(60)
    assert closing.is_set()


def test_rows_are_read_over_http(server: Any) -> None:
    keys = [*list(server.counted)[:3], "never"]
    status, said = server.post(server.name, {"keys": keys})
    assert status == 200, said
    assert [r["key"] for r in said["rows"]] == keys
    assert [r["row"] and r["row"]["n"] for r in said["rows"]] == [
        server.counted.get(key) for key in keys
    ]
    assert {r["run"] for r in said["rows"]} == {7}
    assert said["seen"] == [7, max(r["epoch"] for r in said["rows"])]
    status, again = server.post(server.name, {"keys": keys, "seen": [7, 10**6]})
    assert status == 200 and again["seen"] == [7, 10**6]


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b"{", 400, "a request is an object like"),
        ([], 400, "a request is an object like"),
        ({"keys": "a"}, 400, "a request is an object like"),
        ({"keys": [{}]}, 400, "a request is an object like"),
        ({"keys": [1.5]}, 400, "a request is an object like"),
        ({"keys": ["a"], "committed": 1}, 400, "a request is an object like"),
        ({"keys": ["a"], "seen": [1]}, 400, "a request is an object like"),
        ({"keys": ["a"], "seen": ["1", 2]}, 400, "a request is an object like"),
        ({"keys": ["a"] * 101}, 400, "100 keys at most"),
        ({"keys": [7]}, 400, "7 is no key"),
        ({"keys": ["a"], "seen": [8, 2]}, 503, "run 8 was seen already"),
        ({"keys": ["a"], "committed": True}, 503, "no committed checkpoint yet"),
        (b"[" * 100_000, 400, "a request is an object like"),
    ],
)
def test_bad_requests_are_refused_in_words(server: Any, body: Any, status: int, why: str) -> None:
    found, said = server.post(server.name, body)
    assert found == status, said
    assert why in said["error"]


def test_only_who_shows_the_token_is_answered(server: Any) -> None:
    assert server.post(server.name, {"keys": []}, token="wrong")[0] == 401
    assert server.post(server.name, {"keys": []}, token="é")[0] == 401
    assert server.post("nothing", {"keys": ["a"]})[0] == 400
    assert server.post(server.name, b"x" * (2 << 20))[0] == 413


def test_values_of_rows_as_json_has_them() -> None:
    assert plain(b"\xff") == "/w=="
    assert plain({1: (Decimal("1.5"), datetime.date(2026, 1, 2))}) == {"1": ["1.5", "2026-01-02"]}
    assert plain(datetime.timedelta(seconds=90)) == 90.0
    assert plain([None, True, 1, 1.5, "x"]) == [None, True, 1, 1.5, "x"]
    assert plain({1}) == "{1}"
