"""Requests of writers that stage records and seal them later, as Spark does; see `staging`.

    POST {path}/stage   a part of an attempt, for one lane: it lies in memory
    POST {path}/seal    the attempts of a batch: it becomes input in each lane for which it has rows
    POST {path}/drop    attempts that will not be sealed

In each lane the batch of a query is one batch of records for the job, whose sender is the query and
whose sequence is the number of the batch. So the job itself makes the first seal win, and takes a
repeated one for a repeated request, whatever it holds.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web

from raystream.api.batch import Batch
from raystream.errors import InputError
from raystream.io.push.lane import Lane, Waiting
from raystream.io.push.requests import (
    ANSWER_SECONDS,
    NotTaken,
    PushRequest,
    answered,
    number_in,
)
from raystream.io.push.staging import Staging, in_order

if TYPE_CHECKING:
    from raystream.io.push.handling import Handling

QUERY, ATTEMPT, PART = "Raystream-Query", "Raystream-Attempt", "Raystream-Part"
TO = "Raystream-To"
"""The header of a part that is staged: the lane that it is for."""
NAME_LENGTH = 160
"""Characters that the names of a query and of an attempt have at most."""
SEALED = "sealed:"
"""How the sender of sealed batches begins; the name of the query follows."""
BATCHES = 2**63


class Sealed(NamedTuple):
    """What a request to seal or to drop says."""

    query: str
    batch: int
    order: list[str]
    """Fields by which the rows of a lane are sorted; without any they stay in the order of the
    attempts."""
    attempts: list[tuple[str, dict[int, int]]]
    """The attempts in their order, each with its number of parts by lane."""


class Sealing:
    """Stages and seals for the lanes of a process.

    Args:
        handling: answers all requests of the process.
    """

    def __init__(self, handling: Handling) -> None:
        self._handling = handling
        self._staging = Staging()
        self._recording: dict[tuple[int, str, int], asyncio.Task[int]] = {}

    def left(self, lane: int) -> None:
        """The lane is not read here any more. Called by the loop."""
        self._staging.leave(lane)

    async def stage(self, request: PushRequest) -> web.Response:
        """Take a part of an attempt for a lane."""
        handling = self._handling
        nbytes = handling.size(request)
        query, attempt = _name(request, QUERY), _name(request, ATTEMPT)
        part = number_in(request.headers, PART, BATCHES)
        number = handling.passed_to(request)
        if number is None:
            number = number_in(request.headers, TO, handling.lanes)
        lane = handling.own.get(number)
        if lane is None:
            return await handling.pass_on(request, number, nbytes, (QUERY, ATTEMPT, PART))
        if lane.ended:
            raise NotTaken(410, "the input has ended")
        batch = await handling.batch(request)
        now = asyncio.get_running_loop().time()
        if not self._staging.put(number, query, attempt, part, batch._columns, now):
            raise NotTaken(
                429,
                f"{self._staging.nbytes:,} bytes are staged and not sealed: if this goes on, let a"
                " batch have fewer rows",
                1.0,
            )
        return answered({"records": len(batch), "part": part})

    async def seal(self, request: PushRequest) -> web.Response:
        """Make the attempts of a batch input, once."""
        handling = self._handling
        body = await handling.body(request)
        asked = _sealed(body, handling.lanes)
        number = handling.passed_to(request)
        if number is not None:
            records = await self._seal(handling.own[number], asked)
            return answered({"records": records})
        lanes = sorted({n for _, parts in asked.attempts for n in parts})
        records = 0
        for number in lanes:
            if (lane := handling.own.get(number)) is not None:
                records += await self._seal(lane, asked)
                continue
            answer = await handling.ask(number, request.path, body, {})
            if answer.status != 200:
                return answer
            records += int(json.loads(answer.text or "{}").get("records", 0))
        return answered({"records": records, "batch": asked.batch})

    async def drop(self, request: PushRequest) -> web.Response:
        """Forget attempts."""
        handling = self._handling
        body = await handling.body(request)
        asked = _sealed(body, handling.lanes)
        number = handling.passed_to(request)
        everywhere = {n for _, parts in asked.attempts for n in parts}
        for lane in everywhere if number is None else {number}:
            if lane in handling.own:
                self._staging.drop(asked.query, lane, [name for name, _ in asked.attempts])
            elif number is None:
                await handling.ask(lane, request.path, body, {})
        return answered({"dropped": True})

    async def _seal(self, lane: Lane, asked: Sealed) -> int:
        """How many records are recorded; 0 if an earlier seal of the batch has won."""
        if asked.batch <= lane.sequences.recorded.get(SEALED + asked.query, -1):
            names = [name for name, _ in asked.attempts]
            self._staging.drop(asked.query, lane.number, names)
            return 0
        key = lane.number, asked.query, asked.batch
        task = self._recording.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._record(lane, asked))
            self._recording[key] = task
            task.add_done_callback(lambda done: self._recorded(key, done))
        try:
            return await asyncio.wait_for(asyncio.shield(task), ANSWER_SECONDS)
        except TimeoutError:
            raise NotTaken(503, "it is not known whether this is sealed: ask again", 0.2) from None

    def _recorded(self, key: tuple[int, str, int], task: asyncio.Task[int]) -> None:
        self._recording.pop(key, None)
        if not task.cancelled():
            task.exception()  # nobody may be there to hear of it

    async def _record(self, lane: Lane, asked: Sealed) -> int:
        """Have the rows of a batch recorded, and forget what else is staged of its query."""
        if lane.ended:
            raise NotTaken(410, "the input has ended")
        wanted = [(name, parts.get(lane.number, 0)) for name, parts in asked.attempts]
        found = self._staging.taken(lane.number, asked.query, wanted)
        if isinstance(found, str):
            raise NotTaken(
                409,
                f"batch {asked.batch} of query {asked.query} cannot be sealed: attempt {found} is"
                f" not staged in lane {lane.number} any more. Write the batch again.",
            )
        loop = asyncio.get_running_loop()
        try:
            rows = await loop.run_in_executor(None, in_order, found, asked.order)
        except InputError as error:
            raise NotTaken(400, str(error)) from None
        sent = (SEALED + asked.query, asked.batch)
        waiting = Waiting(Batch._of(rows), sent, loop.create_future())
        if not lane.put(waiting):
            raise NotTaken(503, "the lane has moved, or has ended", 0.2)
        if not await waiting.answer:
            raise NotTaken(503, "it is not known whether this is sealed: ask again", 0.2)
        self._staging.drop(asked.query, lane.number)
        return len(rows)


def _name(request: PushRequest, header: str) -> str:
    name = request.headers.get(header, "")
    if not 0 < len(name) <= NAME_LENGTH:
        raise NotTaken(400, f"{header}: a name of up to {NAME_LENGTH} characters")
    return name


def _sealed(body: bytes, lanes: int) -> Sealed:
    """What the body of a request says.

    Raises:
        NotTaken: it is something else.
    """
    try:
        said = json.loads(body)
        query, batch, order = said["query"], said["batch"], said["order"]
        attempts = [
            (str(name), {int(n): int(parts) for n, parts in by_lane.items()})
            for name, by_lane in said["attempts"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise NotTaken(400, "a JSON object with query, batch, order and attempts") from None
    if not isinstance(query, str) or not 0 < len(query) <= NAME_LENGTH:
        raise NotTaken(400, f"query: a name of up to {NAME_LENGTH} characters")
    if type(batch) is not int or not 0 <= batch < BATCHES:
        raise NotTaken(400, f"batch: {batch!r:.40} is no whole number")
    if not isinstance(order, list) or not all(isinstance(name, str) for name in order):
        raise NotTaken(400, "order: a list of fields")
    if any(not 0 <= n < lanes for _, parts in attempts for n in parts):
        raise NotTaken(400, f"attempts: there are lanes 0 to {lanes - 1}")
    return Sealed(query, batch, order, attempts)
