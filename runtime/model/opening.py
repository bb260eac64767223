"""Open a checkpoint folder as a `Model`, and combine models to an ensemble."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from ...graphs.ir.block_type import BlockType
from ...specs.findings import InputError, did_you_mean
from ..checkpoint.checkpoint import open_deployed
from ..checkpoint.manifest import weights_digest
from ..checkpoint.tokenizers import classes_by_column
from ..codegen.build import device_named
from ..compile.decode_compile import CompileChoice, Steps
from ..compile.decoder import Passes, Quantize, Skippable, use_passes, use_steps
from ..decode.predictors.registry import chosen_predictor
from .model import Model, ready

if TYPE_CHECKING:
    from ..decode.shortlist.table import Shortlist

Precision = Literal["float32", "bfloat16"]


def open_folder(  # noqa: PLR0913 - all by name but one
    folder: str | Path,
    *,
    predict: str | Mapping[str, Any] | None = None,
    device: torch.device | str = "cpu",
    precision: Precision = "float32",
    compile_steps: CompileChoice = "off",
    quantize: Quantize = "none",
    without: Collection[Skippable] = (),
    shortlist: str | Path | None = None,
    blocks: Iterable[BlockType] = (),
    verify: bool = True,
) -> Model:
    """Open a checkpoint folder, which is self-contained; the public `weft.open`.

    Args:
        folder: a checkpoint folder, such as `outputs/demo/averaged`.
        predict: how the model answers, such as `"greedy"`, or changed settings of the run's
            predictor, such as `{"beam": 5}`.
        device: device of the model.
        precision: precision of matrix products.
        compile_steps: whether to compile decoding steps: `off`, `on`, `graphs`, which replays them
            from CUDA graphs, or `auto`: graphs on a GPU, elsewhere by a measurement once there is
            enough to decode.
        quantize: `int8` rounds the matrices and the inputs of large linear maps to int8 while the
            model decodes on the CPU; the weights of the model do not change.  `auto` does so where
            it is faster on this machine, by a measurement.
        without: passes of decoding to leave out, `unpad` or `prepack`.
        shortlist: a file written by `weft shortlist` for this checkpoint; decoding then computes
            the logits of likely tokens only.
        blocks: block types that the model uses besides the installed ones; a checkpoint never
            names code.
        verify: whether to compare the files with the checkpoint's manifest; this reads the weights
            once more, about a second for each gigabyte.

    Returns:
        The model; `translate` translates lines, and `parse` of a parser returns trees.

    Raises:
        InputError: the checkpoint is incomplete, its tokenizer does not match the model, the
            shortlist is that of another model or was not measured, or an argument is invalid.
        SpecError: the checkpoint uses an unknown block.
    """
    for name, value, choices in (
        ("precision", precision, get_args(Precision)),
        ("compile_steps", compile_steps, get_args(CompileChoice)),
        ("quantize", quantize, get_args(Quantize)),
        *(("without", skipped, get_args(Skippable)) for skipped in without),
    ):
        if value not in choices:
            raise InputError(
                f"no {name} '{value}'", location=name, help=did_you_mean(str(value), choices)
            )
    return open_model(
        folder,
        predict=predict,
        device=str(device_named(device)),
        precision=precision,
        steps=Steps(compile_steps),
        passes=Passes(quantize, frozenset(without)),
        shortlist=shortlist,
        blocks=blocks,
        verify=verify,
    )


open = open_folder  # noqa: A001 - its public name is `weft.open`


def open_model(  # noqa: PLR0913 - all by name but one
    folder: Path | str,
    *,
    predict: str | Mapping[str, Any] | None = None,
    device: str = "cpu",
    precision: str = "float32",
    steps: Steps | None = None,
    passes: Passes | None = None,
    shortlist: str | Path | None = None,
    blocks: Iterable[BlockType] = (),
    verify: bool = True,
) -> Model:
    """Open a checkpoint folder, as `open_folder` does.

    Args:
        folder: a checkpoint folder, such as `outputs/demo/averaged`.
        predict: how the model answers, such as `"greedy"`, or changed settings of the run's
            predictor, such as `{"beam": 5}`.
        device: device of the model.
        precision: `float32` or `bfloat16`.
        steps: how decoding steps are run; default: not compiled.
        passes: which passes change how the model decodes; default: all but `quantize`.
        shortlist: a file of the tokens whose logits are computed; None for all tokens.
        blocks: block types that the model uses besides the installed ones.
        verify: whether to compare the files with the manifest.

    Raises:
        InputError: the checkpoint is incomplete or damaged, its tokenizer does not match the
            model, the steps or passes need another device or model, or the shortlist is that of
            another model or was not measured.
        SpecError: the checkpoint uses an unknown block.
    """
    if steps is not None and steps.choice == "graphs" and torch.device(device).type != "cuda":
        raise InputError(
            f"CUDA graphs need a CUDA device, not {device}",
            location="compile",
            help="choose 'auto', 'on' or 'off', or another device",
        )
    checkpoint = open_deployed(folder, blocks, verify=verify)
    model = ready(checkpoint, device, half=precision == "bfloat16")
    if predict:
        model = replace(model, strategy=chosen_predictor(model.strategy, predict, "predict"))
    if steps is not None:
        use_steps(model.module, steps)
    if shortlist is not None:
        passes = replace(passes or Passes(), shortlist=_shortlist_for(model, shortlist))
    if passes is not None:
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        use_passes(model.module, passes, dtype)
    return model


def _shortlist_for(model: Model, path: str | Path) -> Shortlist:
    """Return the shortlist in a file, after checking that it is one for a model.

    Raises:
        InputError: it is that of another model or was not measured, or the model does not
            translate.
    """
    from ..decode.shortlist.table import open_shortlist

    reader, shortlist = model.line_predictor(), open_shortlist(path)
    weights = weights_digest(model.checkpoint.folder)
    shortlist.refuse_other(str(path), reader.source, reader.target, weights)
    return shortlist


def ensemble(first: Model, others: Sequence[Model]) -> Model:
    """Return a model that translates with the mean of several models' probabilities.

    Its graph, weights and settings are those of the first model.

    Raises:
        InputError: the models have different inputs, tokenizers or classes.
    """
    for other in others:
        if (reads := _kinds(other)) != (expected := _kinds(first)):
            differ = ", ".join(f"'{name}'" for name, _ in sorted(reads ^ expected))
            raise InputError(
                f"the inputs differ from those of the ensemble's first model: {differ}",
                location=str(other.checkpoint.folder),
                help="average models with the same inputs, or use one of the two",
            )
        if other.checkpoint.tokenizers != first.checkpoint.tokenizers:
            raise InputError(
                "the tokenizer differs from that of the ensemble's first model",
                location=str(other.checkpoint.folder),
                help="train the models on data prepared with one tokenizer",
            )
        if classes_by_column(other.checkpoint) != classes_by_column(first.checkpoint):
            raise InputError(
                "the classes have other numbers than in the ensemble's first model",
                location=str(other.checkpoint.folder),
                help="train the models with the same 'classes' of the column",
            )
    return replace(first, others=tuple(other.module for other in others))


def _kinds(model: Model) -> set[tuple[str, str]]:
    """Return the name and the kind of each input."""
    return {(name, type_.kind) for name, type_ in model.graph.inputs.items()}
