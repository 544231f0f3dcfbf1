"""Runs in one process that are broken off and resumed: the output is that of one whole run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import pytest

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.durable.saves import Saves
from raystream.durable.store import FolderStore, open_store
from raystream.errors import ConfigError, JobError, OutputError, OvertakenError, StateError
from tests.flows import Counted, CountWords, Line, Running, running, split
from tests.unsound import by_chance

LINES = 60


class Broken(Exception):
    """The power is gone."""


class Seen(NamedTuple):
    time: int
    seen: int
    text: str


@dataclass(frozen=True)
class Fragile:
    """Three splits of lines; reading breaks after so many lines of one."""

    breaks: int = LINES
    names: tuple[str, ...] = ("a", "b", "c")
    record: type = Line

    def splits(self) -> list[rs.Split]:
        return [rs.Split(name) for name in self.names]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        for i in range(position, LINES):
            if i == self.breaks:
                raise Broken
            yield i + 1, rs.Batch(Line, {"time": [i], "text": [f"{split.name}{i % 7} w{i % 5}"]})


def flow(
    folder: Path, source: Any, epochs: Any, op: Any = running, form: str = "parquet"
) -> rs.Flow:
    made = rs.Flow("broken off")
    words = made.source(source, epochs=epochs, name="lines").through(split)
    counted = words.through(CountWords(), name="windows")
    (words.through(op, name="running") | counted).to(getattr(rs.io, form)(folder), name="files")
    return made


def written(folder: Path) -> Counter[Any]:
    batches = [b for t in (Running, Counted) for b in rs.io.read_parts(folder, t)]
    return Counter(r for b in batches for r in b.records())


@pytest.mark.parametrize("arrival", [False, True])
@pytest.mark.parametrize(("breaks", "check"), [(1, False), (17, True), (44, False), (44, True)])
def test_what_was_broken_off_is_resumed(
    tmp_path: Path, breaks: int, check: bool, arrival: bool
) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    epochs = rs.by_arrival(seconds=0.01) if arrival else rs.by_time(seconds=1)
    flow(tmp_path / "whole", Fragile(), rs.by_time(seconds=1)).run()
    with pytest.raises(Exception, match="Broken"):
        flow(out, Fragile(breaks), epochs).run(durable=store, checkpoint_every=3)
    saved = Saves(open_store(store), "broken off").newest().saved
    shown = max((p.upto for p in rs.io.parts(out, partial=True)), default=0)
    assert shown == (0 if saved is None else saved.checkpoint)
    counts = {"lines": 2, "running": 3}
    after = flow(out, Fragile(), epochs)
    report = after.run(
        durable=store, checkpoint_every=4, resume=True, instances=counts, check=check
    )
    (note,) = report.notes
    assert ("goes on from checkpoint" in note) == (breaks > 3)
    assert report.saved == max(o.position for o in report.operators)  # the end is saved, too
    assert written(out) == written(tmp_path / "whole")


class Disk:
    """What of a folder would still be there if the power were gone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: dict[int, int] = {}  # by the inode of a file
        self.names: dict[Path, set[int]] = {}  # by folder the inodes of its files
        self._sync = os.fsync
        monkeypatch.setattr(os, "fsync", self.sync)

    def sync(self, handle: int) -> None:
        self._sync(handle)
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if path.is_dir():
            self.names[path] = {p.stat().st_ino for p in path.iterdir()}
        else:
            self.sizes[path.stat().st_ino] = path.stat().st_size

    def lose(self, folder: Path) -> None:
        """The power is gone: what was not put on the disk is empty, or has no name."""
        for path in [p for p in folder.rglob("*") if p.is_file()]:
            found = path.stat()
            if found.st_ino not in self.names.get(path.parent, ()):
                path.unlink()
            elif self.sizes.get(found.st_ino) != found.st_size:
                path.write_bytes(b"")


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_what_is_saved_finds_its_output_when_the_power_was_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    store, out, epochs = tmp_path / "store", tmp_path / "out", rs.by_time(seconds=1)
    flow(tmp_path / "whole", Fragile(), epochs, form=form).run()
    with monkeypatch.context() as patch:
        disk = Disk(patch)
        with pytest.raises(Exception, match="Broken"):
            flow(out, Fragile(44), epochs, form=form).run(durable=store, checkpoint_every=3)
    shown = rs.io.parts(out, partial=True)
    for folder in (store, out):
        disk.lose(folder)
    assert rs.io.parts(out, partial=True) == shown
    report = flow(out, Fragile(), epochs, form=form).run(
        durable=store, checkpoint_every=3, resume=True
    )
    assert "goes on from checkpoint" in report.notes[0]
    assert written(out) == written(tmp_path / "whole")


