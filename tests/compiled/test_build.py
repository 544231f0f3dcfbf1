"""Compiling: what is kept on disk, what is imported, what is handed out."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from filelock import FileLock, Timeout

import raystream as rs
from raystream.api.declarations import spec_of
from raystream.compiled import build
from raystream.compiled.operator import CompiledOperator, compile_operator
from raystream.errors import InternalError
from raystream.native import code_cache as kept
from raystream.schema.blocks import Input
from raystream.schema.columns import Columns
from raystream.schema.records import record_schema
from tests.compiled.reference import given


class In(NamedTuple):
    time: int
    key: rs.Int32


class Out(NamedTuple):
    key: rs.Int32
    n: int


class Row(rs.State):
    n: int = 0


@rs.operator(key="key", compiled=True)
def count(r: In, row: Row) -> Iterator[Out]:
    row.n += 1
    yield Out(r.key, row.n)


def emitted(compiled: CompiledOperator, records: list[In], groups: int = 1) -> list[Any]:
    batch = given(compiled.spec, records, groups)
    return list(compiled.process(batch, compiled.new_table(), 1, 0).emitted[0].rows.records())


SCRIPT = """
from collections.abc import Iterator
from typing import NamedTuple
import numpy as np
import raystream as rs
from raystream.api.declarations import spec_of
from raystream.compiled import operator
import sys
assert "numba" not in sys.modules
class In(NamedTuple):
    time: int
    key: int
class Row(rs.State):
    n: int = 0
def twice(x: int) -> int:
    return 2 * x
@rs.operator(key="key", window=rs.tumbling(seconds=5), compiled=True)
class Count:
    def process(self, r: In, row: Row) -> Iterator[In]:
        row.n += 1
        yield In(r.time, twice(row.n))
    def close(self, key: int, window: rs.Window, row: Row) -> Iterator[In]:
        yield In(window.start, row.n)
compiled = operator.compile_operator(spec_of(Count()), groups=1)
from raystream.errors import InternalError
from raystream.schema.blocks import Input
from raystream.schema.storing import from_records
table = compiled.new_table()
columns = from_records(compiled.spec.inputs[0], [In(1, 7), In(2, 7)])
batch = Input((columns,), None, None, np.array([0, 2]), 0)
out = compiled.process(batch, table, 1, 0)
fired = compiled.fire(table, rs.KeyRange(0, 1), 1, 5, last=False)
emitted = [*out.emitted[0].rows.records(), *fired.emitted[0].rows.records()]
assert emitted == [In(1, 2), In(2, 4), In(0, 2)]
print(sum(sum(d.stats.cache_hits.values()) for d in (compiled._process, compiled._fire)))
"""


def test_processes_share_what_one_of_them_compiled(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {
        **os.environ,
        "RAYSTREAM_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(tmp_path / "script.py")],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    together = [start(), start()]
    said = [process.communicate() for process in together]
    assert sorted(loaded.strip() for loaded, _ in said) == ["0", "2"], said
    loaded, errors = start().communicate()
    assert loaded.strip() == "2", errors


def test_a_process_waits_for_who_compiles_but_not_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = FileLock(tmp_path / "lock")
    monkeypatch.setattr(kept, "WAIT_SECONDS", 0.1)
    for _ in range(2):
        with other, pytest.raises(ZeroDivisionError), kept.one_at_a_time(tmp_path):
            _ = 1 / 0  # it was not through, so the next one waits as well
    with kept.one_at_a_time(tmp_path), pytest.raises(Timeout):
        FileLock(tmp_path / "lock").acquire(timeout=0)
    with other, kept.one_at_a_time(tmp_path):  # nobody waits any more
        assert other.is_locked


def printed(code: str) -> str:
    """What a process prints that runs this code."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
        capture_output=True,
    )
    return done.stdout or done.stderr


TOGETHER = """
import faulthandler
import threading
from importlib import import_module
from raystream.compiled import build
faulthandler.dump_traceback_later(30, exit=True)
other = threading.Thread(target=import_module, args=("raystream.state.kernels",), daemon=True)
def built(spec, ticks):
    other.start()
    other.join(1)
    import_module("raystream.compiled.runtime.arithmetic")
    print("built")
build._built = built
build.build(None, 1)
other.join()
"""


def test_two_threads_that_load_compiled_code_do_not_wait_for_each_other() -> None:
    assert printed(TOGETHER) == "built\n"


AT_ONCE = """
import sys, threading
from importlib import import_module
from raystream.compiled import build
errors = []
def tried(what, *arguments):
    try:
        what(*arguments)
    except BaseException as error:
        errors.append(repr(error))
build._built = lambda spec, ticks: None
warm = threading.Thread(target=tried, args=(import_module, "raystream.state.tables.row_kernels"))
warm.start()
while "numba" not in sys.modules:
    warm.join(0.001)
tried(build.build, None, 1)
warm.join()
print(errors)
"""


def test_two_threads_may_be_the_first_to_need_numba() -> None:
    """A process that loads ahead is given a place in its first second."""
    assert printed(AT_ONCE) == "[]\n"


