"""Where a query writes: the job, the name of the query, and the lanes of its rows."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raystream.errors import ConfigError, InputError
from raystream.push import Client, give_up_of

_NUMBER = re.compile(r"\d+(\.\d+)?")
KNOWN = ("address", "token", "path", "lane", "key", "order", "give_up", "query", "name")
_SPARKS = ("checkpointlocation", "path")


@dataclass(frozen=True, kw_only=True)
class Target:
    """What the options of a writer say."""

    addresses: tuple[str, ...]
    """Where instances of the source listen."""
    token: str
    path: str
    """That of the source."""
    query: str
    """The name under which the query stages and seals; the same after a restart."""
    lane: str | None
    """The column that says the lane of a row. It is not sent."""
    key: tuple[str, ...]
    """The columns whose values decide the lane of a row. With neither all rows are in one lane."""
    order: tuple[str, ...]
    """The columns by which the rows of a batch are sorted in each lane."""
    give_up: float
    """After how many seconds without success a request is an error."""

    def client(self, give_up: float | None = None) -> Client:
        """A client of the job."""
        seconds = self.give_up if give_up is None else give_up
        return Client(self.addresses, self.token, path=self.path, give_up=seconds)

    def by_lane(self, batch: pa.RecordBatch, lanes: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of a batch as the job takes them, for each lane that has some. They stay in
        their order."""
        numbers = self._lanes(batch, lanes)
        if self.lane is not None:
            batch = batch.drop_columns([self.lane])
        if numbers is None:
            yield zlib.crc32(self.query.encode()) % lanes, batch
            return
        for lane in np.unique(numbers).tolist():
            mine = np.flatnonzero(numbers == lane)
            yield lane, batch if len(mine) == len(numbers) else batch.take(pa.array(mine))

    def _lanes(self, batch: pa.RecordBatch, lanes: int) -> npt.NDArray[Any] | None:
        if self.lane is not None:
            column = _column(batch, self.lane, "lane")
            if not pa.types.is_integer(column.type) or column.null_count:
                raise InputError(
                    f"lane: column {self.lane} has to hold whole numbers, and no nulls"
                )
            numbers: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
            if len(numbers) and not (numbers.min() >= 0 and numbers.max() < lanes):
                raise InputError(
                    f"lane: column {self.lane} has {numbers.min()} to {numbers.max()}, and the"
                    f" source has lanes 0 to {lanes - 1}"
                )
            return numbers
        if not self.key:
            return None
        import pandas as pd

        keys = {name: _column(batch, name, "key").to_pandas() for name in self.key}
        hashed: npt.NDArray[Any] = pd.util.hash_pandas_object(
            pd.DataFrame(keys), index=False, categorize=False
        ).to_numpy()
        return hashed % np.uint64(lanes)


def _column(batch: pa.RecordBatch, name: str, option: str) -> pa.Array:
    if name not in batch.schema.names:
        raise InputError(
            f"{option}: there is no column {name!r}", hint=f"There are {batch.schema.names}."
        )
    return batch.column(name)


def target(options: Mapping[str, str], query: str) -> Target:
    """What the options say.

    Args:
        query: the name of the query.

    Raises:
        ConfigError: one is missing, unknown, or cannot be.
    """
    given = {name.lower(): value for name, value in options.items()}
    if unknown := sorted(set(given) - {*KNOWN, *_SPARKS}):
        raise ConfigError(f"raystream: there is no option {unknown[0]!r}", hint=f"Options: {KNOWN}")
    if not given.get("address"):
        raise ConfigError(
            "raystream: the option address is missing",
            hint='Where the source of the job listens: .option("address", "http://HOST:7700")',
        )
    if not (token := given.get("token") or os.environ.get("RAYSTREAM_PUSH_TOKEN", "")):
        raise ConfigError(
            "raystream: the option token is missing",
            hint="Or set RAYSTREAM_PUSH_TOKEN where the driver of Spark runs.",
        )
    if "lane" in given and "key" in given:
        raise ConfigError("raystream: the options lane and key exclude each other")
    told = given.get("give_up", "300")
    give_up = give_up_of(float(told) if _NUMBER.fullmatch(told) else told)
    return Target(
        addresses=_names(given["address"]),
        token=token,
        path=given.get("path") or "/push",
        query=query,
        lane=given.get("lane"),
        key=_names(given.get("key", "")),
        order=_names(given.get("order", "")),
        give_up=give_up,
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip()))


def query_of(options: Mapping[str, str]) -> str:
    """The name of a streaming query: that of its option `query`, otherwise the one that Spark has
    written to its checkpoint folder, which a restarted query finds there again.

    Raises:
        ConfigError: there is neither.
    """
    given = {name.lower(): value for name, value in options.items()}
    if name := given.get("query"):
        return f"query:{name}"
    hint = 'Set .option("checkpointLocation", ...) on the writer, or name it: .option("query", ...)'
    if not (location := given.get("checkpointlocation")):
        raise ConfigError("raystream: the query has no checkpoint folder of its own", hint=hint)
    try:
        return f"spark:{json.loads(_text(location.rstrip('/') + '/metadata'))['id']}"
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise ConfigError(
            f"raystream: the id of the query cannot be read from {location}/metadata:"
            f" {type(error).__name__}",
            hint=hint,
        ) from None


def _text(location: str) -> str:
    url = urlsplit(location)
    if url.scheme in ("", "file"):
        return Path(unquote(url.path)).read_text(encoding="utf-8")
    from pyarrow import fs

    system, path = fs.FileSystem.from_uri(location)
    with system.open_input_stream(path) as file:
        text: str = file.read().decode()
    return text
