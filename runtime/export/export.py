"""Export: a checkpoint for another engine, by the engine's name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...specs.findings import InputError, did_you_mean
from ..checkpoint import open_checkpoint
from .to_ctranslate2 import QUANTIZATIONS, Checked, export_ctranslate2

ENGINES = ("ctranslate2",)


def export(
    checkpoint: str | Path,
    to: str,
    out: str | Path,
    *,
    quantization: str = "float32",
    lines: Iterable[str] = (),
) -> Checked:
    """Write a checkpoint for another engine; see `weft.export`.

    Args:
        checkpoint: a folder.
        to: one of `ENGINES`.
        out: the folder to write.
        quantization: one of `QUANTIZATIONS`.
        lines: sentences to check with.

    Raises:
        InputError: something is wrong; nothing is kept then.
    """
    for name, value, known in (("to", to, ENGINES), ("quantization", quantization, QUANTIZATIONS)):
        if value not in known:
            raise InputError(f"no {name} '{value}'", help=did_you_mean(value, known))
    held = open_checkpoint(checkpoint)
    return export_ctranslate2(held, out, quantization=quantization, lines=lines)
