"""The command: what it prints, and with which exit code it ends."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import raystream as rs
from raystream.actors.cluster import connecting
from raystream.cli.app import app
from raystream.cli.load import load_flow
from raystream.errors import GraphError, Stopped, notes

HEADER = """
from collections.abc import Iterator
from typing import NamedTuple
import raystream as rs
from raystream.testing import Collect

class Line(NamedTuple):
    time: rs.Int64
    text: str
class Word(NamedTuple):
    time: rs.Int64
    word: str
class Tally(rs.State):
    n: int = 0
class Lines:
    record = Line
    def splits(self):
        return [rs.Split("a")]
    def read(self, split, position):
        for t in range(position, 3):
            yield t + 1, rs.Batch(Line, {"time": [t], "text": ["to be or"]})
@rs.operator()
def split(line: Line) -> Iterator[Word]:
    for word in line.text.split():
        yield Word(line.time, word)
@rs.operator(key="word", order_by="time")
def count(word: Word, tally: Tally) -> Iterator[Word]:
    tally.n += 1
    if tally.n == BAD:
        raise ValueError("the second one")  # here
    yield word
def make(counting="count"):
    flow = rs.Flow("words")
    lines = flow.source(Lines(), epochs=rs.by_time(seconds=1), name="lines")
    lines.through(split).through(count, name=counting).to(Collect(), name="out")
    return flow
