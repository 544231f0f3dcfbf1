"""`OperatorHarness`: send records to one operator, move time, look at what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from raystream.api.arguments import check_flag, whole
from raystream.api.epochs import UNITS
from raystream.api.row_shapes import shape_of
from raystream.errors import GraphError, OperatorError, RaystreamError, StateError, placed
from raystream.schema.types import BEFORE_ALL, MAX_KEY_GROUPS, NEVER
from raystream.state.keys import even_ranges
from raystream.state.tables.object_table import ObjectTable
from raystream.testing.bench import Bench


class OperatorHarness:
    """Drives an operator with the machine that runs it in a job.

    Args:
        op: the operator, as it would be given to `through`.
        key_groups: of the job.
        instances: among how many instances the keys are spread; it changes nothing.
        compiled: whether to compile it; as it is declared unless given.
        time_unit: of event time, as of a flow.

    `output` and `late` hold all records so far, in canonical order within each `send`.

    Example:
        >>> harness = OperatorHarness(CountWords())
        >>> harness.send(Word(3, "to"), Word(29, "to"))
        >>> harness.advance_watermark(30)
        >>> harness.output
        [Counted(word='to', start=0, n=2)]
    """

    @placed
    def __init__(
        self,
        op: Any,
        *,
        key_groups: int = 256,
        instances: int = 1,
        compiled: bool | None = None,
        time_unit: Literal["s", "ms", "us", "ns"] = "s",
    ) -> None:
        key_groups = whole("OperatorHarness", "key_groups", key_groups, 1, MAX_KEY_GROUPS)
        instances = whole("OperatorHarness", "instances", instances, 1, key_groups)
        if not isinstance(time_unit, str) or time_unit not in UNITS:
            raise GraphError(f"time_unit={time_unit!r:.80}: one of {', '.join(UNITS)}")
        if compiled is not None:
            check_flag("OperatorHarness", "compiled", compiled)
        self._bench = Bench(
            op,
            key_groups=key_groups,
            ranges=even_ranges(key_groups, instances),
            compiled=compiled,
            time_unit=time_unit,
        )
        self.watermark = BEFORE_ALL
        self.ended = self._failed = False
        self.output: list[Any] = []
        self.late: list[Any] = []

    @placed
    def send(self, *records: Any) -> list[Any]:
        """Hand over records, which together are an epoch; returns what is emitted.

        Raises:
            OperatorError: the operator raised; it names your line. StateError: a value does not fit
            its field.
        """
        return self._epoch(records, self.watermark)

    @placed
    def advance_watermark(self, time: int) -> list[Any]:
        """No record with a lesser time will come: windows that end by then close, timers that are
        due are called. Returns what is emitted."""
        time = whole("advance_watermark", "time", time, BEFORE_ALL, NEVER)
        if time < self.watermark:
            raise GraphError(f"the watermark is {self.watermark}: it never falls, here to {time}")
        return self._epoch((), time)

    def end(self) -> list[Any]:
        """The end of all input: what is open closes, what is due is called. Returns what is
        emitted."""
        return self._epoch((), NEVER, ended=True)

    @placed
    def restart(self, *, instances: int = 1) -> None:
        """Checkpoint the operator and go on with new instances made from the stored form."""
        groups = self._bench.key_groups
        instances = whole("restart", "instances", instances, 1, groups)
        self._bench.move(even_ranges(groups, instances))

    @property
    def state(self) -> dict[Any, Any]:
        """The rows by key (by (key, window start) for windows), as a restore would make them.

        Rows of compiled and batch operators are shown as objects, too.
        """
        shape = shape_of(self._bench.spec)
        if shape is None:
            return {}
        table = ObjectTable(shape, self._bench.key_groups)
        table.fill([[self._bench.image()]])
        return table.rows

    def _epoch(self, records: Sequence[Any], watermark: int, *, ended: bool = False) -> list[Any]:
        if any(isinstance(record, type) for record in records):
            raise GraphError("send() takes records, and was given a class")
        if self.ended:
            raise RaystreamError("the harness was ended: make a new one")
        if self._failed:  # amid an epoch, as a job would have
            raise RaystreamError("the harness stopped at an error: make a new one")
        try:
            emitted = self._bench.epoch(records, [0] * len(records), watermark, ended=ended)
        except (OperatorError, StateError):
            self._failed = True
            raise
        self.watermark, self.ended = watermark, ended
        self.output += emitted.records
        self.late += emitted.late
        return emitted.records
