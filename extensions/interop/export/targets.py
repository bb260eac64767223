"""The targets of `weft export` that ship with Weft."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from ....plugin import Exporter, InputError
from ....specs.reader import read_file

if TYPE_CHECKING:
    from ....plugin import Checkpoint
    from .automodel.export import CheckedAutoModel
    from .ctranslate2 import Checked
    from .huggingface.adapter import CheckedAdapter
    from .huggingface.export import CheckedHuggingFace
    from .onnx import CheckedOnnx

_Quantization = Literal[
    "float32",
    "float16",
    "bfloat16",
    "int16",
    "int8",
    "int8_float32",
    "int8_float16",
    "int8_bfloat16",
]
"""A format in which CTranslate2 stores weights."""
QUANTIZATIONS: tuple[str, ...] = get_args(_Quantization)


LINES = 32
"""Number of lines of a text that both engines translate."""


class CTranslate2(Exporter):
    """Folder for CTranslate2: encoder-decoder and decoder-only models, also in int8."""

    type: Literal["ctranslate2"] = "ctranslate2"
    quantization: _Quantization = "float32"
    """Number format of the weights."""
    text: str | None = None
    """File whose first 32 lines check the export; `null` takes random words."""

    def write(self, checkpoint: Checkpoint, folder: Path) -> Checked:
        """Write the folder."""
        from ....plugin import merged_checkpoint, read_lines
        from .ctranslate2 import export_ctranslate2

        lines = list(islice(read_lines(self.text), LINES)) if self.text else []
        merged = merged_checkpoint(checkpoint)
        return export_ctranslate2(merged, folder, quantization=self.quantization, lines=lines)


class Onnx(Exporter):
    """Graphs for onnxruntime: the encoder and one step of the decoder, or the complete model."""

    page: ClassVar[str] = "model.json, and docs/exporting.md"

    type: Literal["onnx"] = "onnx"

    def write(self, checkpoint: Checkpoint, folder: Path) -> CheckedOnnx:
        """Write the graphs."""
        from ....plugin import merged_checkpoint
        from .onnx import export_onnx

        return export_onnx(merged_checkpoint(checkpoint), folder)


class HuggingFace(Exporter):
    """Folder for from_pretrained of transformers: by an import table, or with its own code."""

    flags: ClassVar[Mapping[str, str]] = {"table": "--as"}

    type: Literal["huggingface"] = "huggingface"
    table: str | None = None
    """Import table to read backwards, such as bert, or a table file; `null` takes the one that
    fits."""
    scores: str | None = None
    """File with the output of `weft evaluate --json`, whose scores and signatures the model card
    shows; `null` takes the last validation."""

    def write(self, checkpoint: Checkpoint, folder: Path) -> CheckedHuggingFace | CheckedAutoModel:
        """Write the folder: by a table or, if none fits and none was named, with its code."""
        from ....plugin import merged_checkpoint
        from .automodel.export import export_automodel
        from .huggingface.export import export_huggingface
        from .huggingface.fit import NoFitError

        scores = read_file(Path(self.scores))[0] if self.scores else {}
        if not isinstance(scores, Mapping):
            raise InputError(
                "the file is not a JSON object",
                location=str(self.scores),
                help="give the output of weft evaluate --json",
            )
        merged = merged_checkpoint(checkpoint)
        try:
            return export_huggingface(merged, folder, table=self.table, scores=scores)
        except NoFitError as error:
            if self.table is not None:
                raise
            return export_automodel(merged, folder, notes=[error.problem], scores=scores)


class Peft(Exporter):
    """Adapter for PEFT's library: the LoRA of a model alone; the other targets merge it."""

    flags: ClassVar[Mapping[str, str]] = {"table": "--as"}

    type: Literal["peft"] = "peft"
    table: str | None = None
    """Import table to read backwards, such as bert, or a table file; `null` takes the one that
    fits."""
    base: str | None = None
    """Name or folder of the base model; a folder must have the weights to which LoRA was added."""

    def write(self, checkpoint: Checkpoint, folder: Path) -> CheckedAdapter:
        """Write the adapter."""
        from .huggingface.adapter import export_peft

        return export_peft(checkpoint, folder, table=self.table, base=self.base)
