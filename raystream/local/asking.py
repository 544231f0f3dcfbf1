"""Asking the world for one instance: on an event loop in a thread of its own, so that nothing else
waits for the answers."""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, NamedTuple, Protocol

from raystream.dataflow.asking.answers import recorded
from raystream.dataflow.asking.calls import Emitted, WorldCalls
from raystream.dataflow.asking.questions import Asked, Question, calls_of
from raystream.dataflow.instances.asking import ASKED_AHEAD, AskingInstance
from raystream.dataflow.register import Boundary
from raystream.errors import OperatorError, StateError

LOOK_SECONDS = 0.02
"""How soon an instance looks again whether the owner has recorded."""
AGAIN_SECONDS = 0.1
"""How long after a failed call it is made again; doubled each time."""
AGAIN_MOST = 5.0
STOP_SECONDS = 1.0
ANSWER_SECONDS = 0.02
"""How long a job in one process waits for an answer at most before it looks whether others have
come."""


class Keeping(Protocol):
    """The boundary register, as an instance that asks needs it. WorldCalls may take long."""

    def owns(self) -> bool:
        """Whether the instance owns its range by now. Only an owner asks."""
        ...

    def known(self, epoch: int, names: Sequence[str]) -> Mapping[str, Boundary]:
        """What all places hold, as far as that is known without asking them. Returns at once."""
        ...

    def find(self, epoch: int, names: Sequence[str]) -> Mapping[str, Boundary] | None:
        """What others have recorded, as far as is known; None if nothing is known yet."""
        ...

    def claim(self, epoch: int, wanted: Mapping[str, Boundary]) -> Mapping[str, Boundary]:
        """What all places hold of these entries, once they do."""
        ...


class HeldHere:
    """The register of a job in one process.

    Args:
        held: by name and epoch what is recorded; more is added.
    """

    def __init__(self, held: dict[tuple[str, int], Boundary]) -> None:
        self._held = held

    def owns(self) -> bool:
        return True

    def known(self, epoch: int, names: Sequence[str]) -> Mapping[str, Boundary]:
        return {name: self._held[name, epoch] for name in names if (name, epoch) in self._held}

    find = known

    def claim(self, epoch: int, wanted: Mapping[str, Boundary]) -> Mapping[str, Boundary]:
        return {name: self._held.setdefault((name, epoch), b) for name, b in wanted.items()}


def recall(machine: AskingInstance, keeping: Keeping) -> list[Asked]:
    """Give an instance what is known to be recorded. Returns what else it asks."""
    left = []
    for asked in machine.questions():
        names = machine.entries(asked)
        known = keeping.known(asked.epoch, list(names))
        if len(known) == len(names):
            machine.answer(asked.epoch, {group: known[name] for name, group in names.items()})
        else:
            left.append(asked)
    return left


class _Answered(NamedTuple):
    """What the questions of a call brought."""

    questions: tuple[Question, ...]
    emitted: list[Emitted]
    came: int
    """Counts the calls of an instance in the order in which they ended."""


