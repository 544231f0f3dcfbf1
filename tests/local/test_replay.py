"""Replays: from each saved checkpoint the same bits and the same errors as the run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.controller.planning.changes import ResumeWishes
from raystream.durable.saves import Saves
from raystream.durable.store import open_store
from raystream.errors import ConfigError, OperatorError, StateError
from raystream.local.comparing import Pair
from raystream.local.probe import Probe, Visit
from raystream.local.replay import Replay, changed_files, replay_plan, uncertain
from raystream.testing import Collect
from tests.dataflow.shapes import SHAPES
from tests.flows import Line, Running, Tally, Word, split

KEPT = 50


def written(sink: Collect, after: int = 0) -> dict[tuple[int, str], list[str]]:
    """What a sink got, by epoch and type, in canonical order."""
    out: dict[tuple[int, str], list[str]] = {}
    for (epoch, _, name), batch in sorted(sink.parts.items(), key=lambda part: part[0]):
        if epoch > after:
            out.setdefault((epoch, name), []).extend(map(repr, batch.records()))
    return out


def made(replay: Replay, to: int | None = None) -> dict[tuple[int, str], list[str]]:
    """The same of a replay, up to its end."""
    out: dict[tuple[int, str], list[str]] = {}
    with replay:
        replay.advance(to or rs.NEVER)
        for output in replay.taken():
            for record in output.records:
                out.setdefault((output.epoch, type(record).__name__), []).append(repr(record))
    return out


@pytest.mark.parametrize("name", SHAPES)
def test_the_same_bits_from_each_checkpoint_also_where_it_is_looked_at(
    name: str, tmp_path: Path
) -> None:
    shape, sink = SHAPES[name], Collect()
    flow = shape.build(sink, 5, 1)
    counts = {n.name: 2 for n in flow.nodes if getattr(getattr(n, "spec", None), "keyed", False)}
    flow.run(durable=tmp_path, checkpoint_every=3, keep=KEPT, instances=counts)
    saves = Saves(open_store(tmp_path), flow.name)
    cuts = saves.kept()
    assert len(cuts) > 2
    for saved in (cuts[1], cuts[-1]):
        expected = written(sink, saved.checkpoint)
        for looked in (False, True):
            plan, notes = replay_plan(shape.build(Collect(), 5, 1), saves, saved)
            assert not notes
            seen: list[Visit] = []
            probe = Probe(told=seen.append)
            if looked:
                probe.put_into(plan)
            assert made(Replay(plan, saves, before=probe.before)) == expected
            if looked and expected:
                assert seen and all(v.epoch > saved.checkpoint for v in seen)


def test_a_replay_ends_where_it_is_told_to(tmp_path: Path) -> None:
    sink = Collect()
    flow = SHAPES["tumbling"].build(sink, 5, 1)
    flow.run(durable=tmp_path, checkpoint_every=3, keep=KEPT)
    saves = Saves(open_store(tmp_path), flow.name)
    saved = saves.kept()[-1]
    expected = written(sink, saved.checkpoint)
    to = sorted({epoch for epoch, _ in expected})[1]
    plan, _ = replay_plan(SHAPES["tumbling"].build(Collect(), 5, 1), saves, saved)
    replay = Replay(plan, saves)
    found = made(replay, to)
    assert found == {at: records for at, records in expected.items() if at[0] <= to}
    assert replay.at == to and not replay.ended


# ---------------------------------------------------------------- a job that failed


class Deposit(NamedTuple):
    time: int
    user: str
    amount: int


class Balance(rs.State):
    log: list[int] = rs.field(factory=list)


class Said(NamedTuple):
    user: str
    cents: int
    log: list[int]


@rs.operator(key="user")
def account(deposit: Deposit, balance: Balance) -> Iterator[Said]:
    balance.log.append(deposit.amount)
    yield Said(deposit.user, sum(balance.log), balance.log)
    if sum(balance.log) > 400:
        raise ValueError(f"{deposit.user} has too much")
    balance.log.append(0)


@rs.operator(key="user")
def lenient(deposit: Deposit, balance: Balance) -> Iterator[Said]:
    balance.log.append(deposit.amount)
    yield Said(deposit.user, sum(balance.log) if deposit.time % 17 else -1, balance.log)
    balance.log.append(0)


DEPOSITS = [Deposit(i // 3, f"u{i % 5}", i % 11) for i in range(600)]


def accounts(op: Any = account, sink: Any = None) -> rs.Flow:
    flow = rs.Flow("accounts")
    source = flow.source(
        rs.io.iterable(DEPOSITS, Deposit), epochs=rs.by_time(seconds=2), name="deposits"
    )
    source.through(op, name="account").to(sink or Collect(), name="said")
    return flow


def failed(folder: Path, **options: Any) -> tuple[OperatorError, Saves]:
    with pytest.raises(OperatorError, match="has too much") as error:
        accounts().run(durable=folder, checkpoint_every=5, keep=KEPT, **options)
    return error.value, Saves(open_store(folder), "accounts")


@pytest.mark.parametrize("instances", [1, 3])
def test_a_job_that_failed_fails_again_at_the_same_record(tmp_path: Path, instances: int) -> None:
    error, saves = failed(tmp_path, instances={"account": instances})
    assert error.at is not None and error.at.operator == "account"
    for saved in saves.kept():
        seen: list[Visit] = []
        probe = Probe("account", error.at.key, told=seen.append)
        plan, _ = replay_plan(accounts(), saves, saved)
        probe.put_into(plan)
        with (
            pytest.raises(OperatorError) as again,
            Replay(plan, saves, before=probe.before) as replay,
        ):
            replay.advance(rs.NEVER)
        assert (again.value.message, again.value.at) == (error.message, error.at)
        place = error.hint.splitlines()[0]
        assert again.value.hint == place and f"epoch {error.at.epoch}, record" in place
        last = seen[-1]
        assert (last.epoch, last.key, last.step) == (error.at.epoch, error.at.key, "process")
        assert isinstance(last.raised, ValueError) and last.emitted
        before, after = [v.before for v in seen], [v.after for v in seen]
        assert before[1:] == after[:-1], "the row is as the call before has left it"
        assert len({*before}) == len(before)
        assert {v.key for v in seen} == {error.at.key}


def test_an_error_tells_the_command_that_replays_it(tmp_path: Path) -> None:
    error, saves = failed(tmp_path)
    newest = saves.kept()[0]
    assert error.at is not None
    assert error.hint.splitlines()[-1].strip() == (
        f"Replay it: raystream replay MODULE:FLOW --durable {tmp_path} --from {newest.label}"
        f" --to {error.at.epoch} --operator account --key {error.at.key} --show"
    )
    with pytest.raises(OperatorError) as plain:
        accounts().run()
    assert "Replay it" not in plain.value.hint


def test_what_was_emitted_is_shown_as_it_was(tmp_path: Path) -> None:
    """The operator changes a list that it has emitted; what comes out is what it was then."""
    _, saves = failed(tmp_path)
    sink = Collect()
    with pytest.raises(OperatorError):
        accounts(sink=sink).run(durable=tmp_path / "again", checkpoint_every=5)
    plan, _ = replay_plan(accounts(), saves, saves.kept()[-1])
    seen: list[Visit] = []
    probe = Probe(told=seen.append)
    probe.put_into(plan)
    with Replay(plan, saves, before=probe.before) as replay:
        replay.advance(saves.kept()[0].checkpoint)
        out = [r for o in replay.taken() for r in o.records]
    assert out and sorted(out) == sorted(r for v in seen for r in v.emitted)
    first = saves.kept()[-1].checkpoint
    last = saves.kept()[0].checkpoint
    assert out == [r for e, r in sink.by_epoch() if first < e <= last]


# ---------------------------------------------------------------- another version


def pair(folder: Path, saves: Saves, op: Any) -> Pair:
    saved = saves.kept()[-1]
    one, _ = replay_plan(accounts(), saves, saved)
    two, _ = replay_plan(accounts(op), saves, saved)
    return Pair(Replay(one, saves, keeps=True), Replay(two, saves, keeps=True))


def test_another_version_differs_record_by_record(tmp_path: Path) -> None:
    error, saves = failed(tmp_path)
    both = pair(tmp_path, saves, lenient)
    differ = []
    with both.first, both.second:
        while compared := both.turn():
            differ += compared.differences
        assert both.second.at >= both.first.at + 1, "it goes through the epoch of the error"
    assert both.failed is not None and both.failed.at == error.at
    assert differ
    for each in differ:
        assert len(each.lacks) == len(each.more) > 0
        assert all(r.cents == -1 for r in each.more) and all(r.cents >= 0 for r in each.lacks)
        assert any(2 * (each.epoch - 1) + i in range(0, 400, 17) for i in (0, 1))
        assert each.lines()[0] == f"epoch {each.epoch}  said"


def test_the_same_version_does_not_differ(tmp_path: Path) -> None:
    error, saves = failed(tmp_path)
    assert error.at is not None
    both = pair(tmp_path, saves, account)
    with both.first, both.second:
        while both.first.at + 1 < error.at.epoch:
            compared = both.turn()
            assert compared is not None and not compared.differences
        with pytest.raises(OperatorError, match="has too much") as again:
            both.turn()  # the second ends as the first one did
        assert both.failed is not None and again.value.at == both.failed.at == error.at
    assert both.records > 100


def test_a_fork_writes_to_a_folder_of_its_own(tmp_path: Path) -> None:
    sink = Collect()
    accounts(lenient, sink).run(durable=tmp_path / "cuts", checkpoint_every=20, keep=KEPT)
    saves = Saves(open_store(tmp_path / "cuts"), "accounts")
    saved = saves.kept()[-1]
    flow = accounts(lenient)
    flow.name = "trial"
    plan, _ = replay_plan(flow, saves, saved)
    with Replay(plan, saves, write_to=str(tmp_path / "out")) as replay:
        replay.advance(rs.NEVER)
    found = rs.io.read_parts(tmp_path / "out" / "trial" / "said", Said)
    assert [r for b in found for r in b.records()] == [
        r for e, r in sink.by_epoch() if e > saved.checkpoint
    ]


def test_the_second_version_may_have_changed_as_a_resumed_flow_may(tmp_path: Path) -> None:
    accounts(lenient).run(durable=tmp_path, checkpoint_every=20, keep=KEPT)
    saves = Saves(open_store(tmp_path), "accounts")
    saved = saves.kept()[-1]

    def renamed() -> rs.Flow:
        flow = rs.Flow("accounts")
        rows = rs.io.iterable(DEPOSITS, Deposit)
        source = flow.source(rows, epochs=rs.by_time(seconds=2), name="deposits")
        source.through(lenient, name="purse").to(Collect(), name="told")
        return flow

    with pytest.raises(StateError, match="has account, said, which the flow does not have"):
        replay_plan(renamed(), saves, saved)
    names = {"account": "purse", "said": "told"}
    one, _ = replay_plan(accounts(lenient), saves, saved)
    two, notes = replay_plan(renamed(), saves, saved, ResumeWishes(names))
    assert notes == ("purse was called account", "told was called said")
    both = Pair(Replay(one, saves, keeps=True), Replay(two, saves, keeps=True), names)
    with both.first, both.second:
        while compared := both.turn():
            assert not compared.differences
        assert both.records > 100 and both.common == ["said"] and not both.alone


# ---------------------------------------------------------------- what cannot be replayed


def lines_of(folder: Path, epochs: Any, sink: Any) -> rs.Flow:
    flow = rs.Flow("lines")
    source = rs.io.csv(folder, Line)
    words = flow.source(source, epochs=epochs, name="lines").through(split)
    words.through(count, name="count").to(sink, name="out")
    return flow


@rs.operator(key="word")
def count(word: Word, tally: Tally) -> Iterator[Running]:
    tally.n += 1
    yield Running(word.word, tally.n)


def csv(path: Path, rows: int) -> None:
    path.parent.mkdir(exist_ok=True)
    text = "".join(f"{i},w{i % 3}\n" for i in range(rows))
    path.write_text(f"time,text\n{text}", encoding="utf-8")


def test_files_that_have_changed_since_are_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    csv(data / "a.csv", 40)
    csv(data / "b.csv", 40)
    epochs = rs.by_time(seconds=1)
    lines_of(data, epochs, Collect()).run(durable=tmp_path / "cuts", checkpoint_every=5, keep=KEPT)
    saves = Saves(open_store(tmp_path / "cuts"), "lines")
    saved = saves.kept()[-1]
    plan, _ = replay_plan(lines_of(data, epochs, Collect()), saves, saved)
    assert changed_files(plan, saved) == []
    csv(data / "b.csv", 60)
    plan, _ = replay_plan(lines_of(data, epochs, Collect()), saves, saved)
    (said,) = changed_files(plan, saved)
    assert said.startswith(f"{data}/b.csv is not what it was when run 1 began: ")
    assert f"{os.path.getsize(data / 'b.csv'):,} bytes, changed" in said
    (data / "b.csv").unlink()
    with pytest.raises(StateError, match="has other splits of lines") as gone:
        replay_plan(lines_of(data, epochs, Collect()), saves, saved)
    assert f"saved: {data}/b.csv" in gone.value.hint


class Posted(rs.Source[Deposit]):
    """Ten deposits that come once."""

    recorded = True

    def splits(self) -> list[rs.Split]:
        return [rs.Split("posted")]

    def read(self, split: rs.Split, position: int, /) -> Iterator[tuple[int, rs.Batch[Deposit]]]:
        for i in range(10):
            batch = {"time": [i], "user": ["u"], "amount": [1]}
            yield i + 1, rs.Batch(Deposit, batch)


@rs.operator(recorded=True)
def asked(deposit: Deposit) -> Iterator[Deposit]:
    yield deposit


@pytest.mark.parametrize("ask", [False, True])
def test_input_that_is_recorded_and_answers_are_refused(tmp_path: Path, ask: bool) -> None:
    def flow() -> rs.Flow:
        made = rs.Flow("once")
        source = rs.io.iterable(DEPOSITS[:10], Deposit) if ask else Posted()
        stream = made.source(source, epochs=rs.by_arrival(seconds=0.01), name="posted")
        (stream.through(asked) if ask else stream).to(Collect(), name="out")
        return made

    flow().run(durable=tmp_path, checkpoint_every=1)
    saves = Saves(open_store(tmp_path), "once")
    saved = saves.kept()[-1]
    says = "asked asks the world" if ask else "posted cannot be read again"
    with pytest.raises(ConfigError, match=says):
        replay_plan(flow(), saves, saved)


def test_where_epochs_may_end_elsewhere_it_is_said(tmp_path: Path) -> None:
    csv(tmp_path / "data" / "a.csv", 40)
    flow = lines_of(tmp_path / "data", rs.by_arrival(seconds=0.01), Collect())
    flow.run(durable=tmp_path / "cuts", checkpoint_every=1, keep=KEPT)
    saves = Saves(open_store(tmp_path / "cuts"), "lines")
    again = lines_of(tmp_path / "data", rs.by_arrival(seconds=0.01), Collect())
    plan, _ = replay_plan(again, saves, saves.kept()[-1])
    (said,) = uncertain(plan)
    assert said.startswith("lines is cut into epochs by arrival")


def test_there_must_be_something_to_look_at(tmp_path: Path) -> None:
    accounts(lenient).run(durable=tmp_path, checkpoint_every=20, keep=KEPT)
    saves = Saves(open_store(tmp_path), "accounts")
    plan, _ = replay_plan(accounts(lenient), saves, saves.kept()[-1])
    with pytest.raises(ConfigError, match="there is no operator 'purse' to look at") as refused:
        Probe("purse").put_into(plan)
    assert refused.value.hint == "There are account."
