"""Moves, step by step: who takes part, when it is done, and what comes of every death."""

from __future__ import annotations

import pytest

from raystream.controller import commands as do
from raystream.controller.machine import Machine
from raystream.controller.members import Member, Options
from raystream.controller.moves import (
    DELIVER_SECONDS,
    LEVEL_SECONDS,
    STOP_SECONDS,
    TRIES_MAX,
    Mode,
    Wanted,
    changes,
    elsewhere,
    evenly,
    tiles,
)
from raystream.errors import ConfigError, JobError
from raystream.schema.types import KeyRange
from raystream.state.keys import even_ranges
from tests.controller.driven import NODES, Driven

GROUPS = 16
HALVES = tuple(even_ranges(GROUPS, 2))
ALL = KeyRange(0, GROUPS)
STATE_BYTES = 1000
"""Of each new instance."""


class Moved(Driven):
    """A job at epoch 25 with a cut at 20, which is asked for moves."""

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self.start()
        self.at(25)
        self.tick()
        self.said.clear()

    def ask(self, operator: str, *ranges: KeyRange, leave: tuple[str, ...] = (), node: str = "",
            mode: Mode = "replay") -> str:  # fmt: skip
        wanted = Wanted(operator, ranges, "tested", leave, node, mode)
        self.hear(do.Rescale(7, (wanted,)))
        return self.all(do.Answer)[-1].refusal

    def hire(self, node: str = "a") -> None:
        """Whoever is to be started is."""
        done = {h.process for h in self.hired}
        for hire in [h for h in self.all(do.Hire) if h.process not in done]:
            self.hired.append(hire)
            self.hear(do.Hired(hire.process, hire.node or node, 1))

    def restore(self) -> None:
        """Whoever was given a place has its state."""
        for become in self.given:
            self.hear(do.Became(become.process, f"grpc://{become.process}", STATE_BYTES))

    @property
    def given(self) -> list[do.Become]:
        ready = {m.seat.process for m in self.machine.members}
        return [b for b in self.all(do.Become) if b.process not in ready]

    def members(self, operator: str) -> dict[str, Member]:
        found = [m for m in self.machine.members if m.seat.place.operator == operator]
        return {m.name: m for m in found}

    def owners(self, operator: str) -> dict[str, KeyRange]:
        found = [m.seat.place for m in self.machine.owners]
        return {p.name: p.keys for p in found if p.operator == operator}

    def die(self, name: str) -> None:
        member = next(m for m in self.machine.members if m.name == name)
        self.hear(do.Gone(member.seat.process, "killed"))

    def record(self) -> tuple[str, tuple[str, ...], int, str]:
        """Of the last move: operator, who took ranges, attempts, why it was given up."""
        last = self.machine.journal.moved[-1]
        return last.operator, last.new, last.tries, last.failed

    hired: list[do.Hire]

    def start(self) -> None:
        self.hired = []
        super().start()
        self.hired = self.all(do.Hire)

    def restart(self) -> None:
        """Another controller goes on from the journal; everybody answers it."""
        alive = [m.seat.process for m in self.machine.members]
        alive += [p.process for p in self.machine.journal.posts]
        alive += [b.process for b in self.given]
        self.machine = Machine(self.plan, self.options, self.machine.journal, 2)
        self.said.clear()
        self.hear_of(self.machine.start(NODES, alive, self.now))
        for adopt in self.all(do.Adopt):
            self.hear(do.Gone(adopt.process, "it has a place that nobody knows"))


def test_candidates_take_over_once_they_are_level() -> None:
    job = Moved()
    assert job.ask("count", *HALVES) == ""
    assert len(job.all(do.Hire)) == 2 and job.machine.journal.moves[0].floor == -1
    job.hire()
    assert [(b.place.name, b.place.keys, b.floor) for b in job.given] == [
        ("count/1", HALVES[0], 20),
        ("count/2", HALVES[1], 20),
    ]
    assert job.machine.journal.moves[0].floor == 20
    job.restore()
    assignment = job.machine.journal.assignment
    assert {s.instance for s in assignment.serving if s.candidate} == {"count/1", "count/2"}
    assert {b.seat.name for b in job.all(do.Begin)} == {"count/1", "count/2"}
    assert [p.name for p in job.machine.progress() if p.vertex == "count"] == ["count/0"]
    for position in (24, 25):
        assert list(job.owners("count")) == ["count/0"]
        for name in ("count/1", "count/2"):
            job.at(position, only=name)
        job.tick()
    assert job.owners("count") == {"count/1": HALVES[0], "count/2": HALVES[1]}
    (kill,) = job.all(do.Kill)
    assert kill.gently and job.record() == ("count", ("count/1", "count/2"), 1, "")
    assert not job.machine.journal.moves and not job.machine.candidates
    job.at(30)
    job.tick()
    assert job.machine.journal.committed == 30


