"""Access: the token, and web pages of other origins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from weft.extensions.serve import access as module
from weft.extensions.serve.access import VARIABLE, read_token, restricted
from weft.extensions.serve.limits import Access
from weft.runtime.cli.main import main
from weft.specs.findings import InputError

Served = Callable[..., AbstractContextManager[Any]]
TOKEN = "correct-horse"


async def yes(_: Any, __: Any, send: Any) -> None:
    """Answer every request."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"yes"})


def call(
    method: str = "GET",
    path: str = "/translate",
    *,
    token: str | None = TOKEN,
    origins: tuple[str, ...] = (),
    headers: Any = (),
) -> httpx.Response:
    """Return the response to one request."""

    async def one() -> httpx.Response:
        transport = httpx.ASGITransport(restricted(yes, token=token, origins=origins))
        async with httpx.AsyncClient(transport=transport, base_url="http://weft") as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(one())


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_token_opens(scheme: str) -> None:
    """The name of the scheme is case-insensitive."""
    assert call(headers={"authorization": f"{scheme} {TOKEN}"}).text == "yes"


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer correct-hors",
        "Bearer correct-horsee",
        f"Basic {TOKEN}",
        TOKEN,
    ],
)
def test_a_wrong_token_gets_401(given: str) -> None:
    """The header says which scheme is needed; the answer does not contain the token."""
    answer = call(headers={"authorization": given})

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="weft", error="invalid_token"'
    assert "is wrong" in answer.json()["errors"][0]["problem"]
    assert TOKEN not in answer.text


def test_no_token_or_two_get_401() -> None:
    """Two headers could be read differently by a proxy."""
    none = call()
    two = call(headers=[("authorization", f"Bearer {TOKEN}")] * 2)

    assert none.status_code == two.status_code == 401
    assert none.headers["www-authenticate"] == 'Bearer realm="weft"'


@pytest.mark.parametrize(
    ("path", "status"),
    [("/health", 200), ("/health/live", 200), ("/metrics", 401), ("/docs", 401), ("/health/", 401)],
)
def test_only_health_needs_no_token(path: str, status: int) -> None:
    """Load balancers have no token."""
    assert call(path=path).status_code == status


def test_digests_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a comparison must not tell how much of a token is right."""
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return False

    monkeypatch.setattr(module.hmac, "compare_digest", compare)
    for given in ("a", TOKEN):
        assert call(headers={"authorization": f"Bearer {given}"}).status_code == 401

    assert [len(one) for pair in compared for one in pair] == [32] * 4


def test_a_token_comes_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file takes precedence; without both there is none."""
    file = tmp_path / "token"
    file.write_text("from-file\n")
    monkeypatch.delenv(VARIABLE, raising=False)
    assert read_token(None) is None
    monkeypatch.setenv(VARIABLE, "from-environment")

    assert read_token(None) == "from-environment"
    assert read_token(str(file)) == "from-file"


@pytest.mark.parametrize("wrong", [b"", b"\n", b"two words", b"\xff\xfe", "Schlüssel".encode()])
def test_a_wrong_token_file_stops_the_server(tmp_path: Path, wrong: bytes) -> None:
    """An empty token would let everyone in."""
    file = tmp_path / "token"
    file.write_bytes(wrong)

    with pytest.raises(InputError, match="token"):
        read_token(str(file))


def test_an_empty_variable_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret that was not filled in must not open the server."""
    monkeypatch.setenv(VARIABLE, "")

    with pytest.raises(InputError, match="token is empty"):
        read_token(None)


def test_the_command_line_reports_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is opened."""
    assert main(["serve", "nowhere", "--port", "0", "--token-file", "/nowhere/token"]) == 1
    assert "cannot read the token" in capsys.readouterr().err
    assert main(["serve", "nowhere", "--cors", "example.com"]) == 2
    assert "must be an origin" in capsys.readouterr().err


def test_other_origins_are_refused_by_default() -> None:
    """Without the headers of CORS, a browser gives a page no answer."""
    asked = {"origin": "https://example.com"}

    assert "access-control-allow-origin" not in call(token=None, headers=asked).headers


def test_pages_of_a_given_origin_may_call() -> None:
    """A preflight request needs no token, the request itself does."""
    origins = ("https://example.com",)
    asked = {
        "origin": "https://example.com",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    before = call("OPTIONS", origins=origins, headers=asked)
    refused = call("POST", origins=origins, headers={"origin": origins[0]})
    other = call("OPTIONS", origins=origins, headers={**asked, "origin": "https://example.org"})

    assert before.status_code == 200
    assert before.headers["access-control-allow-origin"] == origins[0]
    assert "authorization" in before.headers["access-control-allow-headers"].lower()
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == origins[0]
    assert other.status_code == 400


async def answered(host: bytes | None, hosts: Sequence[str] | None) -> int:
    """Return the status of a request with a header Host."""
    statuses = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    headers = [] if host is None else [(b"host", host)]
    scope = {"type": "http", "path": "/translate", "headers": headers}
    app: Any = restricted(application, token=None, origins=(), hosts=hosts)
    await app(scope, None, send)
    return int(statuses[0])


LOCAL = Access().hosts_of("127.0.0.1", None)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"127.0.0.1:8000", 200),
        (b"localhost", 200),
        (b"LOCALHOST:8000", 200),
        (b"[::1]:8000", 200),
        (None, 200),
        (b"attacker.example:8000", 421),
        (b"127.0.0.1.attacker.example", 421),
        (b"localhost.attacker.example", 421),
        (b"[::1].attacker.example", 421),
        (b"", 421),
    ],
)
def test_without_a_token_this_machine_is_called_by_its_name(
    host: bytes | None, status: int
) -> None:
    """A web page whose name has this machine's address (DNS rebinding) sends its own name."""
    assert asyncio.run(answered(host, LOCAL)) == status


def test_names_are_free_with_a_token_and_on_a_network() -> None:
    """The page does not know the token; on a network, names are those of the network."""
    assert Access().hosts_of("127.0.0.1", "secret") is None
    assert Access().hosts_of("0.0.0.0", None) is None
    allowed = Access(allow_host=("translate.example",)).hosts_of("::1", None)
    assert asyncio.run(answered(b"translate.example", allowed)) == 200
