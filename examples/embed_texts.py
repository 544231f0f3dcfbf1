"""An embedding model in an operator: texts go through it in batches, and what it says is recorded:
a job that recovers does not run it again. The model comes with a package, `wordllama`. Each text is
told the one before it that is nearest.

It prints:

    a kitten sits there: the cat sat down
    shares went down: stock markets fell
    my cat sleeps: the cat sat down

Run it: `python examples/embed_texts.py`
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import raystream as rs

TEXTS = "the cat sat down, stock markets fell, a kitten sits there, shares went down, my cat sleeps"


class Text(NamedTuple):
    time: int
    room: str
    text: str


class Embedded(NamedTuple):
    time: int
    room: str
    text: str
    vector: list[float]


class Nearest(NamedTuple):
    text: str
    nearest: str


class Seen(rs.State):
    texts: list[str] = rs.field(factory=list)
    vectors: list[list[float]] = rs.field(factory=list)


@cache
def model() -> Any:
    import wordllama  # its files are in the package

    folder = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(cache_dir=folder, disable_download=True)


@rs.operator(recorded=True, batch=64)
def embed(texts: list[Text]) -> list[Embedded]:
    vectors = model().embed([t.text for t in texts], norm=True)
    return [Embedded(*t, v.tolist()) for t, v in zip(texts, vectors, strict=True)]


@rs.operator(key="room")
def nearest(one: Embedded, seen: Seen) -> Iterator[Nearest]:
    if len(seen.texts) > 1:
        near = np.array(seen.vectors) @ np.array(one.vector)
        yield Nearest(one.text, seen.texts[int(near.argmax())])
    seen.texts.append(one.text)
    seen.vectors.append(one.vector)


if __name__ == "__main__":
    flow = rs.Flow("texts")
    texts = [Text(n, "hall", text) for n, text in enumerate(TEXTS.split(", "))]
    read = flow.source(rs.io.iterable(texts, Text), epochs=rs.by_time(seconds=1))
    show = rs.io.callable(lambda one: print(f"{one.text}: {one.nearest}"), each=True)
    read.through(embed).through(nearest).to(show)
    flow.run()
