"""The example that joins two topics of Kafka into a table of PostgreSQL."""

from __future__ import annotations

import importlib
import json

from tests.kafka_server import Kafka
from tests.servers import Postgres


def test_each_customer_has_one_row(kafka: Kafka, postgres_server: Postgres) -> None:
    example = importlib.import_module("examples.pipelines.kafka_to_postgres")
    kafka.topic("payments", 2)
    kafka.topic("customers", cleanup_policy="compact")
    for n in range(12):
        value = json.dumps({"customer": n % 3, "cents": 100 + n}).encode()
        kafka.produce("payments", value, partition=n % 2)
    for number, name in [(0, "ann"), (1, "bob")]:
        kafka.produce("customers", json.dumps({"name": name}).encode(), key=str(number).encode())
    try:
        example.join(kafka.servers, postgres_server.url, "latest").run()
        found = postgres_server.query("SELECT customer, name, payments, cents FROM spent")
    finally:
        postgres_server.query(
            "DROP TABLE IF EXISTS spent, raystream_runs, raystream_markers, raystream_staged"
        )
    assert sorted(found) == [(0, "ann", 4, 400 + 18), (1, "bob", 4, 400 + 22)]
