"""Sinks to a topic: exactly once by transactions, or at least once."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from raystream.api.batch import Batch
from raystream.api.connectors import Sink
from raystream.api.looking import counted
from raystream.errors import ConfigError, GraphError, OutputError
from raystream.io.databases.connection import Connection
from raystream.io.databases.markers import Existing
from raystream.io.databases.sink import TransactionalSink, Visible
from raystream.io.kafka.client import admin, advice, driver, is_refused, producer
from raystream.io.kafka.encoding import Encoder
from raystream.io.kafka.layout import Layout
from raystream.io.kafka.settings import Settings
from raystream.io.kafka.transactions import KafkaConnection, Log, Standing
from raystream.io.kafka.writing import (
    TRANSACTION_SECONDS,
    Topic,
    explained,
    make_topics,
    partitions_there,
    send,
)
from raystream.schema.types import KeyRange, SinkContext

CALL = "rs.io.kafka"


class _Target:
    """What both sinks know of their topic."""

    topic: str
    settings: Settings
    layout: Layout
    create: bool

    def __init__(self, topic: str, settings: Settings, layout: Layout, create: bool) -> None:
        driver()
        self.topic, self.settings = topic, settings
        self.layout, self.create = layout, create
        self._record: type[Any] | None = None
        self._encoder: Encoder | None = None

    @property
    def keyed_by(self) -> tuple[str, ...] | None:
        """The fields in the key, by which the input is partitioned: messages with one key are
        written by one instance, in order."""
        return self.layout.key or None

    def accept(self, record: type[Any], /) -> None:
        """Refuse records that messages cannot stand for, and a second type of records."""
        if self._record is not None and self._record is not record:
            raise GraphError(
                f"the topic {self.topic} has messages of {self._record.__name__}, so it cannot hold"
                f" {record.__name__}",
                hint="Give each type of records a sink and a topic of its own.",
            )
        self._new_encoder(record)
        self._record = record

    def encode(self, batch: Batch[Any]) -> Any:
        """The messages of a batch."""
        if self._encoder is None:
            self._encoder = self._new_encoder(batch.record)
        return self._encoder(batch)

    def _new_encoder(self, record: type[Any]) -> Encoder:
        return Encoder(CALL, record, self.layout, self.topic)

    def describe(self) -> str:
        return f"The topic {self.topic} of Kafka at {self.settings.servers}"

    def passing(self, error: Exception) -> bool:
        """Whether a new client may do what this one could not."""
        kafka, codes = driver().KafkaException, driver().KafkaError
        if not isinstance(error, kafka):
            return False
        cause = error.args[0]
        return not is_refused(cause) and cause.code() not in (
            codes.MSG_SIZE_TOO_LARGE,
            codes.INVALID_TRANSACTION_TIMEOUT,
            codes.INVALID_REPLICATION_FACTOR,
            codes.POLICY_VIOLATION,
            codes._INVALID_ARG,
        )

    def words_of(self, error: Exception) -> str:
        """The error without what is secret."""
        return explained(self.settings, error)

    def advice(self, error: Exception) -> str:
        """What to do about it."""
        is_its = isinstance(error, driver().KafkaException)
        return advice(error.args[0]) if is_its else ""

    def looked_at(self) -> str:
        """See whether the topic is there, or can be made."""
        registries = "" if self._record is None else self._new_encoder(self._record).check()
        try:
            there = partitions_there(admin(self.settings), self.topic)
        except driver().KafkaException as error:
            raise self.unwritable(error) from None
        if there:
            return f"{self.describe()} has {counted(there, 'partition')}{registries}"
        if not self.create:
            raise OutputError(
                f"{self.describe()} is not there", hint="Make it, or say create=True."
            )
        return f"{self.describe()} can be made{registries}"

    def unwritable(self, error: Exception) -> OutputError:
        """The error of a topic that cannot be written."""
        return OutputError(
            f"{self.describe()} cannot be written: {self.words_of(error)}",
            hint=self.advice(error) or "Is the cluster running, and may this user write there?",
        )


class TransactionalTopic(_Target, TransactionalSink):
    """A sink to a topic, exactly once for readers of what is committed. The attributes are the
    arguments of `rs.io.kafka`."""

    def __init__(
        self,
        topic: str,
        settings: Settings,
        layout: Layout,
        *,
        create: bool,
        journal: str,
        visible: Visible | None,
        existing: Existing,
    ) -> None:
        _Target.__init__(self, topic, settings, layout, create)
        TransactionalSink.__init__(self, visible=visible, existing=existing, wait=settings.wait)
        if existing == "replace":
            raise ConfigError(
                f'{CALL}(existing="replace"): messages of a topic cannot be deleted',
                hint='Delete the topic first, or say existing="keep".',
            )
        self.journal = journal
        self._standing = Standing()

    def __repr__(self) -> str:
        return f"kafka({self.topic}, {self.settings.servers})"

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_standing": Standing(), "_encoder": None}

    def open(self, context: SinkContext, /) -> None:
        self._standing = Standing()
        super().open(context)

    def name_of(self, context: SinkContext) -> str:
        """What the sink is called in the journal, also after it was renamed."""
        return f"{context.job}/{context.mark or context.operator}/{self.topic}"

    def log(self, context: SinkContext) -> Log:
        """The topic and the journal."""
        name, table = self.name_of(context), self.describe()
        return Topic(self.settings, self.topic, self.journal, name, table, create=self.create)

    def connect(self, context: SinkContext) -> Connection:
        name = self.name_of(context)
        return KafkaConnection(
            self.log(context), name, self.describe(), context, self.existing, self._standing
        )

    def check(self) -> str:
        """See whether the topic is there, and whether transactions may be begun."""
        said = self.looked_at()
        try:
            client = producer(self.settings, "raystream/check")
            client.init_transactions(TRANSACTION_SECONDS)
        except driver().KafkaException as error:
            raise self.unwritable(error) from None
        return said


class SentTopic(_Target, Sink[Any]):
    """A sink to a topic, at least once: messages that were sent after the checkpoint are sent again
    after a failure. The attributes are the arguments of `rs.io.kafka`."""

    kind: ClassVar[Literal["at-least-once"]] = "at-least-once"

    def __init__(self, topic: str, settings: Settings, layout: Layout, *, create: bool) -> None:
        _Target.__init__(self, topic, settings, layout, create)
        self._client: Any = None
        self._failed: list[Any] = []

    def __repr__(self) -> str:
        return f"kafka({self.topic}, {self.settings.servers}, exactly_once=False)"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_client": None, "_encoder": None, "_failed": []}

    def __copy__(self) -> SentTopic:
        made = object.__new__(type(self))
        made.__dict__.update(self.__getstate__())
        return made

    def open(self, context: SinkContext, /) -> None:
        """Make the topic if that is wanted."""
        try:
            client = admin(self.settings)
            if not partitions_there(client, self.topic):
                if not self.create:
                    raise OutputError(
                        f"{self.describe()} is not there", hint="Make it, or say create=True."
                    )
                make_topics(client, {self.topic: (-1, {})})
            self._client = producer(self.settings, None, self._told)
        except driver().KafkaException as error:
            raise self.unwritable(error) from None

    def _told(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def write(self, epoch: int, keys: KeyRange, batch: Batch[Any], /) -> None:
        """Send the messages of a batch. They arrive soon."""
        send(self._client, self.topic, self.encode(batch))
        self._check()

    def end_epoch(self, epoch: int, /, *, more: bool) -> None:
        """See what has become of messages."""
        self._client.poll(0)
        self._check()

    def prepare(self, epoch: int, /) -> None:
        """Wait until all messages have arrived."""
        left = self._client.flush(self.settings.wait)
        self._check()
        if left:
            raise OutputError(
                f"{self.describe()} has not taken {left:,} messages within {self.settings.wait:g} s"
            )

    def close(self) -> None:
        """Wait until all messages have arrived."""
        if self._client is not None:
            self.prepare(0)
            self._client = None

    def check(self) -> str:
        """See whether the topic is there."""
        return self.looked_at()

    def _check(self) -> None:
        if self._failed:
            kafka = driver().KafkaException
            raise self.unwritable(kafka(self._failed[0]))
