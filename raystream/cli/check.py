"""What `raystream check` does: asks each source and sink of a flow whether it can be used."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape

from raystream.api.connectors import as_given
from raystream.api.flow import Flow
from raystream.cli.plan import UNLIMITED
from raystream.dataflow.plan import Vertex, vertices_of
from raystream.errors import RaystreamError, what_was_raised


class Tried(NamedTuple):
    """What a source or sink has said."""

    name: str
    """What the flow calls it."""
    kind: str
    """`source` or `sink`."""
    connector: str
    """The name of its class."""
    ok: bool
    """Whether it can be used."""
    said: str
    """What is there, or what is wrong."""
    hint: str = ""
    """What to do."""


def check(flow: Flow, seconds: float) -> list[Tried]:
    """Ask all sources and sinks of a flow, at once. No job is started.

    Args:
        seconds: how long all of them together may take. What has not answered by then has failed.

    Raises:
        GraphError: the flow is wrong as written.
    """
    asked = [_Asked(v) for v in vertices_of(flow)[0] if v.kind in ("source", "sink")]
    until = time.monotonic() + seconds
    for each in asked:
        each.answered.wait(max(0.0, until - time.monotonic()))
    return [each.answer or each.silent(seconds) for each in asked]


class _Asked:
    """Asks one source or sink on a thread of its own, which may never come back."""

    def __init__(self, vertex: Vertex) -> None:
        connector: Any = vertex.source if vertex.kind == "source" else vertex.sink
        self._said = (vertex.name, vertex.kind, type(as_given(connector)).__name__)
        self.answer: Tried | None = None
        self.answered = threading.Event()
        threading.Thread(target=self._ask, args=(connector.check,), daemon=True).start()

    def _ask(self, check: Callable[[], str]) -> None:
        try:
            self.answer = Tried(*self._said, True, str(check()))
        except RaystreamError as error:
            self.answer = Tried(*self._said, False, error.message, error.hint)
        except BaseException as error:
            self.answer = Tried(*self._said, False, f"check() raised {what_was_raised(error)}")
        finally:
            self.answered.set()

    def silent(self, seconds: float) -> Tried:
        """What to say of one that has not answered."""
        return Tried(*self._said, False, f"no answer within {seconds:g} s")


def show(flow: str, answers: Sequence[Tried], *, as_json: bool) -> None:
    """Print what sources and sinks have said, a line each."""
    console = Console(highlight=False)
    if as_json:
        found = {
            "format": 1,
            "flow": flow,
            "ok": all(a.ok for a in answers),
            "checked": [a._asdict() for a in answers],
        }
        console.out(json.dumps(found, indent=2), highlight=False)
        return
    if not console.is_terminal:
        console.width = UNLIMITED
    for a in answers:
        sign = "[green]ok    [/]" if a.ok else "[bold red]failed[/]"
        hint = f" [dim]{escape(a.hint)}[/]" if a.hint else ""
        said = f"{escape(a.name)} ({escape(a.connector)}): {escape(a.said)}{hint}"
        console.print(f"{sign} {a.kind:6} {said}")
