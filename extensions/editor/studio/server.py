"""The server of the studio: one page, on this machine only."""

from __future__ import annotations

import gc
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn

from ....runtime.system.http import bound
from .app import make_app
from .files import Opened
from .session import Session

HOST = "127.0.0.1"


def serve_studio(
    file: Opened, *, port: int = 0, browser: bool = True, started: Callable[[str], None]
) -> None:
    """Serve the studio until SIGTERM or Ctrl-C.

    Args:
        file: the file to edit.
        port: port on 127.0.0.1; 0 takes any free one.
        browser: whether to open a browser.
        started: called with the address, which contains the token.

    Raises:
        InputError: the port is not available.
    """
    token = secrets.token_urlsafe(24)
    with bound(HOST, port) as listener:
        number = listener.getsockname()[1]
        tune_collector()
        # A browser does not send what follows the number sign to servers, or to other pages.
        address = f"http://{HOST}:{number}/#{token}"
        session = Session(file)
        server = _Server(
            uvicorn.Config(
                make_app(session, token, number),
                log_level="warning",
                server_header=False,
                lifespan="off",
                ws="none",
            ),
            lambda: _opened(address, started, browser=browser),
        )
        # Until the browser has started, the answer that its page begins with is made.
        threading.Thread(target=session.prepare, daemon=True).start()
        server.run(sockets=[listener])


def tune_collector() -> None:
    """Make garbage collection rare: an answer makes many objects, and few of them are garbage.

    With Python's thresholds, a third of the time of an answer about 1,000 nodes is collection.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _opened(address: str, started: Callable[[str], None], *, browser: bool) -> None:
    started(address)
    if browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


class _Server(uvicorn.Server):
    """A server that says when it listens."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listening()
