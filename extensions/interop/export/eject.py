"""Write a graph as one file of plain PyTorch that does not import weft."""

from __future__ import annotations

import ast
import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from .... import build, example_inputs
from ....blocks.registry import module_path
from ....plugin import (
    BlockType,
    Checkpoint,
    Graph,
    InputError,
    Part,
    build_empty,
    graph_of,
    lora_factors,
    open_deployed,
    sizes_for,
    visits,
    write_tensors,
)
from ....runtime.codegen.module import Program, init_table, lower
from ....runtime.spec.check import Source
from . import torch_kernels
from .source_bundle import Gatherer, SourceSymbol
from .source_format import WIDTH, defaults_of, laid_out
from .torch_kernels import REPLACED, WITHOUT_LORA
from .vocabulary import tokens_of

LARGEST = 100_000_000
"""Most parameters of an untrained model whose outputs are compared."""
CLOSE = 1e-5
"""Largest allowed absolute and relative difference of an output."""
WEIGHTS = "weights.safetensors"
GENERATED = "weft_generated"
"""Name of the module that the text of the generated classes stands for."""
_STEPPING = (("blocks.kernels.decode_state", "Capacity"), ("runtime.decode.stepper", "reorder"))
"""Definitions that callers of `begin` and `step` use."""
ROOT = __name__.partition(".extensions")[0]
_HEAD = '''# SPDX-License-Identifier: Apache-2.0
"""{doc}

Written by weft: the classes generated from a spec and the blocks that they use, which are parts
of Weft, under the Apache License 2.0{others}.
{use}
"""
{params}
from __future__ import annotations

'''
_NEEDS = "Requires torch only; the weights have the same names as in weft."
_INITIALIZE = '''
from {root}.runtime.codegen.build import draw_weights

def initialize(model: nn.Module, seed: int) -> None:
    """Initialize every weight as weft does for this seed."""
    draw_weights({given})
'''


@dataclass(frozen=True, slots=True)
class Ejected:
    """The written files, and how they were compared with the model."""

    file: Path
    name: str
    """Class of the model."""
    lines: int
    weights: Path | None
    tokenizers: tuple[Path, ...]
    """Tokenizers of the checkpoint, next to the file."""
    tokens: Mapping[str, Any]
    """Its begin, end and padding ids, as far as they are known."""
    compared: str
    """What was compared: `outputs`, or only `names and shapes` of weights."""


def eject(
    model: Source | Graph | Checkpoint, out: Path | str, *, blocks: Iterable[BlockType] = ()
) -> Ejected:
    """Write a model as one file of plain PyTorch that does not import weft.

    Args:
        model: a checkpoint folder; or the result of `load`, a spec file, or a shipped name.
        out: the Python file; the weights and tokenizers of a checkpoint are written next to it.
        blocks: block types that the model uses besides the installed ones.

    Returns:
        The file, the name of its class, and the results of the checks after writing.

    Raises:
        InputError: a block's source is not available, the path cannot be written or is in a
            checkpoint folder, or the file computes something else; then nothing is written.
        SpecError: the spec has errors; all of them are listed.
    """
    out = Path(out)
    made_of: Graph | Checkpoint
    if isinstance(model, Checkpoint):
        made_of = model
    elif isinstance(model, str | Path) and Path(model).is_dir():
        made_of = open_deployed(model, blocks)
    else:
        made_of = graph_of(model, blocks)
    if out.suffix != ".py":
        raise InputError(
            "the file name must end with .py", location=str(out), help="name it model.py"
        )
    checkpoint = made_of if isinstance(made_of, Checkpoint) else None
    if checkpoint is not None and (out.parent / "spec.json").exists():
        raise InputError(
            f"the folder holds a checkpoint, whose '{WEIGHTS}' would be overwritten",
            location=str(out),
            help="choose a file in another folder",
        )
    for file, data in (checkpoint.tokenizers if checkpoint is not None else {}).items():
        target = out.with_name(file)
        if target.exists() and not (target.is_file() and target.read_bytes() == data):
            raise InputError(
                "a tokenizer of the checkpoint would replace another file",
                location=str(target),
                help="choose a file in another folder",
            )
    graph = made_of.graph if isinstance(made_of, Checkpoint) else made_of
    tokens = tokens_of(checkpoint) if checkpoint is not None else {}
    text_of = sorted(checkpoint.tokenizers) if checkpoint is not None else []
    ids = _ids(tokens, text_of) if checkpoint is not None else ""
    name, text = ejected_text(graph, trained=checkpoint is not None, ids=ids)
    compared = compare(graph, checkpoint, getattr(run_text(text), name))
    _write(out, text, checkpoint)
    weights = out.with_name(WEIGHTS) if checkpoint is not None else None
    return Ejected(
        file=out,
        name=name,
        lines=text.count("\n"),
        weights=weights,
        tokenizers=tuple(out.with_name(name) for name in text_of),
        tokens=tokens,
        compared=compared,
    )


