"""Options of `weft export` and `weft eject`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from ...export.ctranslate2.quantization import QUANTIZATIONS

_EXPORT = """Write a checkpoint for another engine, and check that it computes the same.

  ctranslate2  a folder for CTranslate2: encoder-decoder and decoder-only models built from
               attention and feed-forward blocks, also in int8
               (pip install 'weft[ctranslate2]')
  onnx         graphs for onnxruntime: the encoder and one step of the decoder, or the
               complete forward pass (pip install 'weft[onnx]')

A model that the engine cannot express is refused with the names of the unsupported nodes.  The
folder appears only after the check has passed.  docs/exporting.md lists what each engine supports.
"""
_EJECT = """Write a model as one file of plain PyTorch that does not import weft.

The file contains the classes generated from the spec and the blocks that they use.  Its
state_dict has the same names as a checkpoint, so weights load unchanged; the weights of a
checkpoint are written next to it, as weights.safetensors.  The top of the file shows how to use
it, step-by-step decoding included.
"""


def add_export_commands(add: Callable[[str, str, str, str], argparse.ArgumentParser]) -> None:
    """Add `export` and `eject`.

    Args:
        add: adds a command, given its name, module, description and an example.
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
    export.add_argument(
        "--to", required=True, choices=("ctranslate2", "onnx"), help="target engine"
    )
    export.add_argument(
        "-o", "--out", required=True, help="folder to write; replaces an older export there"
    )
    export.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        help="number format of the weights, for ctranslate2 only (default: float32)",
    )
    export.add_argument(
        "--text",
        metavar="FILE",
        help="for ctranslate2: check with the first 32 lines of this file (default: random words)",
    )
    eject = add(
        "eject",
        "checkpoint.export",
        "write a model as one file of plain PyTorch that does not import weft",
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
        help="override a param of a spec, such as layers=4; may be given several times",
    )
