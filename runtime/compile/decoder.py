"""Decoders: the module that decodes with the weights of a model, after the passes of decoding.

It is built from the graph of the model with prepacked matrices and compiled steps, and shares the
weights of the model, which itself does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from ...blocks.kernels.decoding.prepacked import PackedLinear, can_pack, is_plain
from ...blocks.kernels.precision.weight_changes import steps_made, version_of
from ...graphs.ir.execution import PLAIN, Prepacked
from ...graphs.passes.pipeline import Settings, after
from ...specs.findings import InputError
from ..codegen.build import build_sharing, share
from ..codegen.generated import program_of
from ..codegen.module import PREFIX
from .decode_compile import Steps

_DTYPES: dict[torch.dtype, Prepacked] = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
_Weights = tuple[int, tuple[tuple[int, int, int], ...]]
"""Optimizer steps so far, and identity, address and version of each parameter."""


@dataclass(slots=True)
class _Made:
    """A decoding module, and the weights that it has."""

    module: nn.Module
    weights: _Weights


class Decoder:
    """How one model decodes.

    A copy or a pickle of the model gets a new one, with steps that are not compiled.
    """

    def __init__(self) -> None:
        """Decode with steps that are not compiled."""
        self.steps = Steps()
        """How the steps are run."""
        self.unpads = True
        """Whether decoding begins without the padding of its inputs, on the CPU."""
        self._made: dict[tuple[Prepacked | None, bool, bool], _Made] = {}

    def __reduce__(self) -> tuple[Callable[[], Decoder], tuple[()]]:
        """Return how to make a new one."""
        return Decoder, ()

    def module(self, model: nn.Module, dtype: torch.dtype) -> nn.Module:
        """Return the module that decodes; the model itself if no pass changes it.

        It is made once, and gets the weights of the model again after one has changed.

        Args:
            model: the model, in evaluation mode.
            dtype: dtype of the products of linear maps.
        """
        compiled = self.steps.choice not in {"off", "graphs"}
        wanted = _prepacked(model, dtype), compiled, self.unpads and _on_cpu(model)
        if model.training or not any(wanted):
            return model
        weights = _weights(model)
        made = self._made.get(wanted)
        if made is None:
            module = decoding_module(
                model, prepacked=wanted[0], compiled=wanted[1], unpadded=wanted[2]
            )
            if module is None:
                return model
            made = self._made[wanted] = _Made(module, weights)
        elif made.weights != weights:
            share(made.module, model)
            for one in made.module.modules():
                if isinstance(one, PackedLinear):
                    one.repack()
            made.weights = weights
        return made.module


def decoder_of(model: nn.Module) -> Decoder:
    """Return the decoder of a model, which belongs to it."""
    decoder: Decoder = vars(model).setdefault("_decoder", Decoder())
    return decoder


def use_steps(model: nn.Module, steps: Steps) -> None:
    """Run the steps of a model as `steps` says from now on."""
    decoder_of(model).steps = steps


def steps_of(model: nn.Module) -> Steps:
    """Return how the steps of a model are run."""
    return decoder_of(model).steps


def decoding_module(
    model: nn.Module, *, prepacked: Prepacked | None, compiled: bool, unpadded: bool
) -> nn.Module | None:
    """Return a module with the weights of a model whose graph went through the passes of decoding.

    Args:
        model: the model.
        prepacked: dtype of the products of linear maps with prepacked matrices.
        compiled: whether its steps can be compiled.
        unpadded: whether decoding begins without the padding of its inputs.

    Returns:
        The module; None if the model was not built by Weft, or its modules were replaced since.
    """
    try:
        graph = program_of(model).graph
    except InputError:
        return None
    plain = replace(graph, execution=replace(PLAIN, kernels=graph.execution.kernels))
    settings = Settings(
        purpose="decode",
        kernels=graph.execution.kernels,
        prepacked=prepacked,
        compiled=compiled,
        unpad=unpadded,
    )
    try:
        made = build_sharing(after(plain, settings), model)
    except AttributeError:
        return None
    theirs = dict(model.named_modules())
    ours = dict(made.named_modules())
    same = ours.keys() == theirs.keys() and all(
        _kind(ours[path]) is _kind(one) or (isinstance(ours[path], PackedLinear) and is_plain(one))
        for path, one in theirs.items()
    )
    return made if same else None


def _kind(module: nn.Module) -> type:
    """Return the class of a module that is not generated."""
    kinds: tuple[type, ...] = type(module).__mro__
    return next(kind for kind in kinds if not kind.__module__.startswith(PREFIX))


def _on_cpu(model: nn.Module) -> bool:
    """Return whether counting tokens does not wait for a device."""
    return all(one.device.type == "cpu" for one in model.parameters())


def _prepacked(model: nn.Module, dtype: torch.dtype) -> Prepacked | None:
    """Return the dtype in which the matrices of a model can be prepacked; None if they cannot."""
    weights = list(model.parameters())
    plain = all(type(one) is nn.Parameter and one.device.type == "cpu" for one in weights)
    if not weights or not plain or weights[0].dtype != torch.float32:
        return None
    if torch.is_grad_enabled() or not can_pack(dtype):
        return None
    return _DTYPES[dtype]


def _weights(model: nn.Module) -> _Weights:
    each = model.parameters()
    return steps_made(), tuple((id(one), one.data_ptr(), version_of(one)) for one in each)