def _ids(tokens: Mapping[str, Any], tokenizers: Sequence[str]) -> str:
    """Return the lines of the docstring about a checkpoint's text and its special ids."""
    lines = []
    if tokenizers:
        lines.append(f"Its tokenizers are next to it: {', '.join(tokenizers)}.")
    if tokens:
        listed = ", ".join(f"{_ID_NAMES[name]} {value}" for name, value in tokens.items())
        lines.append(f"Special ids: {listed}.")
    return "".join(f"\n{line}" for line in ["", *lines]) if lines else ""


_ID_NAMES = {"begin": "begin", "end": "end", "pad": "padding"}


def _write(out: Path, text: str, checkpoint: Checkpoint | None) -> None:
    """Write the file, the weights and the tokenizers: all, or nothing."""
    tokenizers = checkpoint.tokenizers if checkpoint is not None else {}
    names = [*tokenizers, *([] if checkpoint is None else [WEIGHTS])]
    files = [*(out.with_name(name) for name in names), out]
    partials = [file.with_name(f".{file.name}.partial") for file in files]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for partial, data in zip(partials, tokenizers.values(), strict=False):
            partial.write_bytes(data)
        if checkpoint is not None:
            write_tensors(checkpoint.weights, partials[-2])
        partials[-1].write_text(text, encoding="utf-8")
        for partial, file in zip(partials, files, strict=True):
            partial.replace(file)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise InputError(f"cannot write the file: {reason or error}", location=str(out)) from error
    finally:
        for partial in partials:
            partial.unlink(missing_ok=True)


def ejected_text(graph: Graph, *, trained: bool = False, ids: str = "") -> tuple[str, str]:
    """Return the name of a graph's class, and the text of the file that defines it.

    Args:
        graph: a checked graph.
        trained: whether a weights file is written next to it.
        ids: further lines of its docstring, about special ids.

    Raises:
        InputError: the source of a block is not available.
    """
    program = lower(graph)
    source = program.source if trained else program.source + _initialize(graph)
    stepping = _STEPPING if graph.step_axis is not None else ()
    symbols = [SourceSymbol(f"{ROOT}.{module}", name) for module, name in stepping]
    symbols += [] if trained else [SourceSymbol(GENERATED, "initialize")]
    gatherer, titles = bundle(program, source, symbols)
    name = gatherer.names()[SourceSymbol(GENERATED, program.root)]
    use = f"{_NEEDS}\n\n{_use(graph, name, trained=trained)}{ids}"
    return name, head_text(graph, program, use) + gatherer.render(titles)


def bundle(
    program: Program,
    source: str,
    symbols: Iterable[SourceSymbol],
    more: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Gatherer, dict[str, str]]:
    """Return a program with the definitions that it needs, and the titles of its sections.

    Args:
        program: the program of a graph.
        source: its source, possibly with additions.
        symbols: definitions to include besides the class of the model.
        more: texts to include whole, by the names of the modules that they stand for.

    Raises:
        InputError: the source of a block is not available.
    """
    models = _models(program)
    packages = {ROOT, GENERATED, *_packages(program.graph), *(inner.module for inner in models)}
    has_lora = any(lora_factors(part.graph) for part in (program, *models))
    gatherer = Gatherer(packages, _replacements(has_lora=has_lora))
    texts = {**{inner.module: inner.source for inner in models}, GENERATED: source}
    # Add each text twice: defaults are known only when all classes have been gathered.
    for module, text in texts.items():
        gatherer.add_text(module, text, ())
    for module, text in more.items():
        gatherer.add_text(module, text)
    for symbol in (*symbols, SourceSymbol(GENERATED, program.root)):
        gatherer.want(symbol)
    defaults = defaults_of(gatherer.classes())
    for module, text in texts.items():
        gatherer.add_text(module, laid_out(text, defaults), ())
    titles = {inner.module: f"The model {inner.root}, which it contains." for inner in models}
    return gatherer, {**titles, GENERATED: "The model: one class per template."}


def _replacements(*, has_lora: bool) -> dict[SourceSymbol, SourceSymbol]:
    """Return each replaced definition with the one that the file has instead."""
    replaced = [*REPLACED.items(), *([] if has_lora else WITHOUT_LORA.items())]
    return {
        SourceSymbol(f"{ROOT}.{module}", name): SourceSymbol(torch_kernels.__name__, name)
        for module, names in replaced
        for name in names
    }


def _packages(graph: Graph) -> set[str]:
    """Return the top-level packages of the blocks of a graph."""
    return {
        module_path(visit.part.block).partition(".")[0]
        for visit in visits(graph.root)
        if isinstance(visit.part, Part)
    }


