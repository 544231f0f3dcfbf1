"""The text of an operator's driver: the loops that find rows and call the user's functions.

`process` walks the records of an epoch, `fire` the rows that are due. Both stop, before anything of
a call has been kept, when the table, the list of removals, the room for rows put aside or an output
buffer is full, say so, and go on from there when called again. For that, and for errors in user
code, a copy of the row is made before each call; it costs nothing that can be measured beside the
access to the row itself.

Progress is kept in `run` (int64, see the names below), the state of the outputs in `control`, one
structured row (see `control_dtype`). Nothing here is a Python object; the GIL is released.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np

from raystream.api.operators import OperatorSpec
from raystream.api.windows.assigner import Assigner
from raystream.compiled.window_text import each_window, end_of_window, newest_window
from raystream.schema.columns import column_index, physical
from raystream.schema.records import RecordSchema
from raystream.schema.types import FAR

RECORD, GROUP, EPOCH, WATERMARK, INDIRECT, SLOT, START, RESUMED, LATE = range(9)
UPTO, RINGING, LAST, RUN = range(9, 13)
"""Entries of `run`: the record (or due row) that is being processed and its group, where to resume;
the epoch and watermark; whether `where` is given; the row that was handed out and the start of its
window; whether the call resumes inside a record; how many records were late; up to which time
alarms ring among records; whether one does now; whether it is the last epoch of the input."""

AHEAD = 64
"""Records whose rows are fetched into the cache before they are processed; their entries of the
index are, as many records earlier. A power of two."""

HOMES = 2 * AHEAD
"""How many places in the index are remembered, round and round."""

FIRE_AHEAD = 12
"""Due rows, likewise."""

DONE, FULL_TABLE, FULL_OUTPUT, FULL_REMOVALS, FULL_ASIDE, FAR_TIME, NO_LATER = range(7)
"""What a driver returns. The last two: a record's time is so far off that a window's end overflows;
a timer was set again to no later time than it rang for."""


@dataclass(frozen=True, slots=True)
class DriverShape:
    """What the text of a driver depends on."""

    spec: OperatorSpec
    parameters: tuple[str, ...]
    """The names of the fields of the operator's dataclass."""
    forgets: bool
    """Whether the user's functions call `rs.forget`."""
    windows: Assigner | None = None
    """Which windows hold a time; None without windows."""

    @property
    def size(self) -> int:
        """The length of a window in time units of the flow; 0 without windows, and for months."""
        return 0 if self.windows is None else self.windows.size

    @property
    def every(self) -> int:
        """How many time units after each other windows begin; 0 likewise."""
        return 0 if self.windows is None else self.windows.every

    @property
    def calendar(self) -> bool:
        """Whether windows follow the clocks of a zone or months: their lengths differ, and the
        driver is given a `Calendar`."""
        return self.windows is not None and not self.windows.even

    @property
    def ranked(self) -> bool:
        """Whether rows carry the running number of their emission."""
        return len(self.spec.outputs) > 1

    @property
    def origins(self) -> bool:
        """Whether rows carry the number of the record that emitted them."""
        return not self.spec.key

    @property
    def stateful(self) -> bool:
        return self.spec.state is not None


def stored(shape: DriverShape, schema: RecordSchema) -> list[tuple[str, str]]:
    """(name in `control`, dtype) of each column that is written for an output type."""
    t = shape.spec.outputs.index(schema)
    columns = [(f"a{t}_{j}", dtype) for j, (_, _, dtype) in enumerate(physical(schema))]
    return columns + [(f"r{t}", "i8")] * shape.ranked + [(f"o{t}", "i8")] * shape.origins


def control_dtype(shape: DriverShape) -> np.dtype[np.void]:
    """Per output type: rows emitted `n`, room `cap`, rows that there should have been room for
    `need`, the address of each column; and the number of the record, `at`."""
    fields = [("at", "i8")]
    for t, schema in enumerate(shape.spec.outputs):
        fields += [(f"n{t}", "i8"), (f"cap{t}", "i8"), (f"need{t}", "i8")]
        fields += [(name, "i8") for name, _ in stored(shape, schema)]
    return np.dtype(fields)


