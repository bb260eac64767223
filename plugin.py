"""What extensions use besides `weft`: base classes and helpers for all that a package can add.

Blocks, commands, columns, readers, predictors, metrics, trackers, exporters and kinds of files;
`docs/write-an-extension.md` shows each and lists the names by purpose.  As in `weft`, a name is
imported when it is first used, and `plugin.pyi` has every name.
"""

from __future__ import annotations

import importlib

from . import homes_in

_HOMES = homes_in(__file__)
__all__ = sorted(_HOMES)  # noqa: PLE0605 - a list


def __getattr__(name: str) -> object:
    """Import a name when it is first used."""
    if name not in _HOMES:
        msg = f"module 'weft.plugin' has no attribute '{name}'"
        raise AttributeError(msg)
    value: object = getattr(importlib.import_module(_HOMES[name], __package__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the names, whether or not they have been used."""
    return __all__
