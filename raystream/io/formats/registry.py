"""Schema registries, as Confluent's: a message begins with the number of its schema.

0x00, the number as four bytes, [Protobuf: which message of the file], the message
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from raystream.errors import ConfigError, InputError, JobError, caller
from raystream.io.addresses import secret_settings, secrets_in, shown_address, without_secrets

T = TypeVar("T")

MAGIC = 0
_HEAD = struct.Struct(">bI")
FRAME_BYTES = _HEAD.size
"""How many bytes come before the record in a message of Avro."""
ASK_SECONDS = 10
"""How long a registry may take to answer `raystream check`."""

Registry = str | Mapping[str, Any]
"""The URL of a registry, or settings of Confluent's client, such as `basic.auth.user.info`."""
Settings = tuple[tuple[str, Any], ...]


def settings_of(call: str, given: Any) -> Settings:
    """What `registry=` says, as a value.

    Raises:
        ConfigError: it is no URL and no mapping with one.
    """
    found = {"url": given} if isinstance(given, str) else given
    if not isinstance(found, Mapping) or not isinstance(found.get("url"), str):
        raise ConfigError(
            f"{call}(registry=...) is neither a URL nor a mapping with one under 'url'",
            where=caller()[0],
            hint=f'{call}(registry="http://127.0.0.1:8081")',
        )
    return tuple(sorted(found.items()))


class SchemaRegistry:
    """A registry, as one thread asks it.

    Raises:
        ConfigError: the package is not installed, or a setting is none.
    """

    def __init__(self, settings: Settings) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
            from confluent_kafka.schema_registry.error import SchemaRegistryError
        except ImportError as error:
            raise ConfigError(
                "A schema registry needs confluent-kafka and what its client imports.",
                hint="pip install 'raystream[registry]'",
            ) from error
        given = dict(settings)
        self._settings, self._answered = settings, SchemaRegistryError
        self._secrets = [*secrets_in(given["url"]), *secret_settings(given)]
        self._name = f"the schema registry at {shown_address(given['url'])}"
        try:
            self._client: Any = SchemaRegistryClient.new_client(given)
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise ConfigError(
                f"registry=: {without_secrets(self._secrets, str(error))}",
                hint="Names and values are those of Confluent's client for Python.",
            ) from None
        self.schema = lru_cache(maxsize=1024)(self._schema)

    def _schema(self, number: int) -> str:
        """The text of a schema.

        Raises:
            InputError: the registry does not know it. JobError: it cannot be asked.
        """
        found = self._asked(lambda: self._client.get_schema(number))
        if found is None:
            raise InputError(f"the registry knows no schema {number}")
        return str(found.schema_str)

    def number(self, subject: str, text: str, kind: str) -> int:
        """The number of a schema under a subject, where it is registered if it is new.

        Raises:
            ConfigError: the registry refuses it. JobError: it cannot be asked.
        """
        from confluent_kafka.schema_registry import Schema

        _check_subject(subject)
        schema = Schema(text, kind)
        try:
            return int(self._client.register_schema(subject, schema))
        except Exception as error:
            if isinstance(error, self._answered) and error.http_status_code in _UNFIT:
                raise _incompatible(subject, error.error_message) from None
            raise self._failed(error) from None

    def look(self, subject: str, kind: str, text: str | None = None) -> str:
        """See what is there under a subject, in a few words; nothing is changed.

        Args:
            kind: of the schema. text: the schema with which messages are to be written; None: they
                are only read.

        Raises:
            InputError: there is no such subject, or one of another kind.
            ConfigError: messages cannot be written under it. JobError: the registry cannot be
                asked.
        """
        once = {"max.retries": 0, "timeout": ASK_SECONDS, **dict(self._settings)}
        return SchemaRegistry(tuple(once.items()))._looked(subject, kind, text)

    def _looked(self, subject: str, kind: str, text: str | None) -> str:
        if text is not None:
            _check_subject(subject)
        if not subject:  # messages name their schemas by number
            self._asked(lambda: self._client.get_subjects(limit=1))
            return f"{self._name} answers"
        newest = self._asked(lambda: self._client.get_latest_version(subject))
        if newest is None:
            if text is None:
                raise InputError(
                    f"{self._name} has no subject {subject}",
                    hint="subject= names another one. It is made when a first message is written.",
                )
            return f"{self._name} has no subject {subject} yet: the first message makes it"
        if (other := newest.schema.schema_type or "AVRO") != kind:
            raise InputError(
                f"{self._name} has schemas of {other} under {subject}, and not of {kind}",
                hint="Use another one of rs.io.formats, or name another subject=.",
            )
        found = f"{self._name} has {subject} in version {newest.version}"
        return found if text is None else found + self._fitting(subject, kind, text)

    def _fitting(self, subject: str, kind: str, text: str) -> str:
        """How messages are written with a schema, where there are others."""
        from confluent_kafka.schema_registry import Schema

        schema = Schema(text, kind)
        same = self._asked(lambda: self._client.lookup_schema(subject, schema))
        if same is not None:
            return f", and version {same.version} is written"
        if self._asked(lambda: self._client.test_compatibility(subject, schema)):
            return ", and the first message makes a new one"
        raise _incompatible(subject, "it is not compatible")

    def _asked(self, ask: Callable[[], T]) -> T | None:
        """What the registry answers; None if it does not have that.

        Raises:
            JobError: it cannot be asked.
        """
        try:
            return ask()
        except Exception as error:  # also of the HTTP library of the client
            if isinstance(error, self._answered) and error.error_code in _MISSING:
                return None
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> JobError:
        """The error of a registry that cannot be asked."""
        is_answer = isinstance(error, self._answered)
        status = error.http_status_code if is_answer else None  # type: ignore[attr-defined]
        if status in (401, 403):
            return JobError(
                f"{self._name} does not let this user in: HTTP status {status}",
                hint='Look at user and password, "basic.auth.user.info" in registry=, and at the'
                " rights there.",
            )
        if isinstance(error, ValueError) or (status is not None and 300 <= status < 500):
            said = "no JSON" if status is None else f"HTTP status {status}"
            return JobError(
                f"{self._name} does not answer as one: {said}",
                hint="Check the URL, with its path: there may be something else at that port.",
            )
        said = without_secrets(self._secrets, str(error))
        said = said if is_answer else f"{type(error).__name__}: {said}"
        return JobError(
            f"{self._name} cannot be asked: {said}",
            hint="Does it run, and is this its URL as seen from the machines of the job?",
        )


_MISSING = range(40400, 40500)
"""What a registry answers that does not have a subject, a version or a schema."""
_UNFIT = (409, 422)
"""The HTTP status of a registry that does not take a schema."""


def _check_subject(subject: str) -> None:
    if not subject:
        raise ConfigError(
            "a schema is registered under a subject, and none is known here",
            hint='Say it: subject="orders-value".',
        )


def _incompatible(subject: str, said: str) -> ConfigError:
    return ConfigError(
        f"the registry refuses the schema of {subject}: {said}",
        hint="Change the record so that it is compatible, or name another subject=.",
    )


def framed(number: int, message: bytes, indexes: bytes = b"") -> bytes:
    """A message behind the number of its schema."""
    return _HEAD.pack(MAGIC, number) + indexes + message


def unframed(message: bytes) -> tuple[int, bytes]:
    """The number of the schema of a message, and the rest of it.

    Raises:
        InputError: it has none.
    """
    if len(message) < _HEAD.size or message[0] != MAGIC:
        raise InputError("it does not begin with the number of a schema")
    return _HEAD.unpack_from(message)[1], message[_HEAD.size :]
