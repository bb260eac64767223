"""Cache: the folder for what can be measured or fetched again."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...specs.files import write_beside
from ...specs.findings import InputError


def cache_folder() -> Path:
    """Return that folder: WEFT_CACHE where it is set, else `weft` in the user's cache folder."""
    own = os.environ.get("WEFT_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"


def stored(name: str) -> Any:
    """Return a JSON value out of that folder; None where there is none that can be read."""
    with suppress(OSError, ValueError):
        return json.loads((cache_folder() / name).read_text(encoding="utf-8"))
    return None


def store(name: str, value: object) -> None:
    """Keep a JSON value in that folder, whole; where it cannot be written that is no error."""
    with suppress(InputError):
        write_beside(cache_folder() / name, json.dumps(value, indent=2).encode(), "cache")
