"""Checkpoints of modules that were trained by a loop of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from ...graphs.ir.graph import Graph
from ...specs.findings import InputError, did_you_mean
from ..checkpoint.checkpoint import Checkpoint, deployed
from ..checkpoint.tokenizers import SHARED
from ..codegen.generated import program_of
from ..data.tokenizer import Tokenizer
from ..spec.check import Source, graph_of

TokenizerFile = str | Path | bytes
TokenizerFiles = TokenizerFile | Mapping[str, TokenizerFile]
"""A tokenizer of both sides, or those of `source` and `target`."""
SIDES = ("source", "target")
_LOCATION = "tokenizers"


def checkpoint_of(
    module: nn.Module, spec: Source | Graph | None, tokenizers: TokenizerFiles | None
) -> Checkpoint:
    """Return a checkpoint in memory with the weights of a module.

    Args:
        module: the module; one that torch.compile or DistributedDataParallel wraps is unwrapped.
        spec: its spec; default: that from which it was built.
        tokenizers: as of `Model.from_module`.

    Raises:
        InputError: the weights are not those of the spec, or a tokenizer does not fit.
        SpecError: the spec has errors; all of them are listed.
    """
    while isinstance(inner := getattr(module, "_orig_mod", None), nn.Module) or isinstance(
        inner := getattr(module, "module", None) if _is_parallel(module) else None, nn.Module
    ):
        module = inner
    graph = program_of(module).graph if spec is None else graph_of(spec)
    checkpoint = deployed(
        Checkpoint(
            folder=Path(graph.name),
            graph=graph,
            weights=_weights(module, graph),
            run={},
            state={},
            tokenizers={},
        )
    )
    return replace(checkpoint, tokenizers=_files(tokenizers, checkpoint.graph))


def _is_parallel(module: nn.Module) -> bool:
    wrappers = (nn.parallel.DistributedDataParallel, nn.DataParallel)
    return isinstance(module, wrappers)


def _weights(module: nn.Module, graph: Graph) -> dict[str, Tensor]:
    """Return a copy of the weights of a module, in float32.

    Raises:
        InputError: one is missing or has another shape.
    """
    state = module.state_dict()
    weights: dict[str, Tensor] = {}
    for path, shape in graph.weights().items():
        if path not in state:
            raise InputError(
                f"the module has no weight '{path}' of '{graph.name}'",
                location="module",
                help=did_you_mean(path, state) or "pass the spec that the module was built from",
            )
        if tuple(state[path].shape) != shape:
            raise InputError(
                f"'{path}' has the shape {list(state[path].shape)} in the module, and"
                f" {list(shape)} in '{graph.name}'",
                location="module",
                help="pass the spec that the module was built from, with its params",
            )
        weights[path] = state[path].detach().cpu().float().clone()
    return weights


def _files(tokenizers: TokenizerFiles | None, graph: Graph) -> dict[str, bytes]:
    """Return the files of tokenizers by their names in a checkpoint.

    Raises:
        InputError: one cannot be read, or does not fit the inputs of the model.
    """
    if tokenizers is None:
        return {}
    if not isinstance(tokenizers, Mapping):
        contents = _content(tokenizers)
        for name, type_ in graph.inputs.items():
            if type_.kind == "ids":
                _refuse_other_size(contents, name, type_.size)
        return {SHARED: contents}
    if {*tokenizers} != {*SIDES}:
        raise InputError(
            f"tokenizers of {', '.join(map(repr, tokenizers)) or 'nothing'}",
            location=_LOCATION,
            help="give one file for both sides, or those of 'source' and 'target'",
        )
    files = {}
    for side in SIDES:
        contents = _content(tokenizers[side])
        if side not in graph.inputs:
            raise InputError(f"'{graph.name}' has no input '{side}'", location=_LOCATION)
        _refuse_other_size(contents, side, graph.inputs[side].size)
        files[f"{side}.model"] = contents
    return files


def _content(file: TokenizerFile) -> bytes:
    if isinstance(file, bytes):
        return file
    try:
        return Path(file).read_bytes()
    except OSError as error:
        problem = f"the tokenizer cannot be read: {error.strerror}"
        raise InputError(problem, location=str(file), help="give a SentencePiece model") from error


def _refuse_other_size(content: bytes, name: str, size: int | str | None) -> None:
    """Refuse a tokenizer whose pieces are not the ids of an input.

    Raises:
        InputError: their numbers differ, or its special ids are not those of Weft.
    """
    pieces = Tokenizer(content, location=_LOCATION).vocab_size
    if pieces != size:
        raise InputError(
            f"the tokenizer has {pieces} pieces, but the input '{name}' has {size} ids",
            location=_LOCATION,
            help="build the model with the number of pieces as its vocabulary",
        )
