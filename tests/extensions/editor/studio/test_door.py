"""The way into the studio: no other user of the machine learns its token, and idle clients go."""

from __future__ import annotations

import asyncio
import re
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import url2pathname

import pytest
import uvicorn
from weft.extensions.editor.studio import server
from weft.extensions.editor.studio.server import Impatient, door

ADDRESS = "http://127.0.0.1:8123/#token"


def test_the_browser_is_started_with_a_file_that_only_this_user_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every user of a machine sees the command lines of its programs."""
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))

    with door(ADDRESS) as address:
        assert "token" not in address
        path = Path(url2pathname(address.removeprefix("file://")))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert re.search(r'url=([^"]*)"', path.read_text())[1] == ADDRESS  # type: ignore[index]

    assert not path.exists()


class Transport:
    """A connection of the event loop, without a socket."""

    def __init__(self) -> None:
        """Start open."""
        self.closed = False

    def get_extra_info(self, name: str) -> Any:
        """Return what is known of the connection."""
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else None

    def is_closing(self) -> bool:
        """Return whether it was closed."""
        return self.closed

    def close(self) -> None:
        """Close it."""
        self.closed = True


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: a"])
def test_a_connection_without_a_complete_request_is_closed(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold one of the few that the studio's user needs."""
    monkeypatch.setattr(server, "IDLE", 0.05)

    async def idle() -> bool:
        config = uvicorn.Config(lambda: None, lifespan="off")
        config.load()
        connection = Impatient(
            config,
            SimpleNamespace(  # type: ignore[arg-type]
                connections=set(), tasks=set(), default_headers=[], total_requests=0
            ),
            {},
            asyncio.get_running_loop(),
        )
        transport = Transport()
        connection.connection_made(transport)
        if sent:
            connection.data_received(sent)
        for _ in range(200):
            await asyncio.sleep(0.01)
            if transport.closed:
                return True
        return False

    assert asyncio.run(idle())