def head_text(graph: Graph, program: Program, use: str) -> str:
    """Return the beginning of a file: its docstring, and the params of the spec.

    Args:
        graph: the graph.
        program: its program.
        use: what the docstring says about the use.
    """
    doc = (ast.get_docstring(ast.parse(program.source)) or "").partition("\n")[0]
    others = sorted(_packages(graph) - {ROOT})
    return _HEAD.format(
        doc=textwrap.fill(doc, WIDTH - 3),
        others="".join(f", and of {package}, under its own" for package in others),
        use=use,
        params=_params(graph),
    )


def _models(program: Program) -> list[Program]:
    """Return the programs of the models inside, each after those that it contains."""
    programs: dict[str, Program] = {}
    for model in program.models:
        programs |= {inner.module: inner for inner in [*_models(model), model]}
    return list(programs.values())


def _initialize(graph: Graph) -> str:
    """Return the function of an ejected file that initializes weights as weft does."""
    arguments = ["model", "seed"]
    arguments += ["rules=_INIT"] if init_table(graph) else []
    arguments += [f"deployed={json.dumps(graph.deploy + '.')}"] if graph.deploy else []
    return _INITIALIZE.format(root=ROOT, given=", ".join(arguments))


def _use(graph: Graph, name: str, *, trained: bool) -> str:
    """Return the usage lines of the file's docstring."""
    lines = [f"    model = {name}().eval()"]
    if trained:
        lines.insert(0, "    from safetensors.torch import load_model\n")
        lines.append(f'    load_model(model, "{WEIGHTS}")')
    else:
        lines.append("    initialize(model, seed=1)  # the same weights as weft's for this seed")
    arguments = ", ".join(f"{port}=..." for port in graph.inputs)
    output = next(iter(graph.outputs))
    lines.append(f'    model({arguments})["{output}"]')
    if graph.step_axis is not None:
        moving = [p for p, t in graph.inputs.items() if graph.step_axis in t.axes]
        fixed = "".join(f", {port}=..." for port in graph.inputs if port not in moving)
        moves = ", ".join(f"{port}=..." for port in moving)
        lines += [
            "",
            f"Decode one position of {graph.step_axis} at a time, with a state:",
            "",
            "    capacity = Capacity(sentences, beams, length, torch.float32, torch.device('cpu'))",
            f"    state = model.begin(capacity{fixed})",
            f'    model.step({moves}, state=state, position=0)["{output}"]',
            "    reorder(state, rows)  # let beams continue other beams",
        ]
    return "\n".join(lines)


def _params(graph: Graph) -> str:
    """Return the params of the spec as comments."""
    if not graph.params:
        return ""
    lines = [f"# {name} = {json.dumps(value, default=str)}" for name, value in graph.params.items()]
    return "\n".join(["\n# Params of the spec:", *lines, ""])


def run_text(text: str) -> ModuleType:
    """Execute the ejected source as a module."""
    module = ModuleType("weft_ejected")
    # Safe: the source consists of our own files and code generated from a checked graph.
    exec(compile(text, "<ejected>", "exec"), module.__dict__)
    return module


def compare(graph: Graph, checkpoint: Checkpoint | None, ejected: type[nn.Module]) -> str:
    """Compare the ejected class with the model, and return what was compared.

    Raises:
        InputError: they differ.
    """
    with torch.device("meta"):
        shapes = {path: tuple(value.shape) for path, value in ejected().state_dict().items()}
        model = build_empty(graph, device="meta")
    expected = {path: tuple(value.shape) for path, value in model.state_dict().items()}
    if shapes != expected:
        odd = sorted(shapes.items() ^ expected.items())[0][0]
        raise InputError(f"the file does not have the same weights: '{odd}' differs", help=_FAULT)
    if checkpoint is None and graph.parameters() > LARGEST:
        return "names and shapes"
    model = checkpoint.build() if checkpoint is not None else build(graph).eval()
    other = ejected().eval()
    other.load_state_dict(model.state_dict())
    try:
        inputs = example_inputs(graph, sizes_for(graph, batch=2, length=8))
        with torch.no_grad():
            ours: dict[str, Tensor] = model(**inputs)
    except (ValueError, RuntimeError, IndexError):
        return "names and shapes"  # example sizes do not fit this spec, such as those of images
    with torch.no_grad():
        theirs: dict[str, Any] = other(**inputs)
    for port, value in ours.items():
        if not torch.allclose(value, theirs[port], atol=CLOSE, rtol=CLOSE, equal_nan=True):
            raise InputError(f"the file computes a different '{port}'", help=_FAULT)
    return "outputs"


_FAULT = "nothing was written; please report this spec: this is a bug in eject"
