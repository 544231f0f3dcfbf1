"""A queue of Amazon SQS, as a source."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import Any, Literal, TypeVar

from raystream.api.arguments import check_record, whole
from raystream.api.looking import counted
from raystream.errors import ConfigError, placed
from raystream.io.formats.base import Format
from raystream.io.subscriptions.base import (
    Incoming,
    MessageConnection,
    SubscribedSource,
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
REFUSED = frozenset({"QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", "AccessDenied",
                     "AccessDeniedException", "InvalidClientTokenId"})  # fmt: skip


HINT = "Look at the address, the region, and the credentials and rights of boto3 on this machine."


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
    if region is not None and not isinstance(region, str):
        raise ConfigError(f"sqs(region={region!r:.80}): text")
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
        super().__init__(record, format, f"sqs {url.rpartition('/')[2]}", splits)
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
        except ClientError as error:
            raise refused(self.name, error, HINT) from None
        except (OSError, BotoCoreError) as error:
            raise unreachable(self.name, 0, error) from None
        return f"{self.name} has about {counted(int(found['Attributes'][wanted]), 'message')}"

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
        return again_and_again(self._attempt, errors, self._of.name, self._of.give_up)

    def _attempt(self) -> Iterator[Sequence[Incoming]]:
        from botocore.exceptions import ClientError

        client = self._of.client()
        try:
            while True:
                self._delete(client)
                answer = client.receive_message(
                    QueueUrl=self._of.url, MaxNumberOfMessages=AT_ONCE, WaitTimeSeconds=WAIT_SECONDS
                )
                yield [
                    Incoming(m["Body"].encode(), 1, m["ReceiptHandle"], m["MessageId"])
                    for m in answer.get("Messages", ())
                ]
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in REFUSED:
                raise refused(self._of.name, error, HINT) from None
            raise
        except GeneratorExit:
            self._delete(client)
            raise
        finally:
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


def _server(url: str) -> str:
    """The part of a queue's address that names the server."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"
