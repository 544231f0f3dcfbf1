"""`rs.query`: rows of state of a job while it runs.

newest      the owners of the keys answer, each between two of its epochs
committed   the keepers answer at the committed checkpoint: one epoch for all keys. A recovery does
            not go back behind this checkpoint, and the instances do no work for it
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import ray
from ray.exceptions import RayActorError, RayError

from raystream.actors.client.committed import rows_at
from raystream.actors.client.jobs import chosen
from raystream.actors.cluster.connecting import visited
from raystream.actors.control.actor_names import CONTROLLER, actor, running
from raystream.actors.control.state_routes import KeptRows, StateRoutes
from raystream.actors.network.connections import Joining
from raystream.actors.network.frames import Refused
from raystream.actors.network.lookups import LookUpConnection
from raystream.controller.protocol.recovery import Place
from raystream.dataflow.assignment import Serving
from raystream.dataflow.queries.looking import NotYet
from raystream.dataflow.queries.request import AskedKeys, Moment, StateRequest
from raystream.dataflow.upgrading.versions import begins_of
from raystream.errors import ConfigError, JobError, StateError, caller, placed
from raystream.schema.kinds import plain_key
from raystream.schema.lengths import Seconds, wait_of
from raystream.schema.types import KeyRange
from raystream.state.images.readable import plain_name, plain_rows, readable

WAIT_SECONDS = 10.0
"""How long an answer may take unless the caller gives `wait`: long enough for a recovery."""
PAUSE_SECONDS = 0.05
"""A client that got no answer waits this long before it asks again."""
CALL_SECONDS = 5.0
"""The limit of one call to the controller, and of one connection to an instance."""
T = TypeVar("T")


class KeyState(NamedTuple):
    """The row that an operator keeps for a key, and of which moment it is."""

    key: Any
    """The key, as the caller gave it."""
    row: dict[str, Any] | None
    """The fields of the row; None if the key has no row."""
    moment: Moment
    """The number of the run, and the epoch at whose end the key had this row."""


class StateReader:
    """Reads the rows of one operator of a running job. Not for several threads at once.

    Use `rs.query` to make one, and close it, or use it in a `with` statement.
    """

    def __init__(
        self, job: str, operator: str, *, address: str, wait: float, seen: tuple[int, int] | None
    ) -> None:
        self.operator = operator
        """The name of the operator."""
        self.seen = Moment(*(seen or (0, 0)))
        """The greatest moment of all answers so far. A reader that is given this moment as `seen`,
        in any process, never returns an earlier state."""
        self._wait = wait
        self._connections: dict[str, LookUpConnection] = {}
        self._until = time.monotonic() + wait
        with ExitStack() as stack:
            stack.enter_context(visited(address))
            self.run = chosen(job, running())
            """The name of the run."""
            self._routes = self._asked_routes()
            self._joining = Joining(self._routes.credentials)
            self._left = stack.pop_all()

    def __enter__(self) -> StateReader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._disconnect()
        self._left.close()

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of the key's parts: the operator's key fields, and for windows `window_start`
        at the end."""
        return tuple(plain_name(name) for name in self._kept.keys.names)

    @property
    def key_types(self) -> tuple[str, ...]:
        """The types of the key's parts, in Arrow's words."""
        return tuple(str(kind) for kind in self._kept.keys.types)

    # ------------------------------------------------------------ reading

    def get(self, key: Any, *, committed: bool = False) -> KeyState:
        """What the operator keeps for a key.

        Args:
            key: the value of the key; a tuple if the key has several parts (`key_names`).
            committed: read the state at the committed checkpoint instead of the newest state.

        Raises:
            ConfigError: this is no key of the operator. JobError: the job has ended, or no answer
            came within `wait`. StateError: the rows are gone, because the input has ended.
        """
        return self.get_many([key], committed=committed)[0]

    def get_many(self, keys: Iterable[Any], *, committed: bool = False) -> list[KeyState]:
        """What the operator keeps for several keys, in the order of `keys`; see `get`.

        The newest rows of keys with different owners may be of different epochs, none before what
        this reader has seen. With `committed` all rows are of one epoch.
        """
        wanted = list(keys)
        self._until = time.monotonic() + self._wait
        batch = _batch(wanted, self._kept.keys, self.operator, self.key_names)
        if not wanted:
            return []
        self._checked(self._routes)
        if committed:
            epoch, found = self._at_checkpoint(lambda: self._committed(batch))
            rows, epochs = dict(found), dict.fromkeys(range(len(wanted)), epoch)
        else:
            request = self._newest(batch)
            epochs, epoch = request.epochs, request.upto
            rows = {
                a: row for at, b in request.rows for a, row in zip(at, plain_rows(b), strict=True)
            }
        number = self._routes.number
        self.seen = max(self.seen, Moment(number, epoch))
        return [KeyState(k, rows.get(i), Moment(number, epochs[i])) for i, k in enumerate(wanted)]

    def scan(self, where: Any = None) -> Any:
        """All rows at the committed checkpoint, as an Arrow table: the key, then the fields of the
        state. Afterwards `seen.epoch` is their epoch, unless this reader saw a newer one before.

        Args:
            where: an expression of `pyarrow.compute`; rows that do not meet it are left out.

        Raises:
            As `get`; ConfigError: the expression does not fit the columns.
        """
        self._until = time.monotonic() + self._wait
        epoch, rows = self._at_checkpoint(lambda: self._rows_at(None))
        self.seen = max(self.seen, Moment(self._routes.number, epoch))
        table = readable(rows, self._kept.words)
        return table if where is None else meeting(table, where)

    # ------------------------------------------------------------ newest

    def _newest(self, batch: Any) -> StateRequest:
        routes = self._routes
        request = StateRequest(self._kept.vertex, batch, routes.groups, self._least)
        while True:
            try:
                lacking = self._ask(request)
            except BaseException:
                self._disconnect()  # answers may be under way that nobody will read
                raise
            if not request.open:
                return request
            self._pause(lacking or "some keys have no owner just now")
            self._routes = self._asked_routes()

    def _ask(self, request: StateRequest) -> str:
        """Ask all owners at once. Returns why some keys have no answer; empty if none is known."""
        lacking, asked, kept = "", list[tuple[AskedKeys, LookUpConnection]](), self._kept
        for part in request.queries(self._routes.assignment):
            try:
                connection = self._connection(part.serving)
                connection.send(part.query, self._time_left())
                asked.append((part, connection))
            except (OSError, Refused) as error:
                lacking = self._lost(part.serving, error)
        for part, connection in asked:
            try:
                reply = connection.receive(kept.rows, kept.words, self._time_left() + CALL_SECONDS)
            except OSError as error:
                lacking = self._lost(part.serving, error)
                continue
            if reply.refused:
                raise StateError(f"{self.operator} of {self.run}: {reply.refused}")
            if reply.not_yet is NotYet.OVER:
                raise self._over()
            if reply.not_yet is None:
                request.answered(part, reply.epoch, reply.found, reply.rows)
            else:
                lacking = {
                    NotYet.LATER: f"{part.serving.instance} has not come to epoch {self._least}",
                    NotYet.ELSEWHERE: f"{part.serving.instance} does not own its keys any more",
                    NotYet.CHANGED: f"{self.run} has no checkpoint since its upgrade",
                }[reply.not_yet]
        return lacking

    def _connection(self, serving: Serving) -> LookUpConnection:
        found = self._connections.get(serving.address)
        if found is None:
            found = LookUpConnection(serving.address, self._joining, CALL_SECONDS)
            self._connections[serving.address] = found
        return found

    def _disconnect(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections = {}

    def _lost(self, serving: Serving, error: Exception | None) -> str:
        """Drop the connection to an instance that does not answer. Returns the error in words."""
        connection = self._connections.pop(serving.address, None)
        if connection is not None:
            connection.close()
        return f"{serving.instance} does not answer: {error}"

    def _over(self) -> StateError:
        return StateError(
            f"the input of {self.operator} has ended, and its rows are gone",
            hint="An operator keeps them to the end of the job unless its instance is replaced."
            " Checkpoints of the end hold none: no record will come that needs them.",
        )

    # ------------------------------------------------------------ committed

    def _at_checkpoint(self, read: Callable[[], T | None]) -> tuple[int, T]:
        """The epoch of the committed checkpoint, and what `read` finds there. Waits until the
        checkpoint is not before what was seen. If the keepers drop it meanwhile, reads the next.

        The controller is asked each time which checkpoint is committed, because keepers may hold an
        older one for long."""
        while True:
            self._routes = self._asked_routes()
            committed = self._routes.committed
            if not committed:
                self._pause("there is no committed checkpoint yet")
            elif committed < self._least:
                self._pause(f"the committed checkpoint is {committed}, before {self._least}")
            else:
                found = read()
                if found is not None:
                    return committed, found
                self._pause(f"the keepers do not hold checkpoint {committed} any more")

    def _committed(self, batch: Any) -> dict[int, dict[str, Any]] | None:
        """The rows of a batch of keys at the committed checkpoint, by the positions of the keys.
        None if the keepers do not hold the checkpoint any more."""
        request = StateRequest(self._kept.vertex, batch, self._routes.groups, 0)
        found = dict[int, dict[str, Any]]()
        for group, at in request.by_group().items():
            rows = self._rows_at(group)
            if rows is None:
                return None
            names = batch.schema.names
            stored = [tuple(key.values()) for key in rows.select(names).to_pylist()]
            where = {key: i for i, key in enumerate(stored)}
            for i in at:
                key = tuple(batch.slice(i, 1).to_pylist()[0].values())
                if key in where:
                    row = rows.slice(where[key], 1).combine_chunks().to_batches()[0]
                    found[i] = plain_rows(row)[0]
        return found

    def _rows_at(self, group: int | None) -> Any:
        """The rows of one key group, or of all, at the committed checkpoint. None if the keepers
        do not hold it any more."""
        routes, kept = self._routes, self._kept
        keepers = [k for p in routes.keepers if (k := actor(self.run, p)) is not None]
        keys = KeyRange(0, routes.groups) if group is None else KeyRange(group, group + 1)
        place = Place(kept.vertex, self.operator, keys, 0)
        found = rows_at(keepers, place, routes.committed, begins_of(routes.assignment.versions))
        if found is not None and found.ended:
            raise self._over()
        return None if found is None else pa.Table.from_batches(found.rows, kept.rows)

    # ------------------------------------------------------------ the controller

    @property
    def _kept(self) -> KeptRows:
        return self._routes.operators[self.operator]

    @property
    def _least(self) -> int:
        """The earliest epoch that an answer may be of."""
        return self.seen.epoch if self.seen.run == self._routes.number else 0

    def _time_left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def _pause(self, why: str) -> None:
        """Wait a moment.

        Raises:
            JobError: no time is left. It says why there was no answer.
        """
        if time.monotonic() + PAUSE_SECONDS > self._until:
            raise JobError(
                f"{self.operator} of {self.run} has not answered within {self._wait:g} s: {why}",
                hint="rs.query(wait=...) waits longer.",
            )
        time.sleep(PAUSE_SECONDS)

    def _asked_routes(self) -> StateRoutes:
        """The controller's newest routes. Asks again while the controller begins or restarts."""
        why = "the job has not begun yet"
        while True:
            controller = actor(self.run, CONTROLLER)
            if controller is None:
                raise JobError(f"{self.run} has ended")
            try:
                call = controller.state_routes.remote()
                routes: StateRoutes | None = ray.get(call, timeout=CALL_SECONDS)
            except RayActorError:
                routes, why = None, "its controller has died"
            except RayError as error:
                routes, why = None, f"its controller does not answer: {error}".partition("\n")[0]
            if routes is not None:
                return self._checked(routes)
            self._pause(why)

    def _checked(self, routes: StateRoutes) -> StateRoutes:
        if self.operator not in routes.operators:
            kept = ", ".join(routes.operators) or "none"
            raise ConfigError(
                f"{self.run} has no operator {self.operator!r} that keeps rows"
                if self.operator
                else f"which operator of {self.run}?",
                hint=f"Those that keep rows: {kept}.",
            )
        if self.seen.run > routes.number:
            raise JobError(
                f"run {self.seen.run} was seen already, and {self.run} is run {routes.number}:"
                " its state may be older",
                hint="Give `seen` only to readers of the same job.",
            )
        return routes


@placed
def query(
    job: str,
    operator: str,
    *,
    address: str = "auto",
    wait: Seconds = WAIT_SECONDS,
    seen: tuple[int, int] | None = None,
) -> StateReader:
    """Read rows of state of a job while it runs on Ray.

    Args:
        job: the name of the job, or of one of its runs.
        operator: the name of an operator that keeps rows.
        address: that of the Ray cluster. "auto" finds the cluster of this machine, or of the job
            that Ray runs this process for.
        wait: seconds that an answer may take, moves and recoveries included.
        seen: a moment (run, epoch), for example `StateReader.seen` of another reader. No answer is
            of an earlier moment.

    Raises:
        ConfigError: there is no such cluster, job or operator. JobError: the job does not answer.
    """
    where = caller(2)[0]
    if not (isinstance(job, str) and isinstance(operator, str)):
        raise ConfigError(f"query({job!r:.80}, {operator!r:.80}): names", where=where)
    seconds = wait_of("query", "wait", wait, zero=False)
    return StateReader(job, operator, address=address, wait=seconds, seen=seen)


def _batch(keys: Sequence[Any], schema: Any, operator: str, names: Sequence[str]) -> Any:
    """Keys as an Arrow batch with the schema of the operator's keys.

    Raises:
        ConfigError: one of the keys is none of the operator.
    """
    several = len(schema) > 1
    columns: list[list[Any]] = [[] for _ in schema]
    for key in keys:
        parts = tuple(key) if several and isinstance(key, tuple | list) else (key,)
        if len(parts) != len(schema):
            raise _no_key(key, schema, operator, names)
        for column, part in zip(columns, parts, strict=True):
            column.append(_stored(part))
    try:
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        if not all(f.nullable or not a.null_count for a, f in zip(arrays, schema, strict=True)):
            raise ValueError("None is no such key")
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for key in keys[:-1] if len(keys) > 1 else ():
            _batch([key], schema, operator, names)
        raise _no_key(keys[-1], schema, operator, names) from None


def _stored(part: Any) -> Any:
    """A part of a key as it is stored."""
    value = plain_key(part.item() if hasattr(part, "item") else part)
    return int(value) if isinstance(value, bool) else value


def _no_key(key: Any, schema: Any, operator: str, names: Sequence[str]) -> ConfigError:
    types = ", ".join(f"{n}: {f.type}" for n, f in zip(names, schema, strict=True))
    return ConfigError(f"{key!r:.200} is no key of {operator}", hint=f"A key is ({types}).")


def meeting(table: pa.Table, where: Any) -> pa.Table:
    """The rows that meet an expression.

    Raises:
        ConfigError: it is none, or does not fit the columns.
    """
    try:
        return table.filter(where)
    except (pa.ArrowException, TypeError, ValueError) as error:
        said = str(error).partition("\n")[0]
        columns = ", ".join(f"{column.name} ({column.type})" for column in table.schema)
        raise ConfigError(
            f"where: the condition does not fit: {said}", hint=f"The columns are {columns}."
        ) from None
