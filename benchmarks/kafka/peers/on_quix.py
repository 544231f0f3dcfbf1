"""Counts by key from the topic events to counts, exactly once.

Arguments: servers, ms between commits, a folder for state.
"""

import sys
from typing import Any

from quixstreams import Application

servers, ms, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
app = Application(
    broker_address=servers,
    consumer_group="quix",
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=ms / 1000,
    state_dir=folder,
)


def count(value: Any, key: Any, timestamp: Any, headers: Any, state: Any) -> dict[str, int]:
    n = state.get("n", 0) + 1
    state.set("n", n)
    return {"n": n, "sent": value["sent"]}


events = app.topic("events", value_deserializer="json", key_deserializer="str")
counts = app.topic("counts", value_serializer="json", key_serializer="str")
stream = app.dataframe(events).apply(count, stateful=True, metadata=True)
stream.to_topic(counts)
app.run()
