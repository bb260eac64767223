"""The `weft` command: run one command and return its exit code."""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import os
import sys
from collections.abc import Callable, Collection, Sequence
from importlib.metadata import EntryPoint, version
from pathlib import Path
from typing import Annotated, Any

import typer

from ...blocks.entry_points import loaded, origin_of, package_of, points_of
from ...specs.findings import InputError
from .common import terminal
from .common.command import EXIT_CODES, PANELS, app

COMMANDS = {
    "beginning": ("new",),
    "specs.checking": ("check",),
    "specs.showing": ("show",),
    "specs.specs": ("expand", "draw", "list", "blocks", "prove"),
    "specs.language": ("diff", "swap", "lora", "schema"),
    "cost": ("cost",),
    "training": ("demo", "prepare", "train"),
    "predicting": ("predict",),
    "decoding": ("translate", "score", "generate"),
    "evaluation": ("evaluate", "attend"),
    "shortlists": ("shortlist",),
    "checkpoints": ("average", "prune", "merge"),
}
"""Module of this folder to the commands that it registers, in the order of the help.

A command line that begins with a command imports only the module of that command.  Extensions and
installed packages add commands through the entry-point group `weft.commands`; after those of each
panel, the help lists theirs by name.
"""
_HELP = """Start here:

```text
weft demo                                 train and use a small translator
weft new translation --train a.en a.fr    write a run that fits your files
weft train translation.json               train it
weft translate outputs/translation        use it
weft draw transformer-base -o base.svg    draw a model
weft studio transformer-base              edit it in a browser
```

A model is a JSON spec that wires typed blocks together. Weft checks it, draws it, compiles it and
trains it. `weft list` lists what ships with it; `weft COMMAND --help` has examples.
"""


def _version(requested: bool) -> None:  # noqa: FBT001 - the value of an option
    if requested:
        print(f"weft {version('weft')}")
        raise typer.Exit


@app.callback(invoke_without_command=True, help=_HELP, epilog=EXIT_CODES)
def weft(
    context: typer.Context,
    *,
    shows_version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Compose sequence models from typed blocks."""
    del shows_version
    if context.invoked_subcommand is None:
        print(context.get_help())


def load_commands(name: str = "") -> list[str]:
    """Register one command, or all if there is none of that name, and return their names.

    Raises:
        InputError: the command of an installed package has the name of another one, or cannot be
            imported.
    """
    order = [command for commands in COMMANDS.values() for command in commands]
    added = added_commands(order)
    if name in added:
        loaded(added[name])
    else:
        modules = [module for module, names in COMMANDS.items() if name in names]
        for module in modules or COMMANDS:
            importlib.import_module(f".{module}", __package__)
        for point in () if modules else added.values():
            loaded(point)
    order += added

    def rank(entry: Any) -> tuple[int, int]:
        panel = str(entry.rich_help_panel)
        at = PANELS.index(panel) if panel in PANELS else len(PANELS)
        return at, order.index(str(entry.name))

    app.registered_commands.sort(key=rank)
    app.registered_groups.sort(key=rank)
    entries: list[Any] = [*app.registered_commands, *app.registered_groups]
    return [str(entry.name) for entry in sorted(entries, key=rank)]


def _open_streams() -> None:
    """Replace standard streams that the shell closed, as `>&-` does, by empty ones."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - until the end
            setattr(sys, name, stream)


@functools.lru_cache(maxsize=2)
def _built(*registered: object) -> Callable[..., object]:
    """Build the command line of all registered commands, once for each set of them."""
    del registered
    return typer.main.get_command(app)


OPTIONAL = {"--resume": ("newest", "auto")}
"""Options whose value may be left out, and their values; the first one is meant then."""


def completed(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with the values that are left out."""
    complete: list[str] = []
    for word, following in zip(words, (*words[1:], ""), strict=False):
        complete.append(word)
        if word in OPTIONAL and following not in OPTIONAL[word]:
            complete.append(OPTIONAL[word][0])
    return complete


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: words of the command line after `weft`; default: those of this process.
    """
    if arguments is None:
        # At its end Python looks at all objects for cycles, for 0.7 s where torch is loaded.
        atexit.register(gc.freeze)
    _open_streams()
    words = completed(sys.argv[1:] if arguments is None else arguments)
    try:
        if words[:1] != ["--version"]:
            load_commands(words[0] if words else "")
        _built(*app.registered_commands, *app.registered_groups)(words, prog_name="weft")
    except InputError as error:
        terminal.show_error(error)
        return 1
    except SystemExit as stopped:
        return stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
    return 0


if __name__ == "__main__":
    sys.exit(main())


GROUP = "weft.commands"
"""Entry points of commands: the name is that of the command, the value `module:function`."""


def added_commands(names: Collection[str]) -> dict[str, EntryPoint]:
    """Return the entry points of commands by name, sorted.

    Args:
        names: the commands that exist without them.

    Raises:
        InputError: a command has the name of another one.
    """
    points: dict[str, EntryPoint] = {}
    for point in points_of(GROUP):
        if point.name in names or point.name in points:
            raise InputError(
                f"a command with the name '{point.name}' already exists",
                location=origin_of(point),
                help=f"rename the entry point; or run 'pip uninstall {package_of(point)}'",
            )
        points[point.name] = point
    return dict(sorted(points.items()))
