"""A query that writes files of numbers into a job: `FOLDER ADDRESS PARTITIONS HOW`.

HOW is `killed`: the process is killed in the commit of its second batch, after one lane was sealed;
or `failing`: the first attempt of each task fails when it has staged everything, and tasks that are
slow run twice.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from spark_ingest.connector import writing
from spark_ingest.connector.source import Raystream
from spark_ingest.spark.session import spark_session

FOLDER, ADDRESS, PARTITIONS, HOW = Path(sys.argv[1]), *sys.argv[2:5]


class KilledWriter(writing.StreamWriter):
    """Seals one lane of its second batch, and then kills everything."""

    def commit(self, messages: list[Any], batchId: int) -> None:
        if batchId == 1:
            first = min(lane for message in messages for lane in message.parts)
            only = [writing.Attempt(m.name, {first: m.parts[first]}) for m in messages if m.parts]
            writing.seal(self._target, only, batchId)
            os.kill(int((FOLDER / "pid").read_text()), signal.SIGKILL)
            os._exit(1)
        super().commit(messages, batchId)


class FailingWriter(writing.StreamWriter):
    """The first attempt of each task fails at its end."""

    def write(self, iterator: Any) -> Any:
        message = super().write(iterator)
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise RuntimeError("this task fails once")
        return message


class Tried(Raystream):
    """The data source with such writers."""

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        made: Any = super().streamWriter(schema, overwrite)
        kind = KilledWriter if HOW == "killed" else FailingWriter
        return kind(made._target)


def main() -> None:
    (FOLDER / "pid").write_text(str(os.getpid()))
    options = {
        "spark.master": "local[2,3]",  # a task may fail twice
        "spark.default.parallelism": PARTITIONS,
        "spark.sql.shuffle.partitions": PARTITIONS,
        "spark.speculation": "true",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.interval": "10ms",
    }
    with spark_session("tried", options=options) as spark:
        spark.dataSource.register(Tried)
        frame = (
            spark.readStream.schema("n long, text string")
            .option("maxFilesPerTrigger", 1)
            .json(str(FOLDER / "in"))
            .repartition(int(PARTITIONS))
        )
        query = (
            frame.writeStream.format("raystream")
            .option("address", ADDRESS)
            .option("key", "n")
            .option("checkpointLocation", str(FOLDER / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


if __name__ == "__main__":
    main()
