"""The commands `weft export`, `fits`, `eject`, `import`, `push` and `pull`."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ... import export as export_to
from ...plugin import (
    CHECKPOINTS,
    EXPORTERS,
    FieldsOfAll,
    InputError,
    Json,
    Overrides,
    argument,
    command,
    complete_files,
    complete_specs,
    complete_tables,
    did_you_mean,
    option,
    option_of,
    out_option,
    overridden,
    targets_with,
    wrong,
)
from ...runtime.cli.common import terminal
from ...runtime.cli.common.parameters import Checkpoint


def complete_targets(incomplete: str) -> list[str]:
    """Complete the name of a target."""
    return [name for name in EXPORTERS.names() if name.startswith(incomplete)]


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
backwards or, if none fits, the code of the model is written too. `weft fits` lists the tables and
what stands in the way.

`peft` writes the LoRA of a model alone, as an adapter for PEFT's library; the others merge it.

Installed packages add further targets; `weft list exporters` lists them.

A model that the engine cannot express is refused with the names of the unsupported nodes. The
folder appears only after the check has passed. docs/exporting.md lists what each engine
supports.""",
)
def export(
    checkpoint: Checkpoint,
    *,
    to: Annotated[
        str,
        option("--to", "Target engine or library.", metavar="TARGET", complete=complete_targets),
    ],
    out: Annotated[str, out_option("Folder to write; an older export there is replaced.")],
    settings: Annotated[dict[str, Any], FieldsOfAll(EXPORTERS.forms(), "Settings of targets")],
) -> None:
    """Write a checkpoint for another engine, and check that it computes the same.

    Raises:
        InputError: the export cannot be written or does not match; nothing is left behind.
    """
    if to not in EXPORTERS.names():
        raise wrong("--to", f"no target '{to}'; {did_you_mean(to, EXPORTERS.names())}")
    exporter = EXPORTERS.find(to)
    for name in settings:
        if name not in exporter.model_fields:
            others = targets_with(name)
            flag = EXPORTERS.find(others[0]).flags.get(name, option_of(name))
            only = " or ".join(others)
            raise wrong(flag, f"it has no effect with --to {to}, only with --to {only}")
    terminal.notice(f"{checkpoint}: exporting to {to} and comparing the outputs")
    print(export_to(checkpoint, to, out, **settings).report)
    size = sum(file.stat().st_size for file in Path(out).rglob("*") if file.is_file())
    print(f"wrote {shlex.quote(str(out))}, {size / 1e6:,.1f} MB; for its use see {exporter.page}")


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
    from ...plugin import graph_of
    from ...specs.load import load
    from .export.huggingface.fit import fits as ranked

    if Path(model).is_dir():
        from ...plugin import merged_checkpoint, open_deployed

        if overrides:
            raise InputError("the params of a checkpoint are fixed", help="leave --set out")
        graph = merged_checkpoint(open_deployed(model)).graph
    else:
        graph = graph_of(load(model, overridden(overrides)))
    ranking = ranked(graph)[:most]
    if json_:
        print(json.dumps([fit.as_json() for fit in ranking], indent=2))
        return int(bool(ranking[0].obstacles))
    for fit in ranking:
        print("\n".join(fit.lines()))
    return int(bool(ranking[0].obstacles))


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
    from ...plugin import graph_of, open_deployed
    from ...specs.load import load
    from .export.eject import eject as eject_to

    if Path(model).is_dir():
        if overrides:
            raise InputError("the params of a checkpoint are fixed", help="leave --set out")
        ejected = eject_to(open_deployed(model), out)
    else:
        ejected = eject_to(graph_of(load(model, overridden(overrides))), out)
    print(f"class {ejected.name} computes what the model computes (compared: {ejected.compared})")
    where = shlex.quote(str(ejected.file))
    print(f"wrote {where}, {ejected.lines:,} lines; its first lines show its use")
    for file in [ejected.weights, *ejected.tokenizers]:
        if file is not None:
            print(f"wrote {shlex.quote(str(file))}")
    if ejected.tokens:
        print("ids: " + ", ".join(f"{name} {value}" for name, value in ejected.tokens.items()))


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
    from .importing.comparison import refuse_without_library, save_if_equal
    from .importing.hf import import_hf

    if compare:
        refuse_without_library()
        if adapter is not None:
            raise wrong("--adapter", "the source that --compare runs has no adapter")
    source = Path(folder)
    target = Path(out or Path("outputs") / source.resolve().name)
    imported = import_hf(source, table, adapter=adapter)
    comparison = save_if_equal(imported, source, table, target) if compare else None
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