class Asker:
    """Asks what the epochs of an instance ask, several epochs at once, and records the answers. It
    asks with the code that the instance runs when it is made: other code needs another one.

    Args:
        run: the name of the run.
        woken: called, on another thread, when there is something to take.
    """

    def __init__(
        self,
        machine: AskingInstance,
        keeping: Keeping,
        run: str,
        woken: Callable[[], None] = lambda: None,
    ) -> None:
        spec, vertex = machine.spec, machine.vertex
        assert spec.asking is not None
        self.machine = machine
        self._keeping, self._spec, self._asking = keeping, spec, spec.asking
        self._calls = WorldCalls(spec, vertex.name, run, time.time, random.SystemRandom().random)
        self._woken = woken
        self._changed = threading.Condition()
        self._answers: list[tuple[int, Mapping[int, Boundary]]] = []
        self._error: BaseException | None = None
        self._pending = 0
        self._thread: threading.Thread | None = None
        # What follows belongs to the loop.
        self._loop: asyncio.AbstractEventLoop
        self._slots: asyncio.Semaphore
        self._epochs: set[asyncio.Task[None]] = set()
        self._before: asyncio.Event | None = None
        self._last: dict[Any, asyncio.Task[_Answered]] = {}
        self._ended = count()
        self._behind = True

    # ------------------------------------------------------------ on the thread of the instance

    @property
    def pending(self) -> bool:
        """Whether there are epochs whose answers are not there yet."""
        return self._pending > 0

    def turn(self) -> bool:
        """Ask what is to be asked, and give the instance what was recorded. Returns whether it was
        given something.

        Raises:
            RaystreamError: asking has failed.
        """
        for asked in recall(self.machine, self._keeping):
            self._pending += 1
            self._begin(asked)
        with self._changed:
            answers, self._answers = self._answers, []
            if self._error is not None:
                raise self._error
        for epoch, held in answers:
            self._pending -= 1
            self.machine.answer(epoch, held)
        return bool(answers)

    def wait(self, seconds: float) -> None:
        """Wait up to so long until there is something to take."""
        with self._changed:
            self._changed.wait_for(lambda: self._answers or self._error is not None, seconds)

    def _begin(self, asked: Asked) -> None:
        if self._thread is None:
            self._loop = asyncio.new_event_loop()
            self._slots = asyncio.Semaphore(self._asking.concurrency)
            self._thread = threading.Thread(target=self._loop.run_forever, name="ask", daemon=True)
            self._thread.start()
        self._loop.call_soon_threadsafe(self._schedule, asked)

    def stop(self) -> None:
        """Ask no more. A call that does not return is left alone."""
        if self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._cancel(), self._loop)
        self._thread.join(STOP_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()

    # ------------------------------------------------------------ on the loop

    async def _cancel(self) -> None:
        mine = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not mine]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_SECONDS / 2)
        self._loop.stop()

    def _schedule(self, asked: Asked) -> None:
        before, self._before = self._before, asyncio.Event()
        task = self._loop.create_task(self._guarded(asked, before, self._before))
        self._epochs.add(task)
        task.add_done_callback(self._epochs.discard)

    async def _guarded(
        self, asked: Asked, before: asyncio.Event | None, begun: asyncio.Event
    ) -> None:
        try:
            held = await self._epoch(asked, before, begun)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()
        else:
            with self._changed:
                self._answers.append((asked.epoch, held))
                self._changed.notify_all()
        self._woken()

    async def _epoch(
        self, asked: Asked, before: asyncio.Event | None, begun: asyncio.Event
    ) -> Mapping[int, Boundary]:
        """What is recorded of an epoch, once it is. begun: set when all its calls have a place
        among those of their keys; before: the same of the epoch before."""
        names, epoch = self.machine.entries(asked), asked.epoch
        wanted = dict(await self._found(epoch, list(names)))
        if before is not None:
            await before.wait()
        missing = {group for name, group in names.items() if name not in wanted}
        calls = calls_of(self._spec, [q for q in asked.questions if q.group in missing])
        tasks = [self._call_task(questions) for questions in calls]
        begun.set()
        wanted |= self._recorded(asked, missing, await asyncio.gather(*tasks))
        held = await _in_thread(partial(self._keeping.claim, epoch, wanted))
        return {group: held[name] for name, group in names.items()}

    async def _found(self, epoch: int, names: list[str]) -> Mapping[str, Boundary]:
        """What others have recorded of an epoch. An owner whose last epoch nobody else had
        recorded does not look: it is ahead of all others."""
        while self._behind:
            owns = self._keeping.owns()
            found = await _in_thread(partial(self._keeping.find, epoch, names))
            if found is not None and (owns or len(found) == len(names)):
                self._behind = not owns or bool(found)
                return found
            await asyncio.sleep(LOOK_SECONDS)
        return {}

    def _recorded(
        self, asked: Asked, groups: set[int], answered: Sequence[_Answered]
    ) -> dict[str, Boundary]:
        """The entries of the key groups that were asked here."""
        by_group: dict[int, list[tuple[int, int, Emitted]]] = {group: [] for group in groups}
        for call in answered:
            came = 0 if self._asking.ordered else call.came
            for question, emitted in zip(call.questions, call.emitted, strict=True):
                by_group[question.group].append((came, question.number, emitted))
        program = self.machine.plan.program
        found = {}
        for group, answers in by_group.items():
            answers.sort(key=lambda answer: answer[:2])
            flat = [record for *_, emitted in answers for record in emitted]
            entry = recorded(self._spec, program, asked.epoch, flat, len(answers))
            found[self.machine.entry(group)] = entry
        return found

    def _call_task(self, questions: tuple[Question, ...]) -> asyncio.Task[_Answered]:
        """Make a call, after those before it that have keys in common with it."""
        keys = {q.key for q in questions} if self._spec.keyed else set()
        before = {self._last[key] for key in keys if key in self._last}
        task = self._loop.create_task(self._called(questions, before))
        for key in keys:
            self._last[key] = task
            task.add_done_callback(partial(self._forget, key))
        return task

    def _forget(self, key: Any, task: asyncio.Task[_Answered]) -> None:
        if self._last.get(key) is task:
            del self._last[key]

    async def _called(
        self, questions: tuple[Question, ...], before: set[asyncio.Task[_Answered]]
    ) -> _Answered:
        if before:
            await asyncio.wait(before)
        emitted = await self._made(questions)
        return _Answered(questions, emitted, next(self._ended))

    async def _made(self, questions: tuple[Question, ...]) -> list[Emitted]:
        """What a call brings, which is made again while it fails."""
        failed: Exception
        for attempt in range(self._asking.retries + 1):
            if attempt:
                await asyncio.sleep(min(AGAIN_SECONDS * 2 ** (attempt - 1), AGAIN_MOST))
            try:
                async with self._slots:
                    result = await self._attempt(questions)
                return self._calls.emitted(questions, result)
            except (OperatorError, StateError) as error:  # the code would be wrong again
                failed = error
                break
            except Exception as error:
                failed = error
        if len(questions) > 1 and self._spec.on_error == "stream":
            alone = [await self._made((question,)) for question in questions]
            return [emitted for one in alone for emitted in one]  # it is known which one fails
        return self._calls.failed(questions, failed)

    async def _attempt(self, questions: tuple[Question, ...]) -> Any:
        context, limit = self._calls.context(questions), self._asking.timeout
        begin = partial(self._calls.begin, questions)
        try:
            async with asyncio.timeout(limit) as within:
                if self._asking.awaited:
                    return await self._loop.create_task(_awaited(begin), context=context)
                return await _in_thread(partial(context.run, begin))
        except TimeoutError:
            if within.expired():
                raise TimeoutError(f"no answer within {limit:g} s") from None
            raise


