"""The server of the page. The scripts of the page come in the wheel of NiceGUI: nothing is loaded
from the internet, and nothing is built."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from raystream.errors import ConfigError
from raystream.security.certificates import CERTIFICATE, KEY, read
from raystream.security.tokens import signed

LOOPBACK = "127.0.0.1"
TOKEN_BYTES = 24
BEGIN_SECONDS = 60.0
"""How long the server may take until it listens."""
LOOK_SECONDS = 0.05
LOOK_HOURS = 24.0
"""The hours for which the address that can only look is valid."""


def serve(
    address: str,
    job: str = "",
    *,
    host: str = LOOPBACK,
    port: int = 0,
    tls: str | None = None,
    hours: float = LOOK_HOURS,
    values: bool = True,
    tell: Callable[[str, str], None],
) -> None:
    """Show the jobs of the cluster to which this process is connected, until it is interrupted.

    Args:
        address: of the cluster, for what the buttons ask for.
        job: the only job to be shown; "" for all.
        host: where to listen. port: 0 for any that is free.
        values: whether the values of rows of state are shown.
        tls: a folder with certificates, for https; see `raystream.security.certificates`.
        hours: how long the address that can only look is valid.
        tell: called with two addresses of the page: the first for the role `operate`, the second
            for the role `look`.

    Raises:
        ConfigError: NiceGUI is not installed, the port is taken, or the certificates are no good.
    """
    refuse_without_nicegui()
    port = port or _free_port(host)
    _refuse_taken(host, port)
    secured: dict[str, Any] = {} if tls is None else _certificates(tls)
    from nicegui import app, context, ui

    from raystream.page.doors import ROLE, Doors
    from raystream.page.layout import Page
    from raystream.page.watching import Watcher

    token = secrets.token_urlsafe(TOKEN_BYTES)
    watcher = Watcher(job)
    app.add_middleware(Doors, token=token, port=port, secure=tls is not None)
    shown = f"[{host}]" if ":" in host else host
    app.on_startup(watcher.start)
    at = f"{'http' if tls is None else 'https'}://{shown}:{port}/?token="
    looks = signed(token, "look", time.time() + 3600 * hours)
    app.on_startup(lambda: _when_it_listens(host, port, lambda: tell(at + token, at + looks)))
    app.on_shutdown(watcher.stop)

    def show() -> None:
        request = context.client.request
        role = None if request is None else request.scope.get(ROLE)
        Page(watcher, address, operates=role == "operate", values=values)

    ui.run(
        show,
        host=host,
        port=port,
        title="raystream",
        dark=None,
        show=False,
        reload=False,
        tailwind=False,
        binding_refresh_interval=None,
        show_welcome_message=False,
        **secured,
    )


def _when_it_listens(host: str, port: int, tell: Callable[[], None]) -> None:
    """Tell the addresses once somebody can open them: the server listens after it has begun."""

    def wait() -> None:
        due = time.monotonic() + BEGIN_SECONDS
        while time.monotonic() < due:  # later it has said itself why it does not listen
            with suppress(OSError), socket.create_connection((host, port), BEGIN_SECONDS):
                tell()
                return
            time.sleep(LOOK_SECONDS)

    threading.Thread(target=wait, name="page", daemon=True).start()


def _certificates(folder: str) -> dict[str, Any]:
    """What the server needs for TLS.

    Raises:
        ConfigError: the certificates are no good.
    """
    read(folder)
    return {
        "ssl_certfile": os.path.join(folder, CERTIFICATE),
        "ssl_keyfile": os.path.join(folder, KEY),
    }


def refuse_without_nicegui() -> None:
    """Refuse to begin without the library of the page."""
    try:
        import nicegui  # noqa: F401
    except ImportError:
        raise ConfigError(
            "the page needs NiceGUI, which is not installed",
            hint="pip install 'raystream[ui]'",
        ) from None


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as found:
        found.bind((host, 0))
        port: int = found.getsockname()[1]
        return port


def _refuse_taken(host: str, port: int) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            raise ConfigError(
                f"the page cannot listen on {host}:{port}: {error.strerror}",
                hint="Give another --port, or none for any that is free.",
            ) from None
