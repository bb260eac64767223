"""Weft: compose sequence models from typed blocks.

    spec = weft.load("transformer-base", layers=4)   # a spec, with a param changed
    weft.check(spec)                                  # every mistake, or none
    weft.draw(spec, "model.svg")                      # a picture
    weft.diff("transformer-base", spec).render()      # what changed, as text
    model = weft.build(spec)                          # a torch.nn.Module
    weft.pack(model)                                  # trains on what is no padding alone
    weft.compile(model)                               # torch.compile per template
    result = weft.train("multi30k-en-de", out="outputs/m30k")
    weft.open(result.averaged).translate(["A dog runs."])
    weft.import_hf("bert-base-uncased", "bert").save("outputs/bert")
    weft.export(result.averaged, "ctranslate2", "outputs/m30k/ct2", quantization="int8")

Importing this loads nothing else: `load`, `check`, `draw` and `diff` never load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from torch import nn

    from .graphs.diff.diff import Diff
    from .graphs.passes.unpad import UnpadPlan
    from .runtime.api import Model
    from .runtime.compile.decode_compile import CompileChoice
    from .runtime.compile.torch_compile import CompileReport, Mode
    from .runtime.export.ctranslate2.export import Checked
    from .runtime.export.eject.eject import Ejected
    from .runtime.export.onnx.export import CheckedOnnx
    from .runtime.importing.hf import Imported
    from .runtime.spec.spec import Spec
    from .runtime.train.context import Listener, Result
    from .runtime.train.run import Run
    from .specs.findings import Finding
    from .specs.load import LoadedSpec

__all__ = [
    "build",
    "check",
    "compile",
    "diff",
    "draw",
    "eject",
    "export",
    "import_hf",
    "load",
    "open",
    "pack",
    "train",
]


def load(name: str | Path, **params: Any) -> Spec:
    """Read a spec file or a shipped spec.

    Args:
        name: a path, or a shipped name such as `transformer-base`.
        **params: values that win over the spec's own params.

    Raises:
        InputError: no such file.
        SpecError: the text or its form is wrong.
    """
    from .runtime.spec.spec import load_spec

    return load_spec(name, params)


def check(spec: LoadedSpec | str | Path) -> list[Finding]:
    """Return every mistake of a spec; an empty list says that it is sound."""
    from .runtime.spec.check import analysed

    return analysed(spec)[1]


def draw(
    spec: LoadedSpec | str | Path,
    out: str | Path,
    form: Literal["folded", "typed", "expanded"] = "folded",
) -> Path:
    """Draw a spec.

    Args:
        spec: what `load` gave, a path, or a shipped name.
        out: the file to write; its suffix is .svg, .png, .pdf or .dot.
        form: repeats as one box, that with the type of every wire, or every layer.

    Returns:
        The file.

    Raises:
        SpecError: everything that is wrong with the spec.
        InputError: the suffix is unknown, or `dot` is missing.
    """
    from pathlib import Path as FilePath

    from .graphs.draw.diagram import draw as draw_graph
    from .runtime.spec.check import graph_of

    return draw_graph(graph_of(spec), FilePath(out), form)


def diff(old: LoadedSpec | str | Path, new: LoadedSpec | str | Path) -> Diff:
    """Return what changed from one spec to another, and which weights would survive it.

    Args:
        old: what `load` gave, a path, or a shipped name.
        new: the spec to compare it with.

    Returns:
        The changes, each with its path; `render()` tells them, `as_json()` lists them.

    Raises:
        SpecError: everything that is wrong with one of the specs.
    """
    from .graphs.diff.diff import diff as diff_graphs
    from .runtime.spec.check import graph_of

    return diff_graphs(graph_of(old), graph_of(new))


def build(spec: LoadedSpec | str | Path, *, seed: int = 1, device: str = "cpu") -> nn.Module:
    """Return the module that a spec describes, with fresh weights.

    Args:
        spec: what `load` gave, a path, or a shipped name.
        seed: decides the weights, together with their paths.
        device: where they lie.

    Returns:
        A module called with the spec's inputs by name; it gives a dict of its outputs.

    Raises:
        SpecError: everything that is wrong with the spec.
    """
    from .runtime.codegen.build import build as build_module
    from .runtime.spec.check import graph_of

    return build_module(graph_of(spec), seed=seed, device=device)


def compile(  # noqa: A001 - the verb that torch uses too
    model: nn.Module, mode: Mode = "auto", *, measure: Callable[[], object] | None = None
) -> CompileReport:
    """Compile a built model in place, one graph for each repeated template.

    Args:
        model: what `build` returned.
        mode: `layers`, `eager`, or `auto`, which chooses by device and by `measure`.
        measure: runs the work that matters once, such as a training step.

    Returns:
        What was chosen and why, and the graphs expected and found.
    """
    from .runtime.compile.torch_compile import compile_model

    return compile_model(model, mode, measure=measure)


def unpad(model: nn.Module, *, pad: int = 0) -> UnpadPlan:
    """Let a built model, while it trains, compute positions that are no padding alone, in place.

    Inputs, outputs, names of weights and what it does in evaluation stay as they are.  Call it
    before the model is compiled; `weft train` does it by itself where it pays.

    Args:
        model: what `build` returned.
        pad: the id that ends rows where no input of kind `mask` says what is padding.

    Returns:
        The axes that are packed, and what is padded all the same.

    Raises:
        InputError: it cannot be packed, and why.
    """
    from .runtime.codegen.build import program_of
    from .runtime.train.transforms.unpad import unpad as pack_model

    return pack_model(model, program_of(model).graph, pad=pad)


def train(
    run: Run | str | Path,
    *,
    out: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    resume: bool = False,
    listener: Listener | None = None,
) -> Result:
    """Train a run, from its data to its averaged checkpoint.

    Args:
        run: a run, a path, or a shipped name such as `multi30k-en-de`.
        out: folder of the run; `outputs/NAME` when left out.
        overrides: dotted path to value, such as `{"data.root": "corpora/multi30k"}`.
        resume: go on from the newest checkpoint in the folder.
        listener: hears about progress.

    Returns:
        How it ended, and where the checkpoints are.

    Raises:
        InputError: the data, the folder or a checkpoint is wrong.
        SpecError: the run or its spec is wrong.
    """
    from .runtime.api import train as train_run

    return train_run(run, out=out, overrides=overrides, resume=resume, listener=listener)


def open(  # noqa: A001 - a checkpoint opens as a file does
    folder: str | Path,
    *,
    search: Mapping[str, Any] | None = None,
    device: str = "cpu",
    precision: Literal["float32", "bfloat16"] = "float32",
    compile_steps: CompileChoice = "off",
) -> Model:
    """Open a checkpoint folder, with nothing but what is in it.

    Args:
        folder: such as `outputs/demo/averaged`.
        search: changes to the run's search settings, such as `{"beam": 5}`.
        device: where to compute.
        precision: of matrix products.
        compile_steps: whether steps of decoding are compiled: `off`, `on`, or `auto`, which
            measures when there is enough to decode.

    Returns:
        The model; `translate` turns lines into lines, and of a parser `parse` into trees.

    Raises:
        InputError: not a whole checkpoint, or its tokenizer is not the model's.
    """
    from .runtime.api import open_model
    from .runtime.compile.decode_compile import Steps

    steps = Steps(compile_steps)
    return open_model(folder, search=search, device=device, precision=precision, steps=steps)


def import_hf(folder: str | Path, table: str | Path | None = None) -> Imported:
    """Read a local folder of Hugging Face's library as a model of a spec; no network.

    Args:
        folder: what `save_pretrained` wrote: `config.json` and safetensors.
        table: a shipped table such as `bert`, or a table file; by the model's type when
            left out.

    Returns:
        The model in memory: `build()` gives the module, `save(folder)` writes a checkpoint.

    Raises:
        InputError: the folder or a file in it cannot be read.
        SpecError: the table is wrong, or the model is not what it is for.
    """
    from .runtime.importing.hf import import_hf as import_folder

    return import_folder(folder, table)


def export(
    checkpoint: str | Path,
    to: Literal["ctranslate2", "onnx"],
    out: str | Path,
    *,
    quantization: str | None = None,
    lines: Iterable[str] = (),
) -> Checked | CheckedOnnx:
    """Write a checkpoint for another engine, and check that it computes the same.

    Args:
        checkpoint: a folder, such as `outputs/demo/averaged`.
        to: the engine; the extra of its name must be installed.
        out: the folder to write; an older export there is replaced.
        quantization: of weights, such as `int8`, for `ctranslate2`; float32 when left out.
        lines: sentences to check with, for `ctranslate2`; words at random when there are none.

    Returns:
        How far what both compute is apart.

    Raises:
        InputError: no whole checkpoint, a node has no counterpart, the folder is something
            else, or what was written does not compute the same; then nothing is kept.
    """
    from .runtime.export.export import export as export_to

    return export_to(checkpoint, to, out, quantization=quantization, lines=lines)


def eject(model: LoadedSpec | str | Path, out: str | Path) -> Ejected:
    """Write a model as one file of plain PyTorch that imports nothing of weft.

    Args:
        model: a checkpoint folder; or what `load` gave, a spec file, or a shipped name.
        out: the Python file; weights of a checkpoint are written beside it.

    Returns:
        The file, the name of its class, and what was compared after writing.

    Raises:
        InputError: a block's source is not there, or the file cannot be written.
        SpecError: everything that is wrong with the spec.
    """
    from pathlib import Path as FilePath

    from .runtime.checkpoint.checkpoint import open_checkpoint
    from .runtime.export.eject.eject import eject as eject_to
    from .runtime.spec.check import graph_of

    if isinstance(model, str | FilePath) and FilePath(model).is_dir():
        return eject_to(open_checkpoint(model), out)
    return eject_to(graph_of(model), out)
