"""Values of wrong types, given to every parameter of the public surface, are refused in words and
with the line of the caller: they never end in an error of somebody else's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import ConfigError, GraphError, InputError, RaystreamError, StateError
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


class Thing:
    """Nothing that anybody expects."""


ODD = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        3,
        1.5,
        float("nan"),
        float("inf"),
        10**30,
        "",
        "x",
        "5m",
        "1",
        b"x",
        (),
        [],
        {},
        ("a", "b"),
        [1],
        {"a": 1},
        {1: "a"},
        {"count": "2"},
        {"count": 2},
        {"count": (1, "2")},
        timedelta(seconds=1),
        timedelta(seconds=-1),
        Decimal("1.5"),
        np.int64(3),
        np.float64(0.5),
        np.zeros(2),
        Path("x"),
        object(),
        Thing,
        Thing(),
        Word,
        Word(0, ""),
        count,
        len,
        Tally,
    ]
)


def words() -> Any:
    return rs.Flow("x").source(rs.io.iterable([Word(1, "a")], Word))


def mark(**given: Any) -> None:
    @rs.operator(**given)
    class Op:
        def process(self, word: Word, tally: Tally) -> None: ...
        def close(self, key: str, window: rs.Window, tally: Tally) -> None: ...

    words().through(Op())


def run(**given: Any) -> None:
    words_ = words()
    words_.through(count, name="count").to(Collect())
    if given.get("cluster") is None:
        words_._flow.run(**{"checkpoint_every": 100, **given})


SURFACE: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "tumbling": (rs.tumbling, {"seconds": 1}),
    "sliding": (rs.sliding, {"seconds": 2, "every": 1}),
    "session": (rs.session, {"gap": 1}),
    "by_time": (
        rs.by_time,
        {"column": "t", "seconds": 1, "ticks": 1, "speed": 1, "disorder": 0, "origin": 0},
    ),
    "by_arrival": (rs.by_arrival, {"column": "t", "seconds": 1, "disorder": 0}),
    "Flow": (rs.Flow, {"name": "x", "key_groups": 4, "time_unit": "s"}),
    "source": (
        lambda source, **given: rs.Flow("x").source(source, **given),
        {"source": rs.io.iterable([], Word), "epochs": rs.by_arrival(), "name": "s"},
    ),
    "through": (lambda op, **given: words().through(op, **given), {"op": count, "name": "n"}),
    "to": (lambda sink, **given: words().to(sink, **given), {"sink": Collect(), "name": "n"}),
    "|": (lambda other: words() | other, {"other": None}),
    "[]": (lambda record: words()[record], {"record": Word}),
    "operator": (
        mark,
        {
            "key": "text",
            "order_by": "time",
            "window": rs.tumbling(seconds=1),
            "time": "time",
            "compiled": False,
        },
    ),
    "zeros": (rs.zeros, {"size": 3}),
    "decimal": (rs.decimal, {"precision": 3, "scale": 1}),
    "key_groups": (rs.key_groups, {"columns": [1], "groups": 4}),
    "Batch": (
        lambda record, columns, **given: rs.Batch(record, columns, **given),
        {"record": Word, "columns": {"time": [1], "text": ["a"]}, "origin": None},
    ),
    "iterable": (
        lambda records, record, **given: rs.io.iterable(records, record, **given),
        {"records": [], "record": Word, "splits": 1},
    ),
    "parquet": (lambda *a: rs.io.parquet(*a), {"path": "x", "record": Word}),
    "csv": (
        lambda path, record, **given: rs.io.csv(path, record, **given),
        {"path": "x", "record": Word, "header": True, "delimiter": ","},
    ),
    "json": (lambda *a: rs.io.json(*a), {"path": "x", "record": Word}),
    "text": (lambda *a: rs.io.text(*a), {"path": "x", "record": Word, "parse": len}),
    "callable": (lambda f, **given: rs.io.callable(f, **given), {"f": print, "each": True}),
    "console": (rs.io.console, {"limit": 3}),
    "run": (
        run,
        {
            "instances": {"count": 1},
            "checkpoint_seconds": 5,
            "checkpoint_every": 5,
            "copies": 1,
            "spares": 1,
            "restore_into": 1,
            "together": False,
            "policy": None,
            "bounds": None,
            "pool": None,
            "check": False,
            "rows": None,
            "resume": None,
            "on_progress": None,
            "on_note": None,
        },
    ),
}
PLACES = [(name, p) for name, (_, given_) in SURFACE.items() for p in given_]
BY_PLACE = {"parquet", "json", "text"}
FROM_ITSELF = {"source", "op", "sink", "other", "record", "path", "records", "f", "columns"}


@pytest.mark.parametrize(("name", "parameter"), PLACES, ids=map(" ".join, PLACES))
@settings(max_examples=40, deadline=None)
@given(value=ODD)
def test_a_wrong_value_is_refused_in_words(name: str, parameter: str, value: Any) -> None:
    make, usual = SURFACE[name]
    arguments = {**usual, parameter: value}
    refused: RaystreamError | None = None
    try:
        if name in BY_PLACE:
            made = make(*arguments.values())
        elif name == "key_groups":
            made = make(arguments["columns"], groups=arguments["groups"])
        elif any(p in FROM_ITSELF for p in usual):
            first = [p for p in usual if p in FROM_ITSELF]
            rest = {k: v for k, v in arguments.items() if k not in first}
            made = make(*(arguments[p] for p in first), **rest)
        else:
            made = make(**arguments)
        if name in ("iterable", "parquet", "csv", "json", "text", "callable", "console"):
            flow = rs.Flow("x")
            if arguments.get("record", Word) is not None and name not in ("callable", "console"):
                flow.source(made)
            else:
                words().to(made)
    except (GraphError, ConfigError, StateError, InputError) as error:
        refused = error
    if isinstance(refused, GraphError):
        assert refused.where is not None
        assert "/raystream/api/" not in refused.where.file


async def awaited(batch: Any) -> None: ...


def yielding(line: str) -> Iterator[Word]:
    yield Word(1, line)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        # False to Python, but the number of the line with the names to others
        (lambda: rs.io.csv("x", Word, header=0), "True or False(.|\n)*the first line names"),
        (lambda: rs.io.csv("x", Word, header=["a", "b"]), "True or False(.|\n)*columns="),
        (lambda: rs.io.csv("x", Word, trim=1), "True or False"),
        (lambda: rs.io.text("x", Word, "split"), "a str: it is no function"),
        (lambda: rs.io.text("x", Word, lambda: None), "with a line, which it does not take"),
        (lambda: rs.io.callable(lambda: None), "with a batch, which it does not take"),
        (lambda: rs.io.callable(lambda: None, each=True), "with a record, which it does not take"),
        (lambda: rs.io.callable(awaited), "awaited is an `async def`(.|\n)*asyncio.run"),
        (lambda: rs.io.text("x", Word, yielding), "yielding has a `yield`"),
        (lambda: rs.io.iterable(lambda n: [], Word), "with nothing, which it does not take"),
        (lambda: rs.sliding(seconds=10**6, every=1), "1,000,000 windows"),
    ],
)
def test_what_would_be_understood_otherwise_is_refused(make: Any, words: str) -> None:
    with pytest.raises((GraphError, ConfigError), match=words) as told:
        make()
    assert told.value.where is not None
    assert told.value.where.file == __file__
