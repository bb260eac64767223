"""Export commands: a model for another engine."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from itertools import islice
from pathlib import Path

from ..data.text import read_lines
from ..export.export import export as export_to

LINES = 32
"""Lines of `--text` that are translated by both."""


def export(options: Namespace) -> None:
    """Write the export and say how far it is from the model.

    Raises:
        InputError: it cannot be written, or does not compute the same; nothing is kept then.
    """
    lines = list(islice(read_lines(options.text), LINES)) if options.text else []
    print(f"writing for {options.to}, then comparing", file=sys.stderr)
    found = export_to(
        options.checkpoint,
        options.to,
        options.out,
        quantization=options.quantization or "float32",
        lines=lines,
    )
    print(f"{found.same} of {found.outputs} outputs equal, decoded greedily by both")
    print(
        f"log probabilities of {found.tokens} tokens differ by {found.mean:.2g} in the mean, "
        f"{found.largest:.2g} at most"
    )
    size = sum(one.stat().st_size for one in Path(options.out).iterdir())
    print(f"wrote {shlex.quote(str(options.out))}, {size / 1e6:,.1f} MB; its README.md says how on")
