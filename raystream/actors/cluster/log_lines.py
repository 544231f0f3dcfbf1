"""Lines of Python's `logging` say which instance of which job has written them.

All that runs in the process of an instance, also the user's code, logs as it always does. Each log
record gets the attributes `raystream_job`, `raystream_operator` and `raystream_instance`, which any
formatter can show. A process whose root logger has no handler gets one that writes to standard
error, which Ray keeps in its log files.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

FORM = "RAYSTREAM_LOGS"
"""The environment variable that says how lines look: `text` (unless it is set), or `json`."""
TEXT = "%(asctime)s %(levelname)s [%(raystream_job)s %(raystream_instance)s] %(name)s: %(message)s"


class LineWriter(NamedTuple):
    """Who writes the lines of a process."""

    job: str
    """The name of the job."""
    operator: str
    """The name of the operator, source or sink."""
    instance: str
    """The name of the instance, as in `count/1`."""


class JsonLines(logging.Formatter):
    """A line of JSON for each log record: `time` (UTC, ISO 8601), `level`, `logger`, `job`,
    `operator`, `instance`, `message`, and `error` with the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "job": getattr(record, "raystream_job", ""),
            "operator": getattr(record, "raystream_operator", ""),
            "instance": getattr(record, "raystream_instance", ""),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def name_lines(writer_now: Callable[[], LineWriter]) -> None:
    """Have each log record of this process name its writer from now on.

    Args:
        writer_now: says who writes on the thread that calls it.
    """
    made = logging.getLogRecordFactory()

    def named(*args: Any, **more: Any) -> logging.LogRecord:
        record, writer = made(*args, **more), writer_now()
        record.raystream_job, record.raystream_operator = writer.job, writer.operator
        record.raystream_instance = writer.instance
        return record

    logging.setLogRecordFactory(named)
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler()
        json_lines = os.environ.get(FORM, "").lower() == "json"
        unknown = {f"raystream_{name}": "" for name in LineWriter._fields}
        text = logging.Formatter(TEXT, defaults=unknown)  # not all records are made here
        handler.setFormatter(JsonLines() if json_lines else text)
        root.addHandler(handler)
