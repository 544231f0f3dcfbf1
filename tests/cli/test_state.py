"""What the options of `raystream state` stand for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from raystream.actors.client.querying import meeting
from raystream.actors.client.state_text import fields_of, key_of
from raystream.cli.app import app
from raystream.cli.state import where_of
from raystream.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "types", "key"),
    [
        ("to", ["string"], "to"),
        ("7", ["string"], "7"),
        ("-7", ["int64"], -7),
        ("ab", ["binary"], b"ab"),
        ('["ann", 60]', ["string", "int64"], ("ann", 60)),
        ('["ann", null]', ["string", "int64"], ("ann", None)),
    ],
)
def test_keys_are_written_as_text(text: str, types: list[str], key: Any) -> None:
    assert key_of(text, types) == key


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("x", ["int64"]),
        ("ann", ["string", "int64"]),
        ("[1]", ["int64", "int64"]),
        ("[", ["a", "b"]),
    ],
)
def test_what_is_no_key_is_refused(text: str, types: list[str]) -> None:
    with pytest.raises(ConfigError, match="key "):
        key_of(text, types)


def test_conditions_filter_rows() -> None:
    table = pa.table({"word": ["a", "b", "c"], "n": [1, 2, 3]})
    assert where_of([]) is None
    for conditions, words in [
        (["n > 1"], ["b", "c"]), (["n>=3"], ["c"]), (["word = b"], ["b"]),
        (['word != "b"'], ["a", "c"]),
        (["n > 1", "word == c"], ["c"]), (["n < 2"], ["a"]), (["n <= 2"], ["a", "b"]),
    ]:  # fmt: skip
        assert table.filter(where_of(conditions))["word"].to_pylist() == words
    with pytest.raises(ConfigError, match="is no condition"):
        where_of(["n"])


@pytest.mark.parametrize("condition", ["n > x", "nosuch = 1", "word > 1"])
def test_a_condition_that_does_not_fit_the_columns_is_refused(condition: str) -> None:
    table = pa.table({"word": ["a"], "n": [1]})
    with pytest.raises(ConfigError, match="the condition does not fit") as refused:
        meeting(table, where_of([condition]))
    assert refused.value.hint == "The columns are word (string), n (int64)."


def test_what_is_no_expression_is_refused() -> None:
    with pytest.raises(ConfigError, match="the condition does not fit"):
        meeting(pa.table({"n": [1]}), "n > 1")


def test_what_is_lacking_is_said() -> None:
    result = CliRunner().invoke(app, ["state", "words", "--http", "x"])
    assert result.exit_code == 2 and "a port, or HOST:PORT" in result.output


def test_long_values_are_cut() -> None:
    assert (
        fields_of({"n": 1, "text": "a" * 300, "none": None})
        == f"n=1, text={'a' * 200}..., none=null"
    )
    assert fields_of({}) == "a row without fields"
