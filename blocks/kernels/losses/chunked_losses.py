"""Losses that read the same linear maps, which are computed with them in chunks of positions.

Where one loss reads the output projection of a model once, `fused_linear_cross_entropy.py` is
faster.  This file serves the others: two passes of a model whose distributions are compared
(R-Drop), or a student and its teacher.  All logits of a chunk are computed, every loss reads them,
and their gradients are multiplied back before the next chunk starts.

Axes: R positions, r positions of one chunk, V vocabulary, D width of the input of a map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ..linear import Product, times_transposed
from ..precision import autocast_dtype
from .fused_linear_cross_entropy import LinearOutput, add_weight_gradient, row_chunks

SAME = 1e-6
"""Relative difference up to which the gradients of losses have the expected proportion."""


@dataclass(frozen=True, slots=True)
class LossInputs:
    """A loss, and what it reads."""

    loss: nn.Module
    """It sums over items, and its first output is the loss."""
    weight: float
    """The expected gradient of the loss, relative to those of the others."""
    reads: Mapping[str, Tensor | int]
    """Its arguments by name; an integer is the number of a linear map."""

    def mapped(self, change: Callable[[Tensor], Tensor]) -> LossInputs:
        """Return the reading with every tensor changed."""
        changed = {
            name: change(value) if isinstance(value, Tensor) else value
            for name, value in self.reads.items()
        }
        return replace(self, reads=changed)

    def run(self, logits: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the outputs of the loss, with the logits of all maps."""
        arguments = {
            name: value if isinstance(value, Tensor) else logits[value]
            for name, value in self.reads.items()
        }
        outputs = self.loss(**arguments)
        return outputs if isinstance(outputs, tuple) else (outputs,)


def reading(loss: nn.Module, weight: float, **reads: Tensor | int) -> LossInputs:
    """Return a loss with its arguments, in which integers stand for linear maps."""
    return LossInputs(loss, weight, reads)


def losses_in_chunks(
    maps: Sequence[LinearOutput], readings: Sequence[LossInputs], *, kernel: Product = "torch"
) -> list[tuple[Tensor, ...]]:
    """Return the outputs of losses without storing all logits that they read.

    The forward pass computes the gradients, for losses with the expected weights.  If the losses
    get other gradients than these times a common factor, the backward pass computes them again.
    It always does on an accelerator, where the comparison would wait for the device.  On a CPU,
    positions that no loss counts take part in no product.

    Args:
        maps: linear maps with inputs [..., D].
        readings: the losses, whose other arguments are [...]: masks, or labels that count if
            they are not negative.
        kernel: kernel of products in float32 on the CPU.

    Returns:
        The outputs of each loss, of which only the first, the loss, has a gradient.

    Raises:
        ValueError: the leading axes of two values differ.
    """
    shape = maps[0].x.shape[:-1]
    reads = [value for loss in readings for value in loss.reads.values()]
    others = [value for value in reads if isinstance(value, Tensor)]
    for leading in (*(map_.x.shape[:-1] for map_ in maps), *(value.shape for value in others)):
        if leading != shape:
            msg = f"a value has the leading axes {tuple(leading)}, and not {tuple(shape)}"
            raise ValueError(msg)
    if torch.compiler.is_compiling():  # a compiler cannot trace the gradients computed in advance
        return [loss.run([F.linear(x, weight, b) for x, weight, b, _ in maps]) for loss in readings]
    inputs = [map_.x.flatten(0, -2) for map_ in maps]
    readings = [loss.mapped(Tensor.flatten) for loss in readings]
    if _on_cpu(inputs[0]):
        rows_R = _counted(readings).nonzero()[:, 0]
        inputs = [x_RD[rows_R] for x_RD in inputs]
        readings = [loss.mapped(lambda value: value[rows_R]) for loss in readings]
    weights = list({id(map_.weight): map_.weight for map_ in maps}.values())
    biases = list({id(map_.bias): map_.bias for map_ in maps if map_.bias is not None}.values())
    work = _Work(maps, readings, weights, biases, kernel, autocast_dtype(inputs[0]))
    sums = iter(_InChunks.apply(work, torch.is_grad_enabled(), *inputs, *weights, *biases))  # type: ignore[no-untyped-call]
    return [tuple(next(sums) for _ in range(count)) for count in work.outputs]


