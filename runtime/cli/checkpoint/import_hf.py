"""The command `weft import`: convert another library's checkpoint folder."""

from __future__ import annotations

import shlex
from argparse import Namespace
from pathlib import Path

from ...importing.hf import import_hf


def import_(options: Namespace) -> None:
    """Write the checkpoint and print a summary of the model.

    Raises:
        InputError: the folder, the table or the output path is invalid; nothing is written.
    """
    folder = Path(options.folder)
    out = Path(options.out or Path("outputs") / folder.resolve().name)
    made = import_hf(folder, options.table)
    made.save(out)
    print(f"{made.graph.name}: {made.graph.parameters():,} parameters from {folder}")
    for note in made.notes:
        print(note)
    print(f"wrote {shlex.quote(str(out))}")
