"""Export: a checkpoint for another engine, by the engine's name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...specs.findings import InputError, did_you_mean
from ..checkpoint.checkpoint import open_checkpoint
from .ctranslate2.export import QUANTIZATIONS, Checked, export_ctranslate2
from .onnx.export import CheckedOnnx, export_onnx

ENGINES = ("ctranslate2", "onnx")


def export(
    checkpoint: str | Path,
    to: str,
    out: str | Path,
    *,
    quantization: str | None = None,
    lines: Iterable[str] = (),
) -> Checked | CheckedOnnx:
    """Write a checkpoint for another engine; see `weft.export`.

    Args:
        checkpoint: a folder.
        to: one of `ENGINES`.
        out: the folder to write.
        quantization: one of `QUANTIZATIONS`, for `ctranslate2`.
        lines: sentences to check with, for `ctranslate2`.

    Raises:
        InputError: something is wrong; nothing is kept then.
    """
    if to not in ENGINES:
        raise InputError(f"no engine '{to}'", help=did_you_mean(to, ENGINES))
    if to == "onnx":
        given = list(lines)
        if quantization not in {None, "float32"} or given:
            raise InputError(
                "ONNX graphs are written in float32, and checked with ids at random",
                help="leave --quantization and --text out; onnxruntime.quantization rounds weights",
            )
        return export_onnx(open_checkpoint(checkpoint), out)
    wanted = quantization or "float32"
    if wanted not in QUANTIZATIONS:
        raise InputError(f"no quantization '{wanted}'", help=did_you_mean(wanted, QUANTIZATIONS))
    held = open_checkpoint(checkpoint)
    return export_ctranslate2(held, out, quantization=wanted, lines=lines)
