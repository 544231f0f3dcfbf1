"""Runs a Spark job while telling how far it is, and turns its failure into one clear message."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from raystream.errors import JobError
from spark_ingest.progress import Progress

Result = TypeVar("Result")

_LOOK_EVERY_SECONDS = 0.2
_CANCEL_SECONDS_MAX = 10


def run(spark: SparkSession, step: str, job: Callable[[], Result], progress: Progress) -> Result:
    """The result of `job()`, which runs Spark actions. Raises `JobError` if Spark gives up."""
    outcome: list[Result] = []
    failure: list[BaseException] = []

    def work() -> None:
        spark.sparkContext.setJobGroup(step, step, interruptOnCancel=True)
        try:
            outcome.append(job())
        except BaseException as error:  # handed on to the caller's thread
            failure.append(error)

    thread = InheritableThread(target=work, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            progress(step, *_tasks(spark, step))
            thread.join(_LOOK_EVERY_SECONDS)
    except BaseException:
        spark.sparkContext.cancelJobGroup(step)
        thread.join(_CANCEL_SECONDS_MAX)  # so that no task writes after its caller has cleaned up
        raise
    if failure:
        raise _explained(step, failure[0])
    progress(step, 1, 1)
    return outcome[0]


def _tasks(spark: SparkSession, group: str) -> tuple[int, int]:
    """Tasks that are done, and tasks known so far, of a job group."""
    tracker = spark.sparkContext.statusTracker()
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage_id in info.stageIds if info else ():
            stage = tracker.getStageInfo(stage_id)
            if stage:
                done += stage.numCompletedTasks
                total += stage.numTasks
    return done, total


def _explained(step: str, error: BaseException) -> BaseException:
    if not isinstance(error, (PySparkException, Py4JError)):
        return error
    told = [line.strip() for line in str(error).splitlines() if line.strip()]
    # A worker's traceback is in the message; the line before the Java part says what happened.
    python = [line for line in told if "Error: " in line or "Exception: " in line]
    failed = JobError(f"Spark failed while {step}: {(python or told or ['?'])[-1]}")
    failed.__cause__ = error
    return failed