BAD = 0
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any) -> Callable[[str], str]:
    """Writes a module into a new current folder; its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(text: str) -> str:
        name = f"flow_of_{request.node.name}".replace("[", "_").replace("]", "").replace("-", "_")
        (tmp_path / f"{name}.py").write_text(HEADER + textwrap.dedent(text), encoding="utf-8")
        return name

    return write


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


# ---------------------------------------------------------------------------------- plan


def test_plan_shows_the_graph(module: Callable[[str], str]) -> None:
    name = module("flow = make()")
    result = command("plan", f"{name}:flow")
    assert result.exit_code == 0, result.output
    for part in (
        "words  256 key groups",
        "source Lines, epochs by time, every 1 s",
        "split  fused",
        "key word, in order of time",
        "state Tally(n: int64)",
        "→ out: Word",
        "sink Collect",
        "Line(time: int64, text: str)",
        f"  {name}.py:",
    ):
        assert part in result.output


def test_plan_as_json_names_every_vertex_and_edge(module: Callable[[str], str]) -> None:
    result = command("plan", "--json", f"{module('flow = make()')}:flow")
    found = json.loads(result.output)
    assert [v["name"] for v in found["vertices"]] == ["lines", "count", "out"]
    assert [(e["from"], e["emitted_by"], e["to"], e["key"]) for e in found["edges"]] == [
        ("lines", "split", "count", ["word"]),
        ("count", "count", "out", None),
    ]
    assert found["records"]["Word"] == ["time: int64", "word: str"]


# ---------------------------------------------------------------------------------- run


def test_run_ends_with_totals(module: Callable[[str], str]) -> None:
    result = command("run", "--local", "--instances", "count=2", f"{module('flow = make')}:flow")
    assert result.exit_code == 0, result.output
    assert "words: ended after" in result.output
    (row,) = (line for line in result.output.splitlines() if line.split()[:1] == ["count"])
    assert row.split()[1:4] == ["2", "9", "9"]


def test_an_operator_that_raises_is_told_with_its_line(module: Callable[[str], str]) -> None:
    name = module("BAD = 2\nflow = make()")
    result = command("run", "--local", f"{name}:flow")
    assert result.exit_code == 1
    first, where, at, *below = result.stderr.splitlines()
    assert first == "error: count raised ValueError: the second one"
    assert f"{name}.py:" in where and 'raise ValueError("the second one")' in where
    assert at == "  at key 'or', epoch 2, record 0"
    assert below[0] == "Traceback (most recent call last):"
    assert not any("raystream" in line for line in below)


def test_a_module_that_raises_is_told_without_what_loaded_it(module: Callable[[str], str]) -> None:
    name = module("def half() -> float:\n    return 1 / 0\nflow = half()")
    told = command("plan", f"{name}:flow").stderr
    assert "ZeroDivisionError" in told and told.count("  File ") == 2
    assert "importlib" not in told


def test_check_names_who_is_not_deterministic(module: Callable[[str], str]) -> None:
    name = module("""
        import itertools

        COUNTER = itertools.count()

        @rs.operator(key="word")
        def counts(word: Word) -> Iterator[Word]:
            yield Word(next(COUNTER), word.word)

        flow = rs.Flow("unsound")
        lines = flow.source(Lines(), epochs=rs.by_time(seconds=1))
        lines.through(split).through(counts).to(Collect())
    """)
    assert command("run", "--local", f"{name}:flow").exit_code == 0
    result = command("run", "--local", "--check", f"{name}:flow")
    assert result.exit_code == 1
    first, where, *_ = result.stderr.splitlines()
    assert first.startswith("error: counts is not deterministic: key groups [0, 256)")
    assert f"{name}.py:" in where


BROKEN = {
    "no colon": ("flow = make()", "{m}", "does not name a flow"),
    "no module": ("", "nothing_here:flow", "there is no module 'nothing_here'"),
    "no name": ("flow = make()", "{m}:flo", "has no 'flo'\n  Its flows: flow."),
    "a file alone": ("", "some/flow.py", "does not name a flow\n  Write some.flow:NAME"),
    "no flow there": ("", "{m}:flow", "has no 'flow'\n  It has no rs.Flow."),
    "no function of that name": (
        "def live() -> rs.Flow: ...\ndef later(n: int = 1) -> 'rs.Flow': ...\n"
        "def of(n: int) -> rs.Flow: ...\ndef other() -> int: ...",
        "{m}:liv",
        "has no 'liv'\n  Its flows: live, later.",
    ),
    "an operator": (
        "flow = make()",
        "{m}:split",
        "is a function, not an rs.Flow\n  Its flows: flow.",
    ),
    "a relative name": ("", "..flow:x", "is a relative name\n  Write flow:x, from its folder."),
    "a file": ("", "some/flow.py:x", "is a file, not a module\n  Write some.flow:x."),
    "not a flow": ("flow = 3", "{m}:flow", "is a int, not an rs.Flow"),
    "module raises": ("1 / 0", "{m}:flow", "raised ZeroDivisionError: division by zero"),
    "module imports what is not there": ("import nothing_there", "{m}:flow", "No module named"),
    "function raises": ("def flow():\n    return {}[1]", "{m}:flow", "raised KeyError"),
    "bad syntax": ("def", "{m}:flow", "raised SyntaxError"),
    "graph": ("flow = make()\nflow.source(3)", "{m}:flow", "int is not a source"),
    "ends the program": ("exit('enough')", "{m}:flow", "raised SystemExit: enough"),
    "function ends the program": ("def flow(): exit(3)", "{m}:flow", "raised SystemExit: 3"),
    "not a collection": ("rs.io.iterable(7, Line)", "{m}:flow", "given a int: it is not a coll"),
    "nothing in it": ("flow = rs.Flow('f')", "{m}:flow", "has no source"),
    "no sink": ("flow = rs.Flow('f')\nflow.source(Lines())", "{m}:flow", "has no sink"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_wrong_flow_is_refused(case: str, module: Callable[[str], str]) -> None:
    text, target, told = BROKEN[case]
    name = module(text)
    for verb in (["plan"], ["run", "--local"]):
        result = command(*verb, target.format(m=name))
        assert result.exit_code == 2, result.output
        assert result.stderr.startswith("error: ")
        assert told in result.stderr


AT_WORK = {
    "yields another value": ("yield Word('late', word.word)", "{m}.py", "'late' does not fit time"),
    "yields no record": ("yield (1, 'x')", "{m}.py", "emitted a tuple, which its annotation"),
    "returns one record": ("return word", "{m}.py", "`yield` records, or return a list"),
    "returns a number": ("return 7", "key 'or'", "Does it return something other than records?"),
    "ends the program": ("yield exit('enough')", "exit('enough')", "called sys.exit('enough')"),
    "panics": ("raise BaseException('oh')", "raise BaseException", "raised BaseException: oh"),
    "has no such field": (
        "tally.m = 1; yield word",
        "tally.m = 1",
        "'Tally' object has no attribute 'm'",
    ),
}


@pytest.mark.parametrize("case", AT_WORK)
def test_an_operator_that_does_what_it_may_not_is_told(
    case: str, module: Callable[[str], str]
) -> None:
    line, place, told = AT_WORK[case]
    name = module(f"""
        @rs.operator(key="word")
        def wrong(word: Word, tally: Tally) -> Iterator[Word]:
            {line}

        flow = rs.Flow("wrong")
        words = flow.source(Lines(), epochs=rs.by_time(seconds=1)).through(split)
        words.through(wrong).to(Collect())
    """)
    result = command("run", "--local", f"{name}:flow")
    assert result.exit_code == 1 and result.stderr.startswith("error: ")
    assert told in result.stderr and place.format(m=name) in result.stderr
    assert "site-packages" not in result.stderr and "/raystream/" not in result.stderr


SOURCES = {
    "splits are no splits": ("splits = lambda self: ['a']", "returns a str among its splits"),
    "reads nothing": ("read = lambda *_: None", "returned a NoneType"),
    "reads records": (
        "read = lambda *_: iter([[Line(1, 'x')]])",
        "yields a list\n  It is to yield",
    ),
    "reads two numbers": ("read = lambda *_: iter([(1, 2)])", "yields (int, int)"),
}


@pytest.mark.parametrize("case", SOURCES)
def test_a_source_that_is_none_is_told(case: str, module: Callable[[str], str]) -> None:
    line, told = SOURCES[case]
    name = module(f"""
        class Wrong(Lines):
            {line}

        flow = rs.Flow("wrong")
        flow.source(Wrong(), epochs=rs.by_time(seconds=1)).through(split).to(Collect())
    """)
    result = command("run", "--local", f"{name}:flow")
    assert result.exit_code == 2, result.stderr
    assert told in result.stderr and "Traceback" not in result.stderr


def test_a_folder_that_cannot_be_made_is_told_without_a_traceback(
    module: Callable[[str], str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    durable = str(tmp_path / "file" / "store")
    result = command("run", "--local", "--durable", durable, f"{module('flow = make()')}:flow")
    assert result.exit_code == 2
    assert "cannot be made" in result.stderr and "Traceback" not in result.stderr


def test_a_bug_is_said_to_be_one(
    module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(flow: rs.Flow, **told: Any) -> None:
        raise KeyError("oh")

    monkeypatch.setattr("raystream.run.run", run)
    result = command("run", f"{module('flow = make()')}:flow")
    first, hint, *below = result.stderr.splitlines()
    assert (result.exit_code, first) == (1, "error: KeyError: 'oh'")
    assert "please report it" in hint and below[0].startswith("Traceback")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--instances", "count"], "not of the form NAME=N"),
        (["--instances", "count=two"], "not of the form NAME=N"),
        (["--instances", "count=1,count=2"], "twice"),
        (["--instances", "cuont=2"], "there is no operator 'cuont'"),
        (["--instances", "split=2"], "runs inside 'lines'"),
        (["--instances", "count=0"], "from 1 to"),
        (["--rows", "count"], "not of the form NAME=N"),
        (["--rows", "lines=9"], "is no compiled or batch operator with state"),
        (["--address", "auto"], "exclude each other"),
        (["--policy", "cpuu"], "there is no policy 'cpuu'"),
        (["--bounds", "count=3"], "not of the form NAME=LEAST-MOST"),
        (["--policy", "cpu"], "need a cluster"),
        (["--bounds", "count=1-3"], "need a cluster"),
        (["--pool", "0"], "need a cluster"),
        (["--copies", "2"], "copies needs a cluster"),
        (["--spares", "0"], "spares needs a cluster"),
    ],
)
def test_a_wrong_option_is_refused(
    options: list[str], told: str, module: Callable[[str], str]
) -> None:
    result = command("run", "--local", *options, f"{module('flow = make()')}:flow")
    assert result.exit_code == 2
    assert told in result.stderr


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ((), ("auto", {}, None)),
        (
            ("--policy", "cpu", "--bounds", "count=1-4,split=2-2"),
            (rs.CpuThreshold(), {"count": (1, 4), "split": (2, 2)}, None),
        ),
        (("--pool", "2"), ("auto", {}, rs.PoolOptions(2))),
        (("--policy", "none", "--pool", "2"), (None, {}, rs.PoolOptions(2))),
        (
            ("--policy", "rate", "--pool", "1", "--nodes-max", "12"),
            (rs.RateBased(), {}, rs.PoolOptions(1, nodes_max=12)),
        ),
    ],
)
def test_what_scales_is_handed_on(
    options: tuple[str, ...],
    wanted: object,
    module: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {}

    def run(flow: rs.Flow, **told: Any) -> None:
        given.update(told)
        raise Stopped("enough")

    monkeypatch.setattr("raystream.run.run", run)
    assert command("run", *options, f"{module('flow = make()')}:flow").exit_code == 3
    assert (given["policy"], given["bounds"], given["pool"]) == wanted


def test_who_was_stopped_ends_with_3(module: Callable[[str], str]) -> None:
    body = "    from raystream.errors import Stopped; raise Stopped('enough')"
    result = command("run", "--local", f"{module('def flow():' + chr(10) + body)}:flow")
    assert (result.exit_code, result.stderr.strip()) == (3, "enough")


@pytest.mark.parametrize("arguments", [("jobs",), ("stop", "words")])
def test_without_a_cluster_nothing_can_be_stopped(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting.ray, "is_initialized", lambda: False)  # other tests use Ray here
    result = command(*arguments, "--address", "127.0.0.1:1")
    assert result.exit_code == 2
    assert "no Ray cluster at '127.0.0.1:1'" in result.stderr


def test_ctrl_c_ends_with_130(module: Callable[[str], str]) -> None:
    result = command(
        "run", "--local", f"{module('def flow():' + chr(10) + '    raise KeyboardInterrupt')}:flow"
    )
    assert result.exit_code == 130
    assert result.stderr.startswith("interrupted")


def test_scale_of_nothing_is_refused() -> None:
    result = command("scale", "words", "")
    assert result.exit_code == 2 and "no operator is named" in result.stderr


def test_scale_names_no_option_that_it_does_not_have() -> None:
    result = command("scale", "words", "count")
    assert result.exit_code == 2 and "'count' is not of the form NAME=N" in result.stderr
    assert "--instances" not in result.stderr


def test_a_function_that_needs_arguments_is_no_flow(module: Callable[[str], str]) -> None:
    name = module("def flow(what): return make()")
    with pytest.raises(GraphError, match="missing 1 required positional argument") as caught:
        load_flow(f"{name}:flow")
    assert not notes(caught.value), "there is no code of the user's in it"


# ---------------------------------------------------------------------------------- quick

HEAVY = "{'numpy', 'pyarrow', 'ray', 'numba', 'pandas', 'msgpack'}"


@pytest.mark.parametrize(
    "code", ["import raystream", "import raystream.cli", "import raystream.errors"]
)
def test_importing_loads_nothing_heavy(code: str) -> None:
    probe = f"{code}; import sys; print(sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_loads_nothing_heavy() -> None:
    probe = (
        "import sys; sys.argv = ['raystream', 'run', '--help']\n"
        "from raystream.cli import main\n"
        "try: main()\n"
        f"finally: print(sorted({HEAVY} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")
    assert "--checkpoint-seconds" in done.stdout


def test_lines_of_a_docstring_are_no_lines_of_the_help() -> None:
    told = [info.help or "" for info in app.registered_commands]
    assert len(told) > 20 and sum("\n\n" in said for said in told) > 10
    assert not any("\n" in paragraph for said in told for paragraph in said.split("\n\n"))


def test_version_names_what_counts() -> None:
    import numpy

    result = command("version")
    assert result.exit_code == 0 and command("--version").output == result.output
    assert f"numpy {numpy.__version__}" in result.output
