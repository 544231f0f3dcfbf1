"""Clients of Kinesis: how they are made, which errors pass, and what the others say."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from raystream.errors import InputError, OutputError
from raystream.io.addresses import shown_address
from raystream.io.aws import advice_of, code_of, words_of
from raystream.io.databases.tables import driver_of
from raystream.io.databases.waiting import Patience

T = TypeVar("T")

CALL = "rs.io.kinesis"
ANSWER_SECONDS = 20
"""How long one answer may take."""
PASSING = frozenset({
    "ProvisionedThroughputExceededException", "LimitExceededException", "KMSThrottlingException",
    "InternalFailure", "InternalServiceError", "ServiceUnavailable", "Throttling",
    "ThrottlingException", "RequestLimitExceeded", "RequestTimeout", "ResourceInUseException",
})  # fmt: skip
"""What Kinesis says when the same request may be answered a little later."""

_MAKING = threading.Lock()
"""boto3 makes clients in one thread at a time."""


class StreamPlace(NamedTuple):
    """A stream, and how it is reached."""

    stream: str
    """Its name, or its ARN."""
    region: str | None
    wait: float
    """For how many seconds a request that fails is made again."""

    @property
    def name(self) -> str:
        """The stream, for messages."""
        return f"Kinesis stream {self.stream.rpartition('/')[2]}"

    def named(self) -> dict[str, str]:
        """The argument of requests that says which stream it is."""
        return {"StreamARN" if self.stream.startswith("arn:") else "StreamName": self.stream}


def driver() -> Any:
    """The module boto3.

    Raises:
        ConfigError: it is not installed.
    """
    return driver_of(CALL, "boto3", "kinesis")


def client_of(where: StreamPlace) -> Any:
    """A client, which threads may share. Credentials are as boto3 finds them.

    Raises:
        InputError: boto3 does not find a region, or does not take what it finds.
    """
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    config = Config(
        connect_timeout=ANSWER_SECONDS,
        read_timeout=ANSWER_SECONDS,
        retries={"total_max_attempts": 1},  # `patiently` asks again, and says what is wrong
        max_pool_connections=64,
    )
    with _MAKING:
        try:
            return driver().client("kinesis", region_name=where.region, config=config)
        except (BotoCoreError, ValueError) as error:
            raise InputError(
                f"{where.name} cannot be reached: {words_of(error)}", hint=_hint(error)
            ) from None


def passes(error: Exception) -> bool:
    """Whether the same request may be answered a little later."""
    from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return code_of(error) in PASSING or status >= 500
    return isinstance(error, HTTPClientError | ConnectionError | OSError)


def patiently(where: StreamPlace, what: str, ask: Callable[[], T]) -> T:
    """Ask Kinesis, again for a while where it does not answer, or is asked too much.

    Args:
        what: could not be done, for the message.

    Raises:
        InputError: it does not answer for long, or refuses.
    """
    patience = Patience(where.wait)
    while True:
        try:
            return ask()
        except Exception as error:
            if not is_expected(error):
                raise
            if not passes(error) or not patience.left():
                raise unreadable(where, what, error) from None
            patience.wait()


def is_expected(error: Exception) -> bool:
    """Whether it is an error of boto3 or of a connection, and not of this code."""
    from botocore.exceptions import BotoCoreError, ClientError

    return isinstance(error, ClientError | BotoCoreError | OSError)


def unreadable(where: StreamPlace, what: str, error: Exception) -> InputError:
    """The error of a stream that cannot be read. what: could not be done."""
    return InputError(f"{_placed(where)} {what}: {words_of(error)}", hint=_hint(error))


def unwritable(where: StreamPlace, error: Exception) -> OutputError:
    """The error of a stream that cannot be written."""
    said = f"{_placed(where)} cannot be written: {words_of(error)}"
    return OutputError(said, hint=_hint(error))


def _placed(where: StreamPlace) -> str:
    """A stream, and the server that was asked."""
    with suppress(Exception):  # then the error says why there is none
        client = client_of(where)
        address = shown_address(client.meta.endpoint_url)
        client.close()
        return f"{where.name} at {address}"
    return where.name


def _hint(error: Exception) -> str:
    if code_of(error) == "ResourceNotFoundException":
        return "Make the stream first, or correct the name and region=."
    if code_of(error) in PASSING:
        return "Are there enough shards for all that use it?"
    if passes(error):
        return (
            "Does it run, and do the machines of the job reach it? region= and AWS_ENDPOINT_URL"
            " say where it is."
        )
    return advice_of(error) or "Look at the name, and at region=."