class Text:
    """Lines with indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def __call__(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self(head)
        self.depth += 1
        yield
        self.depth -= 1

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


def driver_text(shape: DriverShape) -> str:
    """The module that holds `emit_<t>`, `process` and `fire`."""
    text = Text()
    text(
        f'"""The driver of {shape.spec.name}: generated by raystream."""', "import numpy as np", ""
    )
    for t, schema in enumerate(shape.spec.outputs):
        _emit(text, shape, t, schema)
    _Driver(text, shape).process()
    if shape.spec.close is not None or shape.spec.timer is not None:
        _Driver(text, shape).fire()
    return str(text)


def _emit(text: Text, shape: DriverShape, t: int, schema: RecordSchema) -> None:
    values = []
    with text.block(f"def emit_{t}(out, x):"):
        text(f"at = out.n{t}")
        for j, f in enumerate(schema.fields):
            if f.optional:
                text(f"v{j} = fit_{t}_{j}(or_zero(x.{f.name}))", f"k{j} = is_there(x.{f.name})")
                values += [f"v{j}", f"k{j}"]
            else:
                text(f"v{j} = fit_{t}_{j}(x.{f.name})")
                values.append(f"v{j}")
        if shape.ranked:
            values.append(" + ".join(f"out.n{u}" for u in range(len(shape.spec.outputs))))
        if shape.origins:
            values.append("out.at")
        with text.block(f"if at < out.cap{t}:"):
            for (name, dtype), value in zip(stored(shape, schema), values, strict=True):
                text(f"put_{'b' if dtype == '?' else dtype}(out.{name}, at, {value})")
        text(f"out.n{t} = at + 1")
    text("", "")


class _Driver:
    def __init__(self, text: Text, shape: DriverShape) -> None:
        self.text = text
        self.shape = shape
        self.spec = shape.spec
        self.outputs = range(len(shape.spec.outputs))

    def _head(self, name: str, *arguments: str) -> str:
        table = ["rows", "index", "meta", "alarms", "defaults", "gone", "aside", "saved", "homes"]
        names = ["run", "offsets", "ends", "control", *arguments]
        names += table if self.shape.stateful else []
        names += ["calendar"] if self.shape.calendar else []
        names += ["parameters"] if self.shape.parameters else []
        return f"def {name}({', '.join(names)}):"

    def _begin(self) -> None:
        fields = ", ".join(f"parameters[0].{p}" for p in self.shape.parameters)
        self.text(
            "out = control[0]",
            f"record, group, epoch = run[{RECORD}], run[{GROUP}], run[{EPOCH}]",
            f"own = Parameters({fields})" if fields else "own = 0",
        )

    @contextmanager
    def _loops(self) -> Iterator[None]:
        """Over key groups and their records (or due rows)."""
        text = self.text
        with text.block("while group < len(offsets) - 1:"):
            with text.block("while record < offsets[group + 1]:"):
                text(f"run[{RECORD}] = record")
                yield
                text("record += 1")
            text("group += 1", *(f"ends[{t}, group] = out.n{t}" for t in self.outputs))
        text(f"return {DONE}")

    # ------------------------------------------------------------ records

    def process(self) -> None:
        """The loop over records."""
        text, spec, shape = self.text, self.spec, self.shape
        columns = [
            f"c{t}_{j}"
            for t, schema in enumerate(spec.inputs)
            for j in range(len(physical(schema)))
        ]
        which = ["which"] if len(spec.inputs) > 1 else []
        late = ["late"] if spec.window is not None else []
        with text.block(self._head("process", *which, "where", *late, *columns)):
            self._begin()
            text(f"indirect = run[{INDIRECT}] == 1")
            if shape.stateful:
                text("located = fetched = record", "entries = index.entries")
            if spec.window is not None:
                text(
                    f"watermark, resumed = run[{WATERMARK}], run[{RESUMED}] == 1",
                    f"run[{RESUMED}] = 0",
                )
            if spec.rings_by is not None:
                text(f"upto, run[{RINGING}] = run[{UPTO}], 0")
            with self._loops():
                if shape.stateful:
                    self._fetch_ahead()
                self._locate("record")
                if shape.origins:
                    text("out.at = record")
                if not shape.stateful:
                    self._before_call()
                    self._each_type(self._call_process)
                    self._after_call()
                elif spec.window is not None:
                    self._windows()
                else:
                    text(f"home = homes[record & {HOMES - 1}]")
                    self._row()
        text("", "")

    def _locate(self, record: str) -> None:
        """Where a record is; its key; the newest window that holds it."""
        text = self.text
        text(f"at = where[{record}] if indirect else {record}")
        if len(self.spec.inputs) > 1:
            text(f"kind = which[{record}]")
        if not self.shape.stateful:
            return
        self._each_type(lambda t: text(f"key = {self._key(t)}"))
        if self.spec.window is not None:
            self._each_type(lambda t: text(f"time = {self._integer(t, self.spec.time)}"))
            with text.block(f"if time > {FAR} or time < -{FAR}:"):
                text(f"run[{RECORD}] = {record}", f"return {FAR_TIME}")
            text("user_key = key", *newest_window(self.shape))

    def _fetch_ahead(self) -> None:
        """Two misses of the cache per record (index, row) would take longer than all the rest."""
        text = self.text
        with text.block("if record >= fetched:"):
            text(f"fetched = min(record + {AHEAD}, offsets[-1])")
            with text.block(f"for ahead in range(located, min(record + {HOMES}, offsets[-1])):"):
                self._locate("ahead")
                text(
                    "home = home_of(key, index)",
                    f"homes[ahead & {HOMES - 1}] = home",
                    "prefetch(entries, home)",
                )
            text(f"located = record + {HOMES}")
            with text.block("for ahead in range(record, fetched):"):
                text(f"slot = np.int64(entries[homes[ahead & {HOMES - 1}]])")
                text("if slot >= 0:", "    prefetch(rows, slot)")

    def _each_type(self, write: object) -> None:
        assert callable(write)
        for t in range(len(self.spec.inputs)):
            if len(self.spec.inputs) == 1:
                write(t)
            else:
                last = t == len(self.spec.inputs) - 1
                with self.text.block("else:" if last else f"{'elif' if t else 'if'} kind == {t}:"):
                    write(t)

    def _key(self, t: int) -> str:
        return "(" + "".join(f"{self._integer(t, k)}, " for k in self.spec.key) + ")"

    def _integer(self, t: int, name: str) -> str:
        return f"np.int64(c{t}_{column_index(self.spec.inputs[t])[name]}[at])"

    def _windows(self) -> None:
        own = f"homes[record & {HOMES - 1}]"
        each_window(self.text, self.shape, self._row, start=START, late=LATE, home=own)

    def _row(self) -> None:
        """Find the row of `key` and call the user's function with it."""
        text, rings_by = self.text, self.spec.rings_by
        self._find()
        if rings_by is not None:
            self._each_type(lambda t: text(f"latest = min({self._integer(t, rings_by)}, upto)"))
            self._ring_before()
        if self.spec.window is not None:
            text(f"set_alarm(alarms, meta, slot, {end_of_window(self.shape)})")
        self._before_call()
        self._each_type(self._call_process)
        self._after_call()

    def _find(self) -> None:
        text = self.text
        text("slot = find_or_insert(rows, index, meta, key, epoch, home)")
        with text.block("if slot < 0:"):
            self._stop(FULL_TABLE)

    def _ring_before(self) -> None:
        """Ring the alarm of the record's key if it is due before the record, and come back to the
        record. Each ring writes the row's next alarm, so a call that stops in between goes on with
        those that are left. A ring may forget the row, so it is found again."""
        assert self.spec.state is not None
        with self.text.block(f"if rows[slot].{self.spec.state.timer} <= latest:"):
            self.text(f"run[{RINGING}] = 1")
            self._before_call()
            self._ring()
            self.text(f"run[{RINGING}] = 0", "continue")

    def _ring(self) -> None:
        """Call `timer` with the row that was handed out."""
        assert self.spec.state is not None
        timer = self.spec.state.timer
        self.text(f"whose = {self._key_of_row()}", f"rung = row.{timer}", f"row.{timer} = NEVER")
        self._call("timer", "whose", "rung", "row", *self._told())
        self._after_call(rings=True)

    def _told(self) -> list[str]:
        """What `close` or `timer` is told beside: in compiled code only `last`."""
        return [f"run[{LAST}] == 1" for _ in self.spec.told]

    def _key_of_row(self) -> str:
        """The key of the row that was handed out, as the user's functions get it."""
        parts = []
        for j, name in enumerate(self.spec.key):
            f = self.spec.inputs[0].field(name)
            parts.append(f"row._key[{j}]" + (" != 0" if f is not None and f.dtype == "?" else ""))
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"

    def _call_process(self, t: int) -> None:
        values = []
        for f in self.spec.inputs[t].fields:
            at = column_index(self.spec.inputs[t])[f.name]
            wide = {"i": "np.int64", "f": "np.float64", "b": ""}[np.dtype(f.dtype).kind]
            value = f"{wide}(c{t}_{at}[at])"
            values.append(f"maybe(c{t}_{at + 1}[at], {value})" if f.optional else value)
        self._call(
            f"process_{t}",
            f"Record_{t}({', '.join(values)})",
            *(["row"] if self.shape.stateful else []),
        )

    # ------------------------------------------------------------ due rows

    def fire(self) -> None:
        """The loop over rows that are due, in the order of `slots`."""
        text, spec, shape = self.text, self.spec, self.shape
        k = len(spec.key)
        with text.block(self._head("fire", "slots")):
            self._begin()
            with self._loops():
                text(
                    "slot = slots[record]",
                    f"if record + {FIRE_AHEAD} < len(slots):",
                    f"    prefetch(rows, slots[record + {FIRE_AHEAD}])",
                )
                self._before_call(closes=spec.window is not None)
                if spec.window is not None:
                    text(f"start = row._key[{k}]")
                    text(*["end = end_of(start, calendar)"] * shape.calendar)
                    key, window = self._key_of_row(), f"Window(start, {end_of_window(shape)})"
                    self._call("close", key, window, "row", *self._told())
                    self._after_call(closes=True)
                else:
                    self._ring()
        text("", "")

    # ------------------------------------------------------------ calls

    def _call(self, function: str, *arguments: str) -> None:
        own = ["own"] if self.spec.is_class else []
        self.text(f"{function}({', '.join([*own, *arguments, 'out'])})")

    def _before_call(self, closes: bool = False) -> None:
        text = self.text
        if self.shape.forgets or closes:
            with text.block("if meta[GONE] == len(gone):"):
                self._stop(FULL_REMOVALS)
        text(*(f"before_{t} = out.n{t}" for t in self.outputs))
        if self.shape.stateful:
            text("kept = meta[KEPT]")
            with text.block("if is_viewed(rows, meta, slot):"):
                with text.block("if kept == len(aside):"):
                    self._stop(FULL_ASIDE)
                text(
                    "aside[kept] = rows[slot]", "aside[kept]._epoch = slot", "meta[KEPT] = kept + 1"
                )
            text(
                "saved[0] = rows[slot]",
                f"run[{SLOT}] = slot",
                "row = rows[slot]",
                "row._epoch = epoch",
            )

    def _after_call(self, *, closes: bool = False, rings: bool = False) -> None:
        text = self.text
        full = " or ".join(f"out.n{t} > out.cap{t}" for t in self.outputs)
        if full:
            with text.block(f"if {full}:"):
                for t in self.outputs:
                    text(f"out.need{t} = out.n{t}", f"out.n{t} = before_{t}")
                if self.shape.stateful:
                    text("rows[slot] = saved[0]", "meta[KEPT] = kept")
                self._stop(FULL_OUTPUT)
        remove = "remove_noted(rows, index, meta, defaults, gone, slot, epoch)"
        timer = self.spec.state.timer if self.spec.state is not None else None
        if closes:
            text(remove)
            return
        if self.shape.forgets:
            with text.block("if row._epoch == FORGET:"):
                text(remove)
        if timer is not None:
            with text.block("else:") if self.shape.forgets else nullcontext():
                if rings:
                    with text.block(f"if row.{timer} <= rung:"):
                        self._stop(NO_LATER)
                text(f"set_alarm(alarms, meta, slot, row.{timer})")

    def _stop(self, code: int) -> None:
        text = self.text
        text(f"run[{GROUP}] = group")
        if self.spec.window is not None:
            text(f"run[{RESUMED}] = 1")
        text(f"return {code}")
