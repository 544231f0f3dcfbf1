"""Counts by key from the topic events to counts; what Bytewax has is at least once.

Arguments: servers, ms between snapshots, a folder for them.
"""

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

servers, ms, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
flow = Dataflow("kafka")
source = KafkaSource([servers], ["events"], add_config={"fetch.wait.max.ms": "10"})
events = op.input("events", flow, source)


def keyed(message: Any) -> tuple[str, int]:
    value = json.loads(message.value)
    return str(value["key"]), value["sent"]


def count(n: int | None, sent: int) -> tuple[int, tuple[int, int]]:
    n = (n or 0) + 1
    return n, (n, sent)


def told(pair: tuple[str, tuple[int, int]]) -> Any:
    key, (n, sent) = pair
    return KafkaSinkMessage(key.encode(), json.dumps({"n": n, "sent": sent}).encode())


stream = op.stateful_map("count", op.map("keyed", events, keyed), count)
op.output("counts", op.map("told", stream, told), KafkaSink([servers], "counts"))
init_db_dir(folder, 1)
recovery = RecoveryConfig(str(folder))
cli_main(flow, epoch_interval=timedelta(milliseconds=ms), recovery_config=recovery)
