"""Weft: compose sequence models from typed blocks.

    spec = weft.load("transformer-base", layers=4)   # a spec, with a param changed
    weft.check(spec)                                  # a list of all errors
    weft.draw(spec, "model.svg")                      # a picture
    weft.diff("transformer-base", spec).render()      # the changes, as text
    model = weft.build(spec)                          # a torch.nn.Module
    weft.unpad(model)                                 # train on non-padding tokens only
    weft.compile(model)                               # torch.compile per template
    result = weft.train("multi30k-en-de", out="outputs/m30k")
    weft.open(result.averaged).translate(["A dog runs."])
    weft.import_hf("bert-base-uncased", "bert").save("outputs/bert")
    weft.export(result.averaged, "ctranslate2", "outputs/m30k/ct2", quantization="int8")

Functions import their dependencies when they are called: `load`, `check`, `draw` and `diff`
never import torch.
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
    "train",
    "unpad",
]


def load(name: str | Path, **params: Any) -> Spec:
    """Read a spec file or a shipped spec.

    Args:
        name: a path, or a shipped name such as `transformer-base`.
        **params: overrides of the spec's params.

    Raises:
        InputError: the file does not exist.
        SpecError: the file is not a well-formed spec.
    """
    from .runtime.spec.spec import load_spec

    return load_spec(name, params)


def check(spec: LoadedSpec | str | Path) -> list[Finding]:
    """Return all errors of a spec; the list is empty if the spec is valid."""
    from .runtime.spec.check import analysed

    return analysed(spec)[1]


def draw(
    spec: LoadedSpec | str | Path,
    out: str | Path,
    form: Literal["folded", "typed", "expanded"] = "folded",
) -> Path:
    """Draw a spec.

    Args:
        spec: the result of `load`, a path, or a shipped name.
        out: the file to write; its suffix is .svg, .png, .pdf or .dot.
        form: `folded` draws a repeat as one box, `typed` adds the type of every wire, and
            `expanded` draws every layer.

    Returns:
        The path of the file.

    Raises:
        SpecError: the spec has errors; all of them are listed.
        InputError: the suffix is unknown, or `dot` is missing.
    """
    from pathlib import Path as FilePath

    from .graphs.draw.diagram import draw as draw_graph
    from .runtime.spec.check import graph_of

    return draw_graph(graph_of(spec), FilePath(out), form)


def diff(old: LoadedSpec | str | Path, new: LoadedSpec | str | Path) -> Diff:
    """Return the changes between two specs, and the weights that carry over.

    Args:
        old: the result of `load`, a path, or a shipped name.
        new: the spec to compare it with.

    Returns:
        The changes, each with its path; `render()` returns text, `as_json()` plain data.

    Raises:
        SpecError: one of the specs has errors; all of them are listed.
    """
    from .graphs.diff.diff import diff as diff_graphs
    from .runtime.spec.check import graph_of

    return diff_graphs(graph_of(old), graph_of(new))


def build(spec: LoadedSpec | str | Path, *, seed: int = 1, device: str = "cpu") -> nn.Module:
    """Return the module that a spec describes, with newly initialized weights.

    Args:
        spec: the result of `load`, a path, or a shipped name.
        seed: seed of the weights; each weight depends on it and on its path.
        device: device of the weights.

    Returns:
        A module that takes the spec's inputs as keyword arguments and returns a dict of its
        outputs.

    Raises:
        SpecError: the spec has errors; all of them are listed.
    """
    from .runtime.codegen.build import build as build_module
    from .runtime.spec.check import graph_of

    return build_module(graph_of(spec), seed=seed, device=device)


def compile(  # noqa: A001 - the same name as torch.compile
    model: nn.Module, mode: Mode = "auto", *, measure: Callable[[], object] | None = None
) -> CompileReport:
    """Compile a built model in place, one graph for each repeated template.

    Args:
        model: the result of `build`.
        mode: `layers`, `eager`, or `auto`, which chooses by device and by `measure`.
        measure: runs the relevant work once, such as a training step.

    Returns:
        The chosen mode with the reason, and the expected and actual number of graphs.
    """
    from .runtime.compile.torch_compile import compile_model

    return compile_model(model, mode, measure=measure)


def unpad(model: nn.Module, *, pad: int = 0) -> UnpadPlan:
    """Make a built model compute non-padding tokens only while it trains, in place.

    Inputs, outputs, names of weights and evaluation do not change.  Call it before the model is
    compiled; `weft train` calls it where it makes training faster.

    Args:
        model: the result of `build`.
        pad: the padding id, for inputs without a corresponding input of kind `mask`.

    Returns:
        The axes that are unpadded, and the reasons why others stay padded.

    Raises:
        InputError: the model cannot be unpadded; the message gives the reason.
    """
    from .runtime.codegen.build import program_of
    from .runtime.train.transforms.unpad import unpad as unpad_model

    return unpad_model(model, program_of(model).graph, pad=pad)


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
        out: folder of the run; default: `outputs/NAME`.
        overrides: dotted path to value, such as `{"data.root": "corpora/multi30k"}`.
        resume: whether to resume from the newest checkpoint in the folder.
        listener: called with log lines, progress and validations.

    Returns:
        The outcome, and the paths of the checkpoints.

    Raises:
        InputError: the data, the folder or a checkpoint is invalid.
        SpecError: the run or its spec has errors.
    """
    from .runtime.api import train as train_run

    return train_run(run, out=out, overrides=overrides, resume=resume, listener=listener)


