"""Checking mode in one process: at every cut all instances are made again from the cut before.

Each takes the input that it had between the two cuts, and what it emits goes to its consumers as
another copy of what they have, which they compare (`dataflow.checking`). It comes later than the
first, as after a failure: so the clock has moved on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raystream.dataflow.instance import Instance, SourceInstance
from raystream.dataflow.snapshot import capture, install
from raystream.state.image import Image, decode

if TYPE_CHECKING:
    from raystream.testing.local import LocalJob, LocalSource


class Again:
    """Makes the instances of a job again. From a cut to the next their logs must keep all.

    floor: the cut up to which all was compared; at the beginning where the job begins.
    """

    def __init__(self, job: LocalJob, floor: int) -> None:
        self.job = job
        self.floor = floor
        self.images: dict[tuple[int, int], Image] = {}
        if floor:
            for each in self._all():
                self._keep(each)

    def _all(self) -> list[LocalSource | Instance]:
        return [*self.job.sources, *self.job.instances]

    def applied(self, each: LocalSource | Instance) -> None:
        """An instance has applied an epoch: take its checkpoint, if that is a cut."""
        if _machine(each).position % self.job.plan.cut_every == 0:
            self._keep(each)

    def _keep(self, each: LocalSource | Instance) -> None:
        machine = _machine(each)
        splits = None if isinstance(each, Instance) else each.positions()
        stored = capture(machine, splits=splits).image().encode()
        self.images[id(machine), machine.position] = decode(stored)

    def compare(self, cut: int) -> None:
        """All have applied `cut`, or ended before: make again what came after the floor.

        Raises:
            JobError: an instance emits something else than before.
        """
        for each in self._all():
            machine = _machine(each)
            last = min(cut, machine.position)
            if self.floor < last and machine.vertex.outputs:
                self._repeat(each, self.images.get((id(machine), self.floor)), last)
        for machine in self.job.machines:
            machine.outlets.trim(cut)
            if isinstance(machine, Instance) and machine.checksums is not None:
                machine.checksums.forget(cut)
        self.floor = cut
        self.images = {at: image for at, image in self.images.items() if at[1] >= cut}

    def _repeat(self, each: LocalSource | Instance, image: Image | None, last: int) -> None:
        first, again = _machine(each), self._made(each, image)
        second = _machine(again)
        for epoch in range(self.floor + 1, last + 1):
            if isinstance(again, Instance):
                self._feed(again, epoch)
            again.step()
            for link in self.job.out[id(first)]:
                piece = second.outlets.piece(link.edge, epoch, link.consumer.keys)
                link.consumer.receive(link.edge, piece)
            second.outlets.trim(epoch)

    def _made(self, each: LocalSource | Instance, image: Image | None) -> LocalSource | Instance:
        if not isinstance(each, Instance):
            return each.again(image)
        instance = Instance(self.job.plan, each.vertex, each.keys)
        if image is not None:
            install(instance, [[image]])
        instance.open()
        return instance

    def _feed(self, instance: Instance, epoch: int) -> None:
        for edge in instance.vertex.inputs:
            for producer in self.job.by_vertex[edge.producer]:
                if epoch <= producer.position:  # who has ended is silent
                    instance.receive(edge.id, producer.outlets.piece(edge.id, epoch, instance.keys))


def _machine(each: LocalSource | Instance) -> SourceInstance | Instance:
    return each if isinstance(each, Instance) else each.machine