def test_the_floor_stays_while_state_is_fetched_and_waits_for_candidates() -> None:
    job = Moved()
    job.ask("count", *HALVES)
    job.at(30)
    job.tick()
    assert job.machine.journal.committed == 30  # nobody has begun to fetch anything
    job.hire()
    job.at(40)
    job.tick()
    assert job.machine.journal.committed == 30
    job.restore()
    job.at(30, only="count/1")
    job.at(39, only="count/2")
    job.tick()
    assert job.machine.journal.committed == 30
    job.at(40, only="count/1")
    job.at(40, only="count/2")
    job.tick()
    assert job.machine.journal.committed == 40


def test_ranges_that_stay_are_left_alone() -> None:
    job = Moved()
    grow(job, *HALVES)
    assert job.ask("count", HALVES[0], KeyRange(8, 10), KeyRange(10, 16)) == ""
    job.hire()
    assert [b.place.name for b in job.given] == ["count/3", "count/4"]
    finish(job)
    assert list(job.owners("count")) == ["count/1", "count/3", "count/4"]
    grow(job, ALL)
    assert job.owners("count") == {"count/5": ALL}


def grow(job: Moved, *ranges: KeyRange) -> None:
    assert job.ask("count", *ranges) == ""
    job.hire()
    finish(job)
    assert set(job.owners("count").values()) == set(ranges)


def finish(job: Moved) -> None:
    """What was given places has its state, and everybody is level."""
    job.restore()
    job.at(25 if job.machine.journal.committed < 30 else 45)
    job.tick()


@pytest.mark.parametrize(
    ("operator", "ranges", "why"),
    [
        ("cuont", HALVES, "there is no operator 'cuont'"),
        ("split", HALVES, "'split' keeps no state, so it runs inside 'lines'"),
        ("count", HALVES[:1], "do not tile the 16 key groups"),
        ("count", (ALL,), "count is served like that already"),
        ("collect", HALVES, "collect is a sink: its instances can be moved, but its ranges stay"),
    ],
)
def test_what_cannot_be_is_refused(operator: str, ranges: tuple[KeyRange, ...], why: str) -> None:
    job = Moved()
    assert why in job.ask(operator, *ranges)
    assert not job.machine.journal.moves


def test_what_cannot_be_now_is_refused() -> None:
    job = Moved()
    assert job.ask("count", ALL, leave=("count/7",)).startswith("there is no instance 'count/7'")
    assert job.ask("count", ALL, leave=("count/0",), node="c").startswith("there is no node c")
    assert job.ask("count", *HALVES) == ""
    assert job.ask("count", *HALVES).startswith("count is being moved already")
    assert job.ask("chain", *HALVES) == ""
    assert "recovery='source'" in Moved(Options(recovery="source")).ask("count", *HALVES)
    ended = Moved()
    ended.at(25, ended=True)
    assert ended.ask("count", *HALVES) == "the job has come to the end of its input"
    before = Driven()
    before.hear(do.Rescale(1, (Wanted("count", HALVES, "tested"),)))
    assert before.all(do.Answer)[-1].refusal == "the job has not begun"


def test_all_that_is_asked_for_together_is_taken_up_or_nothing() -> None:
    job = Moved()
    wanted = [Wanted(o, HALVES, "tested") for o in ("count", "lines", "collect")]
    job.hear(do.Rescale(1, tuple(wanted)))
    assert job.all(do.Answer)[-1].refusal and not job.machine.journal.moves
    job.hear(do.Rescale(2, tuple(wanted[:2])))
    assert [m.operator for m in job.machine.journal.moves] == ["count", "lines"]


# ---------------------------------------------------------------- deaths


