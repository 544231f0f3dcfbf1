"""Clients of a Kafka cluster, and their errors in words."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from raystream.errors import ConfigError, InputError
from raystream.io.databases.tables import driver_of
from raystream.io.databases.waiting import Patience
from raystream.io.kafka.settings import Settings

T = TypeVar("T")

ASK_SECONDS = 10.0
"""How long one answer of the cluster may take."""
AGAIN_SECONDS = 60.0
"""How soon the same words of clients are logged again."""


class SaidOnce(logging.Filter):
    """Leaves out what was said a short time ago: a client without a connection says the same with
    each of its attempts, several times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()
        self._fresh = Patience(AGAIN_SECONDS)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether nothing like it was said."""
        if not self._fresh.left():
            self._said, self._fresh = set(), Patience(AGAIN_SECONDS)
        words = re.sub(r"#\w+-\d+|\(after \d+ms.*", "", record.getMessage())
        new = words not in self._said
        self._said.add(words)
        return new


LOG = logging.getLogger("raystream.kafka")
"""Where clients log."""
LOG.addFilter(SaidOnce())


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
        self.cause: Any = None
        """Why there is no connection, as far as the client knows."""

    def __call__(self, error: Any) -> None:
        """Note an error."""
        self._last = error
        if error.code() != driver().KafkaError._ALL_BROKERS_DOWN:
            self.cause = error
        if self._patience is None:
            self._patience = Patience(self._settings.wait)

    def over(self) -> None:
        """The cluster has answered."""
        self._patience = self.cause = None

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
        raise failed(self._settings, "cannot be reached any more", self.cause or self._last)


_LAST = "raystream.last"
"""No setting of librdkafka, which therefore takes none that comes after it."""


def check_settings(settings: Settings, *, reading: bool) -> None:
    """Refuse names and values that librdkafka does not take. No client begins, and no file is read:
    certificates may be on the machines of the job alone.

    Raises:
        ConfigError: there is one, or confluent-kafka is not installed.
    """
    kind = driver().Consumer if reading else driver().Producer
    if "plugin.library.paths" in settings.given:
        return  # it adds names, and may be on the machines of the job alone
    try:
        kind({"group.id": "raystream", **settings.given, _LAST: ""})
    except Exception as error:
        if _LAST not in words_of(error):
            raise _unfit(settings, error) from None


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
    return _begun(admin_types().AdminClient, settings, settings.admin(), None)


def _made(kind: str, settings: Settings, given: dict[str, Any], trouble: Any) -> Any:
    return _begun(_hearing(kind), settings, given, trouble)


def _begun(kind: Any, settings: Settings, given: dict[str, Any], trouble: Any) -> Any:
    heard = trouble or Trouble(settings)
    try:
        made = kind({**given, "error_cb": heard, "logger": LOG})
    except Exception as error:
        raise _unfit(settings, error) from None
    made.heard = heard
    return made


@cache
def _hearing(kind: str) -> Any:
    """A class of clients to which `heard` can be added."""
    return type(kind, (getattr(driver(), kind),), {})


def cause_of(client: Any, error: Any) -> Any:
    """Why a client had no answer: an error of it that says only that there was none has the reason
    beside it, in what the client has said of its connections."""
    codes = driver().KafkaError
    if error.code() not in (codes._TRANSPORT, codes._TIMED_OUT, codes._ALL_BROKERS_DOWN):
        return error
    if not (hasattr(client, "assignment") and client.assignment()):  # that would take a message
        client.poll(0)  # in which it says what it has to say
    return client.heard.cause or error


def _unfit(settings: Settings, error: Exception) -> ConfigError:
    return ConfigError(
        f"Kafka's client does not take its settings: {settings.words(words_of(error))}",
        hint='settings= has what librdkafka takes, as in {"security.protocol": "SASL_SSL"}.'
        " Its CONFIGURATION.md lists all; those of Java's clients are not always the same.",
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


def patiently(settings: Settings, client: Any, what: str, ask: Callable[[], T]) -> T:
    """Ask the cluster, again for a while where it does not answer.

    Args:
        client: what asks. what: could not be done, for the message.

    Raises:
        InputError: it does not answer, or refuses.
    """
    patience = Patience(settings.wait)
    kafka = driver().KafkaException
    while True:
        try:
            return ask()
        except kafka as error:
            cause = cause_of(client, error.args[0])
            if is_refused(cause) or not patience.left():
                raise failed(settings, what, cause) from None
            patience.wait()


def failed(settings: Settings, what: str, error: Any) -> InputError:
    """An error of a client in words. what: `could not be reached`."""
    return InputError(
        f"Kafka at {settings.servers} {what}: {settings.words(words_of(error))}",
        hint=advice(error) or REACHED,
    )


REACHED = "Is it running, and is this its address as seen from the machines of the job?"


def advice(error: Any) -> str:
    """What to do about an error of a connection; nothing about others."""
    codes = driver().KafkaError
    if is_refused(error):
        return (
            "Look at security.protocol, user, password and certificates in settings=, and at the"
            " rights there."
        )
    if error.code() == codes._SSL:
        return "Look at security.protocol and the certificates in settings=."
    if error.code() in (codes._TRANSPORT, codes._TIMED_OUT, codes._RESOLVE):
        return REACHED
    return ""


def words_of(error: Any) -> str:
    """What an error of a client says."""
    cause = error.args[0] if isinstance(error, Exception) and error.args else error
    said = cause.str() if hasattr(cause, "str") else str(cause)
    said = re.sub(r" \(after \d+ms in state [^)]*\)$", "", said)
    return said.strip() or type(error).__name__
