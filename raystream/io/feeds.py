"""Records that come once and cannot be read again: a socket, a subscription, a generator.

The job records them before it uses them (`rs.Source.recorded`), so a function that yields them is
enough for a source. It runs on a thread of its own, with an event loop where it is asynchronous,
and gives what it yields to the reader by a bounded queue: where the job is slower than what comes,
the function waits at its `yield`.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from raystream.api.arguments import check_function, check_record, named
from raystream.api.batch import Batch
from raystream.api.connectors import Source
from raystream.errors import ConfigError, GraphError, placed
from raystream.io.files.declared import batch_of_records
from raystream.schema.fields import AnyRecord
from raystream.schema.records import caller
from raystream.schema.types import Split

U = TypeVar("U", bound=AnyRecord)

QUEUED = 4096
"""How many yielded values may wait for the reader."""
BATCH_ROWS = 4096
LOOK_SECONDS = 0.2
"""How soon a thread that waits for the queue sees that it should stop."""
FULL_SECONDS = 0.002
"""How long an asynchronous function waits before it looks again whether the queue has room."""

_END = object()


@placed
def recorded(feed: Callable[..., Any], record: type[U], /, *, splits: int = 1) -> Feeds[U]:
    """Records that cannot be read again, as a source: the job records them as they come.

        async def trades() -> AsyncIterator[Trade]:
            async with connect("wss://...") as socket:
                async for message in socket:
                    yield Trade.parse(message)

        flow.source(rs.io.recorded(trades, Trade), epochs=rs.by_arrival())

    Each record is stored in `copies` places before an operator sees it. So a job that recovers,
    moves or scales out gives no wrong or repeated answer, although nothing can be read again. What
    the function has yielded and the job has not recorded when the process dies is lost with it.

    Args:
        feed: a function that returns an iterator or an asynchronous one, as a generator does. It
            yields records, lists of records or `rs.Batch`. It is called where the source runs: when
            the job begins, and again wherever the source begins to run later. An exception ends the
            job, so it has to connect again by itself where that is wanted; its end is the end of
            the input. With `splits` above 1 it is called for each of them, with a number from 0 on.
        record: their type.
        splits: how many calls there are, which may run on as many instances.

    Raises:
        GraphError: `record` is no type of records.
        ConfigError: `feed` is no such function.
    """
    check_record("rs.io.recorded", record)
    where = caller()[0]
    if type(splits) is not int or splits < 1:
        raise ConfigError(f"recorded(splits={splits!r}): a whole number, at least 1", where=where)
    takes = "the number of its split" if splits > 1 else "nothing"
    check_function("recorded()", feed, takes, int(splits > 1), lazy=True)
    return Feeds(feed, record, splits)


@dataclass(frozen=True)
class Feeds(Source[U]):
    """Split i is what the i-th call of the function yields."""

    feed: Callable[..., Any]
    record: type[U]
    number: int
    recorded: ClassVar[bool] = True

    def splits(self) -> Sequence[Split]:
        return [Split(f"{i}/{self.number}") for i in range(self.number)]

    def read(self, split: Split, position: int, /) -> Iterator[tuple[int, Batch[U]]]:
        """What comes, in batches of all that is there. Numbers of batches count from 1."""
        pump = _Pump(self.feed, [int(split.name.partition("/")[0])][: self.number > 1])
        pump.start()
        nothing, at = self._batch([]), 0
        try:
            for values in pump.values():
                if not values:
                    yield at, nothing  # the reader looks whether it should stop
                for batch in self._batches(values):
                    at += 1
                    yield at, batch
        finally:
            pump.stop()

    def _batches(self, values: list[Any]) -> Iterator[Batch[U]]:
        """Values that were yielded, as batches."""
        rows: list[U] = []
        for value in values:
            if not isinstance(value, Batch):
                rows.extend(value if isinstance(value, list) else [value])
                continue
            if rows:
                yield self._batch(rows)
                rows = []
            if len(value):
                yield value
        if rows:
            yield self._batch(rows)

    def _batch(self, rows: list[U]) -> Batch[U]:
        return batch_of_records(
            self.record, rows, lambda n: f"a record that {named(self.feed)} yielded"
        )


class _Pump:
    """Calls the function on a thread, and hands on what it yields."""

    def __init__(self, feed: Callable[..., Any], arguments: list[int]) -> None:
        self._feed, self._arguments = feed, arguments
        self._queue: queue.Queue[Any] = queue.Queue(QUEUED)
        self._error: BaseException | None = None
        self._stopping = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="feed", daemon=True).start()

    def stop(self) -> None:
        """Let the function end at its next `yield`."""
        self._stopping.set()

    def values(self) -> Iterator[list[Any]]:
        """What was yielded since the last time; nothing where that took long.

        Raises:
            BaseException: what the function raised, after everything that it has yielded.
        """
        while True:
            try:
                values = [self._queue.get(timeout=LOOK_SECONDS)]
            except queue.Empty:
                yield []
                continue
            while values[-1] is not _END and len(values) < BATCH_ROWS:
                try:
                    values.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            ended = values[-1] is _END
            if given := values[: len(values) - ended]:
                yield given
            if ended:
                if self._error is not None:
                    raise self._error
                return

    def _run(self) -> None:
        try:
            found = self._feed(*self._arguments)
            if inspect.isawaitable(found) or hasattr(found, "__aiter__"):
                asyncio.run(self._asynchronous(found))
            else:
                self._synchronous(found)
        except BaseException as error:
            self._error = error
        self._put(_END)

    def _synchronous(self, found: Any) -> None:
        for value in _iterator_of(found, self._feed, iter):
            if not self._put(value):
                return

    def _put(self, value: Any) -> bool:
        while not self._stopping.is_set():
            try:
                self._queue.put(value, timeout=LOOK_SECONDS)
                return True
            except queue.Full:
                continue
        return False

    async def _asynchronous(self, found: Any) -> None:
        if inspect.isawaitable(found):
            found = await found
        task = asyncio.ensure_future(self._drain(_iterator_of(found, self._feed, aiter)))
        while not task.done() and not self._stopping.is_set():
            await asyncio.wait([task], timeout=LOOK_SECONDS)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            if not self._stopping.is_set():
                raise

    async def _drain(self, values: AsyncIterator[Any]) -> None:
        async for value in values:
            while True:
                try:
                    self._queue.put_nowait(value)
                    break
                except queue.Full:
                    await asyncio.sleep(FULL_SECONDS)


def _iterator_of(found: Any, feed: Any, of: Callable[[Any], Any]) -> Any:
    try:
        return of(found)
    except TypeError:
        raise GraphError(
            f"{named(feed)} returned a {type(found).__name__}, which is no iterator",
            hint="Write it as a generator: a function with `yield`.",
        ) from None
