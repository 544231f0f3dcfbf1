"""What raystream uses of other libraries although they do not promise it: where, and that it is
still there. When a new version of a library takes a part away, a test here fails and says in words
what it was for.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import pytest

RAYSTREAM = Path(__file__).resolve().parents[2] / "raystream"

RAY = "raystream/actors/cluster/ray_internals.py"
NUMBA = "raystream/native/numba_internals.py"
JIT = "raystream/native/jit.py"
PANDAS = "raystream/native/lazy_pandas.py"
OS = "raystream/native/thread_priority.py"


class Part(NamedTuple):
    """Something that a library does not promise."""

    library: str
    path: str
    """Its module and name: `module:name.of.attribute`."""
    why: str
    """What raystream uses it for."""
    where: str
    """The module that uses it."""
    takes: tuple[str, ...] = ()
    """Parameters that it has to have."""


_WORKER = "ray._private.worker"
_RAYLET = "ray._raylet"
_KV = "ray.experimental.internal_kv"
_CACHING = "numba.core.caching"

PARTS = [
    Part("ray", "ray._private.services:find_gcs_addresses", "to find the Rays of a machine", RAY),
    Part("ray", "ray._private.services:ConsolePopen", "to start a Ray in groups of its own", RAY),
    Part("ray", "ray._private.utils:read_ray_address", "to find what `ray start` noted", RAY),
    Part(
        "ray",
        "ray._private.utils:detect_fate_sharing_support",
        "to know whether the kernel ends the processes of a Ray",
        RAY,
    ),
    Part("ray", "ray._common.utils:get_default_ray_temp_dir", "to find notes of runs", RAY),
    Part(
        "ray",
        f"{_RAYLET}:Config.metrics_report_interval_ms",
        "to know how long Ray shows the metrics of a process that has died",
        RAY,
    ),
    Part("ray", f"{_WORKER}:_global_node", "to find the folder of a session", RAY),
    Part(
        "ray", "ray._private.node:Node.get_session_dir_path", "to find the folder of a session", RAY
    ),
    Part("ray", f"{_WORKER}:global_worker", "to ask the head whether it is there", RAY),
    Part("ray", f"{_RAYLET}:CoreWorker.get_job_config", "to know where workers import from", RAY),
    Part(
        "ray",
        f"{_RAYLET}:InnerGcsClient.internal_kv_get",
        "to ask the head whether it is there",
        RAY,
        ("key", "namespace", "timeout"),
    ),
    Part(
        "ray",
        f"{_RAYLET}:InnerGcsClient.get_all_node_info",
        "to find the node that EC2 takes away",
        RAY,
        ("timeout",),
    ),
    Part("ray", f"{_RAYLET}:InnerGcsClient.drain_node", "to drain the node that EC2 takes", RAY),
    Part("ray", f"{_RAYLET}:Config.initialize", "to have a token take effect", RAY),
    Part("ray", f"{_RAYLET}:AuthenticationTokenLoader.instance", "to show another token", RAY),
    Part("ray", f"{_RAYLET}:AuthenticationTokenLoader.reset_cache", "to show another token", RAY),
    Part(
        "ray",
        f"{_RAYLET}:AuthenticationTokenLoader.has_token",
        "to show the user's token",
        RAY,
        ("ignore_auth_mode",),
    ),
    Part("ray", f"{_RAYLET}:GcsClient", "to know at once that a token is wrong", RAY),
    Part(
        "ray",
        "ray.job_config:JobConfig.__init__",
        "to have workers import what the submitter does",
        RAY,
        ("_py_driver_sys_path",),
    ),
    Part("ray", "ray._private.state:state.actor_table", "to know a controller's restarts", RAY),
    Part("ray", "ray._private.state:state.get_draining_nodes", "to leave nodes that end", RAY),
    Part(
        "ray",
        "ray.core.generated.autoscaler_pb2:DrainNodeReason.DRAIN_NODE_REASON_PREEMPTION",
        "to drain the node that EC2 takes away",
        RAY,
    ),
    Part("ray", "ray.core.generated.gcs_pb2:GcsNodeInfo.ALIVE", "to see which nodes live", RAY),
    Part("ray", f"{_KV}:_internal_kv_list", "to know whose the pool of a cluster is", RAY),
    Part("ray", f"{_KV}:_internal_kv_get", "to know whose the pool is", RAY, ("namespace",)),
    Part(
        "ray",
        f"{_KV}:_internal_kv_put",
        "to claim the pool of a cluster",
        RAY,
        ("overwrite", "namespace"),
    ),
    Part("ray", f"{_KV}:_internal_kv_del", "to remove old claims to a pool", RAY, ("namespace",)),
    Part("numba", "numba.core.cgutils:get_item_pointer", "to read bytes in kernels", NUMBA),
    Part("numba", "numba.core.ir:Expr.call", "to keep ints exact in compiled code", NUMBA),
    Part("numba", "numba.core.ir:StaticSetItem", "to keep ints exact in compiled code", NUMBA),
    Part("numba", "numba.core.ir_utils:mk_unique_var", "to keep ints exact", NUMBA),
    Part("numba", "numba.core.compiler:CompilerBase", "to add a pass to the compiler", NUMBA),
    Part(
        "numba",
        "numba.core.compiler:DefaultPassBuilder.define_nopython_pipeline",
        "to add a pass to the compiler",
        NUMBA,
    ),
    Part("numba", "numba.core.compiler_machinery:FunctionPass", "to add a pass", NUMBA),
    Part("numba", "numba.core.compiler_machinery:register_pass", "to add a pass", NUMBA),
    Part("numba", "numba.core.typed_passes:PreLowerStripPhis", "to place that pass", NUMBA),
    Part("numba", "numba.core.compiler_lock:global_compiler_lock", "to compile alone", NUMBA),
    Part(
        "numba",
        "numba.core.compiler:CompileResult.entry_point",
        "to call compiled operators without a look at the types of what they are given",
        NUMBA,
    ),
    Part("numba", "numba.core.options:DefaultOptions._nrt", "to count no references", NUMBA),
    Part("numba", f"{_CACHING}:_CacheLocator.get_cache_path", "to say where code is kept", JIT),
    Part("numba", f"{_CACHING}:_CacheLocator.ensure_cache_path", "to make that folder", JIT),
    Part("numba", f"{_CACHING}:CompileResultCacheImpl._locator_classes", "to say where", JIT),
    Part("numba", f"{_CACHING}:FunctionCache._impl_class", "to say where code is kept", JIT),
    Part(
        "numba",
        f"{_CACHING}:FunctionCache._guard_against_spurious_io_errors",
        "to compile where nothing can be kept",
        JIT,
    ),
    Part("numba", f"{_CACHING}:FunctionCache._index_key", "to know what is kept", JIT),
    Part("numba", f"{_CACHING}:IndexDataCacheFile._load_index", "to know what is kept", JIT),
    Part("numba", f"{_CACHING}:IndexDataCacheFile._save_index", "to name files by content", JIT),
    Part("numba", f"{_CACHING}:IndexDataCacheFile._save_data", "to name files by content", JIT),
    Part("numba", f"{_CACHING}:IndexDataCacheFile._dump", "to name files by content", JIT),
    Part("numba", f"{_CACHING}:IndexDataCacheFile.save", "to name files by content", JIT),
    Part("pyarrow", "pyarrow.lib:_pandas_api.pd", "to tell it that pandas is there", PANDAS),
]


def found(path: str) -> Any:
    """The thing at `module:name.of.attribute`.

    Raises:
        ImportError, AttributeError: it is not there.
    """
    module, _, names = path.partition(":")
    thing = importlib.import_module(module)
    for name in names.split("."):
        if name == "pd":  # a property that imports pandas: its class is asked, not the instance
            thing = type(thing)
        thing = getattr(thing, name)
    return thing


def complaint(part: Part) -> str:
    """What is to be said of a part: "" while it is as it was."""
    about = f"raystream needs it {part.why}, in {part.where}"
    version = f"{part.library} {metadata.version(part.library)}"
    try:
        thing = found(part.path)
    except (ImportError, AttributeError) as error:
        return f"{version} no longer has {part.path} ({error}): {about}"
    known = inspect.signature(thing).parameters if part.takes else {}
    if gone := [name for name in part.takes if name not in known]:
        return f"{part.path} of {version} no longer takes {', '.join(gone)}: {about}"
    return ""


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.path)
def test_a_private_part_is_there(part: Part) -> None:
    assert complaint(part) == ""


def test_what_is_gone_is_told_in_words() -> None:
    gone = Part("ray", "ray._private.services:gone", "to find the Rays of a machine", RAY)
    said = complaint(gone)
    assert said.startswith(
        f"ray {metadata.version('ray')} no longer has ray._private.services:gone"
    )
    assert said.endswith(f"raystream needs it to find the Rays of a machine, in {RAY}")
    assert "no longer has ray._nothing:x" in complaint(gone._replace(path="ray._nothing:x"))
    other = Part("ray", f"{_KV}:_internal_kv_get", "to know", RAY, ("namespace", "color"))
    assert f"{_KV}:_internal_kv_get of ray" in complaint(other)
    assert "no longer takes color: raystream needs it to know" in complaint(other)


def test_ray_starts_its_processes_with_what_is_put_in_the_place_of_its_popen() -> None:
    """Otherwise a signal to the group of a run ends its Ray before the job."""
    from ray._private import services

    assert "ConsolePopen(" in inspect.getsource(services.start_ray_process)


def test_a_connected_worker_of_ray_has_what_the_head_is_asked_through() -> None:
    from ray._private import worker

    source = inspect.getsource(worker.connect)
    assert "worker.gcs_client = " in source and "worker.core_worker = " in source


def test_a_dispatcher_of_numba_has_the_cache_that_is_replaced() -> None:
    """Numba is told by an attribute of each function where its machine code is kept."""
    from numba import njit
    from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
    from numba.core.dispatcher import Dispatcher

    dispatcher = njit(lambda x: x)
    assert isinstance(dispatcher._cache, NullCache), "jit.py replaces it"
    for method in ("load_overload", "save_overload"):
        assert f"self._cache.{method}(" in inspect.getsource(Dispatcher.compile)
    sources = inspect.getsource(FunctionCache.__mro__[1]), inspect.getsource(IndexDataCacheFile)
    assert "self._cache_file = IndexDataCacheFile(" in sources[0] and "self._impl." in sources[0]
    for name in ("_index_path", "_index_name", "_source_stamp"):
        assert f"self.{name} = " in sources[1], f"jit.py reads {name}"


@pytest.mark.skipif(sys.platform != "linux", reason="the calls are Linux's")
def test_the_kernel_tells_how_a_thread_is_scheduled() -> None:
    """`thread_priority.py` calls sched_getattr and sched_setattr by their numbers."""
    from raystream.native.thread_priority import ATTRIBUTES, scheduling

    size, *others = scheduling()
    assert size == 48 and len(others) == 7 and ATTRIBUTES.size == 48


# ------------------------------------------------------------------------------- who touches them

PRIVATE_MODULES = (
    "ray._private",
    "ray._raylet",
    "ray._common",
    "ray.core",
    "ray.experimental",
    "numba.core",
)
PUBLIC_ALL_THE_SAME = ("numba.core.errors",)
"""Numba documents its errors by this name."""
PRIVATE_NAMES = {
    "_private",
    "_raylet",
    "_common",
    "_pandas_api",
    "_py_driver_sys_path",
    "_global_node",
    "global_worker",
    "internal_kv_get",
    "core_worker",
    "_cache_file",
    "_locator_classes",
    "_impl_class",
    "sched_setaffinity",
    "sched_setscheduler",
    "sched_getscheduler",
    "CDLL",
}
"""Attributes by which private parts are reached without an import of their own."""
ROOMS = (RAY, "raystream/native/")
"""Where they may be."""


def touched(path: Path) -> Iterator[str]:
    """The private parts that a module touches."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            whole = ast.unparse(node)
            if node.attr in PRIVATE_NAMES or whole.startswith(PRIVATE_MODULES):
                yield f"line {node.lineno} reads {whole}"
        elif isinstance(node, ast.keyword) and node.arg in PRIVATE_NAMES:
            yield f"line {node.value.lineno} gives {node.arg}"
        for name in names:
            if name.startswith(PRIVATE_MODULES) and not name.startswith(PUBLIC_ALL_THE_SAME):
                yield f"line {getattr(node, 'lineno', 0)} imports {name}"


