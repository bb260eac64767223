"""The command `weft lsp`; no torch before a run is opened."""

from __future__ import annotations

import importlib.util

from ....plugin import SPECS, command
from ....specs.findings import InputError

PACKAGES = ("lsprotocol", "pygls")
"""Packages of the extra `lsp`."""


@command(
    SPECS,
    "weft lsp",
    note="Editors start it; docs/editors.md says how. It reads messages of the Language Server "
    "Protocol from the standard input, answers on the standard output, and writes no file.",
)
def lsp() -> None:
    """Answer an editor: findings, completion, types, definitions, renaming, formatting.

    Raises:
        InputError: a required package is not installed.
    """
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            help_ = "install the extra: pip install 'weft[lsp]'"
            raise InputError(f"the language server needs the package '{package}'", help=help_)
    from ..language.server import serve

    serve()
