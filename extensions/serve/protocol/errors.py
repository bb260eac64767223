"""The body of every error response, whichever layer of the server sends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def error_body(problems: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return the body of an error response.

    Args:
        problems: at least one error, each with the keys of `Problem`.  The first one is repeated
            as `error`, the only key that LibreTranslate's clients read.
    """
    return {"error": problems[0]["problem"], "errors": list(problems)}


def one_error(problem: str, help_: str) -> dict[str, Any]:
    """Return the body for one error of the request as a whole."""
    return error_body([{"place": "", "problem": problem, "help": help_}])
