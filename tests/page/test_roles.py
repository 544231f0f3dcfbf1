"""Who may only look is given a page without buttons, over http and https."""

from __future__ import annotations

import ssl
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from raystream.security.certificates import made, write
from tests.gates import LIMIT_SECONDS
from tests.page.pictures import served

pytest.importorskip("nicegui")


def test_only_who_operates_has_buttons(tmp_path: Path) -> None:
    write(made(days=1), tmp_path / "tls")
    with served(str(tmp_path / "tls")) as addresses:
        trusts = ssl.create_default_context(cafile=tmp_path / "tls" / "ca.crt")
        for url, has in zip(addresses, (True, False), strict=True):
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
