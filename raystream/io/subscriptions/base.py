"""`SubscribedSource`: a source of messages that come once, over a `MessageConnection`."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from raystream.api.batch import Batch
from raystream.errors import ConfigError, InputError
from raystream.io.addresses import secrets_in, shown_address, without_secrets
from raystream.io.files.bad_lines import mixed, sifted
from raystream.io.formats.bad_messages import MessageSource
from raystream.io.formats.base import Codec, Format, registries, whole
from raystream.io.formats.json import json
from raystream.schema.columns import empty
from raystream.schema.fields import AnyRecord
from raystream.schema.records import record_schema
from raystream.schema.types import Split

U = TypeVar("U", bound=AnyRecord)

LOOK_SECONDS = 0.2
"""How long a connection waits for a message at most before it looks whether it should stop."""
SENDER = "at"
"""The name under which the register knows the numbers of a split's messages."""


class Incoming(NamedTuple):
    """What came over a connection."""

    data: bytes
    number: int | None = None
    """It rises from message to message of a split, in all processes; None if messages have none."""
    token: Any = None
    """What acknowledges it; None where there is nothing to acknowledge."""
    sender: str = SENDER
    """Whose number it is. Messages that have an id and no number are senders by themselves."""


class MessageConnection(ABC):
    """A connection of one split, used by one thread, but for `acknowledge`."""

    @abstractmethod
    def messages(self) -> Iterator[Sequence[Incoming]]:
        """What comes, until the end of the input. Nothing, about every `LOOK_SECONDS`, while
        nothing comes.

        Raises:
            InputError: the other side cannot be reached for long, or refuses.
        """

    def acknowledge(self, tokens: Sequence[Any]) -> None:  # noqa: B027  a default
        """These messages are recorded. Called on another thread; must not block."""

    def close(self) -> None:  # noqa: B027  a default
        """Give the connection up."""


