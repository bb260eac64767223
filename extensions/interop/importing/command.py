"""The command `weft import`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ....plugin import (
    CHECKPOINTS,
    Json,
    argument,
    command,
    complete_files,
    complete_tables,
    option,
    out_option,
    wrong,
)


@command(
    CHECKPOINTS,
    "weft import hf ../bert-base-uncased --as bert --out outputs/bert",
    note="""None of that library's code is run, except with `--compare`, which runs the installed
library (`pip install 'weft[parity]'`) but no code of the folder.""",
)
def import_(
    library: Annotated[
        Literal["hf"],
        argument("LIBRARY", "`hf`: a folder written by save_pretrained."),
    ],
    folder: Annotated[
        str,
        argument("FOLDER", "Folder with config.json and model.safetensors.", complete_files),
    ],
    *,
    table: Annotated[
        str | None,
        option(
            "--as",
            "Shipped import table, such as bert, or a table file. [default: chosen by the "
            "model's type]",
            metavar="TABLE",
            complete=complete_tables,
        ),
    ] = None,
    adapter: Annotated[
        str | None,
        option(
            "--adapter",
            "Folder of a LoRA adapter in PEFT's format, to merge into the weights.",
            metavar="FOLDER",
            complete=complete_files,
        ),
    ] = None,
    out: Annotated[
        str | None, out_option("Checkpoint folder to write. [default: outputs/NAME]")
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Compare the outputs with those of transformers on random inputs, and write only "
            "if they are equal.",
        ),
    ] = False,
    json_: Json = False,
) -> int:
    """Convert another library's checkpoint folder.

    Raises:
        InputError: the folder, the table or the output path is invalid; nothing is written.
    """
    del library
    from .comparing import compare as comparing
    from .hf import import_hf

    if compare:
        comparing.refuse_without_library()
        if adapter is not None:
            raise wrong("--adapter", "the source that --compare runs has no adapter")
    source = Path(folder)
    target = Path(out or Path("outputs") / source.resolve().name)
    imported = import_hf(source, table, adapter=adapter)
    comparison = comparing.save_if_equal(imported, source, table, target) if compare else None
    equal = comparison is None or comparison.equal
    if comparison is None:
        imported.save(target)
    name, parameters = imported.graph.name, imported.graph.parameters()
    if json_:
        report: dict[str, Any] = {"spec": name, "parameters": parameters, "notes": imported.notes}
        report["comparison"] = comparison.as_json() if comparison is not None else None
        print(json.dumps({**report, "wrote": str(target) if equal else None}, indent=2))
        return int(not equal)
    print(f"{name}: {parameters:,} parameters from {source}")
    for note in filter(None, (*imported.notes, comparison)):
        print(note)
    print(f"wrote {shlex.quote(str(target))}" if equal else "the outputs differ: wrote nothing")
    return int(not equal)
