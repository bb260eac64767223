"""The commands `weft export` and `weft eject`."""

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
"""Number of lines of `--text` that both engines translate."""


def export(options: Namespace) -> None:
    """Write the export and print how closely it matches the model.

    Raises:
        InputError: the export cannot be written or does not match; nothing is left behind.
    """
    lines = list(islice(read_lines(options.text), LINES)) if options.text else []
    print(
        f"{options.checkpoint}: exporting to {options.to} and comparing the outputs",
        file=sys.stderr,
    )
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
    print(f"wrote {shlex.quote(str(options.out))}, {size / 1e6:,.1f} MB; for its use see {page}")


def eject(options: Namespace) -> None:
    """Write the file and print its class and what was compared.

    Raises:
        InputError: the model cannot be read or the file not written; nothing is left behind.
        SpecError: the spec has mistakes; all of them are listed.
    """
    if Path(options.model).is_dir():
        if options.set:
            raise InputError("the params of a checkpoint are fixed", help="leave --set out")
        made = eject_to(open_checkpoint(options.model), options.out)
    else:
        made = eject_to(graph_of(load(options.model, parse_overrides(options.set))), options.out)
    print(f"class {made.name} computes what the model computes (compared: {made.compared})")
    print(
        f"wrote {shlex.quote(str(made.file))}, {made.lines:,} lines; its first lines show its use"
    )
    if made.weights is not None:
        print(f"wrote {shlex.quote(str(made.weights))}")
