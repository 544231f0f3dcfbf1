"""Nested JSON lines. Bad lines become a stream of their own and do not end the job.

It prints:

    Order(time=1, user='ann', items=[Item(sku='pen', n=3), Item(sku='ink', n=1)])
    line 2: 'user' is missing
    Order(time=4, user='bob', items=[Item(sku='pen', n=1)])

Run it:

    python examples/bad_lines.py
"""

from __future__ import annotations

import tempfile
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


def print_bad(bad: rs.io.BadLine) -> None:
    print(f"line {bad.line}: {bad.reason}")


def build(folder: str) -> rs.Flow:
    flow = rs.Flow("bad-lines")
    lines = rs.io.json(f"{folder}/*.jsonl", Order, bad="stream")
    read = flow.source(lines, epochs=rs.by_time(seconds=1))
    read[Order].to(rs.io.console())
    read[rs.io.BadLine].to(rs.io.callable(print_bad, each=True))
    return flow


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "orders.jsonl").write_text(LINES)
        build(folder).run()
