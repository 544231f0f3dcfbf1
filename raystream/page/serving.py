"""The server of the page. The scripts of the page come in the wheel of NiceGUI: nothing is loaded
from the internet, and nothing is built."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable

from raystream.errors import ConfigError

LOOPBACK = "127.0.0.1"
TOKEN_BYTES = 24


def serve(
    address: str,
    job: str = "",
    *,
    host: str = LOOPBACK,
    port: int = 0,
    values: bool = True,
    tell: Callable[[str], None],
) -> None:
    """Show the jobs of the cluster to which this process is connected, until it is interrupted.

    Args:
        address: of the cluster, for what the buttons ask for.
        job: the only job to be shown; "" for all.
        host: where to listen. port: 0 for any that is free.
        values: whether the values of rows of state are shown.
        tell: called with the address of the page, which has its token.

    Raises:
        ConfigError: NiceGUI is not installed, or the port is taken.
    """
    refuse_without_nicegui()
    port = port or _free_port(host)
    _refuse_taken(host, port)
    from nicegui import app, ui

    from raystream.page.doors import Doors
    from raystream.page.layout import Page
    from raystream.page.watching import Watcher

    token = secrets.token_urlsafe(TOKEN_BYTES)
    watcher = Watcher(job)
    app.add_middleware(Doors, token=token, port=port)
    shown = f"[{host}]" if ":" in host else host
    app.on_startup(watcher.start)
    app.on_startup(lambda: tell(f"http://{shown}:{port}/?token={token}"))
    app.on_shutdown(watcher.stop)

    def show() -> None:
        Page(watcher, address, values=values)

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
    )


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
