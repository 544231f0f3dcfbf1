"""Everything raystream raises, as one small tree.

    RaystreamError
    ├── GraphError       the flow is wrong as written; nothing was started
    ├── ConfigError      an option, a path or the machine is wrong; nothing was started
    ├── InputError       the data to read is not what was declared
    ├── OperatorError    your function raised; `__cause__` is the original exception
    ├── StateError       operator state cannot be stored, read or restored
    ├── JobError         the running job failed: a process died, a limit was reached
    │   ├── OutputError  the place to write to went away, is full, or is forbidden
    │   ├── OvertakenError  another run of the same job has begun
    │   ├── LostError    all copies of what the job needs to go on are gone
    │   └── Stopped      somebody stopped the job
    └── InternalError    an invariant of raystream broke: our bug, please report it

A message says what happened, where in the user's code, and what to do, in that order.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import cache, wraps
from types import FrameType
from typing import Any, ClassVar, NamedTuple, ParamSpec, Protocol, Self, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


VALUES_HINT = "Keys and values are not shown here; --values (values=True of run) shows them."
SHOWN_BYTES = 200
"""A message shows at most this many bytes of a key."""


class Where(NamedTuple):
    """A place in the user's code."""

    file: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f"   {self.text}" if self.text else "")

    def read(self) -> Where:
        """The same with the text of the line, where this process can read it."""
        import linecache

        return (
            self if self.text else Where(self.file, self.line, linecache.getline(*self[:2]).strip())
        )


class At(NamedTuple):
    """The call of an operator at which an error was raised."""

    operator: str
    """The name of the operator, as it was declared."""
    epoch: int
    """The epoch that was applied."""
    key: str = ""
    """The key in words; empty where the call is of no key."""


class RaystreamError(Exception):
    """Base of all errors that raystream raises on purpose. `where` is in the user's code."""

    has_values: ClassVar[bool] = False
    """Whether the message of such an error may hold keys and values of records."""
    at: At | None = None
    """The call of an operator at which it was raised, where that is known."""

    def __init__(
        self, message: str, *, where: Where | None = None, hint: str = "", bare: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.bare = bare
        """The message without keys and values of records. Empty if the message has none, or if the
        code that raised the error cannot tell them apart (`has_values`)."""
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.message]
        if self.where is not None:
            lines.append(f"  {self.where}")
        if self.hint:
            lines.append(f"  {self.hint}")
        return "\n".join(lines)

    def without_values(self) -> Self:
        """The same error without keys and values of records: its kind, its line and its epoch."""
        if self.bare == self.message or not (self.bare or self.has_values):
            return self
        told = self.bare or f"{type(self).__name__}: the message may show values of records"
        told += "" if self.at is None else f", at epoch {self.at.epoch}"
        error = type(self)(told, where=self.where, hint=VALUES_HINT, bare=told)
        error.at = self.at and self.at._replace(key="")
        return error

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process borders: keyword-only fields would be lost by the default.
        return (
            _rebuild,
            (type(self), self.message, self.where, self.hint),
            {"__notes__": notes(self), "at": self.at, "bare": self.bare},
        )


def _rebuild(
    kind: type[RaystreamError], message: str, where: Where | None, hint: str
) -> RaystreamError:
    return kind(message, where=where, hint=hint)


def notes(error: BaseException) -> list[str]:
    """The notes that were added to an exception (PEP 678), oldest first."""
    return list(getattr(error, "__notes__", ()))


class GraphError(RaystreamError):
    """The flow is wrong as written; nothing was started."""


class ConfigError(RaystreamError):
    """An option, a path or the machine is wrong; nothing was started."""


class InputError(RaystreamError):
    """The data to read is not what was declared."""

    has_values = True


class OperatorError(RaystreamError):
    """A user's function raised; `__cause__` (where it could be kept) is the original exception."""

    has_values = True


class StateError(RaystreamError):
    """Operator state cannot be stored, read or restored."""

    has_values = True


class JobError(RaystreamError):
    """The running job failed."""


class OutputError(JobError):
    """What a running job made cannot be written."""


class OvertakenError(JobError):
    """Another run of the same job has begun, so this one is over."""


class LostError(JobError):
    """All copies of what a running job needs to go on are gone."""


class Stopped(JobError):
    """Somebody stopped the job."""


class InternalError(RaystreamError):
    """An invariant of raystream broke. This is a bug of raystream: please report it."""


