"""The command `feed`: what it was asked to feed, made where it is not there, and fed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from rich.console import Console

from raystream.cli.errors import say
from raystream.errors import ConfigError
from spark_ingest.feed.feeding import Job, feed
from spark_ingest.feed.state import DATA, State
from spark_ingest.generate import generate
from spark_ingest.published.prepare import prepare
from spark_ingest.screen import shown


@dataclass(frozen=True)
class Wanted:
    """What is to be fed. input: a prepared folder or published files; without any, traffic that is
    generated as the others say."""

    input: tuple[Path, ...]
    xways: int
    seconds: int
    seed: int

    def made(self, folder: Path) -> Path:
        """The prepared folder; one that has to be made is `folder`, unless it was made before."""
        if len(self.input) == 1 and self.input[0].is_dir():
            return self.input[0]
        if (folder / "meta.json").exists():
            return folder
        with shown(Console(stderr=True)) as progress:
            if self.input:
                prepare(list(self.input), folder, progress=progress)
            else:
                generate(
                    folder,
                    xways=self.xways,
                    seconds=self.seconds,
                    seed=self.seed,
                    progress=progress,
                )
        return folder


@dataclass(frozen=True, kw_only=True)
class How:
    """How it is fed, as the options of the command say."""

    speed: str
    every: float
    cores: int | None
    tasks: int | None
    settings: tuple[str, ...]


def fed(address: str, token: str | None, wanted: Wanted, state: Path | None, how: How) -> None:
    """Do what the command says.

    Raises:
        ConfigError: an option is missing or cannot be. Otherwise as `feed`.
    """
    if not token:
        raise ConfigError(
            "the token of the job is missing", hint="Set RAYSTREAM_PUSH_TOKEN, or --token."
        )
    pace, settings = speed_of(how.speed), dict(map(_setting, how.settings))
    with _folder(state) as folder:
        feed(
            Job(addresses=address, token=token),
            wanted.made(folder / DATA),
            State(folder),
            speed=pace,
            every=how.every,
            cores=how.cores,
            tasks=how.tasks,
            settings=settings,
            say=say,
        )


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--spark {text}: it is KEY=VALUE")
    return name, value


def speed_of(text: str) -> float | None:
    """Event seconds per second; None for `max`.

    Raises:
        ConfigError: it is neither.
    """
    if text == "max":
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (isfinite(value) and value > 0):
        raise ConfigError(f"--speed {text} is no speed", hint="A number above 0, or max.")
    return value


@contextmanager
def _folder(state: Path | None) -> Iterator[Path]:
    if state is not None:
        yield state.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="spark-feed-") as folder:
        yield Path(folder)
