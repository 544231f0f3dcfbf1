"""Compiling an operator: one module for each, kept on disk under a hash of all that goes into it.

`<cache>/<hash>/<operator>.py` holds the driver; Numba keeps the machine code beside it. The hash
covers the driver, every function and constant that it reaches, the schemas, raystream's own kernels
and the versions, because Numba alone does not see that a helper or a constant has changed.

The user's functions are compiled from their rewritten trees under the name of their own file, so
Numba's complaints name the user's lines.
"""

from __future__ import annotations

import ast
import hashlib
import os
import platform
import re
import sys
import tempfile
import types
import warnings
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from raystream.api.operators import OperatorSpec
from raystream.api.windows import assigner
from raystream.api.windows.assigner import Assigner
from raystream.api.windows.kinds import Session
from raystream.compiled.driver import DriverShape, driver_text
from raystream.compiled.rewriting.expressions import (
    ALONE,
    EMIT,
    FIT,
    FIT_ITEM,
    FORGET,
    OPERATE,
    TRUE,
    WIDEN,
)
from raystream.compiled.rewriting.source import LEAVE_OUT, where_at
from raystream.compiled.rewriting.unit import CodeUnit
from raystream.compiled.window_text import CALENDAR
from raystream.errors import ConfigError, GraphError, Where
from raystream.native.code_cache import CACHE, cache_folder, one_at_a_time
from raystream.schema.types import NEVER, Window

_EPOCH_OF_FILES = 1_700_000_000
"""The modification time of generated files. Numba's cache compares it, and it must not depend on
which process wrote the file first."""


_UNASSIGNED = "Detected uninitialized variable"
_OURS = re.compile(r"TypingError: (.+)\n\s*raised from \S*raystream/compiled/")
"""What Numba says of a refusal of raystream's own."""


@dataclass(frozen=True, slots=True)
class Built:
    """A compiled operator."""

    shape: DriverShape
    process: Callable[..., int]
    """Applies records."""
    fire: Callable[..., int] | None
    """Rings timers and closes windows; None if the operator has neither."""
    parameters: np.ndarray | None
    """The fields of the operator's dataclass, as one row; None without any."""


def build(spec: OperatorSpec, ticks: int) -> Built:
    """Rewrite and compile an operator; `ticks` are the flow's time units per second.

    Raises:
        GraphError: the operator cannot be compiled; it names the line and the reason.
        ConfigError: the cache folder cannot be written.
    """
    from raystream.native.numba_internals import global_compiler_lock

    # A thread that imports the first of these modules waits for Numba's compiler lock while it
    # holds the lock of Numba's target. Were they imported below, under the compiler lock, the two
    # threads would wait for each other forever.
    _own_files()
    # A spare process that loads operators ahead may be given a range meanwhile: it must not find a
    # module that is half made, whose functions are not compiled yet.
    with global_compiler_lock:
        return _built(spec, ticks)


@lru_cache(maxsize=256)
def _built(spec: OperatorSpec, ticks: int) -> Built:
    unit = CodeUnit(spec)
    for t, record in enumerate(spec.inputs):
        unit.method(spec.process, f"process_{t}", record)
    for name, function in (("close", spec.close), ("timer", spec.timer)):
        if function is not None:
            unit.method(function, name, None)
    shape = DriverShape(spec, tuple(unit.parameters), unit.forgets, _windows(spec, ticks))
    text = driver_text(shape)
    digest = _digest(spec, unit, text)
    name = f"raystream_compiled_{digest}"
    module = sys.modules.get(name)
    if module is None:
        module = _Module(spec, unit, shape, text, name, digest).made()
    return Built(shape, module.process, getattr(module, "fire", None), _parameter_row(unit))


def _windows(spec: OperatorSpec, ticks: int) -> Assigner | None:
    """Which windows hold a time; None without windows."""
    if spec.window is None:
        return None
    if isinstance(spec.window, Session):
        raise spec.fail(
            "session windows are not compiled",
            hint="Keep a rs.Timer in the state: set it in `process`, and close the session"
            " in `timer` with rs.forget. Or leave out compiled=True.",
        )
    return spec.assigner(ticks)


def _parameter_row(unit: CodeUnit) -> np.ndarray | None:
    if not unit.parameters:
        return None
    kinds = {bool: "?", int: "i8", float: "f8"}
    row = np.zeros(1, [(n, kinds[type(v)]) for n, v in unit.parameters.items()])
    for name, value in unit.parameters.items():
        row[name] = value
    return row


