"""Strikes while records go from one topic to another: the broker, and processes of the job.

The job has to go on as if nothing had happened: each record once for readers of what is committed,
and no transaction left open.
"""

from __future__ import annotations

import random
import sys
import threading
from collections import deque
from collections.abc import Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from benchmarks.kafka.server import KafkaServer

FAMILIES = ("kill", "stop", "controller", "keeper", "pair")
"""Of `benchmarks.chaos.faults`: those of one node."""


class BrokerStrikes(threading.Thread):
    """Kills a server and starts it again, from when the job runs.

    Args:
        seconds: between two kills. began: is set when the job runs.
    """

    def __init__(self, server: KafkaServer, seconds: float, began: threading.Event) -> None:
        super().__init__(name="strike", daemon=True)
        self._server, self._seconds, self._began = server, seconds, began
        self._over = threading.Event()
        self.kills = 0
        self.start()

    def run(self) -> None:
        self._began.wait()
        while not self._over.wait(self._seconds):
            self._server.stop()
            self.kills += 1
            self._server.start()

    def stop(self) -> None:
        """Strike no more; the server is there when this returns."""
        self._over.set()
        self._began.set()
        self.join()


class ProcessStrikes:
    """Kills processes of a job on one node, or lets them sleep, while it is told of the job's
    progress.

    Args:
        chain: names of the job's nodes along the flow. seconds: between two strikes, on average.
        began: is set when the job runs; there are no strikes before.
    """

    def __init__(
        self, chain: Sequence[str], seconds: float, began: threading.Event, seed: int
    ) -> None:
        from benchmarks.chaos.faults import Monkey, kinds_of

        self._began = began
        one_node: Any = SimpleNamespace(head=0, home=0, head_is_away=False)
        kinds = kinds_of(FAMILIES, [chain])
        self._monkey = Monkey(
            random.Random(seed), one_node, [chain], seconds, 1, deque(), kinds,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )  # fmt: skip

    def __call__(self, sample: Any) -> None:
        if self._began.is_set():
            self._monkey(sample)

    @property
    def made(self) -> int:
        """How many strikes there were."""
        return len(self._monkey.strikes)

    def stop(self) -> None:
        """Wake all that sleep."""
        self._monkey.close()


def open_partitions(servers: str) -> int:
    """How many partitions of all topics have a transaction that is neither committed nor undone."""
    admin: Any = import_module("confluent_kafka.admin")
    made: Any = import_module("confluent_kafka")
    client = admin.AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topics = client.list_topics(timeout=30).topics
    latest = admin.OffsetSpec.latest()
    asked = {
        made.TopicPartition(name, n): latest
        for name, topic in topics.items()
        if not name.startswith("__")
        for n in topic.partitions
    }
    ends = []
    for level in (made.IsolationLevel.READ_UNCOMMITTED, made.IsolationLevel.READ_COMMITTED):
        answers = client.list_offsets(asked, isolation_level=level, request_timeout=30)
        ends.append({(p.topic, p.partition): a.result(30).offset for p, a in answers.items()})
    return sum(ends[1][where] < end for where, end in ends[0].items())
