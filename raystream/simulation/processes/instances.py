"""Simulated processes with an instance each: its machine and its tenure, as on a cluster, and what
drives them here. `streams` carries pieces between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raystream.controller.protocol.recovery import Place
from raystream.dataflow.assignment import Assignment
from raystream.dataflow.instances.asking import AskingInstance
from raystream.dataflow.instances.making import made_instance
from raystream.dataflow.plan import Vertex
from raystream.dataflow.progress import Progress
from raystream.dataflow.register import Boundaries, PlaceSet
from raystream.dataflow.sources.epochs import EndedSource, EpochRows, Positions
from raystream.dataflow.sources.recorded import Recorded
from raystream.dataflow.tenure import Storing, Tenure
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.errors import RaystreamError
from raystream.simulation.bounds import check_bounded, check_waits
from raystream.simulation.processes.asking import SimulatedAsking
from raystream.simulation.processes.database import DiedAmid
from raystream.simulation.processes.keepers import Shipping
from raystream.simulation.processes.register import SimulatedClaimer
from raystream.simulation.processes.sources import ArrivalReading, EndedReading, RecordedReading
from raystream.simulation.processes.streams import WINDOW, Readings, SimulatedServer
from raystream.simulation.world import Box
from raystream.state.images.chain import FULL
from raystream.state.images.image import Image, InputPosition
from raystream.state.log.epoch_log import Bound
from raystream.state.tiers.row_folder import RowFolder

if TYPE_CHECKING:
    from raystream.simulation.job import SimulatedJob

COMPUTE = 0.02


class Blank(Box):
    """A process without a place."""

    def __init__(self, process: str, node: str) -> None:
        super().__init__(f"process {process}")
        self.process = process
        self.node = node


class SimulatedInstance(Box):
    """A process with one instance. node: where it runs; address: its own for ever."""

    def __init__(
        self,
        job: SimulatedJob,
        process: str,
        place: Place,
        node: str,
        committed: int,
        images: list[list[Image]],
        holders: set[str],
        files: RowFolder | None = None,
        version: CodeVersion | None = None,
    ) -> None:
        super().__init__(place.name)
        self.job = job
        self.world = job.world
        self.process = process
        self.place = place
        self.node = node
        self.address = job.register(self)
        self.vertex: Vertex = job.plan.vertices[place.vertex]
        self.source: RecordedReading | ArrivalReading | None = None
        sink = job.sink_of(place, self)
        self.machine = made_instance(job.plan, self.vertex, place.keys, version, sink)
        if files is not None and self.machine.table is not None:
            self.machine.table.keep_in(files)
        self.tenure: Tenure[str] = Tenure(
            self.machine,
            place.name,
            index=place.index,
            committed=committed,
            chains=images or None,
            storing=Storing(committed, ships=job.ships, holders=holders, image=job.image_bytes),
            left=None if files is None else files.left,
        )
        self.asking = self._asking()
        self.readings, self.serving = Readings(self), SimulatedServer(self)
        self.shipping = Shipping(self, job.part_bytes)
        self.failed: RaystreamError | None = None
        self._started = self._busy = False

    def open(self) -> None:
        """Prepare to begin, with the images that it was given."""
        if self.vertex.kind == "source":
            tenure = self.tenure
            self.source = self._reading(
                max(tenure.begun, self.machine.position), tenure.input_position
            )
        self.machine.open()

    def advance(self, delta: Image) -> None:
        """Take from an owner its changes since the committed checkpoint."""
        self.tenure.advance(delta)

    def _reading(
        self, taken: int, input_position: InputPosition | None
    ) -> RecordedReading | ArrivalReading:
        plan, vertex, keys = self.job.plan, self.vertex, self.place.keys
        positions = None if input_position is None else input_position.splits
        if input_position is not None and input_position.ended:
            ended = EndedSource(vertex, keys, input_position.splits)
            arrives = plan.clock is None
            return EndedReading(self.world, self, ended) if arrives else RecordedReading(ended)
        if plan.clock is None:
            ledger, owns = self.job.ledger, lambda: self.tenure.owns
            return ArrivalReading(self.world, self, plan, vertex, keys, ledger, positions, owns)
        return RecordedReading(Recorded(plan, vertex, keys, taken=taken, positions=positions))

    def _asking(self) -> SimulatedAsking | None:
        machine = self.machine
        if not isinstance(machine, AskingInstance):
            return None
        ledger, owns = self.job.ledger, lambda: self.tenure.owns
        return SimulatedAsking(self.world, self, machine, ledger, owns, self._answered)

    def _answered(self) -> None:
        try:
            self.go_on()
        except RaystreamError as error:
            self.fail(error)

    @property
    def claimer(self) -> SimulatedClaimer | None:
        """The claims of a source that is cut by arrival, or of an operator that asks."""
        if self.asking is not None:
            return self.asking.claimer
        source = self.source
        return source.claimer if isinstance(source, ArrivalReading | EndedReading) else None

    # ------------------------------------------------------------ control

    def begin(
        self,
        assignment: Assignment,
        keepers: tuple[str, ...],
        kept: int,
        run: str,
        paced_from: float | None,
    ) -> None:
        """Begin to work; or, at work, say again that the work is done."""
        self.kept_by(keepers, kept)
        self.assign(assignment)
        if self.failed is not None or self.tenure.over:
            self.job.say_done(self, self.failed)
        elif not self._started:
            try:
                self.machine.begin(self.tenure.sink_context(run, paced_from))
            except RaystreamError as error:
                self.fail(error)
                return
            self._started = True
            self._after_epoch()

    def assign(self, assignment: Assignment) -> None:
        """Follow the newest assignment; an older one is ignored."""
        routes = self.tenure.assign(assignment)
        if routes is None:
            return
        self.serving.expect(routes)
        self.readings.follow(routes)
        self.go_on()

    def commit(self, epoch: int, published_upto: int) -> None:
        """Take a commit: the checkpoint at `epoch`. A sink may publish up to `published_upto`."""
        tenure = self.tenure
        before = tenure.committed
        if epoch > before and self.claimer is not None:
            self.claimer.claims.trim(epoch)
        if published_upto > tenure.published_upto:
            self.job.check_published(published_upto)
        tenure.commit(epoch, published_upto)
        self._act()
        if tenure.committed > before:
            self.job.check_trimmed(self)

    def _act(self) -> None:
        """Do what commits ask for, and say when the work is done by that. A sink that is not open
        publishes nothing."""
        if self.vertex.kind == "sink" and (self.failed is not None or not self._started):
            return
        try:
            if self.tenure.act():
                self.job.say_done(self, None)
        except RaystreamError as error:
            self.fail(error)

    def delivery(self, since: int) -> Image | None:
        """The changes since a checkpoint, up to the instance's position; None if there are none."""
        captured = self.tenure.changes_since(since, self._splits())
        return None if captured is None else captured.image()

    def forget(self, epoch: int) -> None:
        """Drop the logs up to an epoch, which all consumers have received."""
        self.tenure.forget(epoch)

    def kept_by(self, keepers: tuple[str, ...], kept: int) -> None:
        """Store checkpoints with these keepers from now on."""
        if self.tenure.kept_by(keepers, kept):
            self.put_again()

    def follow(self, view: PlaceSet[Any], content: Boundaries) -> None:
        """Claim under a new view of the boundary register, whose places hold `content`."""
        if self.claimer is not None:
            self.claimer.claims.follow(view, content)

    def boundaries(self, view: int, least: int) -> Boundaries | None:
        """All boundaries that this source knows."""
        assert self.claimer is not None
        return self.claimer.claims.boundaries(view, least)

    def progress(self) -> Progress:
        """What the instance has done so far."""
        view = 0 if self.claimer is None else self.claimer.claims.told.number
        return self.tenure.progress(view=view)

    def die(self) -> None:
        """Kill the process. Some of what it sent last still arrives."""
        self.alive = False
        self.serving.die()

    def woke(self) -> None:
        """Let its streams go on where they stopped, after it was asleep."""
        self.serving.feed_all()

    def fail(self, error: RaystreamError) -> None:
        self.failed = error
        if isinstance(error, DiedAmid):
            return
        self.job.say_done(self, error)

    # ------------------------------------------------------------ computing

    def go_on(self) -> None:
        """Compute the next epoch soon, if that can be done."""
        if self.asking is not None and self._started and self.failed is None:
            self.asking.turn()
        if not self._busy and self._started and self._may():
            self._busy = True
            due = self.machine.position + 1
            pause = COMPUTE if self.source is None else self.source.pause(due)
            self.world.after(pause, self, self._compute)

    def _may(self) -> bool:
        machine, served = self.machine, self.serving.served
        if machine.ended or self.failed is not None:
            return False
        ahead = self.job.ahead
        if machine.outlets.is_ahead(served.slowest(), Bound(ahead, 0, ahead)):
            check_waits(self.name, served, ahead, machine, self.job.entry)
            return False
        return machine.ready()

    def _compute(self) -> None:
        if not self._may():
            self._busy = False
        elif self.source is not None:
            stop = self.machine.end_of_step
            self.source.take(self.machine.position + 1, self._step, stop)
        else:
            self._step(None)

    def _step(self, taken: EpochRows | None) -> None:
        """Apply the next epoch; of a source it was taken."""
        self._busy = False
        try:
            header = self.machine.step(taken)
            self.world.tell(self.name, "applied", header.epoch)
            if self.tenure.takes_checkpoint(header):
                wanted = self.tenure.next_checkpoint()
                self.shipping.put(self.tenure.capture(wanted, self._splits()), wanted)
        except RaystreamError as error:
            self.fail(error)
            return
        self._after_epoch()

    def _after_epoch(self) -> None:
        self.readings.drain_all()
        self.serving.feed_all()
        check_bounded(self.name, self.machine, self.tenure.committed, self.job.ahead, WINDOW)
        self._act()
        self.go_on()

    # ------------------------------------------------------------ checkpoints

    def _splits(self) -> Positions | None:
        return None if self.source is None else self.source.positions()

    def put_again(self) -> None:
        """Store the last checkpoint again, in full."""
        self.shipping.put(self.tenure.capture(FULL, self._splits()), FULL)
