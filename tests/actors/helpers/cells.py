"""A notebook without Jupyter: cells run in `__main__` as IPython runs them, with their text where
`linecache` finds it and in no file.

python -m tests.actors.helpers.cells carry PLANS    pickle the plans of the cells' two flows
python -m tests.actors.helpers.cells run PLANS      run them in this process, which has no cells
python -m tests.actors.helpers.cells ray ADDRESS    run the flows on Ray
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CELLS = {
    "a": """
import threading
from collections.abc import Iterator
from typing import NamedTuple
import raystream as rs
LOCK = threading.Lock()  # no operator uses it, so it need not travel
""",
    "b": """
class Word(NamedTuple):
    time: int
    shop: int
    n: rs.Int32 = 1

class Tally(rs.State):
    n: int = 0
    seen: list[int] = rs.field(factory=list)
    due: rs.Timer = rs.NEVER

class Number(rs.State):
    n: int = 0

FACTOR = 10
def times(n: int) -> int:
    return n * FACTOR
""",
    "c": """
@rs.operator(key="shop")
class Count:
    def process(self, word: Word, tally: Tally) -> Iterator[Word]:
        tally.seen.append(word.time)
        tally.due = word.time + 100
        yield word._replace(n=times(len(tally.seen)))

    def timer(self, shop: int, time: int, tally: Tally) -> Iterator[Word]:
        yield Word(time, shop, -len(tally.seen))

@rs.operator(key="shop", compiled=True)
def numbered(word: Word, number: Number) -> Iterator[Word]:
    number.n += 1
    yield Word(word.time, word.shop, word.n + number.n)
""",
    "d": """
flow = rs.Flow("cells")
WORDS = [Word(t, t % 2) for t in range(6)]
words = flow.source(rs.io.iterable(WORDS, Word), epochs=rs.by_time(seconds=1))
words.through(Count()).through(numbered).to(rs.io.csv("out"), name="out")
""",
    "e": """
@rs.operator(key="shop")
def broken(word: Word, number: Number) -> Iterator[Word]:
    yield Word(word.time, word.shop, 1 // (word.time - 3))

failing = rs.Flow("failing")
words = failing.source(rs.io.iterable(WORDS, Word), epochs=rs.by_time(seconds=1))
words.through(broken).to(rs.io.csv("failing"), name="out")
""",
}
ANSWERS = [
    (0, 0, 11), (1, 1, 11), (2, 0, 22), (3, 1, 22), (4, 0, 33), (5, 1, 33),
    (104, 0, 1), (105, 1, 1),
]  # fmt: skip


def run_cells() -> dict[str, Any]:
    """Run all cells; the names that they define."""
    names = vars(sys.modules["__main__"])
    for name, text in CELLS.items():
        text = f"from __future__ import annotations\n{text}"  # IPython keeps what a cell imported
        file = f"<cell {name}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec", dont_inherit=True), names)
    return names


def main(what: str, where: str) -> None:
    from ray import cloudpickle

    if what == "run":
        from raystream.actors.cluster.user_code import show_code
        from raystream.local.job import LocalJob

        plans = cloudpickle.loads(Path(where).read_bytes())
        again = cloudpickle.loads(cloudpickle.dumps(plans))  # as the controller sends them on
        for plan, copy in zip(plans, again, strict=True):
            kinds = [s.cls for v in plan.vertices for s in v.schemas]
            assert kinds == [s.cls for v in copy.vertices for s in v.schemas]
            show_code(copy.vertices)
            print(told(LocalJob(copy).run))
        return
    from raystream.actors.cluster.by_value import make_portable
    from raystream.controller.planning.plans import make_plan

    names: dict[str, Any] = run_cells()
    if what == "carry":
        plans = [make_plan(names[name]) for name in ("flow", "failing")]
        for plan in plans:
            make_portable(plan.vertices)
        Path(where).write_bytes(cloudpickle.dumps(plans))
        return
    print(names["flow"].run(cluster=where).operator("Count").records_in)
    print(told(lambda: names["failing"].run(cluster=where)))


def told(run: Callable[[], object]) -> str:
    """What a run says when an operator fails."""
    from raystream.errors import OperatorError

    try:
        run()
    except OperatorError as error:
        return str(error)
    return "all is well"


if __name__ == "__main__":
    main(*sys.argv[1:])