_Repo = Annotated[str, argument("REPO", "OWNER/NAME of a repository of a hub.")]
_Endpoint = Annotated[
    str | None,
    option("--endpoint", "Address of the hub. [default: huggingface_hub's]", metavar="URL"),
]


@command(
    CHECKPOINTS,
    "weft push outputs/demo/averaged me/demo --private",
    note="""The token is that of huggingface_hub: the variable HF_TOKEN, or `hf auth login`; no
option takes one. Needs `pip install 'weft[hub]'`.""",
)
def push(
    folder: Annotated[
        str, argument("FOLDER", "A checkpoint, or a folder of weft export.", complete_files)
    ],
    repo: _Repo,
    *,
    branch: Annotated[str, option("--branch", "Branch to commit to.", metavar="NAME")] = "main",
    private: Annotated[
        bool, typer.Option("--private", help="Make a new repository private.")
    ] = False,
    message: Annotated[
        str | None, option("--message", "Message of the commit.", metavar="TEXT")
    ] = None,
    endpoint: _Endpoint = None,
    json_: Json = False,
) -> None:
    """Upload a checkpoint or an export to a hub, in one commit.

    Raises:
        InputError: the folder is neither, or the hub refuses; then nothing is changed.
    """
    from .hub import push as push_to

    pushed = push_to(
        folder, repo, branch=branch, private=private, message=message, endpoint=endpoint
    )
    if json_:
        print(json.dumps(asdict(pushed), indent=2))
        return
    print(f"pushed {len(pushed.files)} files, {pushed.bytes / 1e6:,.1f} MB, to {repo}")
    print(f"weft pull {repo} --revision {pushed.revision} -o {repo.rpartition('/')[2]}")


@command(
    CHECKPOINTS,
    "weft pull me/demo --revision 8f3a1c0de2b4a6978812d3e4f5061728394a5b6c -o outputs/demo",
    note="""Files that could run code when they are opened are not downloaded. A checkpoint is
compared with its manifest; a model of transformers is for `weft import hf`. Needs `pip install
'weft[hub]'`.""",
)
def pull(
    repo: _Repo,
    *,
    out: Annotated[str, out_option("Folder to write, which must not exist.")],
    revision: Annotated[
        str | None,
        option("--revision", "Commit, 40 hexadecimal digits.", metavar="COMMIT"),
    ] = None,
    endpoint: _Endpoint = None,
    json_: Json = False,
) -> None:
    """Download a model from a hub at a commit, and check it.

    Raises:
        InputError: no commit is given, the files are no model or damaged, or the hub refuses;
            nothing is written.
    """
    from .hub import pull as pull_from

    pulled = pull_from(repo, revision, out, endpoint=endpoint)
    if json_:
        print(json.dumps({**asdict(pulled), "folder": str(pulled.folder)}, indent=2))
        return
    where = shlex.quote(str(pulled.folder))
    print(f"wrote {where}, {len(pulled.files)} files, {pulled.bytes / 1e6:,.1f} MB")
    if pulled.skipped:
        print(f"not downloaded, since they may run code: {', '.join(pulled.skipped[:8])}")
    if pulled.kind == "transformers":
        print(f"a model for transformers: weft import hf {where}")
