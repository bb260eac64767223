"""Arguments and options that several commands share, and how the shell completes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field

from ....blocks.registry import STANDARD
from ....graphs.ir.graph import Graph
from ....specs.findings import InputError, did_you_mean
from ....specs.load import FOLDERS, parse_overrides
from ....specs.reader import RUN_FOLDER, shipped_names
from .command import wrong

LARGEST = 10**9
"""Largest allowed size of an axis."""


def _paths(incomplete: str, suffix: str = "") -> list[str]:
    """Return the folders that begin with a text, and the files with a suffix."""
    folder = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    try:
        paths = [f"{path}/" if path.is_dir() else str(path) for path in folder.iterdir()]
    except OSError:
        return []
    return sorted(path for path in paths if path.endswith(("/", suffix)) and "/." not in f"/{path}")


def _completing(names: Callable[[], Iterable[str]], suffix: str = "") -> Callable[..., list[str]]:
    """Return a function that completes a shipped name or a path."""

    def complete(incomplete: str) -> list[str]:
        matching = [name for name in names() if name.startswith(incomplete)]
        return [*matching, *(p for p in _paths(incomplete, suffix) if p.startswith(incomplete))]

    return complete


complete_specs = _completing(lambda: shipped_names(*FOLDERS), ".json")
"""Completes the names of shipped specs, and files."""
complete_runs = _completing(lambda: shipped_names(RUN_FOLDER), ".json")
complete_tables = _completing(
    lambda: (name.removeprefix("hf-") for name in shipped_names("imports")), ".json"
)
"""Completes the names of shipped import tables, and files."""
complete_blocks = _completing(lambda: STANDARD, "/\0")
complete_files = _completing(lambda: ())
"""Completes files and folders."""


def complete_predictors(incomplete: str) -> list[str]:
    """Complete the name of a predictor."""
    from ...decode.predictors.registry import PREDICTORS

    return [name for name in PREDICTORS.names() if name.startswith(incomplete)]


def complete_metrics(incomplete: str) -> list[str]:
    """Complete the name of a metric."""
    from ...metrics.registry import METRICS

    return [name for name in METRICS.names() if name.startswith(incomplete)]


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
On = Annotated[
    str,
    option(
        "--on",
        "Where the work runs: 'local', 'ray', 'dask:ADDRESS', 'slurm:PARTITION' or their settings "
        "as JSON. See docs/scaling.md.",
        metavar="NAME[:ADDRESS]",
    ),
]
Processes = Annotated[
    int | None,
    Field(ge=1),
    option(
        "--processes",
        "Parts of the work that are done at the same time. [default: 1 on this machine; on a "
        "cluster, as many as it takes]",
    ),
]
RunName = Annotated[
    str,
    argument("RUN", RUN, complete_runs),
]
Checkpoint = Annotated[
    str,
    argument(
        "CHECKPOINT", "A checkpoint folder, or that of a run, such as outputs/demo.", complete_files
    ),
]
Test = Annotated[
    str | None,
    option("--test", "One of the run's test sets. [default: all of them]", metavar="NAME"),
]
DataRoot = Annotated[
    str | None,
    file_option("--data-root", "Folder with the test data. [default: data.root of the run]"),
]
Metrics = Annotated[
    list[str] | None,
    option(
        "--metric",
        "Metric, such as bleu or chrf. Repeat the option for several. [default: those of the run]",
        metavar="NAME",
        complete=complete_metrics,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for editors and programs.")]


def check_settings(texts: list[str] | None) -> list[str]:
    """Check that each text is `path=value`."""
    for text in texts or ():
        if text.partition("=")[0].strip() in ("", text.strip()):
            raise wrong("--set", f"'{text}' is not PATH=VALUE, such as layers=4")
    return texts or []


def overrides_option(what: str) -> Any:
    """Return the option `--set` with a help text."""
    return typer.Option(
        "--set", metavar="PATH=VALUE", help=what, callback=check_settings, show_default=False
    )


Overrides = Annotated[
    list[str] | None,
    overrides_option("Override a value, such as layers=4. Repeat the option for several values."),
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


def to_option(what: str) -> Any:
    """Return the option for a folder to write that is not that of the job."""
    return option("--to", what, metavar="PATH", complete=complete_files)


def _axes(texts: list[str] | None) -> list[str]:
    """Check that each text is a list of `AXIS=SIZE`, and return each separately."""
    assignments = [assignment.strip() for many in texts or () for assignment in many.split(",")]
    for text in assignments:
        axis, equals, size = text.partition("=")
        if not axis or not equals:
            raise wrong("--axes", f"'{text}' is not the size of an axis, such as S=40")
        if not (size.isascii() and size.isdigit()) or not 1 <= int(size[:12]) <= LARGEST:
            raise wrong("--axes", f"'{size}' is not a whole number from 1 to {LARGEST:,}")
    return assignments


def axes_option(default: str) -> Any:
    """Return the option for the sizes of axes, as `AXIS=SIZE` texts.

    Args:
        default: the sizes without it, in words.
    """
    return typer.Option(
        "--axes",
        metavar="AXIS=SIZE,...",
        help=f"Sizes of axes, such as S=40,T=40. [default: {default}]",
        callback=_axes,
        show_default=False,
    )


def sizes_given(graph: Graph, written: Sequence[str]) -> dict[str, int]:
    """Return the sizes of `--axes`.

    Args:
        graph: a checked graph.
        written: `AXIS=SIZE` texts.

    Raises:
        InputError: the graph has no such axis.
    """
    sizes: dict[str, int] = {}
    for text in written:
        axis, _, size = text.partition("=")
        if axis not in graph.spec.axes:
            axis_names = graph.spec.axes
            help_ = (
                did_you_mean(axis, axis_names)
                or f"the axes of {graph.name}: {', '.join(axis_names)}"
            )
            raise InputError(f"{graph.name} has no axis '{axis}'", location="--axes", help=help_)
        sizes[axis] = int(size)
    return sizes


def parse_heads(texts: Iterable[str]) -> dict[str, set[int]]:
    """Parse `PATH:0,3` texts into sets of head indices by path.

    Raises:
        BadParameter: a text does not have that form.

    >>> parse_heads(["encoder.0.f:0,3"])
    {'encoder.0.f': {0, 3}}
    """
    heads_by_path: dict[str, set[int]] = {}
    for text in texts:
        path, colon, numbers = text.partition(":")
        words = [word.strip() for word in numbers.split(",")]
        if not colon or not all(word.isdecimal() and word.isascii() for word in words):
            raise wrong("--heads", f"'{text}' is not a path and heads, such as encoder.0.f:0,3")
        heads_by_path.setdefault(path.strip(), set()).update(map(int, words))
    return heads_by_path


def refuse_test_set(other_flag: str, test: str | None, root: str | None) -> None:
    """Refuse the options of a test set beside the files of another.

    Args:
        other_flag: the option that names the files.
        test: value of `--test`.
        root: value of `--data-root`.

    Raises:
        typer.BadParameter: one of them is given.
    """
    for flag, value in (("--test", test), ("--data-root", root)):
        if value is not None:
            raise wrong(flag, f"it has no effect with {other_flag}")
