"""python -m benchmarks.kafka.produce SERVERS RATE TOTAL PARTITIONS: records at a pace.

A record is handed to the client when it is due, and says when that was. The client waits up to 5 ms
for others before it sends it, as all clients of Kafka do unless they are told otherwise.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Producer


def main(servers: str, rate: int, total: int, partitions: int, keys: int) -> None:
    """Send `total` records, as many to each partition."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 0, "enable.idempotence": True})
    began, sent = time.time(), 0
    while sent < total:
        due = min(total, int((time.time() - began) * rate))
        for n in range(sent, due):
            at = int((began + n / rate) * 1e6)
            key = n * 7919 % keys  # as many partitions divide the keys, so each has keys of its own
            value = b'{"key": %d, "sent": %d}' % (key, at)
            producer.produce("events", value, key=str(key), partition=n % partitions)
        sent = max(sent, due)
        producer.poll(0)
        time.sleep(0.001)
    producer.flush(60)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
