"""The commands `weft lsp` and `weft studio`; no torch before a run is opened."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer
from pydantic import Field

from ...plugin import SPECS, InputError, argument, command, complete_specs
from ...runtime.cli.common import terminal

_LSP_PACKAGES = ("lsprotocol", "pygls")
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
    for package in _LSP_PACKAGES:
        if importlib.util.find_spec(package) is None:
            help_ = "install the extra: pip install 'weft[lsp]'"
            raise InputError(f"the language server needs the package '{package}'", help=help_)
    from .language.server import serve

    serve()


_STUDIO_PACKAGES = ("starlette", "uvicorn")
"""Packages of the extra `studio`."""


@command(SPECS, "weft studio transformer-base", "weft studio my.json --no-browser --port 8123")
def studio(
    spec: Annotated[
        str,
        argument(
            "SPEC",
            "A spec or a run, by path or shipped name, or the folder of a checkpoint.",
            complete_specs,
        ),
    ],
    *,
    port: Annotated[
        int, Field(ge=0, le=65535), typer.Option("--port", help="Port; 0 is any free one.")
    ] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and open no browser.")
    ] = False,
) -> None:
    """Edit a spec in a browser: text on the left, its drawing on the right.

    The server listens on 127.0.0.1 only, and the address contains a random token. It writes the
    named file and new variants beside it, and nothing else.

    Raises:
        InputError: there is no such file, the port is not available, or a required package is not
            installed.
    """
    for package in _STUDIO_PACKAGES:
        if importlib.util.find_spec(package) is None:
            help_ = "install the extra: pip install 'weft[studio]'"
            raise InputError(f"the studio needs the package '{package}'", help=help_)
    from .studio.files import opened
    from .studio.server import serve_studio

    def started(address: str) -> None:
        if no_browser:  # the result of the command, so that --quiet does not leave it out
            print(address, flush=True)
        else:
            terminal.notice(f"the studio is at {address}")

    serve_studio(opened(spec), port=port, browser=not no_browser, started=started)
