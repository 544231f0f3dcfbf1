"""Which functions are seen to emit nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from raystream.api.declarations import never_returns_any
from tests.api.refusals import Word


def test_what_returns_something_somewhere_may_emit() -> None:
    def generator(word: Word) -> Iterator[Word]:
        yield word

    def listed(word: Word) -> Iterator[Word]:
        if word.time:
            return iter([word])
        return None  # type: ignore[return-value]

    def either(word: Word) -> Iterator[Word] | None:
        return (word.time and iter([word])) or None

    def chosen(word: Word) -> Iterator[Word] | None:
        return iter([word]) if word.time else None

    def raises(word: Word) -> Iterator[Word]:
        raise ValueError(word)

    for each in (generator, listed, either, chosen, raises, iter, partial(listed)):
        assert not never_returns_any(each)