class Askers:
    """Those of a job in one process.

    Args:
        held: see `HeldHere`. run: the name of the run.
    """

    def __init__(
        self, instances: Iterable[object], held: dict[tuple[str, int], Boundary], run: str
    ) -> None:
        asking = [each for each in instances if isinstance(each, AskingInstance)]
        self._all = [Asker(machine, HeldHere(held), run) for machine in asking]

    def turn(self) -> None:
        """Ask what can be asked, and take what was answered; see `Asker.turn`."""
        for asker in self._all:
            asker.turn()

    def holds_back(self, position: int) -> bool:
        """Whether a source at an epoch is so far ahead of an instance that waits for the world that
        it waits, too."""
        return any(a.pending and position - a.machine.position >= ASKED_AHEAD for a in self._all)

    def wait(self) -> bool:
        """Wait a moment for an answer. False: nothing was asked."""
        pending = [asker for asker in self._all if asker.pending]
        for asker in pending[:1]:
            asker.wait(ANSWER_SECONDS)
        return bool(pending)

    def stop(self) -> None:
        """Ask no more."""
        for asker in self._all:
            asker.stop()


async def _awaited(begin: Callable[[], Any]) -> Any:
    """What an `async def` returns, or all that it yields."""
    result = begin()
    if inspect.isasyncgen(result):
        return [record async for record in result]
    return await result


async def _in_thread(call: Callable[[], Any]) -> Any:
    """What a call returns, made on a thread of its own. Nobody waits for the end of the thread when
    the waiting is given up, not even the end of the program."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def run() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as raised:
            error = RuntimeError("StopIteration") if isinstance(raised, StopIteration) else raised
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="ask", daemon=True).start()
    return await future
