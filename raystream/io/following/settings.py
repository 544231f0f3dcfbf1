"""What users say of a folder that is followed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from raystream.errors import ConfigError, caller, placed_class
from raystream.schema.lengths import Seconds, seconds_of

LANES_MOST = 256


@placed_class
@dataclass(frozen=True, kw_only=True)
class Follow:
    """How files are followed that keep arriving: `rs.io.csv("in/", Row, follow=rs.io.Follow(...))`.

    Args:
        every: how long the source waits between two looks.
        settled: how long a file has to keep its size and its time before it is read. Unless given 2
            seconds in a folder, and nothing in a bucket, where an object appears when it is whole.
            With 0 a file is read when it is seen first: where all of them are moved in.
        end: the name of a file in the folder that ends the input. What is there by then is read.
            Unless given the input has no end.
        lanes: how many splits the source has, so that as many instances share the files.
    """

    every: Seconds = 1.0
    settled: Seconds | None = None
    end: str | None = None
    lanes: int = 1

    def __post_init__(self) -> None:
        seconds_of("rs.io.Follow", "every", self.every, error=ConfigError)
        if self.settled is not None:
            seconds_of("rs.io.Follow", "settled", self.settled, zero=True, error=ConfigError)
        if type(self.lanes) is not int or not 1 <= self.lanes <= LANES_MOST:
            raise ConfigError(
                f"rs.io.Follow(lanes={self.lanes!r}): a whole number from 1 to {LANES_MOST}",
                where=caller()[0],
            )
        if self.end is not None and (
            not isinstance(self.end, str) or not self.end or "/" in self.end
        ):
            raise ConfigError(
                f'rs.io.Follow(end={self.end!r}): the name of a file, such as "_END"',
                where=caller()[0],
            )

    @property
    def pause(self) -> float:
        """Seconds between two looks."""
        return float(seconds_of("rs.io.Follow", "every", self.every, error=ConfigError))

    def settling(self, *, bucket: bool) -> float:
        """Seconds for which a file has to stay as it is."""
        if self.settled is None:
            return 0.0 if bucket else 2.0
        return float(
            seconds_of("rs.io.Follow", "settled", self.settled, zero=True, error=ConfigError)
        )


def follow_of(given: Any) -> Follow | None:
    """What `follow=` says.

    Raises:
        ConfigError: it is neither a bool nor a `Follow`.
    """
    if isinstance(given, bool):
        return Follow() if given else None
    if isinstance(given, Follow):
        return given
    raise ConfigError(
        f"follow={given!r:.80}: True, False or how to follow",
        hint='For example follow=rs.io.Follow(settled="5s").',
    )
