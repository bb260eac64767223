"""The commands `weft lsp`, `weft mcp` and `weft studio`; no torch before a run is opened."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from ...plugin import SPECS, InputError, argument, command, complete_specs, option
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
    _require("lsp", "the language server", *_LSP_PACKAGES)
    from .language.server import serve

    serve()


@command(
    SPECS,
    "weft mcp --folder models",
    note="An agent's program starts it; docs/editors.md says how. It speaks the Model Context "
    "Protocol on the standard input and output.",
)
def mcp(
    *,
    folder: Annotated[
        str, option("--folder", "Its files can be read, and new ones written in it.", metavar="DIR")
    ] = ".",
) -> None:
    """Answer an agent: check, fix, show, draw, swap blocks, and describe them.

    Raises:
        InputError: there is no such folder, or a required package is not installed.
    """
    _require("mcp", "the server for agents", "mcp")
    path = Path(folder)
    if not path.is_dir():
        raise InputError(f"there is no folder {folder}", location="--folder")
    from .agents import server

    server(path).run()


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
    _require("studio", "the studio", *_STUDIO_PACKAGES)
    from .studio.files import opened
    from .studio.server import serve_studio

    def started(address: str) -> None:
        if no_browser:  # the result of the command, so that --quiet does not leave it out
            print(address, flush=True)
        else:
            terminal.notice(f"the studio is at {address}")

    serve_studio(opened(spec), port=port, browser=not no_browser, started=started)


def _require(extra: str, what: str, *packages: str) -> None:
    """Raise an InputError if a package of an extra is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            help_ = f"install the extra: pip install 'weft[{extra}]'"
            raise InputError(f"{what} needs the package '{package}'", help=help_)
