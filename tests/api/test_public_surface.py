"""Every public call, with a wrong value in every parameter: the calls and their parameters are read
from the signatures, so what is added is tried, too. A wrong value is refused in words and with the
line of the caller; it never ends in an error of somebody else's."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import raystream as rs
from raystream.errors import ConfigError, GraphError, RaystreamError, StateError
from raystream.io.files.csv_dialect import Dialect
from raystream.run import run
from raystream.testing import Collect


class Word(NamedTuple):
    time: int
    text: str


class Tally(rs.State):
    n: int = 0


@rs.operator(key="text")
def count(word: Word, tally: Tally) -> Iterator[Word]:
    tally.n += 1
    yield word


class Strange:
    """Nothing that anybody expects."""

    def __bool__(self) -> bool:
        raise RuntimeError("neither True nor False")


ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    3,
    10**30,
    1.5,
    float("nan"),
    float("inf"),
    1j,
    "",
    "x",
    "5m",
    "\udcff",
    "a\0b",
    b"x",
    (),
    [],
    {},
    set(),
    ("a", "b"),
    [1],
    [None],
    {"a": 1},
    {1: "a"},
    {"count": "2"},
    {"count": (1, "2")},
    {"count": None},
    range(3),
    timedelta(seconds=1),
    timedelta(seconds=-1),
    datetime(2026, 1, 1, tzinfo=UTC),
    Decimal("1.5"),
    np.int64(3),
    np.float64(0.5),
    np.zeros(2),
    Path("x"),
    object(),
    Strange,
    Strange(),
    Word,
    Word(0, ""),
    count,
    len,
    lambda: None,
    Tally,
    int,
    list[int],
    rs,
    ValueError,
    ValueError("x"),
]
"""What is wrong nearly everywhere."""


def words() -> Any:
    return rs.Flow("x").source(rs.io.iterable([Word(1, "a")], Word))


def operator(**given: Any) -> None:
    @rs.operator(**given)
    def op(word: Word, tally: Tally) -> Iterator[Word]:
        yield word

    words().through(op).to(Collect())


@rs.operator(key="text")
class Ruled:
    def control(self, word: Word, rules: Tally) -> None: ...

    def process(self, word: Word, tally: Tally, rules: Tally) -> Iterator[Word]:
        yield word


def controlled(op: Any, **given: Any) -> None:
    flow = given["by"]._flow if isinstance(given["by"], rs.Stream) else rs.Flow("x")
    source = flow.source(rs.io.iterable([Word(1, "a")], Word))
    source.through(rs.controlled(op, **given)).to(Collect())


def windowed(**given: Any) -> None:
    @rs.operator(**given)
    class Op:
        def process(self, word: Word, tally: Tally) -> None: ...
        def close(self, key: Any, window: rs.Window, tally: Tally) -> Iterator[Word]:
            yield Word(window.start, "")

    words().through(Op()).to(Collect())


def through(op: Any, **given: Any) -> None:
    words().through(op, **given).to(Collect())


def words_from(made: Any) -> None:
    """Not run: there is no server."""
    rs.Flow("x").source(made)


def source(source: Any, **given: Any) -> None:
    flow = rs.Flow("x")
    flow.source(source, **given).to(Collect())


def read(made: Any) -> None:
    flow = rs.Flow("x")
    flow.source(made).to(Collect())
    flow.run()


def written(made: Any) -> None:
    words_ = words()
    words_.to(made)
    words_._flow.run()


def ran(**given: Any) -> None:
    if isinstance(given.get("cluster"), str):
        return  # an address: it would be looked for
    words_ = words()
    words_.through(count, name="count").to(Collect())
    words_._flow.run(**given)


def harness(**given: Any) -> Any:
    return rs.testing.OperatorHarness(count, **given)


def flow() -> rs.Flow:
    words_ = words()
    words_.through(count, name="count").to(Collect())
    made: rs.Flow = words_._flow
    return made


W = [Word(1, "a")]
RECORD = {"record": Word}
FILE = {"path": "there.csv", **RECORD}
CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]] = {
    # what is called; whose parameters are tried; what is usual for those that have no default
    "by_arrival": (rs.by_arrival, rs.by_arrival, {}),
    "by_time": (rs.by_time, rs.by_time, {}),
    "session": (rs.session, rs.session, {"gap": 1}),
    "sliding": (rs.sliding, rs.sliding, {"seconds": 4, "every": 2}),
    "tumbling": (rs.tumbling, rs.tumbling, {"seconds": 4}),
    "tumbling days": (rs.tumbling, rs.tumbling, {"days": 1, "zone": "UTC"}),
    "states": (rs.states, rs.states, {"path": "out", "job": "x"}),
    "Flow": (rs.Flow, rs.Flow, {"name": "x"}),
    "Flow.source": (source, rs.Flow.source, {"source": rs.io.iterable(W, Word)}),
    "Stream.through": (through, rs.Stream.through, {"op": count}),
    "Stream.to": (lambda sink, **n: words().to(sink, **n), rs.Stream.to, {"sink": Collect()}),
    "Stream |": (lambda other: words() | other, lambda other: None, {}),
    "Stream []": (lambda record: words()[record], lambda record: None, {}),
    "controlled": (controlled, rs.controlled, {"op": Ruled(), "by": words()}),
    "operator": (operator, rs.operator, {"key": "text"}),
    "operator window": (windowed, rs.operator, {"key": "text", "window": rs.tumbling(seconds=1)}),
    "operator target": (rs.operator, lambda form: None, {}),
    "Batch": (rs.Batch, rs.Batch, {**RECORD, "columns": {"time": [1], "text": ["a"]}}),
    "Batch.take": (rs.Batch(Word, {"time": [1], "text": ["a"]}).take, rs.Batch.take, {}),
    "key_groups": (rs.key_groups, rs.key_groups, {"columns": [1]}),
    "forget": (rs.forget, rs.forget, {}),
    "Array": (rs.Array, rs.Array, {"dtype": "i8", "size": 3}),
    "decimal": (rs.decimal, rs.decimal, {"precision": 4}),
    "field": (rs.field, rs.field, {}),
    "timestamp": (rs.timestamp, rs.timestamp, {}),
    "zeros": (rs.zeros, rs.zeros, {}),
    "State": (lambda n: Tally(n=n), lambda n: None, {}),
    "CpuThreshold": (rs.CpuThreshold, rs.CpuThreshold, {}),
    "RateBased": (rs.RateBased, rs.RateBased, {}),
    "PoolOptions": (rs.PoolOptions, rs.PoolOptions, {"spare": 1}),
    "io.callable": (
        lambda *a, **n: written(rs.io.callable(*a, **n)),
        rs.io.callable,
        {"function": len},
    ),
    "io.console": (lambda **n: written(rs.io.console(**n)), rs.io.console, {}),
    "io.csv": (lambda *a, **n: read(rs.io.csv(*a, **n)), rs.io.csv, FILE),
    "io.csv dialect": (lambda **n: read(rs.io.csv("there.csv", Word, **n)), Dialect, {}),
    "io.csv sink": (lambda *a, **n: written(rs.io.csv(*a, **n)), rs.io.csv, {"path": "made"}),
    "io.iterable": (
        lambda *a, **n: read(rs.io.iterable(*a, **n)),
        rs.io.iterable,
        {"records": W, **RECORD},
    ),
    "io.json": (
        lambda *a, **n: read(rs.io.json(*a, **n)),
        rs.io.json,
        {"path": "there.jsonl", **RECORD},
    ),
    "io.json sink": (lambda *a, **n: written(rs.io.json(*a, **n)), rs.io.json, {"path": "made"}),
    "io.parquet": (lambda *a, **n: read(rs.io.parquet(*a, **n)), rs.io.parquet, FILE),
    "io.parquet sink": (
        lambda *a, **n: written(rs.io.parquet(*a, **n)),
        rs.io.parquet,
        {"path": "made"},
    ),
    "io.text": (
        lambda *a, **n: read(rs.io.text(*a, **n)),
        rs.io.text,
        {"path": "there.csv", "record": rs.io.Line},
    ),
    "io.Follow": (rs.io.Follow, rs.io.Follow, {}),
    "io.delta": (lambda *a, **n: words().to(rs.io.delta(*a, **n)), rs.io.delta, {"path": "t"}),
    "io.iceberg": (
        lambda *a, **n: words().to(rs.io.iceberg(*a, **n)),
        rs.io.iceberg,
        {"table": "shop.words"},
    ),
    "io.parts": (rs.io.parts, rs.io.parts, {"folder": "out"}),
    "io.read_parts": (
        lambda *a, **n: list(rs.io.read_parts(*a, **n)),
        rs.io.read_parts,
        {"folder": "out", **RECORD},
    ),
    "io.recorded": (rs.io.recorded, rs.io.recorded, {"feed": lambda: iter(()), **RECORD}),
    "io.push": (rs.io.push, rs.io.push, {**RECORD, "token": "secret"}),
    "io.sqlite": (
        lambda *a, **n: written(rs.io.sqlite(*a, **n)),
        rs.io.sqlite,
        {"path": "x.db", "table": "t", "create": True, "existing": "replace", "wait": 0.1},
    ),
    "io.duckdb": (
        lambda *a, **n: words().to(rs.io.duckdb(*a, **n)),
        rs.io.duckdb,
        {"path": "x.duckdb", "table": "t"},
    ),
    "io.postgres": (
        lambda *a, **n: words().to(rs.io.postgres(*a, **n)),
        rs.io.postgres,
        {"url": "postgresql://nobody@127.0.0.1:1/none", "table": "t"},
    ),
    "io.websocket": (rs.io.websocket, rs.io.websocket, {"url": "ws://127.0.0.1:1", **RECORD}),
    "io.events": (rs.io.events, rs.io.events, {"url": "http://127.0.0.1:1", **RECORD}),
    "io.mqtt": (
        rs.io.mqtt,
        rs.io.mqtt,
        {"host": "127.0.0.1", "topic": "t", **RECORD, "client": "c"},
    ),
    "io.redis": (rs.io.redis, rs.io.redis, {"url": "redis://h", "stream": "s", **RECORD}),
    "io.nats": (rs.io.nats, rs.io.nats, {"url": "nats://h", "subject": "s", **RECORD}),
    "io.rabbitmq": (rs.io.rabbitmq, rs.io.rabbitmq, {"url": "amqp://h", "name": "q", **RECORD}),
    "io.sqs": (rs.io.sqs, rs.io.sqs, {"url": "https://h/q", **RECORD}),
    "io.kafka": (
        lambda *a, **n: words_from(rs.io.kafka(*a, **n)),
        rs.io.kafka,
        {"topic": "t", **RECORD, "servers": "127.0.0.1:1"},
    ),
    "io.kinesis": (
        lambda *a, **n: words_from(rs.io.kinesis(*a, **n)),
        rs.io.kinesis,
        {"stream": "s", **RECORD},
    ),
    "io.kinesis sink": (
        lambda *a, **n: words().to(rs.io.kinesis(*a, **n)),
        rs.io.kinesis,
        {"stream": "s", "key": "word"},
    ),
    "io.postgres_changes": (
        lambda *a, **n: source(rs.io.postgres_changes(*a, **n)),
        rs.io.postgres_changes,
        {"url": "postgresql://nobody@127.0.0.1:1/none", **RECORD, "table": "t", "operation": None},
    ),
    "io.postgres_rows": (
        lambda *a, **n: source(rs.io.postgres_rows(*a, **n)),
        rs.io.postgres_rows,
        {"url": "postgresql://nobody@127.0.0.1:1/none", **RECORD, "table": "t", "rising": "id"},
    ),
    "io.kafka sink": (
        lambda *a, **n: words().to(rs.io.kafka(*a, **n)),
        rs.io.kafka,
        {"topic": "t", "record": None, "servers": "127.0.0.1:1"},
    ),
    "global_window": (rs.global_window, rs.global_window, {}),
    "run": (ran, run, {}),
    "run durable": (ran, run, {"durable": "saved", "resume": True}),
    "Flow.run": (lambda instances: flow().run(instances=instances), lambda instances: None, {}),
    "testing.run_local": (lambda **n: rs.testing.run_local(flow(), **n), rs.testing.run_local, {}),
    "testing.run_local flow": (rs.testing.run_local, lambda flow: None, {}),
    "testing.OperatorHarness": (
        rs.testing.OperatorHarness,
        rs.testing.OperatorHarness,
        {"op": count},
    ),
    "testing.OperatorHarness.send": (
        lambda records: harness().send(records),
        rs.testing.OperatorHarness.send,
        {},
    ),
    "testing.OperatorHarness.advance_watermark": (
        lambda time: harness().advance_watermark(time),
        rs.testing.OperatorHarness.advance_watermark,
        {},
    ),
    "testing.OperatorHarness.restart": (
        lambda **n: harness().restart(**n),
        rs.testing.OperatorHarness.restart,
        {},
    ),
    "testing.check_operator": (
        rs.testing.check_operator,
        rs.testing.check_operator,
        {"op": count, "records": W, "examples": 1},
    ),
}
SKIPPED = {
    "self": "a method",
    "flow": "tried as `testing.run_local flow`",
    "target": "tried as `operator target`",
    "reads": "tried as `io.csv dialect`",
}
NOT_CALLED = {
    "Rows": "raystream makes it",
    "SavedStates": "`states` makes it",
    "StateReader": "`query` makes it",
    "query": "it needs a job on Ray: tests/actors/observed/test_ray_queries.py",
    "Stream": "a flow makes it",
    "Sink": "a base class",
    "Source": "a base class",
    "Policy": "a base class",
    "State": "a base class, tried as `State`",
    "Collect": "it takes nothing",
    "now": "it takes nothing",
    "random": "it takes nothing",
    "request_id": "refused outside of calls: tests/local/test_asking.py",
    "same": "it takes anything",
    "difference": "it takes anything",
    "check_sink": "all that it takes are functions of the user's",
    "check_source": "all that it takes are functions of the user's",
    **dict.fromkeys(["KeyState", "Load", "Report", "Target", "Unable"], "a record"),
    **dict.fromkeys(["KeyRange", "SinkContext", "SourceContext", "Split", "Window"], "a record"),
    **dict.fromkeys(["BadLine", "BadMessage", "FailedRecord", "Line", "PartFile"], "a record"),
    **dict.fromkeys(["Float32", "Float64", "Int8", "Int16", "Int32", "Int64", "Timer"], "a type"),
}
"""What is public and called, but not tried here."""
CHEAP = 40
"""How many values are tried where nothing runs; where something does, a few."""
FEW = 5


def places() -> Iterator[tuple[str, str]]:
    for name, (_, signed, _) in CALLS.items():
        for p in inspect.signature(signed).parameters:
            if p not in SKIPPED:
                yield name, p


def call(name: str, parameter: str, value: Any) -> None:
    make, signed, usual = CALLS[name]
    first, given = [], dict(usual)
    given[parameter] = value
    for p in inspect.signature(signed).parameters.values():
        if p.name in SKIPPED and not (p.name == "flow" and name.endswith(" flow")):
            continue
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL):
            if p.name in given:
                first.append(given.pop(p.name))
            elif given:
                break
    make(*first, **given)


def test_all_that_is_public_is_tried() -> None:
    public = [*rs.__all__, *rs.io.__all__, *rs.testing.__all__]
    named = {part for name in CALLS for part in name.replace(".", " ").split()}
    homes = (rs, rs.io, rs.testing)
    called = {n for n in public if any(callable(getattr(home, n, None)) for home in homes)}
    assert called - named - set(NOT_CALLED) == set()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with what is read."""
    monkeypatch.chdir(tmp_path)
    Path("there.csv").write_text("time,text\n1,a\n")
    Path("there.jsonl").write_text('{"time": 1, "text": "a"}\n')
    written(rs.io.parquet("out"))


@pytest.mark.usefixtures("place")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_value_is_refused_in_words(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(name)
    runs = name.startswith(("io.", "run", "Flow.run", "testing.", "key_groups"))
    for parameter in (p for n, p in places() if n == name):
        odd = [v for v in ODD if not (parameter.startswith("on_") and callable(v))]
        for value in rng.sample(odd, FEW if runs else CHEAP):
            refused = refusal(name, parameter, value)
            if isinstance(refused, GraphError | ConfigError | StateError):
                told = f"{name}({parameter}={value!r:.80}): {refused!r}"
                assert refused.where is not None, told
                assert "/raystream/" not in refused.where.file or value is rs, told


def refusal(name: str, parameter: str, value: Any) -> RaystreamError | None:
    """What a call is refused with; an error of anybody else goes on."""
    try:
        call(name, parameter, value)
    except RaystreamError as error:
        return error
    return None