def test_private_parts_are_touched_in_their_rooms_only() -> None:
    outside = [
        f"{name}: {what}"
        for path in sorted(RAYSTREAM.rglob("*.py"))
        if not (name := f"{path.relative_to(RAYSTREAM.parent)}").startswith(ROOMS)
        for what in touched(path)
    ]
    assert not outside, "\n".join([f"only {' and '.join(ROOMS)} may do so:", *outside])


@pytest.mark.parametrize(
    "code",
    [
        "from ray._private import worker",
        "def f():\n    import numba.core.ir",
        "from ray import _raylet",
        "import ray\nray._raylet.GcsClient()",
        "from ray.experimental import internal_kv",
        "import pyarrow as pa\npa.lib._pandas_api.pd",
        "JobConfig(_py_driver_sys_path=[])",
    ],
)
def test_a_private_part_is_seen(code: str, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(code)
    assert [*touched(module)]


def test_what_is_public_is_not_taken_for_private(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("import ray\nfrom numba.core.errors import TypingError\nray.util.state\n")
    assert not [*touched(module)]


def test_every_part_that_is_listed_is_used_where_it_says() -> None:
    def used(part: Part) -> bool:
        name = (part.takes or part.path.replace(":", ".").split("."))[-1]
        return name in (RAYSTREAM.parent / part.where).read_text(encoding="utf-8")

    assert not [p.path for p in PARTS if p.where != NUMBA and not used(p)]
