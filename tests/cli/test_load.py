"""What the options of the command stand for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from raystream.cli.load import load_flow, parse_bounds, parse_numbers
from raystream.errors import ConfigError


def test_numbers_by_name() -> None:
    assert parse_numbers("") == {}
    assert parse_numbers(" a=2, b-2=13,") == {"a": 2, "b-2": 13}
    with pytest.raises(ConfigError, match="'=2' is not of the form NAME=N"):
        parse_numbers("=2")


def test_bounds() -> None:
    assert parse_bounds("") == {}
    assert parse_bounds(" a=1-4, b-2 = 3 - 3,") == {"a": (1, 4), "b-2": (3, 3)}
    with pytest.raises(ConfigError, match="'a=4' is not of the form NAME=LEAST-MOST"):
        parse_bounds("a=4")


@pytest.mark.parametrize(
    ("parse", "text"), [(parse_numbers, "a=2,a=3"), (parse_bounds, "a=1-2,a=1-3")]
)
def test_nothing_is_named_twice(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ConfigError, match="'a' is named twice"):
        parse(text)


def test_a_module_that_is_not_in_the_folder_of_the_code_is_said_to_be_missing_there(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match="no module 'nothing_here'") as caught:
        load_flow("nothing_here:flow", str(tmp_path))
    assert f"looked for in {tmp_path} and" in (caught.value.hint or "")
