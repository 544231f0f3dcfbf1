"""How a shell ends: what its threads look at, and the error that leaves its process."""

from __future__ import annotations

import threading
import traceback

from raystream.errors import (
    InternalError,
    JobError,
    OperatorError,
    RaystreamError,
    leaves,
    left_by,
    user_traceback,
)


class Fate:
    """Shared by all threads of a shell."""

    def __init__(self) -> None:
        self.stopping = False
        """The shell was told to stop: every thread ends as soon as it sees this."""
        self.error: RaystreamError | None = None
        """Why the work stopped, if it failed."""
        self.done = threading.Event()
        """The work is done, or has failed."""

    def fail(self, error: BaseException) -> None:
        """Note that the work cannot go on. The first error counts; an error of a shell that stops
        does not."""
        if not self.stopping and self.error is None:
            self.error = ours(error)
            self.done.set()


def ours(error: BaseException) -> RaystreamError:
    """The error that is sent to the submitter: a `RaystreamError`, or any other as a bug of
    ours."""
    if isinstance(error, RaystreamError):
        cause = error.__cause__ if isinstance(error, OperatorError | JobError) else None
        if cause is not None and (told := user_traceback(cause)):
            error.add_note(told)
        return error
    if isinstance(error, SystemExit) or (leaves(error) and user_traceback(error)):
        return left_by(error)
    bug = InternalError(f"{type(error).__name__}: {error}")
    bug.add_note("".join(traceback.format_exception(error)).rstrip())
    return bug