@pytest.mark.parametrize("step", ["given", "ready", "candidates"])
def test_when_a_candidate_dies_all_begin_anew(step: str) -> None:
    job = Moved()
    job.ask("count", *HALVES)
    job.hire()
    first, second = (b.process for b in job.given)
    if step != "given":
        job.hear(do.Became(first, "grpc://1"))
    if step == "candidates":
        job.hear(do.Became(second, "grpc://2"))
    job.hear(do.Gone(second, "killed"))
    assert not job.machine.candidates and list(job.owners("count")) == ["count/0"]
    assert {k.process for k in job.all(do.Kill)} >= {first}
    assert job.machine.journal.moves[0].tries == 1
    assert not [s for s in job.machine.journal.assignment.serving if s.candidate]
    job.tick()
    job.hire()
    assert {b.place.name for b in job.given} >= {"count/3", "count/4"}
    for process in job.all(do.Become)[-2:]:
        job.hear(do.Became(process.process, "grpc://again"))
    job.at(25)
    job.tick()
    assert job.record() == ("count", ("count/3", "count/4"), 2, "")


def on_its_way(step: str) -> Moved:
    """A move that was asked for, whose processes were given their places, or are candidates."""
    job = Moved()
    job.ask("count", *HALVES)
    if step != "asked":
        job.hire()
    if step == "candidates":
        job.restore()
    return job


@pytest.mark.parametrize("step", ["asked", "given", "candidates"])
def test_when_an_owner_dies_it_is_replaced_first(step: str) -> None:
    job = on_its_way(step)
    job.die("count/0")
    assert not job.machine.candidates
    job.hire()
    recovered = [b for b in job.all(do.Become) if b.place.name == "count/0.1"]
    assert recovered and recovered[0].floor == 20
    job.hear(do.Became(recovered[0].process, "grpc://again"))
    assert list(job.owners("count")) == ["count/0.1"]
    job.at(25)
    job.tick()
    job.hire()
    for become in job.all(do.Become)[-2:]:
        job.hear(do.Became(become.process, "grpc://new"))
    job.at(25)
    job.tick()
    assert list(job.owners("count").values()) == list(HALVES)


def test_after_so_many_deaths_a_move_is_given_up() -> None:
    job = Moved()
    job.ask("count", *HALVES)
    for _ in range(TRIES_MAX):
        job.tick()
        job.hire()
        job.hear(do.Gone(job.all(do.Become)[-1].process, "killed"))
    operator, new, tries, failed = job.record()
    assert (operator, new, tries) == ("count", (), TRIES_MAX)
    assert failed.startswith(f"{TRIES_MAX} attempts came to nothing; the last: count/")
    assert list(job.owners("count")) == ["count/0"] and not job.machine.ended
    assert job.ask("count", *HALVES) == ""


def test_who_is_never_level_is_given_up() -> None:
    job = Moved()
    job.ask("count", *HALVES)
    job.hire()
    job.restore()
    for name in ("count/1", "count/2"):
        job.at(21, only=name)
    job.now += LEVEL_SECONDS + 1
    job.tick()
    assert "not level within" in job.record()[3] and not job.machine.candidates


def test_what_no_process_can_take_up_is_given_up_and_the_job_goes_on() -> None:
    job = Moved()
    job.ask("count", *HALVES)
    job.hire()
    job.hear(do.Failed(job.given[0].process, JobError("the reference is not there")))
    assert "the reference is not there" in job.record()[3] and not job.machine.ended
    job.ask("chain", *HALVES)
    for _ in range(20):
        job.hear(do.Gone(job.all(do.Hire)[-1].process, "no memory"))
        job.tick()
    assert "no process could be started" in job.record()[3] and not job.machine.ended


def test_nobody_moves_whose_checkpoint_is_not_stored() -> None:
    job = Moved()
    holder = job.members("count")["count/0"].seat.keepers[0]
    job.hear(do.Gone(holder, "killed"))
    assert job.ask("count", *HALVES) == ""
    job.tick()
    assert not job.all(do.Hire)
    job.at(30, kept=99)
    job.tick()
    job.tick()
    assert len(job.all(do.Hire)) == 2


@pytest.mark.parametrize("step", ["asked", "given", "candidates"])
def test_another_controller_goes_on_with_it(step: str) -> None:
    job = on_its_way(step)
    job.restart()
    assert bool(job.machine.candidates) == (step == "candidates")
    job.at(25)
    job.tick()
    if step != "candidates":
        for hire in job.all(do.Hire)[-2:]:
            job.hear(do.Hired(hire.process, "a", 1))
        for become in job.all(do.Become)[-2:]:
            job.hear(do.Became(become.process, "grpc://new"))
        job.at(25)
        job.tick()
    names = ("count/1", "count/2") if step != "given" else ("count/3", "count/4")
    if step == "asked":
        names = ("count/3", "count/4")  # names that were drawn are not drawn again
    assert job.record()[1] == names


