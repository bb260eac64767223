"""Export options: what `weft export` and `weft eject` take."""

from __future__ import annotations

import argparse
from collections.abc import Callable

QUANTIZATIONS = (
    "float32",
    "float16",
    "bfloat16",
    "int16",
    "int8",
    "int8_float32",
    "int8_float16",
    "int8_bfloat16",
)
_EXPORT = """Write a checkpoint for another engine, and check that it computes the same.

  ctranslate2  a folder for CTranslate2: encoder-decoders and decoders of attention and
               feed-forwards, also in int8       pip install 'weft[ctranslate2]'
  onnx         graphs for onnxruntime: what runs once and one step of the decoder, or the
               whole forward                     pip install 'weft[onnx]'

What an engine cannot express is refused, and the nodes that prevent it are named.  The folder
appears when the check has passed, and not before.  docs/exporting.md says what each can do.
"""
_EJECT = """Write a model as one file of plain PyTorch that imports nothing of weft.

The file holds the classes that a spec becomes and the blocks that they use.  Its state_dict has
the names that checkpoints have, so weights load as they are; those of a checkpoint are written
beside it, as weights.safetensors.  The head of the file says how it is used, step by step too.
"""


def add_export_commands(add: Callable[[str, str, str, str], argparse.ArgumentParser]) -> None:
    """Add `export` and `eject`.

    Args:
        add: makes a command of a name, a module, what it does, and an example.
    """
    export = add(
        "export",
        "checkpoint.export",
        "write a checkpoint for another engine, and check that it computes the same",
        "weft export outputs/demo/averaged --to ctranslate2 -o outputs/demo/ct2 "
        "--quantization int8",
    )
    export.description = _EXPORT
    export.add_argument("checkpoint", help="a checkpoint folder, such as outputs/demo/averaged")
    export.add_argument("--to", required=True, choices=("ctranslate2", "onnx"), help="the engine")
    export.add_argument(
        "-o", "--out", required=True, help="folder to write; an older export there is replaced"
    )
    export.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        help="of weights, for ctranslate2 (default: float32)",
    )
    export.add_argument(
        "--text",
        metavar="FILE",
        help="lines to check with, for ctranslate2, the first 32 (default: words at random)",
    )
    eject = add(
        "eject",
        "checkpoint.export",
        "write a model as one file of plain PyTorch that imports nothing of weft",
        "weft eject transformer-base --set layers=2 -o model.py",
    )
    eject.description = _EJECT
    eject.add_argument(
        "model", help="a checkpoint folder, a spec file, or the name of a shipped spec"
    )
    eject.add_argument("-o", "--out", required=True, help="Python file to write")
    eject.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="change a param of a spec, as often as needed, such as layers=4",
    )
