"""What belongs to one sink: itself, and folders in which no other sink writes and no source reads.

A sink says in `owns` which folder is its own, a source in `reads` from which path, glob pattern or
folder it reads. Those that say nothing are not compared.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from fnmatch import fnmatch
from typing import Any, Protocol

from raystream.api.connectors import Sink, Source, as_given
from raystream.errors import GraphError, Where
from raystream.schema.records import RecordSchema, apart


class SourceOrSink(Protocol):
    """A source or sink of a flow."""

    name: str
    where: Where


def refuse_shared(
    sources: Iterable[tuple[SourceOrSink, Source[Any]]],
    sinks: Iterable[tuple[SourceOrSink, Sink[Any]]],
) -> None:
    """Check that every sink, and every folder that belongs to one, is used by nobody else.

    Args:
        sources, sinks: nodes with their objects, in the order in which they joined the flow.

    Raises:
        GraphError: two sinks are one object or write to one folder, or a source reads from that of
            a sink.
    """
    owners: dict[str, SourceOrSink] = {}
    objects: dict[int, SourceOrSink] = {}
    for node, sink in sinks:
        if (other := objects.setdefault(id(as_given(sink)), node)) is not node:
            raise GraphError(
                f"the sinks {other.name} ({_place(other)}) and {node.name} are one object, which"
                " would take what comes from one for what comes from the other",
                where=node.where,
                hint="Make one for each, or unite the streams: (a | b).to(...).",
            )
        if (owned := sink.owns) is None:
            continue
        folder = _resolved(owned)
        if (other := owners.setdefault(folder, node)) is not node:
            raise GraphError(
                f"the sinks {other.name} ({_place(other)}) and {node.name} write to the same"
                f" folder, {folder}: each would remove what the other made",
                where=node.where,
                hint="Give each a folder of its own, or unite the streams: (a | b).to(...).",
            )
    for node, source in sources:
        if (read := source.reads) is None:
            continue
        paths = [read] if isinstance(read, str | os.PathLike) else list(read)
        for folder, owner in owners.items():
            if reached := [path for path in paths if _reaches(path, folder)]:
                raise GraphError(
                    f"the sink {owner.name} writes to {folder}, where the source {node.name}"
                    f" ({_place(node)}) reads: {os.fspath(reached[0])}",
                    where=owner.where,
                    hint="Give the sink a folder of its own, outside of what is read.",
                )


_SETTINGS = re.compile(r"\?(?=[a-z_]+=)[^?*\[\]]*$")
"""What a URL may end in that says how its place is reached."""


def _place(node: SourceOrSink) -> str:
    return f"{node.where.file}:{node.where.line}"


def _resolved(path: str | os.PathLike[str]) -> str:
    """One name for one place; of what is not on this machine, such as `s3://...`, its text."""
    text = os.fspath(path)
    return _SETTINGS.sub("", text).rstrip("/") if "://" in text else os.path.realpath(text)


def _reaches(read: str | os.PathLike[str], folder: str) -> bool:
    """Whether a path, pattern or folder that is read may be, or hold, a file below a folder."""
    pattern = _resolved(read)
    sought, there = pattern.split("/"), folder.split("/")
    for name, found in zip(sought, there, strict=False):
        if name == "**":
            return True
        if name != found and not fnmatch(found, name):
            return False
    # All of the shorter one fits. A folder is read with what is below it, but for hidden names.
    below = there[len(sought) :]
    whole = "://" in pattern or (os.path.isdir(pattern) and not glob.has_magic(pattern))
    return len(sought) > len(there) or (whole and not any(n.startswith((".", "_")) for n in below))


def refuse_namesakes(schemas: Iterable[RecordSchema], where: Where) -> None:
    """Check that a sink can tell the types of its records apart, which it does by name: what came
    of one would replace what came of another."""
    named: dict[str, RecordSchema] = {}
    for schema in schemas:
        if (other := named.setdefault(schema.name, schema)) is not schema:
            one, two = apart(other.cls, schema.cls)
            raise GraphError(
                f"a sink could not tell {one} from {two}: types of records are known to it by"
                " their names",
                where=where,
                hint="Give each a sink of its own, or rename one of the classes.",
            )
