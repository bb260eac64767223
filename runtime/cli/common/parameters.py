"""Arguments and options that several commands share, and how the shell completes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from ....blocks.registry import STANDARD
from ....specs.load import FOLDERS, parse_overrides
from ....specs.reader import shipped_names
from .command import wrong

RUNS = "runs"
"""Folder of `specs/` that contains the shipped runs."""


def _paths(incomplete: str, suffix: str = "") -> list[str]:
    """Return the folders that begin with a text, and the files with a suffix."""
    folder = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    try:
        found = [f"{path}/" if path.is_dir() else str(path) for path in folder.iterdir()]
    except OSError:
        return []
    return sorted(one for one in found if one.endswith(("/", suffix)) and "/." not in f"/{one}")


def _completing(names: Callable[[], Iterable[str]], suffix: str = "") -> Callable[..., list[str]]:
    """Return a function that completes a shipped name or a path."""

    def complete(incomplete: str) -> list[str]:
        known = [name for name in names() if name.startswith(incomplete)]
        return [*known, *(p for p in _paths(incomplete, suffix) if p.startswith(incomplete))]

    return complete


complete_specs = _completing(lambda: shipped_names(*FOLDERS), ".json")
complete_runs = _completing(lambda: shipped_names(RUNS), ".json")
complete_tables = _completing(
    lambda: (name.removeprefix("hf-") for name in shipped_names("imports")), ".json"
)
complete_blocks = _completing(lambda: STANDARD, "/\0")
complete_files = _completing(lambda: ())


def argument(metavar: str, what: str, complete: Callable[..., list[str]] | None = None) -> Any:
    """Return an argument.

    Args:
        metavar: its name in the help and in errors.
        what: help text.
        complete: function that completes it in a shell.
    """
    return typer.Argument(metavar=metavar, help=what, autocompletion=complete, show_default=False)


def option(
    flag: str,
    what: str,
    *,
    metavar: str | None = None,
    complete: Callable[..., list[str]] | None = None,
    panel: str | None = None,
) -> Any:
    """Return an option whose help text gives its default, if it has one."""
    return typer.Option(
        flag,
        metavar=metavar,
        help=what,
        autocompletion=complete,
        rich_help_panel=panel,
        show_default=False,
    )


def file_option(flag: str, what: str, panel: str | None = None) -> Any:
    """Return an option that names an input file."""
    return option(flag, what, metavar="FILE", complete=complete_files, panel=panel)


SPEC = "A spec file, or the name of a shipped spec (see `weft list`)."
RUN = "A run file, or the name of a shipped run (see `weft list`)."

SpecName = Annotated[
    str,
    argument("SPEC", SPEC, complete_specs),
]
RunName = Annotated[
    str,
    argument("RUN", RUN, complete_runs),
]
Checkpoint = Annotated[
    str,
    argument("CHECKPOINT", "A checkpoint folder, such as outputs/demo/averaged.", complete_files),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for editors and programs.")]


def check_settings(texts: list[str] | None) -> list[str]:
    """Check that each text is `path=value`."""
    for text in texts or ():
        if text.partition("=")[0].strip() in ("", text.strip()):
            raise wrong("--set", f"'{text}' is not PATH=VALUE, such as layers=4")
    return texts or []


Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Override a value, such as layers=4. Repeat the option for several values.",
        callback=check_settings,
        show_default=False,
    ),
]


def overridden(texts: list[str] | None) -> dict[str, Any]:
    """Return the values of `--set` by path."""
    return parse_overrides(texts or [])


def out_option(what: str) -> Any:
    """Return the option for an output file or folder, with this help text."""
    return typer.Option(
        "--out",
        "-o",
        metavar="PATH",
        help=what,
        autocompletion=complete_files,
        show_default=False,
    )
