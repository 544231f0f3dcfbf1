"""The tutorials, as a reader does them: each file saved, each command typed in a shell."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.docs.tutorials import Saved, assert_prints, environment, shell, steps
from tests.gates import until
from tests.kafka_server import Kafka
from tests.processes import family_of, kill_each
from tests.servers import Postgres

FOLDER = "docs/tutorials"
RUNS = "raystream run sales:totals"


@pytest.mark.parametrize(("page", "commands"), [("files-to-windows", 6), ("join", 4)])
def test_a_page_is_what_happens(page: str, commands: int, tmp_path: Path) -> None:
    typed = 0
    for step in steps(f"{FOLDER}/{page}.md"):
        if isinstance(step, Saved):
            (tmp_path / step.name).write_text(step.text, encoding="utf-8")
            continue
        assert_prints(step, shell(tmp_path, *step.lines))
        typed += 1
    assert typed == commands


def test_from_kafka_to_postgres(kafka: Kafka, postgres_server: Postgres, tmp_path: Path) -> None:
    """Its servers are those of the tests. Its job is killed where the page says so."""
    job: subprocess.Popen[bytes] | None = None
    killed = looked = 0

    def end() -> None:
        if job is not None:
            kill_each(family_of(job.pid))
            job.wait()

    try:
        for step in steps(f"{FOLDER}/kafka-to-postgres.md"):
            if isinstance(step, Saved):
                text = step.text.replace("127.0.0.1:9092", kafka.servers)
                (url,) = re.findall(r'^DATABASE = "(.*)"$', text, re.MULTILINE)
                text = text.replace(url, postgres_server.url)
                (tmp_path / step.name).write_text(text, encoding="utf-8")
                continue
            for line in step.lines:
                if line.startswith(("docker ", "pip ")):
                    continue
                if line.startswith("psql "):
                    (query,) = re.findall(r'-c "(.*)"$', line)
                    assert step.prints is not None
                    until(lambda said=step.prints, q=query: rows(postgres_server, q) == said)
                    looked += 1
                    continue
                assert line.startswith("raystream ")
                if not line.startswith(RUNS):
                    if job is not None:  # the page has it killed before it sends more
                        end()
                        job = None
                        killed += 1
                    shell(tmp_path, line)
                    continue
                job = subprocess.Popen(
                    ["bash", "-c", f"exec {line} > job.log 2>&1"],
                    cwd=tmp_path,
                    env=environment(),
                )
    finally:
        end()
        postgres_server.query("DROP TABLE IF EXISTS totals")
    assert (killed, looked) == (1, 2)
    assert "goes on from" in (tmp_path / "job.log").read_text()


def test_the_job_that_is_scaled_and_killed_is_right_without_that(tmp_path: Path) -> None:
    """In one process, and for two seconds. What its commands do on Ray is tried in
    tests/actors/jobs/test_ray_moves.py and test_ray.py beside it, with other jobs."""
    for step in steps(f"{FOLDER}/scale.md"):
        if isinstance(step, Saved):
            text = step.text.replace("= 900, 100, 1_000", "= 2, 100, 1_000")
            (tmp_path / step.name).write_text(text, encoding="utf-8")
    shell(tmp_path, "raystream run fleet:flow --local")
    assert shell(tmp_path, "python right.py") == "200 trips: right\n"
    # A row too many, as a second instance would leave it that writes what was written already.
    shell(
        tmp_path,
        "python -c \"import sqlite3; c = sqlite3.connect('fleet.db');"
        " c.execute('UPDATE totals SET trips = trips + 1 WHERE driver = 1'); c.commit()\"",
    )
    assert shell(tmp_path, "python right.py") == "201 trips: wrong\n"


def rows(server: Postgres, query: str) -> str:
    """The rows of a query as `psql -At` prints them; nothing while there is no such table."""
    import psycopg

    try:
        return "".join("|".join(map(str, row)) + "\n" for row in server.query(query))
    except psycopg.errors.UndefinedTable:
        return ""


def test_every_tutorial_is_listed_and_tried() -> None:
    root = Path(__file__).resolve().parents[2] / FOLDER
    pages = sorted(p.stem for p in root.glob("*.md") if p.name != "README.md")
    listed = re.findall(r"\(([\w-]+)\.md\)", (root / "README.md").read_text(encoding="utf-8"))
    assert pages == sorted(set(listed))
    assert pages == ["files-to-windows", "join", "kafka-to-postgres", "kill", "scale"]
