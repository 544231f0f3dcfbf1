"""What the page says of the row of a key."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the extra ui is not installed")

from raystream.actors.client.querying import KeyState
from raystream.dataflow.queries.request import Moment
from raystream.errors import ConfigError
from raystream.page import asking

ROWS: dict[Any, dict[str, Any]] = {"ann": {"n": 3, "note": "hidden"}}


class Reader:
    key_types = ("string",)

    def __init__(self, asked: list[tuple[str, str, str]], *given: str) -> None:
        asked.append(given)  # type: ignore[arg-type]

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def get(self, key: Any) -> KeyState:
        return KeyState(key, ROWS.get(key), Moment(1, 42))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    query = lambda run, operator, address: Reader(found, run, operator, address)  # noqa: E731
    monkeypatch.setattr(asking, "query", query)
    return found


def test_the_row_of_a_key_is_shown_with_its_epoch(asked: list[tuple[str, str, str]]) -> None:
    said = asking.row_said("job-1", "count", "ann", "auto", values=True)
    assert said == "count, ann: n=3, note=hidden\n(epoch 42, run 1)"
    assert asked == [("job-1", "count", "auto")]
    assert "no row" in asking.row_said("job-1", "count", "bob", "auto", values=True)


def test_without_values_only_the_types_are_shown(asked: list[tuple[str, str, str]]) -> None:
    said = asking.row_said("job-1", "count", "ann", "auto", values=False)
    assert said == "count, the key: n: int, note: str\n(epoch 42, run 1)"


def test_what_is_no_key_is_said(
    asked: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reader, "key_types", ("int64",))
    with pytest.raises(ConfigError, match="it is a whole number"):
        asking.row_said("job-1", "count", "ann", "auto", values=True)
