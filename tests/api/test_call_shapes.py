"""Public calls with an argument that they do not have, or without one that they need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import raystream as rs
from raystream.errors import GraphError
from raystream.io.files.csv_dialect import Dialect
from raystream.run import run
from tests.api.test_public_surface import CALLS, words

SHAPES = [
    *(
        signed
        for _, signed, _ in CALLS.values()
        if signed.__module__.startswith("raystream.")
        and signed not in (Dialect, run)  # tried by their callers
        and signed is not rs.forget  # operators call it for each record: it is not wrapped
    ),
    rs.Stream.timed,
    rs.query,
    rs.testing.check_sink,
    rs.testing.check_source,
]


@pytest.mark.parametrize("public", list(dict.fromkeys(SHAPES)), ids=lambda f: f.__qualname__)
def test_a_call_with_an_unknown_argument_names_the_line_and_the_signature(
    public: Callable[..., Any],
) -> None:
    with pytest.raises(GraphError, match="colour") as refused:
        public(colour=1)
    assert refused.value.where is not None and refused.value.where.file == __file__


def test_a_call_without_an_argument_shows_how_it_is_made() -> None:
    with pytest.raises(GraphError) as refused:
        rs.io.sqlite("x.db", "t")  # type: ignore[call-arg,misc]
    assert "takes 1 positional argument but 2 were given" in refused.value.message
    assert refused.value.hint.startswith("It is called as sqlite(path, /, *, table, key=..., ")
    with pytest.raises(GraphError, match=r"Is it lateness=\? It is called as tumbling\(\*, "):
        rs.tumbling(seconds=4, latenes=1)  # type: ignore[call-overload]


def test_a_type_error_inside_of_a_call_stays_what_it_is() -> None:
    def feed() -> None:
        raise TypeError("of the user's")

    with pytest.raises(TypeError, match="of the user's"):
        rs.testing.check_source(feed)  # type: ignore[call-arg,arg-type]


def test_a_stream_is_not_several() -> None:
    with pytest.raises(GraphError, match=r"ahead=True\) return two"):
        _a, _b = words()


def test_a_name_that_is_not_there_is_told_what_is_alike() -> None:
    with pytest.raises(AttributeError, match=r"raystream has no 'tumblng'\. Is it tumbling\?"):
        rs.tumblng  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"rs\.io has no 'jsn'\. Is it json\?"):
        rs.io.jsn  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"rs\.io has no 'xyzzy'; it has BadLine, "):
        rs.io.xyzzy  # type: ignore[attr-defined]


def test_an_option_of_an_operator_that_is_mistyped_is_told_what_is_alike() -> None:
    with pytest.raises(GraphError, match=r"operator\(\) has no option 'keys'(.|\n)*Is it key=\?"):
        rs.operator(keys="text")  # type: ignore[call-overload]
    with pytest.raises(GraphError, match=r"Is it retries=\?"):
        rs.operator(retry=3)  # type: ignore[call-overload]


def test_what_makes_a_source_or_sink_is_to_be_called() -> None:
    with pytest.raises(GraphError, match=r"rs\.io\.console makes a sink: call it"):
        words().to(rs.io.console)
    with pytest.raises(GraphError, match=r"rs\.io\.csv makes a source: call it"):
        rs.Flow("x").source(rs.io.csv)  # type: ignore[call-overload]
