"""The versions of a job's code: which epochs each of them makes, and what it changes.

A version is proposed first: an instance that has it at hand does not pass the last epoch of the
version before. Once all instances wait or will wait there, the version is settled, and they go on
with it. So every epoch is made by one version, whichever instance makes it and however often.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from raystream.api.operators import OperatorSpec

if TYPE_CHECKING:
    from raystream.dataflow.plan import Vertex


class VertexCode(NamedTuple):
    """The code of one vertex."""

    spec: OperatorSpec | None
    """Of a keyed operator: the user's operator."""
    fused: tuple[OperatorSpec, ...]
    """The stateless operators inside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeVersion:
    """A version of the code of a job. The version that the job began with is none of these."""

    number: int
    """Greater than that of every version that was proposed before."""
    after: int
    """The last epoch of the version before."""
    code: bytes = field(repr=False)
    """The code of all vertices, see `encoded`."""
    settled: bool = False
    """Whether it is decided. Until then `after` may change, or the version may be taken back."""
    name: str = ""
    """Where the flow was found, `module:name`."""
    shapes: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By vertex the fingerprint of its rows; empty for one without rows."""

    def of(self, vertex: Vertex) -> Vertex:
        """A vertex with the code of this version. Its streams are the same.

        Raises:
            Exception: whatever the import of the user's code raises.
        """
        code = decoded(self.code)[vertex.name]
        fused = [replace(f, spec=s) for f, s in zip(vertex.fused, code.fused, strict=True)]
        return replace(vertex, spec=code.spec, fused=fused)


def encoded(vertices: Iterable[Vertex], dumps: Callable[[object], bytes]) -> bytes:
    """The code of vertices, as it travels.

    Args:
        dumps: pickles the user's classes and functions.
    """
    return dumps({v.name: VertexCode(v.spec, tuple(f.spec for f in v.fused)) for v in vertices})


@lru_cache(maxsize=8)
def decoded(code: bytes) -> Mapping[str, VertexCode]:
    """The code of vertices, by name; made once in a process."""
    found: Mapping[str, VertexCode] = pickle.loads(code)
    return found


def begins_of(versions: Sequence[CodeVersion]) -> tuple[tuple[int, int], ...]:
    """After which epochs the versions that are settled begin, and their numbers."""
    return tuple((v.after, v.number) for v in versions if v.settled)


def version_at(versions: Sequence[CodeVersion], epoch: int) -> CodeVersion | None:
    """The version that makes an epoch; None for the one that the job began with."""
    return next((v for v in reversed(versions) if v.settled and v.after < epoch), None)
