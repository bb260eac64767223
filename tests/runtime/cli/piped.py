"""A command that reads lines from a pipe."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

import pytest
from weft.runtime.cli.main import main


def piped(
    words: Sequence[str], lines: Sequence[str], monkeypatch: pytest.MonkeyPatch, code: int = 0
) -> list[str]:
    """Return the lines that a command prints for the lines of its standard input.

    Raises:
        AssertionError: the command ends with another exit code.
    """

    class Stdin:
        buffer = io.BytesIO("".join(f"{line}\n" for line in lines).encode())

    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", Stdin())
        patch.setattr(sys, "stdout", out)
        assert main([*words]) == code
    return out.buffer.getvalue().decode().splitlines()  # type: ignore[attr-defined]
