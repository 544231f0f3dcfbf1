"""The folder in which a feed keeps how far it is: so it goes on after it was killed.

feed.json   what it feeds, and how fast
clock.json  when its clock started
query/      the checkpoint folder of its query, as Spark keeps it
data/       rows that it has generated or prepared
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from raystream.errors import ConfigError

DATA = "data"


@dataclass(frozen=True)
class Feeding:
    """What a feed does. data: the prepared folder. speed: `max` or a number."""

    data: str
    speed: str


@dataclass(frozen=True)
class State:
    """The folder of a feed."""

    folder: Path

    @property
    def clock(self) -> Path:
        return self.folder / "clock.json"

    @property
    def query(self) -> Path:
        return self.folder / "query"

    def begin(self, feeding: Feeding) -> None:
        """Begin, or go on.

        Raises:
            ConfigError: the folder is that of another feed, or cannot be written to.
        """
        file = self.folder / "feed.json"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                file.write_text(json.dumps(asdict(feeding)), encoding="utf-8")
            before = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.folder} cannot keep the state of a feed: {error}") from None
        if before != asdict(feeding):
            raise ConfigError(
                f"{self.folder} is the state of another feed: {before}",
                hint="Name another folder with --state, or go on with what that one feeds.",
            )

    def committed(self) -> int | None:
        """The second up to which the query has committed; None before its first batch."""
        batches = [int(p.name) for p in (self.query / "commits").glob("*") if p.name.isdigit()]
        if not batches:
            return None
        lines = (self.query / "offsets" / str(max(batches))).read_text(encoding="utf-8")
        second: int = json.loads(lines.splitlines()[-1])["second"]
        return second
