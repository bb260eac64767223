"""Cache: the folder for what can be measured or fetched again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return that folder: WEFT_CACHE where it is set, else `weft` in the user's cache folder."""
    own = os.environ.get("WEFT_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"
