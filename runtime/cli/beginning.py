"""The commands `weft new`: runs for one's files, copies of specs, and packages of one part."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Annotated, Any

import typer

from .common import terminal
from .common.command import SPECS, command, group, wrong
from .common.parameters import complete_files, complete_specs, option, out_option

new = group(
    SPECS,
    "new",
    "Begin with your files: write a run that fits them, a copy of a spec, or a package.",
    "weft new translation --train train.en train.fr",
    "weft new classification --train reviews.csv",
    "weft new spec --from transformer-base -o mine.json",
    "weft new block my-block",
)


def _files(flag: str, what: str) -> Any:
    return typer.Option(
        flag, metavar="FILE...", help=what, autocompletion=complete_files, show_default=False
    )


def _run_of(task: str) -> Callable[..., None]:
    """Return the command that writes a run for a task."""

    def write(
        *,
        train: Annotated[list[str], _files("--train", "Training files.")],
        valid: Annotated[
            list[str] | None,
            _files("--valid", "Validation files. [default: rows of the training files]"),
        ] = None,
        test: Annotated[
            list[str] | None,
            _files("--test", "Test files. [default: as for --valid, without --valid]"),
        ] = None,
        fields: Annotated[
            list[str] | None,
            option(
                "--field",
                "The field of a table that is a column of the run, such as text=review. Repeat the "
                "option for several. [default: the fields of these names, or as they fit]",
                metavar="COLUMN=FIELD",
            ),
        ] = None,
        name: Annotated[
            str | None, option("--name", "Name of the run. [default: that of the task]")
        ] = None,
        out: Annotated[str | None, out_option("The run file. [default: NAME.json]")] = None,
    ) -> None:
        from ..scaffold.runs import new_run

        by_column = {}
        for text in fields or ():
            column, equals, field = text.partition("=")
            if not (column and equals and field):
                raise wrong("--field", f"'{text}' is not COLUMN=FIELD, such as text=review")
            by_column[column] = field
        run = new_run(
            task,
            train,
            valid=valid or (),
            test=test or (),
            fields=by_column,
            name=name or "",
            out=out,
        )
        if run.held_out is not None:
            terminal.notice(f"held out rows for validation and tests: {run.held_out}")
        terminal.notice(f"{run.rows:,} rows; the run explains its numbers. Next:")
        path = shlex.quote(str(run.path))
        print(f"weft check {path}\nweft train {path}")

    write.__doc__ = f"Write a run of the task '{task}' for your files, with sizes that fit them."
    return write


_OTHERS = "Specs and packages"
_EXAMPLES = {
    "translation": "train.en train.fr --valid valid.en valid.fr",
    "language-model": "train.txt",
    "classification": "train.csv --field text=review --field label=stars",
    "tagging": "train.jsonl",
    "parsing": "train.trees --valid valid.trees",
    "speech": "train.tsv",
}
"""Task to files of an example."""
for _task, _example in _EXAMPLES.items():
    command(
        "Runs",
        f"weft new {_task} --train {_example}",
        name=_task,
        of=new,
        several=("--train", "--valid", "--test"),
    )(_run_of(_task))


@command(
    _OTHERS,
    "weft new spec --from transformer-prenorm -o mine.json",
    name="spec",
    of=new,
)
def spec(
    *,
    parent: Annotated[
        str,
        option(
            "--from",
            "A spec file, or the name of a shipped spec or objective.",
            metavar="SPEC",
            complete=complete_specs,
        ),
    ],
    out: Annotated[str | None, out_option("The new file. [default: NAME.json]")] = None,
    name: Annotated[
        str | None, option("--name", "Name of the new spec. [default: my-NAME]")
    ] = None,
) -> None:
    """Write a copy of a spec to edit: in one file, with its params and formulas."""
    from ..scaffold.packages import new_spec

    path = new_spec(parent, name=name or "", out=out)
    quoted = shlex.quote(str(path))
    print(f"weft check {quoted}\nweft draw {quoted} -o {shlex.quote(path.stem)}.svg")


def _package_of(kind: str, what: str) -> Callable[..., None]:
    """Return the command that writes a package with a part of a kind."""

    def write(
        name: Annotated[
            str, typer.Argument(metavar="NAME", help="Name of the package, such as my-part.")
        ],
        *,
        out: Annotated[str | None, out_option("The new folder. [default: NAME]")] = None,
    ) -> None:
        from ..scaffold.packages import new_package

        folder = new_package(kind, name, out=out)
        quoted = shlex.quote(str(folder))
        print(f"pip install -e {quoted}\npytest {quoted}")

    write.__doc__ = f"Write a package with {what}, and its test, which passes, to edit."
    return write


for _kind, _what in (
    ("block", "a block"),
    ("column", "a column and a reader"),
    ("metric", "a metric"),
):
    command(_OTHERS, f"weft new {_kind} my-{_kind}", name=_kind, of=new)(_package_of(_kind, _what))