def test_an_upgrade_while_a_process_runs_changes_nothing_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has the code that it imported: what it makes of that is not what the new files make."""
    compile_operator(spec_of(count), groups=1)
    before = build._own_files()
    monkeypatch.setattr(Path, "read_bytes", lambda _: b"of another version")
    assert build._own_files() == before


def test_a_changed_constant_or_helper_is_compiled_anew() -> None:
    def counting(step: int) -> Any:
        def more(n: int) -> int:
            return n + step

        @rs.operator(key="key", compiled=True)
        def steps(r: In, row: Row) -> Iterator[Out]:
            row.n = more(row.n)
            yield Out(r.key, row.n)

        return compile_operator(spec_of(steps), groups=1)

    assert emitted(counting(1), [In(0, 3), In(0, 3)]) == [Out(3, 1), Out(3, 2)]
    assert emitted(counting(5), [In(0, 3), In(0, 3)]) == [Out(3, 5), Out(3, 10)]


def test_threads_that_build_the_same_operator_both_get_machine_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A spare process builds operators ahead, and builds one for its place at the same time."""

    @rs.operator(key="key", compiled=True)
    def twice(r: In, row: Row) -> Iterator[Out]:
        row.n += 2
        yield Out(r.key, row.n)

    made: list[CompiledOperator] = []

    def make() -> None:
        made.append(compile_operator(spec_of(twice), groups=1))

    second = threading.Thread(target=make)

    def kept(*arguments: Any) -> Path:
        if not second.is_alive():
            second.start()
            second.join(0.5)  # all that it can do while the first has half done it
        return whole(*arguments)

    whole = build.kept_file
    monkeypatch.setattr(build, "kept_file", kept)
    make()
    second.join(60)
    assert [emitted(one, [In(0, 3)]) for one in made] == [[Out(3, 2)]] * 2


def test_a_parameter_is_an_argument() -> None:
    @rs.operator(compiled=True)
    @dataclass(frozen=True)
    class Scale:
        by: int
        ratio: float = 1.0
        negative: bool = False

        def process(self, r: In) -> Iterator[Out]:
            yield Out(r.key, int(r.time * self.by * self.ratio) * (-1 if self.negative else 1))

    one = compile_operator(spec_of(Scale(3)), groups=1)
    other = compile_operator(spec_of(replace(Scale(3), ratio=0.5, negative=True)), groups=1)
    assert one._process is other._process
    assert emitted(one, [In(4, 1)]) == [Out(1, 12)]
    assert emitted(other, [In(4, 1)]) == [Out(1, -6)]


def test_arrays_of_any_kind_run_the_same_machine_code() -> None:
    compiled = compile_operator(spec_of(count), groups=1)
    locked = np.arange(4, dtype=np.int32)
    locked.flags.writeable = False
    apart = np.arange(8, dtype=np.int32)[::2]
    odd = np.frombuffer(bytes(1) + np.arange(4, dtype=np.int32).tobytes(), np.int32, 4, 1)
    assert not odd.flags.aligned
    for keys in (np.arange(4, dtype=np.int32), locked, apart, odd):
        columns = Columns(record_schema(In), [np.zeros(4, np.int64), keys], 4)
        out = compiled.process(
            Input((columns,), None, None, np.array([0, 4]), 0), compiled.new_table(), 1, 0
        )
        assert out.emitted[0].rows.column("key").tolist() == keys.tolist()
    assert len(compiled._process.signatures) == 1  # type: ignore[attr-defined]


def test_what_was_handed_out_is_never_changed() -> None:
    compiled = compile_operator(spec_of(count), groups=4)
    table = compiled.new_table()
    kept = []
    for epoch in range(1, 6):
        batch = given(compiled.spec, [In(epoch, k) for k in range(500 * epoch)], 4)
        e = compiled.process(batch, table, epoch, 0).emitted[0]
        kept.append((e, [a.copy() for a in (*e.rows.arrays, e.offsets)]))
    for e, copies in kept:
        for array, copy in zip((*e.rows.arrays, e.offsets), copies, strict=True):
            assert np.array_equal(array, copy)


def test_what_was_handed_out_cannot_be_changed() -> None:
    compiled = compile_operator(spec_of(count), groups=1)
    e = compiled.process(given(compiled.spec, [In(1, 2)], 1), compiled.new_table(), 1, 0).emitted[0]
    with pytest.raises(ValueError, match="read-only"):
        e.rows.column("n")[0] = 5


def test_columns_do_not_hold_much_more_than_their_rows() -> None:
    @rs.operator(key="key", compiled=True)
    def seldom(r: In, row: Row) -> Iterator[Out]:
        if r.key == 0:
            yield Out(r.key, r.time)

    compiled = compile_operator(spec_of(seldom), groups=1)
    e = compiled.process(
        given(compiled.spec, [In(1, k) for k in range(20_000)], 1), compiled.new_table(), 1, 0
    ).emitted[0]
    assert len(e.rows) == 1
    assert all(a.base is None or a.base.nbytes < 1000 for a in e.rows.arrays)


def test_empty_epochs_and_tables() -> None:
    compiled = compile_operator(spec_of(count), groups=4)
    table = compiled.new_table()
    assert table is not None
    out = compiled.process(given(compiled.spec, [], 4), table, 1, 0)
    assert out.emitted[0].offsets.tolist() == [0] * 5 and not len(out.emitted[0].rows)
    out = compiled.fire(table, rs.KeyRange(1, 3), 1, rs.NEVER, last=True)
    assert out.emitted[0].offsets.tolist() == [0] * 3


def test_loading_raystream_does_not_load_numba() -> None:
    code = "import sys, raystream.compiled.operator; assert 'numba' not in sys.modules"
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_rows_of_other_key_groups_are_an_error() -> None:
    @rs.operator(key="key", window=rs.tumbling(seconds=5), compiled=True)
    class Windows:
        def process(self, r: In, row: Row) -> None:
            row.n += 1

        def close(self, key: int, window: rs.Window, row: Row) -> Iterator[Out]:
            yield Out(key, row.n)

    compiled = compile_operator(spec_of(Windows()), groups=4)
    table = compiled.new_table()
    compiled.process(given(compiled.spec, [In(0, k) for k in range(50)], 4), table, 1, 0)
    with pytest.raises(InternalError, match="outside of the key groups"):
        compiled.fire(table, rs.KeyRange(0, 2), 1, 5, last=False)