# ---------------------------------------------------------------- hand-over


def delivered(deliver: do.Deliver, epoch: int, why: str = "", nbytes: int = 0) -> do.Delivered:
    return do.Delivered(deliver.process, tuple(p for p, _ in deliver.to), epoch, why, nbytes)


def handing_over() -> tuple[Moved, do.Deliver]:
    """A job in which the owner of a range is asked for what has changed; and what it is asked."""
    job = Moved()
    assert job.ask("count", *HALVES, mode="handover") == ""
    job.hire()
    assert all(b.held for b in job.given)
    job.restore()
    assert not job.machine.candidates
    (deliver,) = job.all(do.Deliver)
    assert [keys for _, keys in deliver.to] == [*HALVES] and deliver.floor == 20
    return job, deliver


def test_an_owner_brings_candidates_on_and_stays_until_the_floor_has_passed() -> None:
    job, deliver = handing_over()
    job.hear(delivered(deliver, 26, nbytes=70))
    serving = job.machine.journal.assignment
    assert [s.first for s in serving.serving if s.candidate] == [27, 27]
    assert serving.cuts  # soon there is a floor behind them
    job.at(29, stored=20)
    job.tick()
    assert list(job.owners("count")) == ["count/0"]
    job.at(31, stored=30)
    job.tick()
    assert job.machine.journal.committed == 30
    assert list(job.owners("count")) == ["count/1", "count/2"]
    assert job.record()[2:] == (1, "")
    assert job.machine.journal.moved[-1].nbytes == 2 * STATE_BYTES + 70


def test_a_range_of_several_owners_is_replayed() -> None:
    job = Moved()
    grow(job, *HALVES)
    ranges = (KeyRange(0, 4), KeyRange(4, 10), KeyRange(10, 16))
    assert job.ask("count", *ranges, mode="handover") == ""
    job.hire()
    assert [b.held for b in job.given] == [True, False, True]
    job.restore()
    assert [len(d.to) for d in job.all(do.Deliver)] == [1, 1]
    for deliver in job.all(do.Deliver):
        job.hear(delivered(deliver, 25))
    serving = job.machine.journal.assignment.serving
    assert [s.first for s in serving if s.candidate] == [26, 21, 26]


@pytest.mark.parametrize("why", ["refused", "late", "dead"])
def test_an_owner_that_does_not_deliver_ends_the_attempt(why: str) -> None:
    job, deliver = handing_over()
    if why == "refused":
        job.hear(delivered(deliver, 0, "no room"))
    elif why == "late":
        job.now += DELIVER_SECONDS + 1
        job.tick()
    else:
        job.die("count/0")
    (move,) = job.machine.journal.moves
    assert move.tries == 1 and not job.machine.candidates
    assert len(job.all(do.Kill)) >= 2 and not job.machine.ended


@pytest.mark.parametrize("why", ["", "no room"])
def test_what_an_owner_answers_late_is_not_said_of_those_who_came_later(why: str) -> None:
    job, early = handing_over()
    job.hear(do.Gone(early.to[0][0], "it was killed"))
    job.tick()
    job.hire()
    job.restore()
    late = job.all(do.Deliver)[-1]
    assert {p for p, _ in late.to}.isdisjoint(p for p, _ in early.to)
    job.hear(delivered(early, 22, why))
    (move,) = job.machine.journal.moves
    assert move.tries == 1 and not job.machine.candidates
    job.hear(delivered(late, 26))
    serving = job.machine.journal.assignment.serving
    assert [s.first for s in serving if s.candidate] == [27, 27]


# ---------------------------------------------------------------- sinks, nodes


