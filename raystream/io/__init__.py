"""Sources and sinks: `rs.io.parquet("rows/*.parquet", Row)` reads, `rs.io.parquet("out/")` writes.

    file_functions  what users call to read and write files
    files           files in Parquet, CSV, JSON and text, as sources
    buckets         what names and opens files in buckets
    following       folders and prefixes where files keep arriving
    output          parts of files, as sinks, and the manifests that say which of them count
    memory          records that are at hand in Python, as a source
    feeds           records that come once, from a function, as a source: the job records them
    push            records that clients push over HTTP, as a source of the same kind
    subscriptions   what comes over websockets and from brokers, as sources of the same kind
    at_least_once   sinks that call a function, or print
    kafka           topics of Kafka
    kinesis         streams of Amazon Kinesis
    databases       sinks to SQLite, DuckDB and PostgreSQL
    capture         PostgreSQL as a source: the changes of a table, or its new rows
    tables          sinks to tables of Delta Lake and Iceberg
    formats         how the messages of brokers stand for records
    aws             what Kinesis and SQS share: regions, and errors of boto3 in words
    addresses       addresses and settings as messages show them: without secrets
    made_types      record types made of a user's, which other processes find by their names

Files can be read again: each is a split with positions. What cannot is recorded by the job. Columns
are the fields of the record type; what is not as declared ends with an `InputError` that names the
file and the row.

Sinks say of which `kind` they are. Files are *epoch-addressed*: what is written again after a
failure replaces itself, and readers see whole checkpoints only (`rs.io.parts`). Databases are
*by-epoch*: rows and a marker are written in one transaction, at once. Functions and the console
are *at-least-once*: after a failure they may get the same records again.

Another package adds a connector by an entry point (`raystream.plugins`); it is then here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from raystream.api.arguments import check_flag, check_function, check_record, whole
from raystream.errors import meant, placed
from raystream.io import formats as formats
from raystream.io.at_least_once import Calls, Console
from raystream.io.capture.making import postgres_changes, postgres_rows
from raystream.io.databases.making import duckdb, postgres, sqlite
from raystream.io.feeds import recorded
from raystream.io.file_functions import csv, json, parquet, text
from raystream.io.files.bad_lines import BadLine
from raystream.io.files.lines import Line
from raystream.io.following.settings import Follow
from raystream.io.formats.bad_messages import BadMessage
from raystream.io.kafka.making import kafka
from raystream.io.kinesis.making import kinesis
from raystream.io.memory import Records
from raystream.io.output.manifest import PartFile
from raystream.io.output.parts import parts, read_parts
from raystream.io.push.source import push
from raystream.io.subscriptions.events import events
from raystream.io.subscriptions.mqtt import mqtt
from raystream.io.subscriptions.nats import nats
from raystream.io.subscriptions.rabbitmq import rabbitmq
from raystream.io.subscriptions.redis import redis
from raystream.io.subscriptions.sqs import sqs
from raystream.io.subscriptions.websocket import websocket
from raystream.io.tables.making import delta, iceberg
from raystream.plugins import CONNECTORS, Registry
from raystream.schema.fields import AnyRecord
from raystream.schema.types import NEVER

__all__ = [
    "BadLine",
    "BadMessage",
    "Follow",
    "Line",
    "PartFile",
    "callable",
    "console",
    "csv",
    "delta",
    "duckdb",
    "events",
    "formats",
    "iceberg",
    "iterable",
    "json",
    "kafka",
    "kinesis",
    "mqtt",
    "nats",
    "parquet",
    "parts",
    "postgres",
    "postgres_changes",
    "postgres_rows",
    "push",
    "rabbitmq",
    "read_parts",
    "recorded",
    "redis",
    "sqlite",
    "sqs",
    "text",
    "websocket",
]

_CONNECTORS: Registry[Any] = Registry(CONNECTORS, {})
"""Those of other packages, by their names below `rs.io`."""

if not TYPE_CHECKING:  # or every name that is not there would be fine to a type checker

    def __getattr__(name: str) -> Any:
        """A connector that another package adds."""
        if not name.startswith("_") and (found := _CONNECTORS.get(name)) is not None:
            return found
        raise AttributeError(
            f"rs.io has no {name!r}{meant(name, [*__all__, *_CONNECTORS.known()])}"
        )


def __dir__() -> list[str]:
    """The connectors, also those of other packages: what a shell or an editor offers."""
    return [*__all__, *_CONNECTORS.known()]


U = TypeVar("U", bound=AnyRecord)


@placed
def iterable(
    records: Iterable[U] | Callable[[], Iterable[U]], record: type[U], /, *, splits: int = 1
) -> Records[U]:
    """Records that are at hand in Python as a source.

    Args:
        records: a list or another collection that can be read again in the same order, or a
            function that returns a new iterator over the same records every time.
        record: their type.
        splits: how many parts can be read independently; split i has every nth record.
    """
    check_record("rs.io.iterable", record)
    return Records(records, record, splits)


@placed
def callable(function: Callable[[Any], object], /, *, each: bool = False) -> Calls:
    """A sink that calls a function with every `rs.Batch`, or with `each` every record.

    At least once: after a failure the function may be called again with the same records. It is
    called in the process of the sink's instance.
    """
    check_flag("rs.io.callable", "each", each)
    check_function("rs.io.callable", function, "a record" if each else "a batch")
    return Calls(function, each)


@placed
def console(*, limit: int = 20) -> Console:
    """A sink that prints records: up to `limit` between two checkpoints, and how many it left out.

    At least once: after a failure it may print the same records again.
    """
    return Console(whole("rs.io.console", "limit", limit, 0, NEVER))
