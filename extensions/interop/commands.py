"""The commands `weft export`, `fits` and `eject`."""

from __future__ import annotations

import json
import shlex
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import typer

from ...runtime.cli.common import terminal
from ...runtime.cli.common.command import CHECKPOINTS, command, wrong
from ...runtime.cli.common.parameters import (
    Checkpoint,
    Json,
    Overrides,
    argument,
    complete_specs,
    complete_tables,
    file_option,
    option,
    out_option,
    overridden,
)
from ...specs.findings import InputError
from .export.ctranslate2.quantization import Quantization

LINES = 32
"""Number of lines of `weft export --text` that both engines translate."""
_PAGES = {
    "ctranslate2": "README.md",
    "onnx": "model.json, and docs/exporting.md",
    "huggingface": "README.md",
    "peft": "README.md",
}
"""Engine to where its folder is described."""


_ModelName = Annotated[
    str,
    argument(
        "MODEL",
        "A checkpoint folder, a spec file, or the name of a shipped spec.",
        complete_specs,
    ),
]


@command(
    CHECKPOINTS,
    "weft export outputs/demo/averaged --to ctranslate2 -o outputs/ct2 --quantization int8",
    note="""`ctranslate2` writes a folder for CTranslate2: encoder-decoder and decoder-only models
built from attention and feed-forward blocks, also in int8 (`pip install 'weft[ctranslate2]'`).

`onnx` writes graphs for onnxruntime: the encoder and one step of the decoder, or the complete
forward pass (`pip install 'weft[onnx]'`).

`huggingface` writes a folder for from_pretrained of transformers: an import table is read
backwards. `weft fits` lists the tables and what stands in the way.

`peft` writes the LoRA of a model alone, as an adapter for PEFT's library; the others merge it.

A model that the engine cannot express is refused with the names of the unsupported nodes. The
folder appears only after the check has passed. docs/exporting.md lists what each engine
supports.""",
)
def export(
    checkpoint: Checkpoint,
    *,
    to: Annotated[
        Literal["ctranslate2", "huggingface", "onnx", "peft"],
        option("--to", "Target engine or library."),
    ],
    out: Annotated[str, out_option("Folder to write; an older export there is replaced.")],
    quantization: Annotated[
        Quantization | None,
        option(
            "--quantization",
            "Number format of the weights, for ctranslate2 only. [default: float32]",
        ),
    ] = None,
    text: Annotated[
        str | None,
        file_option(
            "--text",
            f"For ctranslate2: check with the first {LINES} lines of this file. [default: random "
            "words]",
        ),
    ] = None,
    table: Annotated[
        str | None,
        option(
            "--as",
            "For huggingface and peft: import table to read backwards, such as bert, or a table "
            "file. [default: the one that fits]",
            metavar="TABLE",
            complete=complete_tables,
        ),
    ] = None,
    scores: Annotated[
        str | None,
        file_option(
            "--scores",
            "For huggingface: output of `weft evaluate --json`, whose scores and signatures the "
            "model card shows. [default: the last validation]",
        ),
    ] = None,
    base: Annotated[
        str | None,
        option(
            "--base",
            "For peft: name or folder of the base model; a folder must have the weights to which "
            "LoRA was added.",
            metavar="MODEL",
        ),
    ] = None,
) -> None:
    """Write a checkpoint for another engine, and check that it computes the same.

    Raises:
        InputError: the export cannot be written or does not match; nothing is left behind.
    """
    from ...runtime.data.text_files import read_lines
    from .export.export import export as export_to

    given = {
        "--quantization": (("ctranslate2",), quantization),
        "--text": (("ctranslate2",), text),
        "--as": (("huggingface", "peft"), table),
        "--scores": (("huggingface",), scores),
        "--base": (("peft",), base),
    }
    for flag, (engines, value) in given.items():
        if value is not None and to not in engines:
            only = " or ".join(engines)
            raise wrong(flag, f"it has no effect with --to {to}, only with --to {only}")
    lines = list(islice(read_lines(text), LINES)) if text else []
    terminal.notice(f"{checkpoint}: exporting to {to} and comparing the outputs")
    found = export_to(
        checkpoint,
        to,
        out,
        quantization=quantization,
        lines=lines,
        table=table,
        scores=scores,
        base=base,
    )
    print(found.report)
    size = sum(one.stat().st_size for one in Path(out).iterdir())
    print(f"wrote {shlex.quote(str(out))}, {size / 1e6:,.1f} MB; for its use see {_PAGES[to]}")


@command(
    CHECKPOINTS,
    "weft fits outputs/demo/averaged",
    note="""Each architecture is a shipped import table. Its params are solved so that it comes
nearest to the model, and what still differs is listed. An architecture without differences can be
the target of `weft export --to huggingface`; what such an export changes is listed too.""",
)
def fits(
    model: _ModelName,
    *,
    overrides: Overrides = None,
    most: Annotated[
        int, typer.Option("--most", help="Number of architectures to list.", min=1)
    ] = 3,
    json_: Json = False,
) -> int:
    """List the nearest architectures of Hugging Face's library, and what differs.

    The exit code is 1 if no architecture fits.

    Raises:
        InputError: the model cannot be read.
        SpecError: the spec has mistakes; all of them are listed.
    """
    from ...runtime.spec.check import graph_of
    from ...specs.load import load
    from .export.huggingface.fit import fits as ranked

    if Path(model).is_dir():
        from ...runtime.checkpoint.deployed import open_deployed
        from ...runtime.checkpoint.merge import merged_checkpoint

        if overrides:
            raise InputError("the params of a checkpoint are fixed", help="leave --set out")
        graph = merged_checkpoint(open_deployed(model)).graph
    else:
        graph = graph_of(load(model, overridden(overrides)))
    found = ranked(graph)[:most]
    if json_:
        print(json.dumps([one.as_json() for one in found], indent=2))
        return int(bool(found[0].obstacles))
    for one in found:
        print("\n".join(one.lines()))
    return int(bool(found[0].obstacles))


@command(
    CHECKPOINTS,
    "weft eject transformer-base --set layers=2 -o model.py",
    note="""The file contains the classes generated from the spec and the blocks that they use. Its
state_dict has the same names as a checkpoint, so weights load unchanged; the weights of a
checkpoint, as weights.safetensors, and its tokenizers are written next to it. The top of the file
shows how to use it, step-by-step decoding included, and the begin, end and padding ids.""",
)
def eject(
    model: _ModelName,
    *,
    out: Annotated[str, out_option("Python file to write.")],
    overrides: Overrides = None,
) -> None:
    """Write a model as one file of plain PyTorch that does not import weft.

    Raises:
        InputError: the model cannot be read or the file not written; nothing is left behind.
        SpecError: the spec has mistakes; all of them are listed.
    """
    from ...runtime.checkpoint.deployed import open_deployed
    from ...runtime.spec.check import graph_of
    from ...specs.load import load
    from .export.eject.eject import eject as eject_to

    if Path(model).is_dir():
        if overrides:
            raise InputError("the params of a checkpoint are fixed", help="leave --set out")
        made = eject_to(open_deployed(model), out)
    else:
        made = eject_to(graph_of(load(model, overridden(overrides))), out)
    print(f"class {made.name} computes what the model computes (compared: {made.compared})")
    where = shlex.quote(str(made.file))
    print(f"wrote {where}, {made.lines:,} lines; its first lines show its use")
    for file in [made.weights, *made.tokenizers]:
        if file is not None:
            print(f"wrote {shlex.quote(str(file))}")
    if made.tokens:
        print("ids: " + ", ".join(f"{name} {value}" for name, value in made.tokens.items()))
