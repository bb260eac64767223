"""What commands share that open a checkpoint: its device, precision and search, and warnings."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ...specs.findings import InputError
from ..compile.decode_compile import Steps
from ..model.opening import ensemble, open_model
from .options.search import search_of

if TYPE_CHECKING:
    from argparse import Namespace

    from ..compile.decode_compile import CompileChoice
    from ..model.model import Model


def opened(options: Namespace, work: float = 0.0) -> Model:
    """Open the checkpoint, or the ensemble, of a command with search options.

    Args:
        options: parsed options of the command.
        work: expected decoding time in seconds, as far as it is known.

    Raises:
        InputError: a checkpoint cannot be opened, or the options conflict.
    """
    device, precision = placed(options)
    search = search_of(options)
    first, *others = (
        open_model(
            folder,
            search=search,
            device=device,
            precision=precision,
            steps=steps_for(options, work),
        )
        for folder in (options.checkpoint, *options.ensemble)
    )
    return ensemble(first, others) if others else first


def steps_for(options: Namespace, work: float = 0.0) -> Steps:
    """Return how decoding steps run; the choice is logged to stderr."""
    choice: CompileChoice = getattr(options, "compile", "off")
    return Steps(choice, work=work, log=lambda text: print(text, file=sys.stderr, flush=True))


def placed(options: Namespace) -> tuple[str, str]:
    """Return device and precision from a command's options.

    Raises:
        InputError: the device is not available.
    """
    import torch

    from ..train.device import prefers_bfloat16

    wanted = options.device
    device = ("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("no CUDA device is available", place="--device", help="use --device cpu")
    precision = options.precision
    if precision == "auto":
        precision = "bfloat16" if prefers_bfloat16(torch.device(device)) else "float32"
    return device, precision


def warn(line: int, problem: str) -> None:
    """Print a warning about one input line."""
    print(f"warning: line {line}: {problem}", file=sys.stderr)


def two_sides(source: str, target: str) -> tuple[list[str], list[str]]:
    """Return the lines of a text and of its translation.

    Raises:
        InputError: a file cannot be read, or the files differ in length.
    """
    from ..data.text_files import read_lines

    sources, targets = list(read_lines(source)), list(read_lines(target))
    if len(sources) != len(targets):
        raise InputError(
            f"{len(sources)} source lines for {len(targets)} target lines",
            place=f"{source}, {target}",
            help="line n of one file must belong to line n of the other",
        )
    return sources, targets
