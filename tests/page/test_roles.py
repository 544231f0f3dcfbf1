"""Who may only look is given a page without buttons, over http and https."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
import threading
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from raystream.actors.cluster.connecting import listens
from raystream.security.certificates import made, write
from tests.gates import LIMIT_SECONDS, until

pytest.importorskip("nicegui")
ROOT = Path(__file__).parents[2]


def test_only_who_operates_has_buttons(tmp_path: Path) -> None:
    write(made(days=1), tmp_path / "tls")
    words = [sys.executable, "-m", "tests.page.pictures", "serve", str(tmp_path / "tls")]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert server.stdout is not None
    late = threading.Timer(LIMIT_SECONDS, server.kill)
    late.start()
    try:
        operates, looks = (server.stdout.readline().strip() for _ in range(2))
        until(lambda: listens(urlsplit(operates).netloc))  # it is told just before
        trusts = ssl.create_default_context(cafile=tmp_path / "tls" / "ca.crt")
        for url, has in ((operates, True), (looks, False)):
            assert url.startswith("https://127.0.0.1:")
            jar = CookieJar()
            opener = urllib.request.build_opener(
                urllib.request.HTTPCookieProcessor(jar), urllib.request.HTTPSHandler(context=trusts)
            )
            with opener.open(url, timeout=LIMIT_SECONDS) as answer:
                page = answer.read().decode()
            (cookie,) = jar
            assert cookie.secure
            assert "What was decided, and why" in page and "Dark / light" in page
            for name in ("Scale", "Move", "Drain", "Stop", "Key"):
                assert (f'"{name}"' in page or f">{name}<" in page) is has, (name, url)
    finally:
        late.cancel()
        server.send_signal(signal.SIGINT)
        server.wait(LIMIT_SECONDS)
        server.stdout.close()
