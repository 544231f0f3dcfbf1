"""An instance of an operator that asks the world."""

from __future__ import annotations

from collections.abc import Mapping

from raystream.dataflow.asking.answers import entry_name
from raystream.dataflow.asking.questions import Asked, asked_of
from raystream.dataflow.instances.keyed import KeyedInstance
from raystream.dataflow.logic.answered import AnsweredLogic
from raystream.dataflow.order import assemble
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.register import Boundary
from raystream.errors import InternalError
from raystream.schema.types import KeyRange

ASKED_AHEAD = 8
"""How many epochs are asked at most before the first of them is applied."""


class AskingInstance(KeyedInstance):
    """Says what an epoch asks once its input is there, and applies it when it has been given what
    is recorded. Epochs are asked ahead, and applied one after the other."""

    def __init__(self, plan: Plan, vertex: Vertex, keys: KeyRange) -> None:
        super().__init__(plan, vertex, keys)
        if not isinstance(self.logic, AnsweredLogic):
            raise InternalError(f"{vertex.name} asks nothing")
        self.answers = self.logic.answers
        self.asked = 0
        """The last epoch that has asked something."""
        self._looked_upto = 0

    def questions(self) -> list[Asked]:
        """What is to be asked, of epochs whose input is there, in order; each epoch once. Epochs
        that ask nothing are left out, and those that another version of the code is to make."""
        found, last = [], self._may_ask_upto()
        epoch = max(self._looked_upto, self.position) + 1
        while epoch <= last and self._there(epoch):
            upto = min([inlet.reach(epoch) for inlet in self.inlets.values()])
            if upto == epoch and not self._is_empty(epoch):
                found.append(self._asked(epoch))
                self.asked = epoch
            self._looked_upto = upto
            epoch = upto + 1
        return found

    def _may_ask_upto(self) -> int:
        """The last epoch that may be asked by now."""
        at, switching = self.position, self.switching
        if not switching.told:
            return at + ASKED_AHEAD
        if switching.holds(at, self.reached) or switching.due(at):
            return at
        return switching.stop(at, at + ASKED_AHEAD)

    @property
    def reached(self) -> int:
        """Epochs are asked ahead, by the code that makes them."""
        return max(self.position, self.asked)

    def _upgrade(self, vertex: Vertex, number: int) -> None:
        """As of any instance. The new code asks, from the next epoch on."""
        super()._upgrade(vertex, number)
        assert isinstance(self.logic, AnsweredLogic)
        self.answers = self.logic.answers
        self.asked = self._looked_upto = 0

    def _there(self, epoch: int) -> bool:
        return not self.ended and all(inlet.ready(epoch) for inlet in self.inlets.values())

    def _is_empty(self, epoch: int) -> bool:
        tiled = (piece for inlet in self.inlets.values() for piece in inlet.tiled[epoch])
        return not any(piece.rows.length for piece in tiled)

    def _asked(self, epoch: int) -> Asked:
        pieces = {edge: inlet.tiled[epoch] for edge, inlet in self.inlets.items()}
        spec = self.spec
        given = assemble(self.feeds, pieces, spec.inputs, self.keys, spec.sorted_by)
        return asked_of(spec, given, epoch)

    def answer(self, epoch: int, held: Mapping[int, Boundary]) -> None:
        """Take what all places of the register hold of an epoch, by key group."""
        if epoch > self.position:
            self.answers[epoch] = held

    def ready(self) -> bool:
        """Whether the next epoch can be applied: its input is there, and all that it asks is
        recorded."""
        if not super().ready():
            return False
        epoch = self.position + 1
        return epoch in self.answers or self._is_empty(epoch)

    @property
    def names(self) -> list[str]:
        """The names of all entries that the instance may have in the register, as long as it runs
        this version of the code."""
        return [self.entry(group) for group in range(self.keys.lo, self.keys.hi)]

    def entries(self, asked: Asked) -> dict[str, int]:
        """The names of the entries of an epoch in the register, with their key groups."""
        return {self.entry(group): group for group in asked.groups}

    def entry(self, group: int) -> str:
        """The name of the entry of a key group in the register."""
        return entry_name(self.vertex.id, group, self.switching.version)
