"""How many rows a second `rs.io.postgres` replaces by their keys in a table.

Each row has another key than those of the same epoch, so that none is left out; after the first
round of all keys every one of them is replaced. The table is compared with what it has to be.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import raystream as rs
from raystream.errors import ConfigError

BATCH_ROWS = 20_000
START_SECONDS = 60.0
STEP = 7_919
"""Keys come in steps of this; it has no divisor in common with usual numbers of keys."""


class Account(NamedTuple):
    time: int
    id: int
    balance: float
    note: str


@dataclass(frozen=True)
class Accounts(rs.Source[Account]):
    """Rows in batches of the length of an epoch. Their keys go round."""

    rows: int
    keys: int
    record: type = Account

    def splits(self) -> list[rs.Split]:
        return [rs.Split("all")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Account]]]:
        for at in range(position, self.rows, BATCH_ROWS):
            n = np.arange(at, min(at + BATCH_ROWS, self.rows))
            columns = {
                "time": n // BATCH_ROWS,
                "id": n * STEP % self.keys,
                "balance": n / 4,
                "note": [f"row {i % 1000}" for i in n.tolist()],
            }
            yield at + len(n), rs.Batch(Account, columns)


def run(url: str, *, rows: int, keys: int, instances: int, local: bool) -> dict[str, Any]:
    """Write so many rows, and check what is there."""
    import psycopg

    if keys < BATCH_ROWS or not keys % STEP:
        raise ConfigError(f"--keys {keys}: at least {BATCH_ROWS}, and no multiple of {STEP}")
    tables = "accounts, raystream_runs, raystream_markers, raystream_staged"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {tables}".encode())
    flow = rs.Flow("accounts")
    source = flow.source(Accounts(rows, keys), epochs=rs.by_time("time", seconds=1))
    source.to(rs.io.postgres(url, table="accounts", key="id", create=True), name="table")
    began = time.perf_counter()
    options: dict[str, Any] = {} if local else {"cluster": "auto", "spares": 0}
    report = flow.run(instances={"table": instances}, checkpoint_every=10, **options)
    seconds = report.elapsed if local else time.perf_counter() - began
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT count(*), sum(balance) FROM accounts").fetchone()
    first = max(0, rows - keys)
    wanted = (min(rows, keys), float(np.arange(first, rows).sum() / 4))
    if found != wanted:
        raise ConfigError(f"wrong: the table has {found}, and not {wanted}")
    return {
        "work": f"{rows:,} upserts of {keys:,} keys",
        "cluster": "local" if local else "ray",
        "seconds": seconds,
        "records_per_second": rows / seconds,
    }


@contextmanager
def server() -> Iterator[str]:
    """The URL of a server of its own, with a folder that is removed in the end.

    Raises:
        ConfigError: PostgreSQL is not installed.
    """
    found = [Path(p).parent for p in [shutil.which("initdb")] if p]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if not found:
        raise ConfigError("PostgreSQL is not installed", hint="Say --url of a server.")
    user: dict[str, Any] = {}
    if os.getuid() == 0:  # it refuses to run as root
        other = pwd.getpwnam("postgres" if Path("/usr/lib/postgresql").exists() else "nobody")
        user = {"user": other.pw_uid, "group": other.pw_gid, "extra_groups": []}
    with tempfile.TemporaryDirectory(prefix="rs-pg-") as folder:
        if user:
            os.chown(folder, user["user"], user["group"])
        programs, data = found[0], f"{folder}/data"
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "bench", "--auth=trust", "--no-sync"],
            check=True, capture_output=True, cwd=folder, **user,
        )  # fmt: skip
        settings = ["listen_addresses=", f"unix_socket_directories={folder}", "max_wal_size=4GB"]
        process = subprocess.Popen(
            [programs / "postgres", "-D", data, *(p for s in settings for p in ("-c", s))],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, **user,
        )  # fmt: skip
        try:
            yield _answering(f"postgresql://bench@/postgres?host={folder}")
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(START_SECONDS)


def _answering(url: str) -> str:
    """The URL, once the server answers."""
    import psycopg

    until = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            if time.monotonic() > until:
                raise ConfigError("PostgreSQL does not start") from None
            time.sleep(0.05)
        else:
            return url