def _on_cpu(x: Tensor) -> bool:
    """Return whether reading a value of a tensor does not wait for an accelerator."""
    return x.device.type == "cpu"


def _counted(readings: Sequence[LossInputs]) -> Tensor:
    """Return a mask of the positions that at least one loss counts, [R]."""
    counted: list[Tensor] = []
    for loss in readings:
        values = [value for value in loss.reads.values() if isinstance(value, Tensor)]
        valid = [value if value.dtype == torch.bool else value >= 0 for value in values]
        counted.append(torch.stack(valid).all(0))
    return torch.stack(counted).any(0)


@dataclass(slots=True)
class _Work:
    """Linear maps and the losses that read them."""

    maps: Sequence[LinearOutput]
    readings: Sequence[LossInputs]
    weights: Sequence[Tensor]
    """The distinct weights of the maps."""
    biases: Sequence[Tensor]
    """The distinct biases."""
    kernel: Product
    dtype: torch.dtype | None
    """Dtype of the products; None if it is that of the inputs.  There is no autocast in a backward
    pass, which may run this again."""
    outputs: list[int] = field(default_factory=list)
    """Number of outputs of each loss, once they have run."""

    def run(
        self,
        inputs: Sequence[Tensor],
        factors: Sequence[Tensor | float] | None,
        needed: Sequence[bool],
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """Return the sums of the losses' outputs, and the gradients of inputs, weights and biases.

        Args:
            inputs: inputs of the maps, [R, D].
            factors: gradient of each loss; None computes no gradients.
            needed: which of the gradients are needed.
        """
        weights = [map_.weight if map_.copy is None else map_.copy for map_ in self.maps]
        cast = [
            (x.to(self.dtype or x.dtype), weight.to(self.dtype or weight.dtype))
            for x, weight in zip(inputs, weights, strict=True)
        ]
        tensors = (*inputs, *self.weights, *self.biases)
        gradients: list[Tensor | None] = [
            torch.zeros_like(tensor, dtype=torch.float32) if factors is not None and need else None
            for tensor, need in zip(tensors, needed, strict=True)
        ]
        sums: list[Tensor] = []
        with torch.autocast(inputs[0].device.type, enabled=False):
            for chunk in row_chunks(sum(map(len, weights)), cast[0][0]):
                logits = [self._logits(at, x_RD[chunk], w) for at, (x_RD, w) in enumerate(cast)]
                outputs, of_logits = self._read(logits, chunk, factors)
                sums = [a + b for a, b in zip(sums, outputs, strict=True)] if sums else outputs
                for at, gradient_rV in enumerate(of_logits):
                    if gradient_rV is not None:
                        x_RD, weight_VD = cast[at]
                        self._add(gradients, at, chunk, gradient_rV, x_RD[chunk], weight_VD)
        return sums, gradients

    def _logits(self, at: int, x_rD: Tensor, weight_VD: Tensor) -> Tensor:
        """Return the logits of a map for some positions, [r, V]."""
        logits_rV = times_transposed(x_rD, weight_VD, self.kernel)
        bias_V = self.maps[at].bias
        return logits_rV if bias_V is None else logits_rV.add_(bias_V.to(logits_rV.dtype))

    def _read(
        self, logits: Sequence[Tensor], chunk: slice, factors: Sequence[Tensor | float] | None
    ) -> tuple[list[Tensor], Sequence[Tensor | None]]:
        """Return the outputs of all losses for a chunk, and the gradients of its logits."""
        for map_logits, map_ in zip(logits, self.maps, strict=True):
            parts = [part for part in (map_.x, map_.weight, map_.bias) if part is not None]
            map_logits.requires_grad_(
                factors is not None and any(part.requires_grad for part in parts)
            )
        with torch.no_grad() if factors is None else torch.enable_grad():
            outputs = [
                loss.mapped(lambda value: value[chunk]).run(logits) for loss in self.readings
            ]
        self.outputs = [len(output) for output in outputs]
        trained = [tensor for tensor in logits if tensor.requires_grad]
        of_logits: list[Tensor | None] = [None] * len(logits)
        if factors is not None and trained:
            pairs = [(output[0], f) for output, f in zip(outputs, factors, strict=True)]
            learning = [(loss, f) for loss, f in pairs if loss.requires_grad]
            scales = [torch.as_tensor(f).to(loss) for loss, f in learning]
            losses = [loss for loss, _ in learning]
            gradients = iter(torch.autograd.grad(losses, trained, scales, allow_unused=True))
            of_logits = [next(gradients) if tensor.requires_grad else None for tensor in logits]
        return [value.detach() for output in outputs for value in output], of_logits

    def _add(
        self,
        gradients: Sequence[Tensor | None],
        at: int,
        chunk: slice,
        gradient_rV: Tensor,
        x_rD: Tensor,
        weight_VD: Tensor,
    ) -> None:
        """Add what the logits of a map in a chunk contribute to the gradients."""
        map_, first = self.maps[at], len(self.maps)
        if (of_x_RD := gradients[at]) is not None:
            of_x_RD[chunk] += times_transposed(gradient_rV, weight_VD.t(), self.kernel)
        index = next(n for n, weight in enumerate(self.weights) if weight is map_.weight)
        if (of_weight_VD := gradients[first + index]) is not None:
            add_weight_gradient(of_weight_VD, gradient_rV, x_rD, self.kernel)
        if map_.bias is None:
            return
        index = next(n for n, bias in enumerate(self.biases) if bias is map_.bias)
        if (of_bias_V := gradients[first + len(self.weights) + index]) is not None:
            of_bias_V += gradient_rV.sum(0, dtype=torch.float32)


class _InChunks(torch.autograd.Function):
    """Sums of losses over linear maps; `forward` computes the gradients."""

    @staticmethod
    def forward(ctx: Any, work: _Work, gradients: bool, *tensors: Tensor) -> tuple[Tensor, ...]:  # noqa: FBT001 - `apply` takes no keywords
        """Return the outputs of all losses; keep their gradients on a CPU."""
        inputs = tensors[: len(work.maps)]
        ctx.needed = ctx.needs_input_grad[2:]
        ctx.expected = [loss.weight for loss in work.readings]
        at_once = gradients and any(ctx.needed) and _on_cpu(inputs[0])
        sums, computed = work.run(inputs, ctx.expected if at_once else None, ctx.needed)
        ctx.work, ctx.gradients = work, computed if at_once else None
        ctx.save_for_backward(*tensors)
        firsts = [sum(work.outputs[:at]) for at in range(len(work.outputs))]
        ctx.firsts = firsts
        ctx.mark_non_differentiable(*(value for at, value in enumerate(sums) if at not in firsts))
        return tuple(sums)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients, which are computed again if the losses' weights are others."""
        loss_grads = [grad_outputs[at] for at in ctx.firsts]
        factor = None if ctx.gradients is None else _factor(loss_grads, ctx.expected)
        if factor is None:
            tensors = ctx.saved_tensors
            inputs = tensors[: len(ctx.work.maps)]
            _, gradients = ctx.work.run(inputs, loss_grads, ctx.needed)
        else:
            gradients = [
                None if gradient is None else gradient * factor for gradient in ctx.gradients
            ]
        return (None, None, *gradients)


def _factor(gradients: Sequence[Tensor], expected: Sequence[float]) -> float | None:
    """Return the factor between the gradients of losses and the expected ones; None without one."""
    values = torch.stack(list(gradients)).tolist()
    pairs = list(zip(values, expected, strict=True))
    factor = next((gradient / weight for gradient, weight in pairs if weight), 0.0)
    close = all(abs(s - factor * w) <= SAME * max(abs(s), abs(factor * w)) for s, w in pairs)
    return factor if close else None
