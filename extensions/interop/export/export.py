"""Export a checkpoint to an engine by name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from ....graphs.ir.block_type import BlockType
from ....runtime.checkpoint.deployed import open_deployed
from ....runtime.checkpoint.merge import merged_checkpoint
from ....specs.findings import InputError, did_you_mean
from ..importing.config import read_object
from .ctranslate2.export import Checked, export_ctranslate2
from .ctranslate2.quantization import QUANTIZATIONS
from .huggingface.adapter import CheckedAdapter, export_peft
from .huggingface.export import CheckedHuggingFace, export_huggingface
from .onnx.export import CheckedOnnx, export_onnx

ENGINES = ("ctranslate2", "huggingface", "onnx", "peft")


def export(  # noqa: PLR0913 - all by name but three
    checkpoint: str | Path,
    to: Literal["ctranslate2", "huggingface", "onnx", "peft"],
    out: str | Path,
    *,
    quantization: str | None = None,
    lines: Iterable[str] = (),
    table: str | Path | None = None,
    scores: str | Path | None = None,
    base: str | None = None,
    blocks: Iterable[BlockType] = (),
) -> Checked | CheckedAdapter | CheckedHuggingFace | CheckedOnnx:
    """Write a checkpoint for another engine or library, and check that the outputs agree.

    LoRA is merged into the weights, except for `peft`, which gets LoRA alone.

    Args:
        checkpoint: a checkpoint folder, such as `outputs/demo/averaged`.
        to: the engine; the extra of the same name must be installed, but for `huggingface`
            and `peft`.
        out: the folder to write; an older export there is replaced.
        quantization: of weights, such as `int8`, for `ctranslate2`; default: float32.
        lines: sentences to check with, for `ctranslate2`; default: random words.
        table: import table to read backwards, for `huggingface` and `peft`; default: the one that
            fits.
        scores: file with the output of `weft evaluate --json`, whose scores the model card of
            `huggingface` shows; default: the last validation.
        base: name or folder of the base model of an adapter, for `peft`.
        blocks: block types that the model uses besides the installed ones.

    Returns:
        The difference between the outputs of both.

    Raises:
        InputError: the checkpoint is incomplete, a node has no counterpart, the folder has other
            contents, or the outputs differ; in that case nothing is written.
    """
    if to not in ENGINES:
        raise InputError(f"no engine '{to}'", help=did_you_mean(to, ENGINES))
    given = list(lines)
    only = {
        "table": (table, ("huggingface", "peft")),
        "scores": (scores, ("huggingface",)),
        "base": (base, ("peft",)),
    }
    for name, (value, engines) in only.items():
        if value is not None and to not in engines:
            raise InputError(f"'{name}' has no effect on '{to}'", help="leave it out")
    if to in ("huggingface", "peft"):
        if quantization is not None or given:
            raise InputError(
                "an export for Hugging Face's library has float32 weights, and random ids check it",
                help="leave out the quantization and the lines",
            )
        if to == "peft":
            return export_peft(open_deployed(checkpoint, blocks), out, table=table, base=base)
        opened = merged_checkpoint(open_deployed(checkpoint, blocks))
        report = read_object(Path(scores)) if scores is not None else None
        return export_huggingface(opened, out, table=table, scores=report)
    if to == "onnx":
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
    return export_ctranslate2(opened, out, quantization=wanted, lines=given)
