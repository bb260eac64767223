"""Export a checkpoint to an engine by name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...specs.findings import InputError, did_you_mean
from ..checkpoint.checkpoint import open_checkpoint
from .ctranslate2.export import Checked, export_ctranslate2
from .ctranslate2.quantization import QUANTIZATIONS
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
        checkpoint: checkpoint folder.
        to: one of `ENGINES`.
        out: the folder to write.
        quantization: one of `QUANTIZATIONS`, for `ctranslate2`.
        lines: sentences to check with, for `ctranslate2`.

    Raises:
        InputError: the export is not possible or does not match the model; nothing is left behind.
    """
    if to not in ENGINES:
        raise InputError(f"no engine '{to}'", help=did_you_mean(to, ENGINES))
    if to == "onnx":
        given = list(lines)
        if quantization not in {None, "float32"} or given:
            raise InputError(
                "ONNX graphs are written in float32 and checked with random ids",
                help="leave out --quantization and --text; quantize with onnxruntime.quantization",
            )
        return export_onnx(open_checkpoint(checkpoint), out)
    wanted = quantization or "float32"
    if wanted not in QUANTIZATIONS:
        raise InputError(f"no quantization '{wanted}'", help=did_you_mean(wanted, QUANTIZATIONS))
    opened = open_checkpoint(checkpoint)
    return export_ctranslate2(opened, out, quantization=wanted, lines=lines)
