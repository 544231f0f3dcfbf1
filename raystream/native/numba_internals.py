"""Everything private of Numba that raystream touches outside of this room.

Numba documents `njit`, `numba.extending`, `numba.types` and its errors. What stands here it does
not: compiled operators need it to keep integers exact, kernels to write fast loops, and the code
cache to decide where machine code lies. `tests/native/test_private_parts.py` says in words when a
version of Numba no longer has one of these.

Importing this module imports Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numba.core.cgutils
import numba.core.ir
import numba.core.ir_utils
from numba.core.compiler import CompilerBase as CompilerBase
from numba.core.compiler import DefaultPassBuilder as DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock as _lock
from numba.core.compiler_machinery import FunctionPass as FunctionPass
from numba.core.compiler_machinery import register_pass as register_pass
from numba.core.typed_passes import PreLowerStripPhis as PreLowerStripPhis

cgutils: Any = numba.core.cgutils
"""Writes LLVM code inside intrinsics."""
ir: Any = numba.core.ir
"""Numba's own code of a function, which a pass over compiled operators reads and changes."""
ir_utils: Any = numba.core.ir_utils
"""Makes names for new variables in it."""
global_compiler_lock: Any = _lock
"""Held by the one thread of a process that compiles."""
UNCOUNTED: dict[str, Any] = {"nogil": True, "_nrt": False}
"""Options of `njit` for functions that make no arrays and only use those they are given. References
to arrays are not counted in them. Where Numba does not see that it may leave that out, it costs 20
ns a record: four atomic operations. Numba refuses code that would need the counts."""

F = TypeVar("F", bound=Callable[..., Any])


def uncounted(function: F) -> F:
    """`njit` with the options UNCOUNTED."""
    compiled: F = numba.njit(**UNCOUNTED)(function)
    return compiled


def entry_of(function: Any) -> Callable[..., Any]:
    """The machine code of a function that has been called, and is only ever called with arguments
    of these types. Numba looks at the types of all arguments at each call to find the code for
    them, which takes longer than a small epoch does: 5 us for those of a driver."""
    forms = list(getattr(function, "overloads", {}).values())
    return forms[0].entry_point if len(forms) == 1 else function
