"""Decoders: the module that decodes with the weights of a model, after the passes of decoding.

It is built from the graph of the model with prepacked or rounded matrices and compiled steps, and
shares the weights of the model, which itself does not change.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from ...blocks.kernels.precision import steps_made, version_of
from ...blocks.kernels.prepacked import InferenceLinear, can_pack, is_plain
from ...graphs.ir.execution import PLAIN, Prepacked
from ...graphs.passes.fuse import head_of
from ...graphs.passes.pipeline import DecodePasses, PassSettings, after
from ...specs.findings import InputError
from ..codegen.build import build_sharing, share
from ..codegen.generated import program_of
from ..codegen.module import PREFIX
from .decode_compile import Steps

_DTYPES: dict[torch.dtype, Prepacked] = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
_Weights = tuple[int, tuple[tuple[int, int, int], ...]]
"""Optimizer steps so far, and identity, address and version of each parameter."""


Quantize = Literal["auto", "none", "int8"]
"""In what the products of large linear maps are computed; `none`: in the precision of the others;
`auto`: in what is faster on this machine."""
Skippable = Literal["unpad", "prepack"]
"""Name of a pass of decoding that can be left out; the others are chosen by settings of their own.
"""


class TokenSelection(Protocol):
    """Which tokens the outputs of sources may need, such as a lexical shortlist."""

    def allowed(self, sources: Sequence[Sequence[int]], size: int) -> Tensor:
        """Return whether the output of each source may contain each token, [N, V].

        Args:
            sources: ids of each of the N sources.
            size: number V of tokens.
        """


@dataclass(frozen=True, slots=True)
class Passes:
    """Which passes change how a model decodes."""

    quantize: Quantize = "none"
    """In what the products of large linear maps are computed."""
    without: frozenset[Skippable] = frozenset()
    """Passes to leave out."""
    shortlist: TokenSelection | None = None
    """Which logits are computed; None for all."""


@dataclass(slots=True)
class _Decoding:
    """A decoding module, and the weights and modules of its model."""

    module: nn.Module
    weights: _Weights
    modules: tuple[nn.Module, ...]

    def belongs_to(self, modules: tuple[nn.Module, ...]) -> bool:
        """Return whether the model has these modules, none of which was replaced."""
        return len(self.modules) == len(modules) and all(map(operator.is_, self.modules, modules))


class Decoder:
    """How one model decodes.

    A copy or a pickle of the model gets a new one, with steps that are not compiled.
    """

    def __init__(self) -> None:
        """Decode with steps that are not compiled."""
        self.steps = Steps()
        """How the steps are run."""
        self.passes = Passes()
        """Which passes are used, on the CPU."""
        self._modules: dict[DecodePasses, _Decoding] = {}

    def __reduce__(self) -> tuple[Callable[[], Decoder], tuple[()]]:
        """Return how to make a new one."""
        return Decoder, ()

    def module(self, model: nn.Module, dtype: torch.dtype) -> nn.Module:
        """Return the module that decodes; the model itself if no pass changes it.

        It is made once, and gets the weights of the model again after one has changed.

        Args:
            model: the model, in evaluation mode.
            dtype: dtype of the products of linear maps.

        Raises:
            InputError: products in int8 or a shortlist were requested, but this model, processor
                or version of torch cannot compute them.
        """
        skipped, parameters = self.passes.without, list(model.parameters())
        on_cpu = _on_cpu(parameters)
        quantizes = self.passes.quantize == "int8" and not model.training
        selects = self.passes.shortlist is not None and not model.training
        passes = DecodePasses(
            unpad="unpad" not in skipped and on_cpu,
            shortlisted=selects,
            quantized=_quantized(parameters, dtype) if quantizes else None,
            prepacked=None if "prepack" in skipped else _prepacked(parameters, dtype),
            compiled=self.steps.may_compile,
        )
        if model.training or passes == DecodePasses():
            return model
        if selects and not on_cpu:
            raise no_shortlist("the model is not on the CPU", "choose the device cpu")
        weights = _weights(parameters)
        modules = tuple(model.modules())
        decoding = self._modules.get(passes)
        if decoding is not None and not decoding.belongs_to(modules):
            decoding = None
        if decoding is None:
            self._modules.pop(passes, None)
            module = decoding_module(model, passes)
            if module is None:
                foreign = "Weft did not build this model, or its modules were replaced"
                if quantizes:
                    raise no_int8(foreign)
                if selects:
                    raise no_shortlist(foreign)
                return model
            decoding = self._modules[passes] = _Decoding(module, weights, modules)
        elif decoding.weights != weights:
            share(decoding.module, model)
            for linear in decoding.module.modules():
                if isinstance(linear, InferenceLinear):
                    linear.repack()
            decoding.weights = weights
        return decoding.module


def decoder_of(model: nn.Module) -> Decoder:
    """Return the decoder of a model, which belongs to it."""
    decoder: Decoder = vars(model).setdefault("_decoder", Decoder())
    return decoder


def use_steps(model: nn.Module, steps: Steps) -> None:
    """Run the steps of a model as `steps` says from now on."""
    for parameter in model.parameters():
        steps.settle_on(parameter.device)
    decoder_of(model).steps = steps


def steps_of(model: nn.Module) -> Steps:
    """Return how the steps of a model are run."""
    return decoder_of(model).steps


def use_passes(model: nn.Module, passes: Passes, dtype: torch.dtype = torch.float32) -> None:
    """Decode with a model through these passes from now on.

    Args:
        model: the model.
        passes: the passes; for `auto` the choice is logged as that of steps is.
        dtype: dtype of the products of linear maps.

    Raises:
        InputError: a pass is set that has no effect on the model.
    """
    if passes.quantize == "auto":
        pays, reason = _int8_pays(model, dtype)
        passes = replace(passes, quantize="int8" if pays else "none")
        steps_of(model).log(f"quantize: {passes.quantize}, {reason}")
    if passes != Passes() and not _on_cpu(model.parameters()):
        option = "quantize" if passes.quantize != "none" else "without"
        raise InputError(
            "the passes of decoding are for models on the CPU",
            location=option if passes.shortlist is None else "shortlist",
            help="leave the setting out, or choose the device cpu",
        )
    if passes.shortlist is not None:
        refuse_shortlist(model)
    if passes.quantize == "int8":
        graph = program_of(model).graph
        if graph.step_axis is None:
            raise no_int8(f"'{graph.name}' does not decode step by step")
        from ...blocks.kernels.quantized import can_quantize

        if not can_quantize():
            raise _inexact_int8()
    decoder_of(model).passes = passes


def _int8_pays(model: nn.Module, dtype: torch.dtype) -> tuple[bool, str]:
    """Return whether a model decodes faster in int8, and the reason."""
    if not _on_cpu(model.parameters()):
        return False, "the model is not on the CPU"
    if (graph := program_of(model).graph).step_axis is None:
        return False, f"'{graph.name}' does not decode step by step"
    from .int8_gain import int8_pays

    return int8_pays(dtype)


def refuse_shortlist(model: nn.Module) -> None:
    """Raise an error unless a model can decode with a shortlist.

    Raises:
        InputError: it does not decode, its logits are not those of a plain linear map, or it is not
            on the CPU.
    """
    graph = program_of(model).graph
    if graph.step_axis is None:
        raise no_shortlist(f"'{graph.name}' does not decode step by step")
    if head_of(graph, "logits") is None:
        raise no_shortlist(
            f"the logits of '{graph.name}' are not those of a linear map without LoRA that nothing"
            " else reads"
        )
    if not _on_cpu(model.parameters()):
        raise no_shortlist("the model is not on the CPU", "choose the device cpu")


def passes_of(model: nn.Module) -> Passes:
    """Return the passes through which a model decodes."""
    return decoder_of(model).passes


def no_int8(why: str) -> InputError:
    """Return the error that products in int8 are not possible."""
    return InputError(
        f"no products in int8: {why}",
        location="quantize",
        help="leave 'quantize' out, or set 'none'",
    )


def _inexact_int8() -> InputError:
    """Return the error that no library of torch computes products in int8 exactly."""
    return no_int8("no library of this torch computes them exactly on this processor")


def no_shortlist(why: str, help_: str = "leave 'shortlist' out") -> InputError:
    """Return the error that a shortlist is not possible."""
    return InputError(f"no shortlist: {why}", location="shortlist", help=help_)


def decoding_module(model: nn.Module, passes: DecodePasses) -> nn.Module | None:
    """Return a module with the weights of a model whose graph went through the passes of decoding.

    Args:
        model: the model.
        passes: what the passes of decoding change.

    Returns:
        The module; None if the model was not built by Weft, or its modules were replaced since.
    """
    try:
        graph = program_of(model).graph
    except InputError:
        return None
    plain_graph = replace(graph, execution=replace(PLAIN, kernels=graph.execution.kernels))
    settings = PassSettings(purpose="decode", kernels=graph.execution.kernels, decode=passes)
    try:
        rebuilt = build_sharing(after(plain_graph, settings), model)
    except AttributeError:
        return None
    theirs = dict(model.named_modules())
    ours = dict(rebuilt.named_modules())
    same = ours.keys() == theirs.keys() and all(
        _kind(ours[path]) is _kind(module)
        or (isinstance(ours[path], InferenceLinear) and is_plain(module))
        for path, module in theirs.items()
    )
    return rebuilt if same else None


def _kind(module: nn.Module) -> type:
    """Return the class of a module that is not generated."""
    kinds: tuple[type, ...] = type(module).__mro__
    return next(kind for kind in kinds if not kind.__module__.startswith(PREFIX))


def _on_cpu(parameters: Iterable[nn.Parameter]) -> bool:
    """Return whether counting tokens does not wait for a device."""
    return all(parameter.is_cpu for parameter in parameters)


def _are_plain(parameters: Sequence[nn.Parameter]) -> bool:
    """Return whether these are ordinary weights in float32 on the CPU."""
    return bool(parameters) and all(
        type(weight) is nn.Parameter and weight.is_cpu and weight.dtype == torch.float32
        for weight in parameters
    )


def _prepacked(parameters: Sequence[nn.Parameter], dtype: torch.dtype) -> Prepacked | None:
    """Return the dtype in which the matrices of a model can be prepacked; None if they cannot."""
    if torch.is_grad_enabled() or not _are_plain(parameters) or not can_pack(dtype):
        return None
    return _DTYPES[dtype]


def _quantized(parameters: Sequence[nn.Parameter], dtype: torch.dtype) -> Prepacked:
    """Return the dtype of the outputs of products in int8.

    Raises:
        InputError: they are not possible.
    """
    if not _are_plain(parameters) or dtype not in _DTYPES:
        raise no_int8("the weights are not plain float32 tensors on the CPU")
    if torch.is_grad_enabled():
        raise no_int8("they have no gradients")
    from ...blocks.kernels.quantized import can_quantize

    if not can_quantize():
        raise _inexact_int8()
    return _DTYPES[dtype]


def _weights(parameters: Sequence[nn.Parameter]) -> _Weights:
    return steps_made(), tuple(
        (id(parameter), parameter.data_ptr(), version_of(parameter)) for parameter in parameters
    )
