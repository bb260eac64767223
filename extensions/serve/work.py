"""The work of a translation, estimated before it is done, and whose work it is."""

from __future__ import annotations

import ipaddress
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...plugin import PredictorSettings

_NETWORK = 64
"""Bits of an address of version 6 that are those of one client."""
_STATE = 4
"""Work of a state of a constraint, in steps. It takes the time of one, but the states of a text
cannot be divided among batches, so that others wait for all of them."""
_COMPARED = 8
"""Tokens of an output that are compared with another output in the time of a step."""
_SLICES = 8
"""Batches in which the largest request is served, so that others have their turns."""


def work_of(search: PredictorSettings, *, read: int, required: int, longest: int) -> int:
    """Return the work of a text, in steps of a hypothesis.

    Every step extends all hypotheses by a token, and with required phrases a search has hypotheses
    for each number of their tokens that is already in the output.  Where pairs of outputs are
    compared, that is work in proportion to their lengths.

    Args:
        search: the settings of the search.
        read: tokens of the text.
        required: tokens of the phrases that its output must contain.
        longest: maximum tokens of an output.
    """
    rows = max(getattr(search, name, 1) for name in ("beam", "samples", "lengths"))
    tokens, pairs = written(search, read, longest), getattr(search, "pairs", 0)
    if pairs:  # both are written, one after the other
        rows = getattr(search, "beam", 0) + getattr(search, "samples", 0)
    steps = read + tokens + required
    return rows * steps * (1 + _STATE * required) + pairs * math.ceil(tokens / _COMPARED)


def written(search: PredictorSettings, read: int, longest: int) -> int:
    """Return how many tokens an output may have, or how often all of them are predicted."""
    if (iterations := getattr(search, "iterations", None)) is not None:
        return int(iterations) * max(1, read)
    bounds = [longest]
    if (length := getattr(search, "max_length", None)) is not None:
        bounds.append(length)
    if (extra := getattr(search, "max_extra", None)) is not None:
        bounds.append(int(read * (getattr(search, "max_factor", None) or 1)) + extra)
    return max(1, min(bounds), getattr(search, "min_length", None) or 0)


def batch_work(most: int) -> int:
    """Return the maximum work of a batch of several texts, for that of a request."""
    return max(1, most // _SLICES)


def client_of(address: str) -> str:
    """Return the name of the client with an address; a network of version 6 is one client.

    >>> client_of("2001:db8:1:2:3:4:5:6"), client_of("192.0.2.1"), client_of("")
    ('2001:db8:1:2::/64', '192.0.2.1', '')
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    return str(ipaddress.ip_network((parsed, _NETWORK), strict=False))