def test_who_is_not_deterministic_is_named_after_a_resume(tmp_path: Path) -> None:
    store, out, epochs = tmp_path / "store", tmp_path / "out", rs.by_time(seconds=1)
    with pytest.raises(Exception, match="Broken"):
        flow(out, Fragile(44), epochs).run(durable=store, checkpoint_every=3)
    after = flow(out, Fragile(), epochs, by_chance)
    with pytest.raises(JobError, match="running is not deterministic"):
        after.run(durable=store, checkpoint_every=3, resume=True, check=True)


def test_what_is_not_saved_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise OutputError("the store is full")

    monkeypatch.setattr("raystream.local.run.save", refused)
    out = tmp_path / "out"
    with pytest.raises(Exception, match="Broken"):
        flow(out, Fragile(44), rs.by_time(seconds=1)).run(
            durable=tmp_path / "store", checkpoint_every=3
        )
    assert rs.io.parts(out, partial=True) == []
    whole = flow(out, Fragile(), rs.by_time(seconds=1))
    report = whole.run(durable=tmp_path / "store", checkpoint_every=3)
    assert "the store is full" in report.unsaved and rs.io.parts(out)


@dataclass
class Down:
    """A sink that cannot commit from some epoch on."""

    at: int
    kind: ClassVar[Literal["at-least-once"]] = "at-least-once"

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any], /) -> None:
        pass

    def commit(self, epoch: int, /) -> None:
        if epoch >= self.at:
            raise Broken


def test_a_branch_that_ended_long_ago_does_not_hinder_a_resume(tmp_path: Path) -> None:
    """The sink there was told of nothing since, or not of the checkpoint that was saved last."""

    def branches(at: int) -> rs.Flow:
        made = rs.Flow("branches")
        for name, n, sink in (
            ("long", 60, Down(at)),
            ("short", 10, rs.io.parquet(tmp_path / "out")),
        ):
            rows = [Line(i, "w") for i in range(n)]
            source = rs.io.iterable(rows, Line)
            made.source(source, epochs=rs.by_time(seconds=1), name=name).to(sink, name=f"to {name}")
        return made

    for at in (15, 40, 999):
        resume = at > 15
        run = lambda at, resume: branches(at).run(  # noqa: E731
            durable=tmp_path / "store", checkpoint_every=5, resume=resume
        )
        if at < 999:
            with pytest.raises(JobError, match="could not commit"):
                run(at, resume)
        else:
            (note,) = run(at, resume).notes
            assert note.startswith("goes on from checkpoint 40")
    written = rs.io.read_parts(tmp_path / "out", Line)
    assert [r.time for b in written for r in b.records()] == list(range(10))


def test_a_job_that_is_over_says_so_when_it_is_resumed(tmp_path: Path) -> None:
    def run(lines: int, **resume: bool) -> tuple[str, ...]:
        made = rs.Flow("over")
        rows = [Line(n, "a") for n in range(lines)]
        made.source(rs.io.iterable(rows, Line), epochs=rs.by_time(seconds=1)).to(
            rs.io.csv(tmp_path / "out")
        )
        return made.run(durable=tmp_path / "store", **resume).notes

    run(10)
    (note,) = run(20, resume=True)
    assert note.endswith(
        "its input had ended there, so only sources and files that are new are read"
    )


class Gone(Exception):
    """What was read once is read again."""


