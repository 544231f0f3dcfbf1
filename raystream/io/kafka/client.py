"""Clients of a Kafka cluster, and their errors in words."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from raystream.errors import ConfigError, InputError
from raystream.io.databases.tables import driver_of
from raystream.io.databases.waiting import Patience
from raystream.io.kafka.settings import Settings

T = TypeVar("T")

ASK_SECONDS = 10.0
"""How long one answer of the cluster may take."""
LOG = logging.getLogger("raystream.kafka")
"""Where clients log."""


def driver() -> Any:
    """The module confluent_kafka.

    Raises:
        ConfigError: it is not installed.
    """
    return driver_of("rs.io.kafka", "confluent_kafka", "kafka")


def admin_types() -> Any:
    """The module confluent_kafka.admin."""
    return import_module("confluent_kafka.admin")


class Trouble:
    """What a client says of its connections, as its `error_cb`.

    A client tries again for ever by itself, whatever is wrong. So its user asks `check` now and
    then, which raises when that has gone on for too long.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._last: Any = None
        self._patience: Patience | None = None

    def __call__(self, error: Any) -> None:
        """Note an error."""
        self._last = error
        if self._patience is None:
            self._patience = Patience(self._settings.wait)

    def over(self) -> None:
        """The cluster has answered."""
        self._patience = None

    def check(self, reached: Callable[[], bool]) -> None:
        """See whether it was too long.

        Args:
            reached: asks the cluster for something.

        Raises:
            InputError: it was.
        """
        if self._patience is None:
            return
        if is_refused(self._last):
            raise failed(self._settings, "could not be reached", self._last)
        if self._patience.left():
            return
        if reached():
            self.over()
            return
        raise failed(self._settings, "cannot be reached any more", self._last)


def consumer(settings: Settings, group: str | None, trouble: Any = None) -> Any:
    """A client that reads."""
    return _made("Consumer", settings, settings.consumer(group), trouble)


def producer(settings: Settings, id: str | None, told: Any = None) -> Any:
    """A client that writes.

    Args:
        id: under which it writes transactions; None: it writes none.
        told: is called for each message that has arrived, or has not.
    """
    given = settings.producer(id)
    if told is not None:
        given["on_delivery"] = told
    return _made("Producer", settings, given, None)


def admin(settings: Settings) -> Any:
    """A client that looks what is there, and makes topics."""
    try:
        return admin_types().AdminClient({**settings.admin(), "logger": LOG})
    except Exception as error:
        raise _unfit(settings, error) from None


def _made(kind: str, settings: Settings, given: dict[str, Any], trouble: Any) -> Any:
    try:
        return getattr(driver(), kind)({**given, "error_cb": trouble or _nothing, "logger": LOG})
    except ConfigError:
        raise
    except Exception as error:
        raise _unfit(settings, error) from None


def _nothing(error: Any) -> None:
    """What is done with errors that come again where something is asked."""


def _unfit(settings: Settings, error: Exception) -> ConfigError:
    return ConfigError(
        f"Kafka's client does not take its settings: {settings.words(words_of(error))}",
        hint="settings= has names and values of librdkafka, such as"
        ' {"security.protocol": "SASL_SSL"}.',
    )


def is_refused(error: Any) -> bool:
    """Whether an error will not be gone by itself: the user or a password is wrong."""
    codes = driver().KafkaError
    return error is not None and error.code() in (
        codes._AUTHENTICATION,
        codes.SASL_AUTHENTICATION_FAILED,
        codes.TOPIC_AUTHORIZATION_FAILED,
        codes.GROUP_AUTHORIZATION_FAILED,
        codes.CLUSTER_AUTHORIZATION_FAILED,
        codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )


def patiently(settings: Settings, what: str, ask: Callable[[], T]) -> T:
    """Ask the cluster, again for a while where it does not answer.

    Args:
        what: could not be done, for the message.

    Raises:
        InputError: it does not answer, or refuses.
    """
    patience = Patience(settings.wait)
    kafka = driver().KafkaException
    while True:
        try:
            return ask()
        except kafka as error:
            cause = error.args[0] if error.args else error
            if is_refused(cause) or not patience.left():
                raise failed(settings, what, cause) from None
            patience.wait()


def failed(settings: Settings, what: str, error: Any) -> InputError:
    """An error of a client in words. what: `could not be reached`."""
    hint = "Is it running, and is this its address as seen from the machines of the job?"
    if is_refused(error):
        hint = "Look at the user, password and certificates in settings=, and at the rights there."
    return InputError(
        f"Kafka at {settings.servers} {what}: {settings.words(words_of(error))}", hint=hint
    )


def words_of(error: Any) -> str:
    """What an error of a client says."""
    cause = error.args[0] if isinstance(error, Exception) and error.args else error
    said = cause.str() if hasattr(cause, "str") else str(cause)
    return said.strip() or type(error).__name__
