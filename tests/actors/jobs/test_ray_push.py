"""Clients push into a job on real Ray while instances of its source die and move."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import ray

import raystream as rs
from raystream.push import Client
from raystream.security.certificates import made, write
from tests.actors.helpers import parts
from tests.actors.jobs.test_ray_moves import Asks
from tests.flows import Word, running
from tests.gates import Gate
from tests.io.test_push import TOKEN, free_port

OPTIONS: dict[str, Any] = {"instances": {"words": 2, "running": 2}, "spares": 1}
pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]


class Pusher(threading.Thread):
    """Pushes words of its own until the gate is open, and more than one batch of them, however slow
    the machine is; each batch is recorded when `flush` returns."""

    def __init__(self, address: str, name: str, gate: Gate, tls: Path | None) -> None:
        super().__init__(name=name)
        self.client = Client(address, TOKEN, sender=name, give_up=120, tls=tls)
        self.gate, self.pushed, self.failed = gate, 0, ""

    def run(self) -> None:
        try:
            with self.client:
                while self.pushed <= 5 or not (self.gate.folder / "open").exists():
                    for _ in range(5):
                        self.client.push(Word(self.pushed, f"{self.name}-{self.pushed}"))
                        self.pushed += 1
                    self.client.flush()
                    time.sleep(0.02)
        except BaseException as error:
            self.failed = repr(error)
            self.gate.open()


def pushed(tmp_path: Path, gate: Gate, watch: Any, tls: Path | None = None, **options: Any) -> Any:
    """Push from four clients until the gate is open; each record that was acknowledged is in the
    output exactly once. Returns the report."""
    (tmp_path / "out").mkdir()
    port = free_port()
    address = f"{ray.util.get_node_ip_address()}:{port}"
    here = f"127.0.0.1:{port}"
    pushers = [Pusher((address, here)[i % 2], f"client-{i}", gate, tls) for i in range(4)]

    def end() -> None:
        for pusher in pushers:
            pusher.join()
        with Client(address, TOKEN, give_up=120, tls=tls) as client:
            client.end()

    ending = threading.Thread(target=end)
    for thread in (*pushers, ending):
        thread.start()
    flow = rs.Flow("pushed")
    source = rs.io.push(Word, port=port, lanes=4, token=TOKEN)
    words = flow.source(source, epochs=rs.by_arrival(seconds=0.05), name="words")
    words.through(running).to(parts.Files(tmp_path / "out"))
    try:
        report = flow.run(cluster="auto", on_progress=watch, tls=tls, **options)
    finally:
        gate.open()
    ending.join(60)
    assert [pusher.failed for pusher in pushers] == [""] * 4
    found = sorted(tuple(r) for _, _, r in parts.records(tmp_path / "out"))
    wanted = sorted((f"{p.name}-{n}", 1) for p in pushers for n in range(p.pushed))
    assert found == wanted
    assert all(p.pushed > 5 for p in pushers)
    return report


def test_each_record_that_was_acknowledged_counts_once_although_a_source_dies(
    tmp_path: Path,
) -> None:
    """With TLS: a process that takes the place of another has the certificates, too."""
    tls = tmp_path / "tls"
    write(made(), tls)
    kill = parts.Killer(Gate(tmp_path / "gate"), "words/0", "words/1", samples=2)
    kill.gate.folder.mkdir()
    report = pushed(tmp_path, kill.gate, kill, tls, checkpoint_every=4, **OPTIONS)
    assert not kill.victims
    assert [n for r in report.recoveries for n in r.gone] == ["words/0", "words/1"]


@pytest.mark.long
def test_lanes_change_their_owner_while_clients_push(tmp_path: Path) -> None:
    """One instance owns all lanes, then three do, and then one again; each by another way."""
    gate = Gate(tmp_path / "gate")
    gate.folder.mkdir()
    asks = Asks(gate.folder / "open", ["scale pushed words=3 --handover", "scale pushed words=1"])
    report = pushed(tmp_path, gate, asks, checkpoint_seconds=0.5, spares=3)
    assert asks.codes == [0, 0], asks.said
    assert [m.failed for m in report.moved] == ["", ""]