_PACKAGE = __name__.partition(".")[0] + "."


def caller(depth: int = 1) -> tuple[Where, dict[str, Any]]:
    """Where the user's code is that called raystream, and the names that can be seen there.

    The nearest frame that is neither raystream's nor a library's; where all are a library's, the
    one that called raystream. The names are always those of the frame that called raystream: a
    library may declare records in a function of its own.
    """
    frame: Any = sys._getframe(depth)
    while frame.f_back is not None and _is_own(frame):
        frame = frame.f_back
    names, user = dict(frame.f_locals), frame
    while user is not None and (_is_own(user) or _of_library(user.f_code.co_filename)):
        user = user.f_back
    import linecache

    found = user or frame
    file, line = found.f_code.co_filename, found.f_lineno
    return Where(file, line, linecache.getline(file, line).strip()), names


def _is_own(frame: FrameType) -> bool:
    """Whether a frame is raystream's."""
    name = frame.f_globals.get("__name__", "") + "."
    return name.startswith(_PACKAGE) or frame.f_code.co_filename.startswith(_HERE)


_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def what_was_raised(error: BaseException) -> str:
    """The class and message of an exception, also of one that cannot show itself. Of an error of
    raystream's without its line, which whoever raises another one for it names."""
    name = type(error).__name__
    if isinstance(error, RaystreamError):
        return f"{name}: " + "\n  ".join(filter(None, [error.message, error.hint]))
    try:
        said = str(error)
    except Exception as other:
        return f"{name} (its message cannot be shown: __str__ raised {type(other).__name__})"
    return f"{name}: {said}" if said else name


def shown(value: object) -> str:
    """A value as a message shows it: at most SHOWN_BYTES of its `repr`."""
    text = repr(value).encode(errors="replace")
    if len(text) <= SHOWN_BYTES:
        return text.decode()
    return f"{text[:SHOWN_BYTES].decode(errors='ignore')}... ({len(text)} bytes)"


def without_values(error: Exception) -> RaystreamError:
    """An error for places that others may read, for example a log. It tells the kind of the error
    and where it was raised, but no key and no value of a record. An error that has none stays as it
    is; an error that is not raystream's becomes an `InternalError`."""
    if isinstance(error, RaystreamError):
        return error.without_values()
    frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
    told = f"{type(error).__name__} was raised"
    return InternalError(told, where=Where(frame.f_code.co_filename, line), hint=VALUES_HINT)


def placed(function: Callable[P, R]) -> Callable[P, R]:
    """Have a public function name the line of its caller when it refuses an argument, also one that
    it does not have."""

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        try:
            return function(*args, **options)
        except (GraphError, ConfigError, StateError, InputError) as error:
            error.where = error.where or caller()[0]
            raise
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # the function was entered: its arguments are as declared
            raise _wrong_call(function, str(error)) from None

    return call


def placed_class(cls: type[R]) -> type[R]:
    """The same for the constructor of a public class."""
    cls.__init__ = placed(cls.__init__)  # type: ignore[method-assign]
    return cls


def _wrong_call(function: Callable[..., Any], refused: str) -> GraphError:
    """What is raised for a call that leaves out arguments, or has some that are not declared.

    refused: what Python says of it.
    """
    import inspect
    import re

    parameters = dict(inspect.signature(function).parameters)
    unknown = re.search(r"unexpected keyword argument '(\w+)'", refused)
    hint = _alike(unknown[1], parameters) if unknown else ""
    parameters.pop("self", None)
    declared = [
        p.replace(annotation=p.empty, default=p.default if p.default is p.empty else ...)
        for p in parameters.values()
    ]
    signature = str(inspect.Signature(declared)).replace("=Ellipsis", "=...")
    name = function.__qualname__.removesuffix(".__init__")
    return GraphError(
        refused.replace(".__init__()", "()"),
        where=caller()[0],
        hint=f"{hint} It is called as {name}{signature}.".lstrip(),
    )


def unknown_option(call: str, name: str, known: Sequence[str]) -> GraphError:
    """What is raised for an option that a call does not have.

    Args:
        call: as users write it. known: the options that it has.
    """
    return GraphError(
        f"{call}() has no option {name!r}",
        where=caller()[0],
        hint=_alike(name, known) or f"It has {', '.join(known)}.",
    )


