"""Cache folder for data that can be measured or downloaded again."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...specs.files import write_beside
from ...specs.findings import InputError


def cache_folder() -> Path:
    """Return the cache folder: `WEFT_CACHE` if set, else `weft` in the user's cache folder."""
    override = os.environ.get("WEFT_CACHE")
    if override:
        return Path(override)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"


def stored(name: str) -> Any:
    """Return a JSON value from the cache folder, or None if it is missing or unreadable."""
    with suppress(OSError, ValueError):
        return json.loads((cache_folder() / name).read_text(encoding="utf-8"))
    return None


def store(name: str, value: object) -> None:
    """Write a JSON value to the cache folder atomically; ignore write errors."""
    with suppress(InputError):
        write_beside(cache_folder() / name, json.dumps(value, indent=2).encode(), "cache")
