"""Options of commands that open a checkpoint: which models, where they run, how they search."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import BaseModel, ConfigDict, Field

from ....specs.findings import InputError
from ...decode.settings import BeamSearch, GenerateSettings, MaskFields, RiskFields, SampleFields
from . import terminal
from .command import FieldsOf

if TYPE_CHECKING:
    from ...model.model import Model


class Placement(BaseModel):
    """Which models decode, and where."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    ensemble: tuple[str, ...] = ()
    """Another checkpoint with the same tokenizer; the probabilities of the models are averaged.
    Repeat the option for several."""
    verify: bool = True
    """Compare the files of a checkpoint with its manifest; for huge ones, this takes a while."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to compute on; `auto` is cuda if it is available, else cpu."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products; `auto` is bfloat16 where it is fast, except with int8 on a
    processor without AMX, where float32 is faster."""
    compile: Literal["auto", "on", "off", "graphs"] = "auto"
    """Compile decoding steps with torch.compile; `auto` measures whether this is faster, once there
    is enough work to repay it, and reports the choice on stderr. `graphs` replays them from CUDA
    graphs instead, on a GPU only; there `auto` does so from the second batch on."""
    quantize: Literal["auto", "none", "int8"] = "none"
    """Round the matrices and the inputs of large linear maps to int8 while decoding on the CPU;
    `auto` does so where it is faster on this machine, and reports the choice on stderr."""
    shortlist: str | None = None
    """File of `weft shortlist` for the checkpoint: compute the logits of likely tokens only, on the
    CPU."""
    without: tuple[Literal["unpad", "prepack"], ...] = ()
    """Leave out a pass of decoding (see `weft show SPEC --passes --decode`). Repeat the option for
    several."""


Place = Annotated[dict[str, Any], FieldsOf(Placement, panel="Models and devices")]
PlaceOfOne = Annotated[
    dict[str, Any],
    FieldsOf(Placement, panel="Models and devices", without=("ensemble", "shortlist")),
]
_OF_STEPS = ("compile", "quantize", "shortlist", "without")
"""Settings of models that decode step by step."""
PlaceUncompiled = Annotated[
    dict[str, Any], FieldsOf(Placement, panel="Models and devices", without=_OF_STEPS)
]


_METRIC = Field(default=None, description=RiskFields.model_fields["metric"].description)
"""A metric by its name."""


class SearchOptions(MaskFields, BeamSearch, RiskFields):
    """Settings of searches; each model has those of its own."""

    metric: str | None = _METRIC  # type: ignore[assignment]


class GenerateOptions(GenerateSettings):
    """Settings of continuations."""

    metric: str | None = _METRIC  # type: ignore[assignment]


Search = Annotated[dict[str, Any], FieldsOf(SearchOptions, panel="Search")]
SearchMeasured = Annotated[
    dict[str, Any],
    FieldsOf(SearchOptions, panel="Search", without=["metric"]),
]
"""Settings of searches of a command that has an option `--metric` of its own."""
OfScores = Annotated[
    dict[str, Any],
    FieldsOf(
        BeamSearch,
        panel="Search",
        without=[name for name in BeamSearch.model_fields if name not in ("penalty", "alpha")],
    ),
]
Sampled = Annotated[dict[str, Any], FieldsOf(SampleFields, panel="Sampling")]
Sample = Annotated[
    bool,
    typer.Option(
        "--sample",
        help="Sample from the model's unmodified distribution instead of searching. Any option "
        "below samples too.",
        rich_help_panel="Sampling",
    ),
]
KERNELS = "16"
"""Matrix products that are kept compiled; each takes half a megabyte."""
_KERNEL_CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Settings of oneDNN and of torch, which both keep them, 1,024 each by default.

Products are compiled for each number of rows, so a long text of lines of all lengths would fill
both.  They are read once, at the first product of the process."""
OF_THE_RUN = (
    "A search option that is not given takes its value from the checkpoint's run; the defaults "
    "below apply where the run has no value."
)


def options_of(search: dict[str, Any], sampled: dict[str, Any], *, sample: bool) -> dict[str, Any]:
    """Return the settings of a predictor that the user gave as options."""
    return widened({**search, **sampled, **({"type": "sample"} if sample else {})})


def widened(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with a beam that is as wide as the n-best list, unless the user set it."""
    if "nbest" not in settings or "beam" in settings:
        return settings
    return {**settings, "beam": max(settings["nbest"], settings.get("groups", 1))}


def open_checkpoints(
    checkpoint: str,
    options: Mapping[str, Any] | None,
    placement: Mapping[str, Any],
    *,
    compiled: bool = True,
    work: float = 0.0,
    once: bool = True,
) -> Model:
    """Open the checkpoint, or the ensemble, of a command that decodes.

    Args:
        checkpoint: a checkpoint folder.
        options: changes of the run's predictor, as `changed_predictor` takes them.
        placement: the fields of `Placement` that the user gave.
        compiled: whether decoding steps may be compiled.
        work: expected decoding time in seconds, as far as it is known.
        once: whether the process ends with the command's work, so that it may keep freed memory.

    Raises:
        InputError: a checkpoint cannot be opened, or the device is not available.
    """
    for name in _KERNEL_CACHES:
        os.environ.setdefault(name, KERNELS)
    from ...compile.decode_compile import Steps
    from ...compile.decoder import Passes
    from ...model.opening import ensemble, open_model
    from ...system.memory import WHILE_DECODING, keep_freed_memory

    validated = Placement(**placement)
    device, precision = placed(validated.device, validated.precision, validated.quantize)
    choice = validated.compile if compiled else "off"
    first, *others = (
        open_model(
            folder,
            device=device,
            precision=precision,
            verify=validated.verify,
            steps=Steps(choice, work=work, log=terminal.notice),
            passes=Passes(validated.quantize, frozenset(validated.without)),
            shortlist=validated.shortlist,
        )
        for folder in (checkpoint, *validated.ensemble)
    )
    if once:  # after opening, so that memory of the files is not kept
        keep_freed_memory(WHILE_DECODING)
    model = ensemble(first, others) if others else first
    return changed(model, options) if options else model


def changed(model: Model, options: Mapping[str, Any]) -> Model:
    """Return a model whose predictor has other settings.

    Raises:
        InputError: a setting is wrong, or has no effect on its predictor.
    """
    from ...decode.predictors.registry import PREDICTORS, changed_predictor

    strategy = model.strategy or PREDICTORS.parse("beam", "predict")
    return replace(model, strategy=changed_predictor(strategy, options, "predict"))


def placed(device: str, precision: str, quantize: str = "none") -> tuple[str, str]:
    """Return device and precision, with `auto` resolved.

    Args:
        device: `auto`, `cpu` or `cuda`.
        precision: `auto` or a precision.
        quantize: `int8` if the products of large matrices are in int8, `auto` if they may be.

    Raises:
        InputError: the device is not available.
    """
    import torch

    from ...train.device import prefers_bfloat16

    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if chosen == "cuda" and not torch.cuda.is_available():
        raise InputError(
            "no CUDA device is available", location="--device", help="use --device cpu"
        )
    if precision == "auto":
        half = prefers_bfloat16(torch.device(chosen))
        if half and chosen == "cpu" and quantize != "none":
            from ....blocks.kernels.quantized import suits_float32
            from ...compile.int8_gain import int8_pays

            quantizes = quantize == "int8" or int8_pays(torch.bfloat16)[0]
            half = not (quantizes and suits_float32())
        precision = "bfloat16" if half else "float32"
    return chosen, precision
