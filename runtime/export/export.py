"""Export a checkpoint to an engine by name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from ...graphs.ir.block_type import BlockType
from ...specs.findings import InputError, did_you_mean
from ..checkpoint.deployed import open_deployed
from ..checkpoint.merge import merged_checkpoint
from .ctranslate2.export import Checked, export_ctranslate2
from .ctranslate2.quantization import QUANTIZATIONS
from .onnx.export import CheckedOnnx, export_onnx

ENGINES = ("ctranslate2", "onnx")


def export(
    checkpoint: str | Path,
    to: Literal["ctranslate2", "onnx"],
    out: str | Path,
    *,
    quantization: str | None = None,
    lines: Iterable[str] = (),
    blocks: Iterable[BlockType] = (),
) -> Checked | CheckedOnnx:
    """Write a checkpoint for another engine, and check that the outputs agree.

    LoRA is merged into the weights.

    Args:
        checkpoint: a checkpoint folder, such as `outputs/demo/averaged`.
        to: the engine; the extra of the same name must be installed.
        out: the folder to write; an older export there is replaced.
        quantization: of weights, such as `int8`, for `ctranslate2`; default: float32.
        lines: sentences to check with, for `ctranslate2`; default: random words.
        blocks: block types that the model uses besides the installed ones.

    Returns:
        The difference between the outputs of both.

    Raises:
        InputError: the checkpoint is incomplete, a node has no counterpart, the folder has other
            contents, or the outputs differ; in that case nothing is written.
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
        return export_onnx(merged_checkpoint(open_deployed(checkpoint, blocks)), out)
    wanted = quantization or "float32"
    if wanted not in QUANTIZATIONS:
        raise InputError(f"no quantization '{wanted}'", help=did_you_mean(wanted, QUANTIZATIONS))
    opened = merged_checkpoint(open_deployed(checkpoint, blocks))
    return export_ctranslate2(opened, out, quantization=wanted, lines=lines)
