"""What a call of the user's code gave, and what becomes of its failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import Context, copy_context
from inspect import isgenerator
from typing import Any

from raystream.api.operators import OperatorSpec
from raystream.api.world.context import UNDER_WAY, CallUnderWay
from raystream.dataflow.asking.questions import Question
from raystream.dataflow.logic.failures import Attempts
from raystream.errors import OperatorError, operator_error
from raystream.schema.fields import is_record
from raystream.schema.storing import from_records

Emitted = list[Any]
"""The records that a question brought."""


class WorldCalls:
    """The calls of one operator.

    Args:
        name: of its vertex, which no other one of the job has.
        run: the name of the run.
        now: the clock, in Unix seconds. random: draws from 0 up to 1.
    """

    def __init__(
        self,
        spec: OperatorSpec,
        name: str,
        run: str,
        now: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        assert spec.asking is not None
        self.spec, self.asking = spec, spec.asking
        self._name, self._run = name, run
        self._now, self._random = now, random
        self._known = {schema.cls: schema for schema in spec.outputs}
        self._failures = Attempts(spec, None)

    def id_of(self, question: Question) -> str:
        """The id of the request of a question."""
        at = f"{question.epoch}.{question.group}.{question.number}"
        return f"{self._run}/{self._name}/{at}"

    def context(self, questions: Sequence[Question]) -> Context:
        """The context in which the user's code is called."""
        request = CallUnderWay(tuple(map(self.id_of, questions)), self._now, self._random)
        context = copy_context()
        context.run(UNDER_WAY.set, request)
        return context

    def begin(self, questions: Sequence[Question]) -> Any:
        """Call the user's code, in the context of the call; an `async def` does not run by that."""
        given = [q.record for q in questions]
        result = self.spec.process(given if self.asking.batch else given[0])
        return list(result) if isgenerator(result) else result

    def emitted(self, questions: Sequence[Question], result: Any) -> list[Emitted]:
        """What a call brought, by question.

        Args:
            result: what the user's code returned, or all that it yielded.

        Raises:
            OperatorError: it is not what the annotation says.
        """
        if not self.asking.batch:
            return [self._records(questions[0], result)]
        if not isinstance(result, list) or len(result) != len(questions):
            many = f"{len(result)} answers" if isinstance(result, list) else f"{result!r:.80}"
            raise self._wrong(
                questions[0],
                f"returned {many} for {len(questions)} records",
                "With batch= it returns a list with an answer for each record; None is none.",
            )
        return [self._records(q, one) for q, one in zip(questions, result, strict=True)]

    def _records(self, question: Question, result: Any) -> Emitted:
        """The records of one answer: a record, None, or several."""
        if result is None:
            return []
        one = is_record(type(result)) or not isinstance(result, Iterable)
        found = [result] if one else list(result)
        for record in found:
            schema = self._known.get(type(record))
            if schema is None:
                names = " | ".join(s.name for s in self.spec.outputs) or "nothing"
                raise self._wrong(
                    question,
                    f"answered with a {type(record).__name__}, which its annotation does not name",
                    f"It declares {names}.",
                )
            from_records(schema, [record])  # what does not fit is refused before it is recorded
        return found

    def _wrong(self, question: Question, what: str, hint: str) -> OperatorError:
        return OperatorError(
            f"{self.spec.name} {what}",
            where=self.spec.where,
            hint=f"{hint}\n  at epoch {question.epoch}",
        )

    def failed(self, questions: Sequence[Question], error: Exception) -> list[Emitted]:
        """What the questions of a call bring that has failed for the last time.

        Raises:
            OperatorError: that ends the job, unless the operator has `on_error="stream"`.
        """
        if self.spec.on_error == "stream":
            return [[self._failures.of_record(q.record, q.key)(error)] for q in questions]
        if isinstance(error, OperatorError):
            raise error
        first, more = questions[0], len(questions) - 1
        doing = f"record {first.number} of key group {first.group}"
        raise operator_error(
            self.spec,
            error,
            epoch=first.epoch,
            key=first.key,
            doing=doing + (f" and {more} more" if more else ""),
        ) from error
