"""A queue of Amazon SQS, as a source."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from raystream.api.arguments import check_record, whole
from raystream.api.looking import counted
from raystream.errors import ConfigError, InputError, placed
from raystream.io.addresses import shown_address
from raystream.io.aws import advice_of, check_region, code_of, is_final, words_of
from raystream.io.formats.base import Format
from raystream.io.subscriptions.base import (
    Incoming,
    MessageConnection,
    SubscribedSource,
    missing,
    package,
    refused,
    unreachable,
)
from raystream.io.subscriptions.options import check_url, give_up_of
from raystream.io.subscriptions.waiting import GIVE_UP_SECONDS, again_and_again
from raystream.schema.fields import AnyRecord
from raystream.schema.lengths import Seconds

U = TypeVar("U", bound=AnyRecord)

AT_ONCE = 10
"""How many messages SQS gives, or deletes, in one request at most."""
WAIT_SECONDS = 1
"""How long SQS waits for a message before it answers."""
MISSING = ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue")
HINT = "Make the queue first, or correct its address and region=."


@placed
def sqs(
    url: str,
    record: type[U],
    /,
    *,
    splits: int = 1,
    region: str | None = None,
    format: Format | None = None,
    bad: Literal["refuse", "stream"] = "refuse",
    give_up: Seconds = GIVE_UP_SECONDS,
) -> Queue[U]:
    """The messages of an SQS queue, as a source. Each is deleted when the job has recorded it:

        orders = rs.io.sqs("https://sqs.eu-central-1.amazonaws.com/1/orders", Order)
        flow.source(orders, epochs=rs.by_arrival())

    What was recorded and not deleted when a process died comes again after the visibility timeout
    of the queue. It is known by its message id, and counts once, among the last 10,000 messages of
    a split and within a day. With several splits it may come to another one, and counts twice.
    Credentials and region are as boto3 finds them, on every node.

    Args:
        url: of the queue.
        record: the type of the records; the body of each message is one.
        splits: how many readers there are, which may be as many instances.
        region: of the queue, where boto3 does not find it.
        format: how bodies stand for records; `rs.io.formats.json()` unless given.
        bad: what becomes of messages that are no such records: `"refuse"` ends the job, with
            `"stream"` they are in `stream[rs.io.BadMessage]`.
        give_up: after how many seconds without an answer the job ends.

    Raises:
        GraphError: `record` is no type of records.
        ConfigError: an argument cannot be, or the package `boto3` is not installed.
    """
    check_record("rs.io.sqs", record)
    check_url("sqs", url, ("https://", "http://"))
    splits = whole("sqs", "splits", splits, 1, 1024, ConfigError)
    if not urlsplit(url).path.strip("/"):
        raise ConfigError(
            f"sqs({shown_address(url)!r:.80}): the address of a queue, and not of a server",
            hint="As in https://sqs.eu-central-1.amazonaws.com/123456789012/orders.",
        )
    check_region("sqs", region)
    give_up = give_up_of("sqs", give_up)
    package("boto3", "sqs", "rs.io.sqs")
    made = Queue(record, format, url, splits, region, give_up)
    made.sifting("rs.io.sqs", bad)
    return made


class Queue(SubscribedSource[U]):
    """See `sqs`."""

    def __init__(
        self,
        record: type[U],
        format: Format | None,
        url: str,
        splits: int,
        region: str | None,
        give_up: float,
    ) -> None:
        super().__init__(record, format, f"sqs {url.rpartition('/')[2]}", splits, _server(url))
        self.url, self.region, self.give_up = url, region, give_up

    def connect(self, split: int, since: int | None) -> MessageConnection:
        return _Poll(self)

    def look(self) -> str:
        """See how many messages there are, and take none: others would not see it for a while."""
        from botocore.exceptions import BotoCoreError, ClientError

        wanted = "ApproximateNumberOfMessages"
        try:
            with closing(self.client()) as client:
                found = client.get_queue_attributes(QueueUrl=self.url, AttributeNames=[wanted])
        except (ClientError, OSError, BotoCoreError, ValueError) as error:
            raise _told(self, error) or unreachable(self.once(), error) from None
        return f"{self.place} has about {counted(int(found['Attributes'][wanted]), 'message')}"

    def client(self) -> Any:
        """A client of boto3."""
        import boto3

        return boto3.client("sqs", region_name=self.region, endpoint_url=_server(self.url))


class _Poll(MessageConnection):
    """Asks for messages, and between two requests deletes what is recorded."""

    def __init__(self, of: Queue[Any]) -> None:
        self._of = of
        self._done: queue.SimpleQueue[str] = queue.SimpleQueue()

    def acknowledge(self, tokens: Sequence[Any]) -> None:
        for token in tokens:
            self._done.put(token)

    def messages(self) -> Iterator[Sequence[Incoming]]:
        from botocore.exceptions import BotoCoreError, ClientError

        errors = (OSError, BotoCoreError, ClientError)
        return again_and_again(self._attempt, errors, self._of)

    def _attempt(self) -> Iterator[Sequence[Incoming]]:
        from botocore.exceptions import BotoCoreError, ClientError

        client: Any = None
        try:
            client = self._of.client()
            while True:
                self._delete(client)
                answer = client.receive_message(
                    QueueUrl=self._of.url, MaxNumberOfMessages=AT_ONCE, WaitTimeSeconds=WAIT_SECONDS
                )
                yield [
                    Incoming(m["Body"].encode(), 1, m["ReceiptHandle"], m["MessageId"])
                    for m in answer.get("Messages", ())
                ]
        except (ClientError, BotoCoreError, ValueError) as error:
            if (told := _told(self._of, error)) is not None:
                raise told from None
            raise
        except GeneratorExit:
            self._delete(client)
            raise
        finally:
            if client is not None:
                client.close()

    def _delete(self, client: Any) -> None:
        while True:
            handles = list[str]()
            with suppress(queue.Empty):
                while len(handles) < AT_ONCE:
                    handles.append(self._done.get_nowait())
            if not handles:
                return
            entries = [{"Id": str(i), "ReceiptHandle": h} for i, h in enumerate(handles)]
            client.delete_message_batch(QueueUrl=self._of.url, Entries=entries)


def _told(of: Queue[Any], error: Exception) -> InputError | None:
    """The error of a queue where it is of no use to ask again."""
    if code_of(error) in MISSING:
        return missing(of, words_of(error), HINT)
    if is_final(error) or isinstance(error, ValueError):
        return refused(of, words_of(error), advice_of(error))
    return None


def _server(url: str) -> str:
    """The part of a queue's address that names the server."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"
