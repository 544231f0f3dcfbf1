"""What the controller keeps in several places: the journal, checkpoints, the boundary register.

The lower half of the machine. It sees to it that there is a keeper on every node, that whoever lost
one has others and stores anew at once, in a cut out of turn, and that the boundary register has its
places.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from raystream.controller import commands as do
from raystream.controller.commands import Command, Event
from raystream.controller.journal import NOBODY, Entry, Post, Seat
from raystream.controller.members import Member, Options
from raystream.controller.placing import keepers_of
from raystream.controller.registering import Registering, change, due, first, resumed
from raystream.dataflow.plan import Plan
from raystream.state.assignment import Assignment

KEEPER = "keeper-"
"""How the names of keepers begin."""
LASTING_SECONDS = 10.0
"""A keeper that dies sooner could not begin."""
REST_SECONDS = 0.5
REST_MAX_SECONDS = 30.0
"""How long a node rests on which two keepers in a row could not begin: twice as long each time, and
at most how long."""
CUT_AHEAD = 16
"""How many epochs after the newest that is known an extra cut is asked for at first."""


class Failing(NamedTuple):
    """A node where keepers do not begin. times: how many in a row; rest: seconds it is left alone,
    until then; why: what became of the last one."""

    times: int
    rest: float
    until: float
    why: str


class Keeping:
    """Keeps what a job has to know again.

    journal: what was written last. members: who has a place. ended: whether the job has.
    """

    def __init__(self, plan: Plan, options: Options, journal: Entry) -> None:
        self.plan = plan
        self.options = options
        self.journal = journal
        self.members = [Member(seat, seat.last) for seat in journal.seats]
        self.ended = False
        self.now = 0.0
        self._drawn = 0
        self._at: tuple[str, ...] = ()  # who is to have the newest entry of the journal
        self._nodes: tuple[str, ...] = ()
        self._posted: dict[str, float] = {}  # when a keeper was asked for
        self._unkept: dict[str, Failing] = {}
        self._wanted: tuple[int, int] | None = None  # an extra cut: after which floor, how far on
        assignment = journal.assignment
        self._named = dict.fromkeys(assignment.cuts, assignment.version)
        """Of cuts beside every n-th the version of an assignment that names them."""
        self._register: Registering | None = None
        self._stage: tuple[int, bool, bool] | None = None
        self._out: list[Command] = []
        if journal.stop_after >= 0:
            self._wanted = (journal.stop_after, CUT_AHEAD)
        elif self.bare:
            self._wanted = (journal.committed, CUT_AHEAD)

    @property
    def bare(self) -> int:
        """How many ranges have fewer copies of their checkpoint than they should; the boundary
        register counts as one."""
        moving = self._register is not None and not self._register.settled
        return sum(map(self._is_bare, self.members)) + moving

    def _is_bare(self, m: Member) -> bool:
        """Whether a copy is missing of what its range was at the floor."""
        stored = self.options.recovery == "state"
        return stored and not m.seat.held <= {p.process for p in self.journal.posts}

    @property
    def unstored(self) -> str:
        """Why a checkpoint is not stored that is to be, if its keepers could not; or why a node has
        none."""
        said = ((m.name, m.progress.unstored) for m in self.members if m.progress)
        refused = [f"{name} could not store a checkpoint: {why}" for name, why in said if why]
        lacking = {*self._nodes} - {p.node for p in self.journal.posts}
        refused += [
            f"node {node[:8]} has no keeper, {f.times} died as they began: {f.why}"
            for node, f in self._unkept.items()
            if node in lacking
        ]
        return next(iter(refused), "")

    def _write(self, **changes: object) -> None:
        """Put the journal's next entry before whatever follows."""
        entry = replace(self.journal, number=self.journal.number + 1, **changes)  # type: ignore[arg-type]
        before, at = self._at, entry.places(self.options.copies)
        old = [p.process for p in self.journal.posts if p in entry.posts]
        left = tuple(p for p in old if p not in at) if at != before else ()
        self.journal, self._at = entry, at
        self._out.append(do.Write(entry, at, left))

    def _keep_journal(self, event: Event) -> None:
        """The end has to be written too."""
        if isinstance(event, do.Tick):
            self._nodes = event.nodes
            self._post(event.nodes)
        elif isinstance(event, do.Gone):
            posts = tuple(p for p in self.journal.posts if p.process != event.process)
            if posts != self.journal.posts:
                self._write(posts=posts)

    def _assign(self, assignment: Assignment, **changes: object) -> None:
        self._write(assignment=assignment, **changes)
        self._out += [do.Assign(m.seat.process, assignment) for m in self.members if not m.dead]

    def _name(self) -> str:
        """A name for a process that none has had."""
        self._drawn += 1
        return f"{self.journal.incarnation}.{self._drawn}"

    def _sources(self) -> list[Member]:
        kinds = self.plan.vertices
        return [m for m in self.members if kinds[m.seat.place.vertex].kind == "source"]

    # ------------------------------------------------------------ keepers

    def _post(self, nodes: Iterable[str]) -> None:
        """Have a keeper on every node, unless none could begin there just now."""
        held = {p.node for p in self.journal.posts} | self.journal.drained
        held |= {node for node, failing in self._unkept.items() if self.now < failing.until}
        new = tuple(Post(n, KEEPER + self._name()) for n in sorted({*nodes} - held))
        if new or not self.journal.number:
            self._posted |= {p.process: self.now for p in new}
            self._out += [do.Keep(p.process, p.node) for p in new]
            self._write(posts=self.journal.posts + new)

    def _keeper_gone(self, process: str, why: str) -> None:
        """Its node gets another one, if that is alive."""
        entry = self.journal
        post = next(p for p in entry.posts if p.process == process)
        self.journal = replace(entry, posts=tuple(p for p in entry.posts if p is not post))
        self._failed_at(post, why)
        before = self.journal.number
        if post.node in self._nodes:
            self._post([post.node])
        if self.journal.number == before:
            self._write()
        self._out.append(do.Kill(process, "its place is another's"))
        self._keep()
        if self.bare:
            self._want_cut()

    def _failed_at(self, post: Post, why: str) -> None:
        """Count the keepers of a node that could not begin."""
        known = self._unkept.pop(post.node, Failing(0, 0.0, 0.0, ""))
        if self.now - self._posted.pop(post.process, -LASTING_SECONDS) < LASTING_SECONDS:
            rest = min(REST_MAX_SECONDS, 2 * known.rest or REST_SECONDS) if known.times else 0.0
            self._unkept[post.node] = Failing(known.times + 1, rest, self.now + rest, why)

    def _keep(self) -> None:
        """Who lost a keeper has others, and stores a new checkpoint at once."""
        posts = {p.process for p in self.journal.lasting}
        full = min(self.options.copies, len(posts))
        kept_by = {m.name: {*m.seat.keepers} for m in self.members}
        short = [m for m in self.members if not kept_by[m.name] <= posts
                 or len(kept_by[m.name]) < full]  # fmt: skip
        if not short:
            return
        kept = self.journal.kept + 1
        for m in short:
            held = m.seat.held.union(m.seat.keepers, [NOBODY] * (len(m.seat.keepers) < full))
            m.seat = replace(m.seat, keepers=self._keepers_of(m.seat), kept=kept, held=held)
        self._write(seats=tuple(m.seat for m in self.members), kept=kept)
        told = [m.seat for m in short if not m.dead]
        self._out += [do.KeptBy(s.process, s.keepers, s.kept) for s in told]
        self._want_cut()

    def _vacate(self) -> None:
        """End keepers on nodes that are to be left, once others hold all that they hold."""
        stay = self.journal.lasting
        gone = [p.process for p in self.journal.posts if p not in stay]
        if not gone or any(map(self._is_bare, self.members)):
            return
        if {*gone} & {k for m in self.members for k in (*m.seat.keepers, *m.seat.held)}:
            return
        self._write(posts=stay)
        self._out += [do.Kill(p, "its node is to be left") for p in gone]

    def _keepers_of(self, seat: Seat) -> tuple[str, ...]:
        place = seat.place
        producers = {e.producer for e in self.plan.vertices[place.vertex].inputs}
        upstream = [m.seat.node for m in self.members if m.seat.place.vertex in producers]
        posts = {p.node: p.process for p in self.journal.lasting}
        source = self.plan.vertices[place.vertex].kind == "source"
        nodes = keepers_of(place, seat.node, upstream, posts, self.options.copies, source=source)
        return tuple(posts[n] for n in nodes)

    # ------------------------------------------------------------ the boundary register

    def _register_boundaries(self, *, again: bool) -> None:
        """Have the boundary register in as many places as it should be, and the sources told.

        Args:
            again: whether to say again what was not answered.
        """
        if self.plan.clock is not None or not self.members or self.ended:
            return
        entry, committed = self.journal, self.journal.committed
        places = entry.places(self.options.copies)
        living = [p.process for p in entry.posts]
        told = {m.seat.process: m.progress.view if m.progress else 0
                for m in self._sources() if not m.dead}  # fmt: skip
        state = self._register
        if state is None and entry.view:
            state = resumed(entry.view, entry.told, entry.knowing)
        elif state is None:
            state = first(places, told, self.plan.begins)
        if due(state, places, living, told):
            ended = [(m, m.progress) for m in self._sources() if m.progress and m.progress.ended]
            over = [m.seat.process for m, p in ended if p.position <= committed]
            vacant = [m.seat.process for m in self._sources() if m.dead]
            state = change(state, places, living, told, vacant, over)
        if (state.begun.number, state.told) != (entry.view, entry.told):
            self._write(view=state.begun.number, told=state.told, knowing=state.knowing)
        stage = (state.begun.number, state.content is None, state.settled)
        if again or stage != self._stage:
            self._out += state.commands(told)
        self._register, self._stage = state, stage

    # ------------------------------------------------------------ cuts out of turn

    def _want_cut(self) -> None:
        """Ask for a cut as soon as it can be."""
        if self.options.recovery == "state" and self._wanted is None:
            self._wanted = (self.journal.committed, CUT_AHEAD)
            self._cut_soon()

    def _cut_if_wanted(self) -> None:
        """Ask again for a cut of which some source heard too late, further on."""
        if self._wanted is None:
            return
        before, ahead = self._wanted
        cuts = self.journal.assignment.cuts
        if self.journal.committed > before:
            self._wanted = None
        elif not cuts or all(m.progress and m.progress.stored > cuts[-1] for m in self._sources()):
            self._wanted = (before, 4 * ahead)
            self._cut_soon()

    def _cut_soon(self) -> None:
        assert self._wanted is not None
        at = [m.progress for m in self._sources() if m.progress is not None]
        if not at or all(p.ended for p in at):
            return  # the last epoch is a cut
        epoch = max(p.position for p in at) + self._wanted[1]
        self._assign(self.journal.assignment.cut_at(epoch, self.journal.committed))
        cuts, version = self.journal.assignment.cuts, self.journal.assignment.version
        self._named = {e: self._named.get(e, version) for e in cuts}