class SubscribedSource(MessageSource[U]):
    """A source of messages, which the job records.

    Args:
        record: the type of the records.
        format: how messages stand for them; JSON unless given.
        name: what is read, for errors; without secrets.
        number: how many splits there are.
        url: where it is read, which may hold secrets.
    """

    recorded: ClassVar[bool] = True
    read_ahead: ClassVar[int] = 256
    give_up: float
    """After how many seconds without a connection the job ends."""

    def __init__(
        self, record: type[U], format: Format | None, name: str, number: int = 1, url: str = ""
    ) -> None:
        self.record = self.declared = record
        self.name, self.number = name, number
        self.place = f"{name} at {shown_address(url)}" if url else name
        """What is read, and where, for errors of connections."""
        self.secrets = secrets_in(url)
        self.format = json() if format is None else format
        if not isinstance(self.format, Format):
            raise ConfigError(
                f"format={format!r:.80} is no format",
                hint="rs.io.formats.json(), or another one of rs.io.formats.",
            )
        self.format.codec(record)  # what does not fit is refused while the flow is built
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, int] = {}
        self._open: dict[str, _OpenSplit] = {}
        self.was_there = False
        """Whether it was read before, in this process or, as far as that is recorded, another."""

    @abstractmethod
    def connect(self, split: int, since: int | None) -> MessageConnection:
        """A new connection.

        Args:
            since: the number of the last message that is recorded; None if none is.
        """

    def __getstate__(self) -> dict[str, Any]:
        dropped = ("_lock", "_known", "_open", "was_there")
        return {name: value for name, value in self.__dict__.items() if name not in dropped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def __repr__(self) -> str:
        return self.name

    def splits(self) -> Sequence[Split]:
        return [Split(f"{i}/{self.number}") for i in range(self.number)]

    def once(self) -> Self:
        """The same, but it tries once."""
        made = copy(self)
        made.give_up = 0.0
        return made

    def trial(self) -> MessageConnection:
        """A connection that tries once, and leaves no trace: what `check` makes."""
        return self.once().connect(0, None)

    def check(self) -> str:
        """Ask the registry of the format, if there is one, and connect.

        Raises:
            RaystreamError: what is wrong.
        """
        codec: Codec[U] = self.format.codec(self.declared)
        told = registries(codec, writes=False)
        return self.look() + told

    def look(self) -> str:
        """Connect, and close the connection without a look at what comes.

        Raises:
            InputError: there is no connection.
        """
        connection = self.trial()
        try:
            next(connection.messages(), None)
        finally:
            connection.close()
        return f"{self.place} can be read"

    def knows(self, split: Split, sequences: Mapping[str, int], /) -> None:
        """Read on after what is recorded."""
        self.was_there = self.was_there or bool(sequences)
        if SENDER in sequences:
            self._known[split.name] = max(sequences[SENDER], self._known.get(split.name, -1))

    def read(self, split: Split, position: int, /) -> Iterator[Any]:
        """What comes, in the order in which it came. Numbers of batches count from 1."""
        number = int(split.name.partition("/")[0])
        connection = self.connect(number, self._known.get(split.name))
        reading = _OpenSplit(connection)
        with self._lock:
            self._open[split.name] = reading
        codec: Codec[U] = self.format.codec(self.declared)
        nothing: Batch[U] = Batch._of(empty(record_schema(self.record)))
        try:
            for messages in connection.messages():
                if not messages:
                    yield reading.number, nothing  # the reader looks whether it should stop
                for some in _batches(messages):
                    batch = self._decoded(codec, some)
                    at = reading.took([m.token for m in some if m.token is not None])
                    last = some[-1]
                    if last.number is None:
                        yield at, batch
                    else:
                        yield at, batch, (last.sender, last.number)
        finally:
            with self._lock:
                if self._open.get(split.name) is reading:
                    del self._open[split.name]
            connection.close()

    def _decoded(self, codec: Codec[U], messages: Sequence[Incoming]) -> Batch[Any]:
        data = [message.data for message in messages]
        if self.apart:
            told = [-1 if m.number is None or m.sender != SENDER else m.number for m in messages]
            found = sifted(data, codec.decode)
            return mixed(self.declared, self.name, told, data, found, timed=False)

        def place(n: int) -> str:
            _, number, _, sender = messages[n]
            if number is None:
                return self.name
            return f"{self.name}, message {number if sender == SENDER else sender}"

        return whole(data, codec.decode, self.declared, place)

    def acknowledge(self, split: Split, number: int, /) -> None:
        """Acknowledge the messages up to that batch to their sender."""
        with self._lock:
            reading = self._open.get(split.name)
        if reading is not None:
            reading.recorded(number)


class _OpenSplit:
    """One call of `read`: which batch has which messages to acknowledge."""

    def __init__(self, connection: MessageConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._tokens: deque[tuple[int, list[Any]]] = deque()
        self.number = 0

    def took(self, tokens: list[Any]) -> int:
        """The number of a new batch."""
        with self._lock:
            self.number += 1
            if tokens:
                self._tokens.append((self.number, tokens))
            return self.number

    def recorded(self, number: int) -> None:
        found: list[Any] = []
        with self._lock:
            while self._tokens and self._tokens[0][0] <= number:
                found += self._tokens.popleft()[1]
        if found:
            self._connection.acknowledge(found)


def _batches(messages: Sequence[Incoming]) -> Iterator[Sequence[Incoming]]:
    """Messages with numbers go one by one: a batch is left out as a whole if it was recorded."""
    if messages and messages[0].number is not None:
        for message in messages:
            yield [message]
    elif messages:
        yield messages


def package(name: str, extra: str, what: str) -> Any:
    """A package that only some sources need.

    Raises:
        ConfigError: it is not installed.
    """
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigError(
            f"{what} needs the package {name.partition('.')[0]}",
            hint=f'pip install "raystream[{extra}]"',
        ) from None


def unreachable(of: SubscribedSource[Any], error: BaseException) -> InputError:
    """The error of a connection that cannot be made."""
    said = without_secrets(of.secrets, str(error).strip())
    if not isinstance(error, EOFError) or not said:  # its words are ours
        said = f"{type(error).__name__}: {said}"
    if not of.give_up:
        return InputError(
            f"{of.place} cannot be read: {said}",
            hint="Is it there, and does it let this machine in?",
        )
    return InputError(
        f"{of.place} could not be read for {of.give_up:g} s: {said}",
        hint="Is it there, and does it let this machine in? give_up= says how long to try.",
    )


LET_IN = "Look at the user, the password and the rights there."


def refused(of: SubscribedSource[Any], said: object, hint: str = LET_IN) -> InputError:
    """The error of a server that will not change its mind."""
    return InputError(
        f"{of.place} was refused: {without_secrets(of.secrets, str(said))}", hint=hint
    )


class MissingError(InputError):
    """The server answers, and does not have what is to be read. That may be so for a moment after
    it was started again: see `again_and_again`."""


def missing(of: SubscribedSource[Any], said: object, hint: str) -> MissingError:
    """The error of a server that does not have what is to be read."""
    return MissingError(
        f"{of.place} cannot be read: {without_secrets(of.secrets, str(said))}", hint=hint
    )