# ---------------------------------------------------------------- the hash


def _digest(spec: OperatorSpec, unit: CodeUnit, text: str) -> str:
    import llvmlite
    import numba

    parts = [
        text,
        platform.python_version(),
        np.__version__,
        numba.__version__,
        llvmlite.__version__,
        repr(spec.inputs),
        repr(spec.outputs),
        repr(spec.state),
        repr(spec.key),
        _own_files(),
    ]
    parts += [f"{name}:{ast.dump(tree)}" for name, (tree, _) in unit.functions.items()]
    parts += [f"{name}={_constant(value)}" for name, value in unit.values.items()]
    parts += [f"{name}:{type(value).__name__}" for name, value in unit.parameters.items()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _constant(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, type) or callable(value):
        name = getattr(value, "__qualname__", value)
        return f"{value.__module__}.{name}{getattr(value, '_fields', '')}"
    return repr(value)


@cache
def _own_files() -> str:
    """A hash of what of raystream becomes part of the machine code, and of how that is made.

    It is read when they are imported: later the files may be those of another version, whose
    machine code would be taken to be what this process makes.
    """
    files = [Path(f or "").read_bytes() for f in (*(m.__file__ for m in _own_modules()), __file__)]
    return hashlib.sha256(b"\0".join(files)).hexdigest()


def _own_modules() -> tuple[types.ModuleType, ...]:
    """Whose functions become part of the machine code."""
    from raystream.compiled.runtime import (
        arithmetic,
        calendars,
        checked,
        functions,
        mixing,
        rounding,
        sequences,
        support,
    )
    from raystream.state import kernels
    from raystream.state.tables import row_kernels

    ours = assigner, arithmetic, calendars, checked, functions, mixing, rounding, sequences, support
    return *ours, kernels, row_kernels


# ---------------------------------------------------------------- the module


class _Module:
    """Makes the module of one operator."""

    def __init__(
        self,
        spec: OperatorSpec,
        unit: CodeUnit,
        shape: DriverShape,
        text: str,
        name: str,
        digest: str,
    ) -> None:
        self.spec = spec
        self.unit = unit
        self.shape = shape
        self.text = text
        self.digest = digest
        self.problems: list[str] = []
        self.module = types.ModuleType(name)

    def made(self) -> types.ModuleType:
        # Numba finds the functions of machine code that it loads through the module's name.
        sys.modules[self.module.__name__] = self.module
        try:
            self._fill()
        except BaseException:
            del sys.modules[self.module.__name__]
            raise
        return self.module

    def _fill(self) -> None:
        from numba import njit
        from numba.core.errors import NumbaError, NumbaWarning

        from raystream.compiled.runtime import support
        from raystream.compiled.runtime.checked import FLAGS, user_jit
        from raystream.compiled.runtime.mixing import written_jit
        from raystream.native.numba_internals import UNCOUNTED

        folder = cache_folder() / self.digest
        path = kept_file(folder, f"{_file_name(self.spec.name)}.py", self.text)
        names = self.module.__dict__
        names.update(self._names(support))
        for name, (tree, file) in self.unit.functions.items():
            code = compile(ast.Module([tree], []), file, "exec")
            exec(code, names)
            names[name] = written_jit(names[name])
        exec(compile(self.text, str(path), "exec"), names)
        for t in range(len(self.spec.outputs)):
            names[f"emit_{t}"] = user_jit(names[f"emit_{t}"])
        for name in ("process", "fire"):
            if name in names:
                names[name] = njit(**{**FLAGS, **UNCOUNTED}, cache=True)(names[name])
        try:
            with one_at_a_time(folder):
                self._compile()
        except (NumbaError, NumbaWarning, KeyError) as error:  # KeyError: a field that is not there
            raise self._refused(error) from None

    def _names(self, support: Any) -> dict[str, Any]:
        from raystream.compiled.runtime import arithmetic, calendars
        from raystream.state.tables import row_kernels as kernels

        spec = self.spec
        names: dict[str, Any] = dict(self.unit.values)
        names |= {f"put_{'b' if d == '?' else d}": put for d, put in support.PUT.items()}
        names |= {n: getattr(support, n) for n in ("maybe", "or_zero", "is_there")}
        names |= {
            n: getattr(kernels, n)
            for n in (
                "find_or_insert",
                "home_of",
                "is_viewed",
                "prefetch",
                "remove_noted",
                "set_alarm",
                "GONE",
                "KEPT",
            )
        }
        if self.shape.calendar:
            names |= {n: getattr(calendars, n) for n in CALENDAR}
        names |= {OPERATE + n: function for n, function in arithmetic.OPERATORS.items()}
        names |= {
            ALONE: support.alone,
            WIDEN: support.widen,
            FIT_ITEM: support.fit_item,
            TRUE: support.true,
            FORGET: support.forgetter(),
            EMIT: self._emitter(),
            "FORGET": kernels.FORGET,
            "NEVER": NEVER,
            "Window": Window,
        }
        names |= {f"Record_{t}": schema.cls for t, schema in enumerate(spec.inputs)}
        if self.unit.parameters:
            names["Parameters"] = namedtuple("Parameters", self.unit.parameters)
        for t, schema in enumerate(spec.outputs):
            for j, f in enumerate(schema.fields):
                names[f"fit_{t}_{j}"] = support.fitter(
                    f"{schema.name}.{f.name}", f.dtype, self.problems
                )
        if spec.state is not None:
            names |= {
                FIT + f.name: support.fitter(
                    f"{spec.state.name}.{f.name}", f.dtype, self.problems, state=True
                )
                for f in spec.state.fields
            }
        return names

    def _emitter(self) -> Any:
        """`emit(out, record)`, for compiled code: chooses by the type of the record."""
        from raystream.compiled.runtime import support

        return support.emitter(
            [s.cls for s in self.spec.outputs], self.module.__dict__, self.problems
        )

    # ------------------------------------------------------------ compiling

    def _compile(self) -> None:
        """Call the drivers with nothing to do: they are compiled or loaded."""
        import numba
        from numba.core.errors import NumbaWarning

        from raystream.compiled.operator import CompiledOperator

        functions = Built(
            self.shape,
            self.module.process,
            getattr(self.module, "fire", None),
            _parameter_row(self.unit),
        )
        # Python raises when a name was not assigned on the way; machine code would go on with zero.
        config: Any = numba.config
        before, config.ALWAYS_WARN_UNINIT_VAR = config.ALWAYS_WARN_UNINIT_VAR, 1
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", _UNASSIGNED, NumbaWarning)
                CompiledOperator(self.spec, functions, groups=1).warm()
        finally:
            config.ALWAYS_WARN_UNINIT_VAR = before

    def _refused(self, error: Exception) -> GraphError:
        message = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
        reason = self.problems[0] if self.problems else _reason(message) or repr(error)
        return GraphError(
            f"{self.spec.name} cannot be compiled: {reason}",
            where=self._line(message) or self.spec.where,
            hint=LEAVE_OUT,
        )

    def _line(self, message: str) -> Where | None:
        """The innermost line of the user's that a message of Numba's names."""
        files = {file for _, file in self.unit.functions.values()}
        for file, line in re.findall(r'(?:File "|at )(\S.*?)(?:", line | \()(\d+)', message):
            if os.path.abspath(file) in files:
                return where_at(os.path.abspath(file), int(line))
        return None


def _reason(message: str) -> str:
    """What Numba has against it, in one line: the first of its message that is no preamble."""
    if message.startswith(_UNASSIGNED):
        name = message.removeprefix(_UNASSIGNED).split()[0]
        return f"{name!r} may not have been assigned where it is used"
    if refused := _OURS.search(message):
        return refused[1]
    lines = [
        line.strip()
        for line in message.splitlines()
        if line.strip() and not line.startswith(("Failed in", "During:", "File "))
    ]
    if not lines:
        return ""
    lines = [re.sub(r" at 0x[0-9a-f]+", "", line) for line in lines]
    lines = [re.sub(r"\b_rs_(\w+?)_\d+\b", r"\1", line) for line in lines]
    call = next((line for line in lines[1:3] if line.startswith(">>>")), "")
    return f"{lines[0]} {call.removeprefix('>>> ')}".strip()


def _file_name(operator: str) -> str:
    return re.sub(r"\W", "_", operator) or "operator"


def kept_file(folder: Path, name: str, text: str) -> Path:
    """A file with this text, written by whichever process comes first.

    Raises:
        ConfigError: it cannot be written.
    """
    path = folder / name
    try:
        if path.exists():
            return path
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.utime(temporary, (_EPOCH_OF_FILES, _EPOCH_OF_FILES))
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(
            f"compiled operators cannot be kept in {folder}: {error.strerror}",
            hint=f"Set {CACHE} to a folder that can be written.",
        ) from None
    return path
