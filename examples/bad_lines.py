"""Nested JSON lines, some of them bad: a stream of their own, and not the end of the job.

It prints:

    Order(time=1, user='ann', items=[Item(sku='pen', n=3), Item(sku='ink', n=1)])
    KeyError 'items' in {"time": 2}
    Order(time=4, user='bob', items=[Item(sku='pen', n=1)])

Run it:

    python examples/bad_lines.py
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import raystream as rs

LINES = """\
{"time": 1, "user": "ann", "items": [{"sku": "pen", "n": 3}, {"sku": "ink"}]}
{"time": 2}
{"time": 4, "user": "bob", "items": [{"sku": "pen"}], "note": "not declared, so left out"}
"""


class Item(NamedTuple):
    sku: str
    n: int = 1


class Order(NamedTuple):
    time: int
    user: str
    items: list[Item]


class Bad(NamedTuple):
    line: str
    why: str


# A source yields records of one type: a line is an order, or what is wrong with it.
class Read(NamedTuple):
    time: int
    order: Order | None
    bad: Bad | None = None


def parsed(line: str) -> Read:
    try:
        x = json.loads(line)
        items = [Item(**item) for item in x["items"]]
        return Read(x["time"], Order(x["time"], x["user"], items))
    except (ValueError, KeyError, TypeError) as error:
        return Read(0, None, Bad(line, f"{type(error).__name__} {error}"))


@rs.operator()
def told_apart(read: Read) -> Iterator[Order | Bad]:
    yield from (it for it in (read.order, read.bad) if it is not None)


def build(folder: str) -> rs.Flow:
    flow = rs.Flow("bad-lines")
    lines = flow.source(rs.io.text(f"{folder}/*.jsonl", Read, parsed), epochs=rs.by_time(seconds=1))
    read = lines.through(told_apart)
    read[Order].to(rs.io.console())
    read[Bad].to(rs.io.callable(lambda bad: print(bad.why, "in", bad.line), each=True))
    return flow


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "orders.jsonl").write_text(LINES)
        build(folder).run()
