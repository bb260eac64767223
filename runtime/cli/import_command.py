"""Import command: a checkpoint from a folder of another library."""

from __future__ import annotations

import shlex
from argparse import Namespace
from pathlib import Path

from ...specs.findings import InputError
from ..importing.hf import import_hf


def import_(options: Namespace) -> None:
    """Write the checkpoint and say what it is.

    Raises:
        InputError: the folder or the table is wrong; nothing is written.
    """
    folder = Path(options.folder)
    out = Path(options.out or Path("outputs") / folder.resolve().name)
    if out.resolve() == folder.resolve():
        raise InputError(
            "the checkpoint would take the place of the folder that it comes from",
            place=str(out),
            help="choose another place with --out",
        )
    made = import_hf(folder, options.table)
    made.save(out)
    print(f"{made.graph.name}: {made.graph.parameters():,} parameters from {folder}")
    for note in made.notes:
        print(note)
    print(f"wrote {shlex.quote(str(out))}")
