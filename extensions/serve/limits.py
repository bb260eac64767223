"""Limits on requests and connections, and settings for batching sentences."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

DISCARDED = 16
"""A body is read and discarded up to this multiple of its limit, so that its client receives the
answer; a longer one is refused at its head."""


class Limits(BaseModel):
    """Limits on requests, connections, the queue and batches; all are options of the server."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    texts: int = Field(default=64, ge=1)
    """Maximum texts per request."""
    characters: int = Field(default=5000, ge=1)
    """Maximum characters per text."""
    tokens: int = Field(default=512, ge=1)
    """Maximum tokens per text, and of the phrases that its translation must contain."""
    phrases: int = Field(default=8, ge=0)
    """Maximum phrases that a request may ban, and that a text may require."""
    beam: int = Field(default=8, ge=1)
    """Maximum hypotheses per sentence."""
    output: int = Field(default=512, ge=1)
    """Maximum tokens per output."""
    work: int = Field(default=500_000, ge=1)
    """Maximum work of a request: the sum over its texts of hypotheses, times tokens of the text and
    of its longest output, times one more than four times the tokens of required phrases; and, with
    `metric`, pairs of outputs times an eighth of their tokens."""
    client: int = Field(default=2_000_000, ge=1)
    """Maximum work of the requests of one address that are not done; a further one gets status 503.
    Clients are served in turns by their work, and one can have half of the queue."""
    body: int = Field(default=2**20, ge=1)
    """Maximum bytes of a request's body."""
    connections: int = Field(default=1000, ge=1)
    """Maximum open connections. A further one replaces a connection that has no request; if every
    connection has one, it gets status 503."""
    head: float = Field(default=10.0, gt=0)
    """Seconds to send the complete head of a request, from opening the connection or from its first
    byte. Then the connection is closed."""
    stall: float = Field(default=10.0, gt=0)
    """Seconds without a further byte of a body, or without reading anything of a response, after
    which the connection is closed."""
    upload: float = Field(default=30.0, gt=0)
    """Seconds to send the complete body of a request, and to read the end of a response."""
    idle: float = Field(default=5.0, gt=0)
    """Seconds that a connection may wait for its next request."""
    queue: int = Field(default=1000, ge=1)
    """Maximum waiting sentences; requests that would exceed it get status 503."""
    patience: float = Field(default=60.0, gt=0)
    """Seconds after which a request times out and its work is dropped."""
    batch: int = Field(default=32, ge=1)
    """Maximum sentences per batch."""
    wait: float = Field(default=0.005, ge=0)
    """Seconds that a sentence waits for others if the model is idle."""

    drain: float = Field(default=30.0, ge=0)
    """Seconds to finish accepted requests after a stop signal."""

    @property
    def pace(self) -> str:
        """How fast a body must arrive."""
        return f"send it within {self.upload:g} seconds, without a pause of {self.stall:g} seconds"


def _origin(origin: str) -> str:
    if not re.fullmatch(r"\*|https?://[^/\s?#]+", origin):
        raise ValueError("must be an origin, such as https://example.com")
    return origin


class Access(BaseModel):
    """Who can reach the server."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address to listen on: 127.0.0.1 is this machine only, 0.0.0.0 every interface."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port; 0 picks a free one."""
    token_file: str | None = None
    """File with the token that requests must send as `Authorization: Bearer TOKEN`, except to
    /health. Without it, the environment variable WEFT_TOKEN; without both, no token is needed."""
    allow_host: tuple[str, ...] = ()
    """Name of this server, such as translate.example.com, that a proxy passes on as the header
    Host. Without a token, a server of this machine answers requests to this machine only."""
    cors: tuple[Annotated[str, AfterValidator(_origin)], ...] = ()
    """Origin, such as https://example.com, whose web pages may call the server; * is every origin.
    Repeat the option for several."""

    def hosts_of(self, address: str, token: str | None) -> tuple[str, ...] | None:
        """Return the names that the header Host may have; None for any.

        A web page can give its own name the address of this machine (DNS rebinding), and would then
        be answered as a program of this machine is, which needs no token.

        Args:
            address: address on which the server listens.
            token: the token, if there is one.
        """
        if token is not None or not ip_address(address).is_loopback:
            return None
        return ("localhost", "127.0.0.1", "::1", address, *self.allow_host)
