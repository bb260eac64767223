"""Export commands: a model for another engine, or as a file of plain PyTorch."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from itertools import islice
from pathlib import Path

from ....specs.findings import InputError
from ....specs.load import load, parse_overrides
from ...checkpoint.checkpoint import open_checkpoint
from ...data.text_files import read_lines
from ...export.eject.eject import eject as eject_to
from ...export.export import export as export_to
from ...spec.check import graph_of

LINES = 32
"""Lines of `--text` that are translated by both."""


def export(options: Namespace) -> None:
    """Write the export and say how far it is from the model.

    Raises:
        InputError: it cannot be written, or does not compute the same; nothing is kept then.
    """
    lines = list(islice(read_lines(options.text), LINES)) if options.text else []
    print(f"{options.checkpoint}: to {options.to}, then compared", file=sys.stderr)
    found = export_to(
        options.checkpoint,
        options.to,
        options.out,
        quantization=options.quantization,
        lines=lines,
    )
    print(found.report)
    page = "README.md" if options.to == "ctranslate2" else "model.json, and docs/exporting.md"
    size = sum(one.stat().st_size for one in Path(options.out).iterdir())
    print(f"wrote {shlex.quote(str(options.out))}, {size / 1e6:,.1f} MB; how on: its {page}")


def eject(options: Namespace) -> None:
    """Write the file and say how it is loaded.

    Raises:
        InputError: the model cannot be read or the file not written; nothing is kept then.
        SpecError: everything that is wrong with the spec.
    """
    if Path(options.model).is_dir():
        if options.set:
            raise InputError("a checkpoint's params are fixed", help="leave --set out")
        made = eject_to(open_checkpoint(options.model), options.out)
    else:
        made = eject_to(graph_of(load(options.model, parse_overrides(options.set))), options.out)
    print(f"class {made.name} computes what the model computes, by its {made.compared}")
    print(f"wrote {shlex.quote(str(made.file))}, {made.lines:,} lines; its head says how on")
    if made.weights is not None:
        print(f"wrote {shlex.quote(str(made.weights))}")