@dataclass(frozen=True)
class Once:
    """A source of ten lines whose file is archived when it was read."""

    archived: Path
    record: type = Line

    def splits(self) -> list[rs.Split]:
        return [rs.Split("once")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        if self.archived.exists():
            raise Gone
        for i in range(position, 10):
            yield i + 1, rs.Batch(Line, {"time": [i], "text": ["once"]})
        self.archived.touch()


@pytest.mark.parametrize("arrival", [False, True])
def test_a_source_that_had_ended_is_not_read_again_after_a_resume(
    tmp_path: Path, arrival: bool
) -> None:
    def branches(breaks: int) -> rs.Flow:
        made = rs.Flow("branches")
        for source in (Once(tmp_path / "archived"), Fragile(breaks, ("a",))):
            epochs = rs.by_arrival(seconds=0.01) if arrival else rs.by_time(seconds=1)
            name = type(source).__name__
            made.source(source, epochs=epochs, name=name).to(
                rs.io.parquet(tmp_path / name), name=f"to {name}"
            )
        return made

    with pytest.raises(Exception, match="Broken"):
        branches(40).run(durable=tmp_path / "store", checkpoint_every=3)
    (note,) = branches(LINES).run(durable=tmp_path / "store", checkpoint_every=3, resume=True).notes
    assert note.startswith("goes on from checkpoint")
    for name, n in (("Once", 10), ("Fragile", LINES)):
        found = rs.io.read_parts(tmp_path / name, Line)
        assert [r.time for b in found for r in b.records()] == list(range(n))


def test_other_splits_are_refused(tmp_path: Path) -> None:
    epochs = rs.by_time(seconds=1)
    flow(tmp_path / "out", Fragile(), epochs).run(durable=tmp_path / "store", checkpoint_every=3)
    more = flow(tmp_path / "out", Fragile(names=("a", "b")), epochs)
    with pytest.raises(StateError, match="has other splits of lines"):
        more.run(durable=tmp_path / "store", resume=True)


@pytest.mark.parametrize("now", [rs.by_time("seen", seconds=1), rs.by_time(seconds=1, ticks=2)])
def test_epochs_that_end_elsewhere_are_refused(tmp_path: Path, now: Any) -> None:
    """What falls into an epoch by the other column that was taken by the first would be left out,
    or be there twice."""

    def of(epochs: Any) -> rs.Flow:
        made = rs.Flow("seen")
        rows = [Seen(time, time // 2, "a") for time in range(40)]
        made.source(rs.io.iterable(rows, Seen), epochs=epochs, name="rows").to(rs.io.callable(len))
        return made

    of(rs.by_time(seconds=1)).run(durable=tmp_path, checkpoint_every=3)
    with pytest.raises(StateError, match="has other epochs of rows") as refused:
        of(now).run(durable=tmp_path, resume=True)
    assert "saved: by_time('time', ticks=1)" in refused.value.hint
    of(rs.by_time(seconds=1, disorder=2, origin=5)).run(durable=tmp_path, resume=True)


def test_what_an_old_run_saves_while_another_begins_is_not_discarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To choose a checkpoint and to read its images takes a while, in which the old run goes on."""
    store, out, epochs = tmp_path / "store", tmp_path / "out", rs.by_time(seconds=1)
    flow(tmp_path / "whole", Fragile(), epochs).run()
    with pytest.raises(Exception, match="Broken"):
        flow(out, Fragile(44), epochs).run(durable=store, checkpoint_every=3)
    newest = max((store / "broken off" / "cuts").iterdir())
    hidden = newest.rename(tmp_path / "not yet")

    def slow(*args: Any, **options: Any) -> Any:
        plan = make_plan(*args, **options)
        hidden.rename(newest)
        return plan

    with monkeypatch.context() as patch:
        patch.setattr("raystream.run.make_plan", slow)
        with pytest.raises(ConfigError, match=rf"{newest.name} in .* while this one began") as bad:
            flow(out, Fragile(), epochs).run(durable=store, resume=True)
    assert "--resume" in bad.value.hint
    assert rs.io.parts(out, partial=True)[-1].upto == int(newest.name.partition("-")[2])
    flow(out, Fragile(), epochs).run(durable=store, resume=True)
    assert written(out) == written(tmp_path / "whole")


def test_a_run_that_another_has_overtaken_ends_and_shows_no_more(tmp_path: Path) -> None:
    """Its sink does not know: it is none of ours."""
    store, shown = tmp_path / "store", []

    class Shown:
        def write(self, epoch: int, keys: Any, batch: Any) -> None: ...

        def commit(self, epoch: int) -> None:
            shown.append(epoch)
            if len(shown) == 2:
                Saves(open_store(str(store)), "broken off").claim("another")

    run = rs.Flow("broken off")
    words = run.source(Fragile(), epochs=rs.by_time(seconds=1)).through(split)
    words.through(running).to(Shown())
    with pytest.raises(OvertakenError, match="run 2 has begun, so run 1 is over"):
        run.run(durable=store, checkpoint_every=3)
    assert len(shown) == 2


def test_a_cut_is_saved_although_older_ones_cannot_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def barred(*_: Any) -> None:
        raise OutputError("nothing may be deleted here")

    monkeypatch.setattr(FolderStore, "delete", barred)
    out, store = tmp_path / "out", tmp_path / "store"
    with pytest.raises(Exception, match="Broken"):
        flow(out, Fragile(44), rs.by_time(seconds=1)).run(durable=store, checkpoint_every=3)
    saved = Saves(open_store(store), "broken off").newest().saved
    assert saved is not None and rs.io.parts(out, partial=True)[-1].upto == saved.checkpoint
    assert "could not be deleted: nothing may be" in caplog.text
    report = flow(out, Fragile(), rs.by_time(seconds=1)).run(durable=store, resume=True)
    assert not report.unsaved


@pytest.mark.parametrize("options", [{}, {"copies": 0}, {"recovery": "source"}])
def test_a_run_that_cannot_begin_does_not_end_the_saves_of_another(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """A mistyped address is enough to have a job somewhere else save nothing any more."""
    store, epochs = tmp_path / "store", rs.by_time(seconds=1)
    flow(tmp_path / "out", Fragile(), epochs).run(durable=store, checkpoint_every=3)
    again = flow(tmp_path / "out", Fragile(), epochs)
    with pytest.raises(ConfigError):
        again.run(durable=store, resume=True, cluster="127.0.0.1:1", **options)
    assert [p.name for p in (store / "broken off" / "runs").iterdir()] == ["000001"]
