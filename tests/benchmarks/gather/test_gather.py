"""python -m benchmarks gather: the classes of links, the process of a host, and the tables."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rich.console import Console

from benchmarks.gather.classes import CLASSES, HOLDERS, RECEIVERS, sr3_form, wants
from benchmarks.gather.command import FORMS, MEGA, Cell, cells, summary, table_of
from benchmarks.gather.runs import HOST, tickets
from benchmarks.gather.thousand import computed
from raystream.controller.protocol.gathering.links import Links
from raystream.controller.protocol.gathering.widest import gather


@contextmanager
def host(address: str) -> Iterator[subprocess.Popen[str]]:
    """The process of a host, on an address of this machine alone."""
    command = [sys.executable, "-I", str(HOST), address]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("form", ["star", "line", "tree"])
def test_hosts_send_and_pass_on_all_bytes(form: str) -> None:
    wanted = wants(3_000_001, 1, 2)[0]
    (plan,) = gather([wanted], Links(), form)
    addresses = {name: f"127.77.0.{i + 1}" for i, name in enumerate((*HOLDERS, RECEIVERS[0]))}
    request = tickets(plan, addresses.__getitem__, 0.001)
    assert sum(request["slices"].values()) == 3_000_001
    with all_hosts([addresses[name] for name in (*HOLDERS, RECEIVERS[0])]) as hosts:
        receiver = hosts[-1]
        assert receiver.stdin is not None and receiver.stdout is not None
        receiver.stdin.write(json.dumps(request) + "\n")
        receiver.stdin.flush()
        said = json.loads(receiver.stdout.readline())
        assert said["missing"] == {} and said["wrong"] == [] and said["seconds"] > 0


@contextmanager
def all_hosts(addresses: list[str]) -> Iterator[list[subprocess.Popen[str]]]:
    """Several hosts."""
    if not addresses:
        yield []
        return
    with host(addresses[0]) as first, all_hosts(addresses[1:]) as rest:
        yield [first, *rest]


@pytest.mark.parametrize("links", CLASSES)
def test_predicted_cells_have_all_forms(links: str) -> None:
    found = list(cells(links, [8 * MEGA], [1, 4], 2, 1, 10.0, None))
    assert [c.form for c in found] == [*FORMS] * 2
    by_form = {(c.failures, c.form): c.predicted for c in found}
    for count in (1, 4):
        best = min(by_form[count, form] for form in ("star", "line", "tree"))
        assert by_form[count, "auto"] <= best / 0.95
    console = Console(record=True, width=150)
    console.print(table_of(links, found))
    assert "auto is" in console.export_text()


def test_what_was_measured_is_summed_up() -> None:
    def cell(form: str, measured: float) -> Cell:
        return Cell(links="lan1", nbytes=MEGA, failures=1, form=form, takes="star", predicted=1.0,
                    measured=measured)  # fmt: skip

    said = summary([cell("star", 1.0), cell("line", 2.0), cell("tree", 2.0), cell("auto", 1.3)])
    assert "in 0 of 1 cells, 1.30 times at worst" in said and "1 of 4 runs" in said
    assert "nothing was run" in summary([])


def test_sr3_chooses_by_size() -> None:
    assert sr3_form(8 * MEGA) == "star" and sr3_form(32 * MEGA) == "tree"


def test_plans_for_a_thousand_nodes() -> None:
    by_form = {c.form: c.seconds for c in computed(64e6, 2)}
    assert by_form["auto"] <= by_form["star"] < by_form["line"]