def open(  # noqa: A001 - opens a checkpoint, as the builtin opens a file
    folder: str | Path,
    *,
    search: Mapping[str, Any] | None = None,
    device: str = "cpu",
    precision: Literal["float32", "bfloat16"] = "float32",
    compile_steps: CompileChoice = "off",
) -> Model:
    """Open a checkpoint folder, which is self-contained.

    Args:
        folder: a checkpoint folder, such as `outputs/demo/averaged`.
        search: overrides of the run's search settings, such as `{"beam": 5}`.
        device: device of the model.
        precision: precision of matrix products.
        compile_steps: whether to compile decoding steps: `off`, `on`, or `auto`, which measures
            both once there is enough to decode.

    Returns:
        The model; `translate` translates lines, and `parse` of a parser returns trees.

    Raises:
        InputError: the checkpoint is incomplete, or its tokenizer does not match the model.
    """
    from .runtime.api import open_model
    from .runtime.compile.decode_compile import Steps

    steps = Steps(compile_steps)
    return open_model(folder, search=search, device=device, precision=precision, steps=steps)


def import_hf(folder: str | Path, table: str | Path | None = None) -> Imported:
    """Import a local Hugging Face model folder as a spec with weights; uses no network.

    Args:
        folder: the output of `save_pretrained`: `config.json` and safetensors.
        table: a shipped table such as `bert`, or a table file; default: by the model's type.

    Returns:
        The model in memory: `build()` returns the module, `save(folder)` writes a checkpoint.

    Raises:
        InputError: the folder or a file in it cannot be read.
        SpecError: the table has errors, or does not match the model.
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
    """Write a checkpoint for another engine, and check that the outputs agree.

    Args:
        checkpoint: a checkpoint folder, such as `outputs/demo/averaged`.
        to: the engine; the extra of the same name must be installed.
        out: the folder to write; an older export there is replaced.
        quantization: of weights, such as `int8`, for `ctranslate2`; default: float32.
        lines: sentences to check with, for `ctranslate2`; default: random words.

    Returns:
        The difference between the outputs of both.

    Raises:
        InputError: the checkpoint is incomplete, a node has no counterpart, the folder has other
            contents, or the outputs differ; in that case nothing is written.
    """
    from .runtime.export.export import export as export_to

    return export_to(checkpoint, to, out, quantization=quantization, lines=lines)


def eject(model: LoadedSpec | str | Path, out: str | Path) -> Ejected:
    """Write a model as one file of plain PyTorch that does not import weft.

    Args:
        model: a checkpoint folder; or the result of `load`, a spec file, or a shipped name.
        out: the Python file; weights of a checkpoint are written next to it.

    Returns:
        The file, the name of its class, and the results of the checks after writing.

    Raises:
        InputError: a block's source is not available, or the file cannot be written.
        SpecError: the spec has errors; all of them are listed.
    """
    from pathlib import Path as FilePath

    from .runtime.checkpoint.checkpoint import open_checkpoint
    from .runtime.export.eject.eject import eject as eject_to
    from .runtime.spec.check import graph_of

    if isinstance(model, str | FilePath) and FilePath(model).is_dir():
        return eject_to(open_checkpoint(model), out)
    return eject_to(graph_of(model), out)