def meant(name: str, known: Sequence[str]) -> str:
    """What follows the message that there is no such name: a name that is alike, otherwise all of
    them."""
    alike = _alike(name, known).replace("=?", "?")
    return f". {alike}" if alike else f"; it has {', '.join(known)}"


def _alike(name: str, known: Iterable[str]) -> str:
    """`Is it x=?`; empty if no known option is alike."""
    import difflib

    found = difflib.get_close_matches(name, known, 1)
    return f"Is it {found[0]}=?" if found else ""


def user_frame(error: BaseException) -> Where | None:
    """Where the user's code was when `error` was raised.

    The innermost frame that is neither raystream's nor a library's; where all are a library's, the
    one that raystream called.
    """
    import linecache

    found: Where | None = None
    certain = False
    for frame, line in _foreign(error).items():
        file = frame.f_code.co_filename
        own = not _of_library(file)
        if own or not (certain or found):
            found = Where(file, line, linecache.getline(file, line).strip())
            certain = certain or own
    return found


def _foreign(error: BaseException) -> dict[FrameType, int]:
    """The frames of an exception that are not raystream's, outermost first, and their lines."""
    return {
        frame: line for frame, line in traceback.walk_tb(error.__traceback__) if not _is_own(frame)
    }


def user_traceback(error: BaseException) -> str:
    """The traceback of an exception from the first frame of the user's code on, without those of
    raystream; empty where no code of the user's is in it."""
    if all(_of_library(f.f_code.co_filename) for f in _foreign(error)):
        return ""
    told = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in told.stack if not frame.filename.startswith(_HERE)]
    first = next((i for i, f in enumerate(frames) if not _of_library(f.filename)), 0)
    told.stack = traceback.StackSummary.from_list(frames[first:])
    return "".join(told.format()).rstrip()


@cache
def _of_library(file: str) -> bool:
    """Whether a file belongs to Python or to an installed package, as commands do. Of what Cython
    compiled, and of what is made as text, as methods of dataclasses are, there is no such file."""
    names = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    return (
        file.startswith("<frozen ")
        or file == "<string>"
        or file.endswith((".pyx", ".pxi"))
        or any(file.startswith(sysconfig.get_path(name) + os.sep) for name in names)
    )


def lost(what: str) -> LostError:
    """What is raised when all copies of something are gone."""
    return LostError(
        what,
        hint="Keep more copies (copies=2), on nodes that do not fail together. With durable= a job"
        " goes on from its newest saved checkpoint.",
    )


def leaves(error: BaseException) -> bool:
    """Whether something was raised that is no `Exception`, and neither Ctrl-C nor the end of a
    generator: a call of `sys.exit`, a panic of a library in Rust, a cancelled task."""
    return not isinstance(error, Exception | KeyboardInterrupt | GeneratorExit)


def left_by(error: BaseException) -> OperatorError:
    """What is raised when a user's function raised what `leaves`."""
    if isinstance(error, SystemExit):
        did = f"called sys.exit({'' if error.code is None else repr(error.code)})"
    else:
        did = f"raised {what_was_raised(error)}"
    return OperatorError(
        f"the job's code {did}",
        where=user_frame(error),
        hint="Raise an Exception instead, or return.",
    )


class Located(Protocol):
    """What has a name and a place in the user's code."""

    @property
    def name(self) -> str: ...
    @property
    def where(self) -> Where | None: ...


def operator_error(
    spec: Located, error: BaseException, *, epoch: int, key: object = None, doing: str = ""
) -> OperatorError:
    """What is raised when a user's function raised `error`: in its line or, if none of its own
    did, where the operator is. `doing`: at which record or timer."""
    place = ", ".join(
        filter(None, [f"key {shown(key)}" if key is not None else "", f"epoch {epoch}", doing])
    )
    raised = what_was_raised(error)
    where, hint = user_frame(error), f"at {place}"
    if where is None and isinstance(error, TypeError):  # not raised by the function, but by its use
        hint += "\n  Does it return something other than records? It has to `yield` them."
    wrapped = OperatorError(f"{spec.name} raised {raised}", where=where or spec.where, hint=hint)
    words = "" if key is None else key if isinstance(key, str) else repr(key)
    wrapped.at = At(spec.name, epoch, words)
    wrapped.bare = f"{spec.name} raised {type(error).__name__}"
    wrapped.__cause__ = error
    return wrapped
