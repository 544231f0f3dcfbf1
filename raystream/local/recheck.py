"""Checking mode in one process: at every checkpoint all instances are made again from the one
before it.

Each takes the input that it had between the two. What it emits goes to its consumers as another
copy of what they have, and they compare the two (`dataflow.checking`). The copy comes later than
the first, as after a failure: so the clock has moved on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raystream.dataflow.instances.asking import AskingInstance
from raystream.dataflow.instances.base import Instance
from raystream.dataflow.instances.inputs import ReceivingInstance
from raystream.dataflow.instances.making import make_receiving
from raystream.dataflow.snapshot import capture, install
from raystream.local.asking import HeldHere, recall
from raystream.state.images.image import Image, decode

if TYPE_CHECKING:
    from raystream.local.job import LocalJob
    from raystream.local.source import LocalSource


class Again:
    """Makes the instances of a job again. Their logs must keep everything since the last
    checkpoint.

    Args:
        committed: the checkpoint from which the job goes on.
    """

    def __init__(self, job: LocalJob, committed: int) -> None:
        self.job = job
        self.committed = committed
        self.images: dict[tuple[int, int], Image] = {}
        if committed:
            for each in self._all():
                self._keep(each)

    def _all(self) -> list[LocalSource | ReceivingInstance]:
        return [*self.job.sources, *self.job.instances]

    def applied(self, each: LocalSource | ReceivingInstance) -> None:
        """An instance has applied an epoch: take its checkpoint, if one is due."""
        if _machine(each).position % self.job.plan.checkpoint_every == 0:
            self._keep(each)

    def _keep(self, each: LocalSource | ReceivingInstance) -> None:
        machine = _machine(each)
        splits = None if isinstance(each, ReceivingInstance) else each.positions()
        stored = capture(machine, splits=splits).image().encode()
        self.images[id(machine), machine.position] = decode(stored)

    def compare(self, checkpoint: int) -> None:
        """All instances have applied the epoch `checkpoint`, or ended before it: make again what
        came after the last one.

        Raises:
            JobError: an instance emits something else than before.
        """
        for each in self._all():
            machine = _machine(each)
            last = min(checkpoint, machine.position)
            if self.committed < last and machine.vertex.outputs:
                self._repeat(each, self.images.get((id(machine), self.committed)), last)
        for machine in self.job.machines:
            machine.trim(checkpoint)
        self.committed = checkpoint
        self.images = {at: image for at, image in self.images.items() if at[1] >= checkpoint}

    def _repeat(
        self, each: LocalSource | ReceivingInstance, image: Image | None, last: int
    ) -> None:
        first, again = _machine(each), self._made(each, image)
        second = _machine(again)
        epoch = self.committed + 1
        while epoch <= last:
            if isinstance(again, ReceivingInstance):
                self._feed(again, epoch)
                if isinstance(again, AskingInstance):
                    recall(again, HeldHere(self.job.boundaries))
                again.step()
            else:
                again.step(last)
            for link in self.job.out[id(first)]:
                piece = second.outlets.piece(link.edge, epoch, link.consumer.takes(link.edge))
                link.consumer.receive(link.edge, piece)
            second.outlets.trim(second.position)
            epoch = second.position + 1

    def _made(
        self, each: LocalSource | ReceivingInstance, image: Image | None
    ) -> LocalSource | ReceivingInstance:
        if not isinstance(each, ReceivingInstance):
            return each.again(image)
        instance = make_receiving(self.job.plan, each.vertex, each.keys)
        if image is not None:
            install(instance, [[image]])
        instance.open()
        return instance

    def _feed(self, instance: ReceivingInstance, epoch: int) -> None:
        for edge in instance.vertex.inputs:
            for producer in self.job.by_vertex[edge.producer]:
                if epoch <= producer.position:  # who has ended is silent
                    keys = instance.takes(edge.id)
                    instance.receive(edge.id, producer.outlets.piece(edge.id, epoch, keys))


def _machine(each: LocalSource | ReceivingInstance) -> Instance:
    return each if isinstance(each, ReceivingInstance) else each.machine