def test_a_sink_begins_when_the_one_before_it_has_ended() -> None:
    job = Moved()
    sinks = tuple(job.owners("collect").values())
    assert job.ask("collect", *sinks, leave=("collect/0",)) == ""
    job.hire()
    old = job.members("collect")["collect/0"].seat.process
    job.restore()
    (kill,) = job.all(do.Kill)
    assert kill.process == old and kill.gently and not job.all(do.Begin)
    job.tick()
    assert not job.all(do.Begin)
    job.hear(do.Gone(old, "it was ended"))
    assert [b.seat.name for b in job.all(do.Begin)] == ["collect/1"]
    assert list(job.owners("collect")) == ["collect/1"] and not job.machine.journal.recoveries
    assert job.record() == ("collect", ("collect/1",), 1, "")


def test_a_sink_that_does_not_end_is_left_behind() -> None:
    job = Moved()
    job.ask("collect", ALL, leave=("collect/0",))
    job.hire()
    job.restore()
    job.now += STOP_SECONDS + 1  # so long the journal took to be written: only now it is told
    job.tick()
    assert list(job.owners("collect")) == ["collect/0"] and not job.all(do.Begin)
    job.now += STOP_SECONDS + 1
    job.tick()
    assert list(job.owners("collect")) == ["collect/1"]


def test_when_the_next_sink_dies_as_well_it_is_a_recovery() -> None:
    job = Moved()
    job.ask("collect", ALL, leave=("collect/0",))
    job.hire()
    job.restore()
    job.hear(do.Gone(job.given[0].process, "killed"))
    job.tick()
    job.hire()
    become = next(b for b in job.given if b.place.name == "collect/0.1")
    job.hear(do.Became(become.process, "grpc://new"))
    assert list(job.owners("collect")) == ["collect/0.1"]
    job.at(25)
    job.tick()
    assert not job.machine.journal.moves  # whom it was to replace is no more


def test_an_instance_goes_to_the_node_that_was_named() -> None:
    job = Moved(Options(spares=2))
    job.tick()
    job.hire("a")
    assert job.ask("count", ALL, leave=("count/0",), node="b") == ""
    job.hire("a")
    assert job.given[0].process == next(h.process for h in job.all(do.Hire) if h.node == "b")
    finish(job)
    assert job.members("count")["count/1"].seat.node == "b"


@pytest.mark.parametrize("ranges", [(ALL,), (KeyRange(0, 4), KeyRange(4, 8), HALVES[1])])
def test_a_source_is_scaled_of_which_a_part_ended_and_died(ranges: tuple[KeyRange, ...]) -> None:
    job = Moved()
    job.ask("lines", *HALVES)
    job.hire()
    finish(job)
    first = next(name for name, keys in job.owners("lines").items() if keys == HALVES[0])
    for m in job.machine.members:
        ended = m.name == first
        job.at(27 if ended else 40, only=m.name, ended=ended)
    job.tick()
    assert job.machine.journal.committed == 40
    job.die(first)
    job.hire()
    job.restore()
    assert job.ask("lines", *ranges) == ""
    job.at(45)
    job.tick()
    job.hire()
    job.restore()
    job.at(46)
    job.tick()
    assert set(job.owners("lines").values()) == {*ranges} and not job.machine.journal.moves


def test_what_changes() -> None:
    owned = {"a": KeyRange(0, 8), "b": KeyRange(8, 16)}
    third = (KeyRange(0, 8), KeyRange(8, 12), KeyRange(12, 16))
    assert changes(Wanted("o", third, ""), owned) == (third[1:], ("b",))
    assert changes(Wanted("o", (ALL,), ""), owned) == ((ALL,), ("a", "b"))
    assert changes(Wanted("o", HALVES, "", ("b",)), owned) == ((HALVES[1],), ("b",))
    assert changes(Wanted("o", HALVES, ""), owned) == ((), ())


def test_what_is_asked_for() -> None:
    plan = Moved().plan
    assert evenly(plan, "count", 2) == HALVES
    for instances in (0, GROUPS + 1):
        with pytest.raises(ConfigError, match="has from 1 to 16 instances"):
            evenly(plan, "count", instances)
    owned = {"count/1": ("count", HALVES[0]), "count/2": ("count", HALVES[1]), "x": ("y", ALL)}
    assert elsewhere("count/2", "n", owned, "b") == Wanted("count", HALVES, "b", ("count/2",), "n")
    with pytest.raises(ConfigError, match="there is no instance 'count/3'"):
        elsewhere("count/3", "", owned, "b")
    assert tiles(HALVES[::-1], GROUPS) and not tiles((*HALVES, ALL), GROUPS)
    assert not tiles([KeyRange(0, 9), HALVES[1]], GROUPS)
