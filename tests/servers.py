"""Database servers for tests: begun and ended by them, on this machine's loopback alone."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.gates import LIMIT_SECONDS
from tests.processes import free_port

PASSWORD = "correct horse"


def binaries() -> Path | None:
    """Where the programs of PostgreSQL are, if they are installed."""
    found = [Path(p).parent for p in [shutil.which("initdb")] if p]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((p for p in found if (p / "initdb").exists() and (p / "postgres").exists()), None)


class Postgres:
    """A server with a folder of its own. It can be killed and started again."""

    def __init__(self) -> None:
        found = binaries()
        if found is None:
            pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
        self.bin = found
        self.as_user: dict[str, Any] = {}
        if os.getuid() == 0:  # it refuses to run as root
            user = next((u for u in pwd.getpwall() if u.pw_name in ("postgres", "nobody")), None)
            if user is None:
                pytest.skip("PostgreSQL does not run as root, and there is no other user")
            self.as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self.folder = Path(tempfile.mkdtemp(prefix="rs-pg-"))
        if self.as_user:
            os.chown(self.folder, self.as_user["user"], self.as_user["group"])
        secret = self.folder / "secret"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self._run(
            "initdb", "-D", str(self.folder / "data"), "-U", "tester", "--auth=scram-sha-256",
            f"--pwfile={secret}", "--no-sync", "--encoding=UTF8", "--locale=C",
        )  # fmt: skip
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        secret = PASSWORD.replace(" ", "%20")
        return f"postgresql://tester:{secret}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        import psycopg

        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "fsync": "off",
            "wal_level": "logical",
        }
        self.process = subprocess.Popen(
            [
                str(self.bin / "postgres"), "-D", str(self.folder / "data"),
                *(part for name, value in settings.items() for part in ("-c", f"{name}={value}")),
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder, **self.as_user,
        )  # fmt: skip
        until = time.monotonic() + LIMIT_SECONDS
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
            except psycopg.OperationalError:
                assert time.monotonic() < until, "PostgreSQL does not start"
                time.sleep(0.05)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: at once with SIGINT, without any order with SIGQUIT."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(LIMIT_SECONDS)
            self.process = None

    def remove(self) -> None:
        """End it and remove its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def query(self, sql: str) -> list[Any]:
        """The rows of a query, or none of another statement."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(sql)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self.bin / program), *arguments],
            check=True, capture_output=True, cwd=self.folder, timeout=LIMIT_SECONDS, **self.as_user,
        )  # fmt: skip
