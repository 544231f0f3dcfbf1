"""The settings of clients: what is set here, what users may set, and what is secret.

The names are those of librdkafka (`CONFIGURATION.md` of its sources lists them all).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raystream.errors import ConfigError
from raystream.io.addresses import secret_settings, without_secrets
from raystream.schema.lengths import wait_of

OWN = {
    "bootstrap.servers": "servers=",
    "group.id": "group=",
    "group.instance.id": "nothing: there is no group that divides partitions",
    "transactional.id": "nothing: each range of key groups has one of its own",
    "enable.idempotence": "exactly_once=",
    "enable.auto.commit": "nothing: offsets are committed after checkpoints",
    "enable.auto.offset.store": "nothing: positions belong to the checkpoints",
    "auto.offset.reset": "start=",
    "enable.partition.eof": "nothing",
    "acks": "nothing: a message counts when all replicas in sync have it",
    "error_cb": "nothing: errors end the job, or are waited for",
    "on_delivery": "nothing",
    "stats_cb": "nothing",
    "logger": "logging.getLogger('raystream.kafka')",
}
"""Settings that users do not give, with what they say instead."""

_KEPT_KB = 16 << 10
"""How much a partition may have read ahead, in KiB."""


@dataclass(frozen=True)
class Settings:
    """How to reach a cluster. It is sent to the processes of the job, and shows no secret.

    Attributes:
        servers: `host:port,host:port`.
        given: what the user has set besides.
        wait: for how many seconds a cluster that cannot be reached is tried again.
    """

    servers: str
    given: Mapping[str, Any] = field(repr=False)
    wait: float = 60.0

    def words(self, text: str) -> str:
        """A text of a client without what is secret."""
        return without_secrets(secret_settings(self.given), text)

    def consumer(self, group: str | None) -> dict[str, Any]:
        """The settings of a client that reads."""
        return {
            "queued.max.messages.kbytes": _KEPT_KB,
            # While messages wait to be taken nothing more is fetched, nor for up to 2 ms then. So a
            # partition that gets a few messages each millisecond is not fetched each time, which
            # costs the cluster more than the rest. A partition that is behind comes in large ones.
            # Without the second setting a client that has emptied its queue waits 1 s.
            "queued.min.messages": 1,
            "fetch.queue.backoff.ms": 2,
            "isolation.level": "read_committed",
            **{k: v for k, v in self._shared().items() if k not in _PRODUCERS},
            "group.id": group or "raystream",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }

    def producer(self, id: str | None) -> dict[str, Any]:
        """The settings of a client that writes. id: under which it writes transactions."""
        given = {k: v for k, v in self._shared().items() if k not in _CONSUMERS}
        found = {
            "partitioner": "murmur2_random",  # as Java's clients have it
            "transaction.timeout.ms": 30_000,
            **given,
            "enable.idempotence": True,
        }
        if id is None:
            del found["transaction.timeout.ms"]
            return found
        return {**found, "transactional.id": id}

    def admin(self) -> dict[str, Any]:
        """The settings of a client that looks what is there."""
        return {k: v for k, v in self._shared().items() if k not in _CONSUMERS | _PRODUCERS}

    def _shared(self) -> dict[str, Any]:
        return {"client.id": "raystream", **self.given, "bootstrap.servers": self.servers}


_CONSUMERS = {
    "isolation.level", "queued.max.messages.kbytes", "queued.min.messages",
    "fetch.queue.backoff.ms", "fetch.wait.max.ms", "fetch.min.bytes", "max.poll.interval.ms",
}  # fmt: skip
"""Settings of consumers that a user may give: others warn of them."""
_PRODUCERS = {"partitioner", "transaction.timeout.ms", "compression.type", "linger.ms"}
"""The same of producers."""


def settings_of(call: str, servers: Any, given: Mapping[str, Any] | None, wait: Any) -> Settings:
    """The settings of a user, checked.

    Raises:
        ConfigError: one cannot be.
    """
    many = servers if isinstance(servers, list | tuple) else ()
    listed = servers if isinstance(servers, str) else ",".join(map(str, many))
    if not listed or any(not _SERVER.fullmatch(s.strip()) for s in listed.split(",")):
        shown: Any = "..." if "@" in str(servers) else servers
        raise ConfigError(
            f'{call}(servers={shown!r:.80}): "host:port", or a list of them',
            hint="The port of Kafka is usually 9092. User and password are in settings=.",
        )
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f"{call}(settings=...): a dict of settings of librdkafka")
    for name in given or ():
        if not isinstance(name, str):
            raise ConfigError(f"{call}(settings=...): {name!r:.80} is no name of a setting")
        if name in OWN:
            raise ConfigError(
                f"{call}(settings=...): {name!r} is not set there", hint=f"Use {OWN[name]}."
            )
    seconds = wait_of(call, "wait", wait)
    return Settings(",".join(s.strip() for s in listed.split(",")), dict(given or {}), seconds)


_SERVER = re.compile(
    r"((?i:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?(\[[0-9a-fA-F:.]+\]|[^\s:,/]+):\d{1,5}"
)
