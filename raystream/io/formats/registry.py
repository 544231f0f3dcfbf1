"""Schema registries, as Confluent's: a message begins with the number of its schema.

0x00, the number as four bytes, [Protobuf: which message of the file], the message
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from raystream.errors import ConfigError, InputError, JobError, caller

MAGIC = 0
_HEAD = struct.Struct(">bI")
FRAME_BYTES = _HEAD.size
"""How many bytes come before the record in a message of Avro."""
_NOT_FOUND = 404
_MISSING = (40401, 40403, _NOT_FOUND)
"""What a registry answers that does not know a schema."""

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
        self._refused = SchemaRegistryError
        try:
            self._client: Any = SchemaRegistryClient.new_client(dict(settings))
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(f"registry=: {error}") from None
        self.schema = lru_cache(maxsize=1024)(self._schema)

    def _schema(self, number: int) -> str:
        """The text of a schema.

        Raises:
            InputError: the registry does not know it. JobError: it cannot be asked.
        """
        try:
            return str(self._client.get_schema(number).schema_str)
        except self._refused as error:
            if error.error_code in _MISSING or error.http_status_code == _NOT_FOUND:
                raise InputError(f"the registry knows no schema {number}") from None
            raise _unreachable(error) from None
        except OSError as error:
            raise _unreachable(error) from None
        except Exception as error:  # of the HTTP library of the client
            raise _unreachable(error) from None

    def number(self, subject: str, text: str, kind: str) -> int:
        """The number of a schema under a subject, where it is registered if it is new.

        Raises:
            ConfigError: the registry refuses it. JobError: it cannot be asked.
        """
        from confluent_kafka.schema_registry import Schema

        if not subject:
            raise ConfigError(
                "a schema is registered under a subject, and none is known here",
                hint='Say it: subject="orders-value".',
            )
        try:
            return int(self._client.register_schema(subject, Schema(text, kind)))
        except self._refused as error:
            raise ConfigError(
                f"the registry refuses the schema of {subject}: {error.error_message}",
                hint="Change the record so that it is compatible, or name another subject=.",
            ) from None
        except Exception as error:
            raise _unreachable(error) from None


def _unreachable(error: Exception) -> JobError:
    return JobError(
        f"the schema registry cannot be asked: {type(error).__name__}: {error}",
        hint="Check its URL and whether it runs.",
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
