"""A loss that depends on every output, and the gradients of every parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...graphs.ir.graph import Graph
from .compare import Difference, difference, largest
from .inputs import Masks, comparable, valid


@dataclass(frozen=True, slots=True)
class Learned:
    """The outputs of one forward pass, and the gradients of its backward pass."""

    outputs: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor | None]
    """Path of a parameter to its gradient; None if the loss does not depend on it."""


def learn(
    model: nn.Module, graph: Graph, inputs: Mapping[str, Tensor], masks: Masks, seed: int
) -> Learned:
    """Return outputs and gradients of a loss that depends on every output.

    The loss is the sum of all finite outputs outside padding, each with a random factor, so that
    no contributions cancel.  An output whose padding is unknown, with an axis such as `T+1` of
    which `T` has a mask, is left out.

    Args:
        model: any form of the graph's model.
        graph: gives the types of the outputs.
        inputs: of the model.
        masks: masks of the padding of time axes.
        seed: seed of the factors.
    """
    model.zero_grad(set_to_none=True)
    outputs: Mapping[str, Tensor] = model(**inputs)
    generator, total = torch.Generator().manual_seed(seed), torch.zeros(())
    for port, type_ in graph.outputs.items():
        value = outputs[port]
        if not value.requires_grad or not comparable(type_, masks.keys()):
            continue
        factor = torch.randn(value.shape, generator=generator)
        counts = value.isfinite() & valid(type_, value, masks)
        total = total + (torch.where(counts, value, 0.0) * factor).sum()
    if total.requires_grad:
        total.backward()
    gradients = {path: weight.grad for path, weight in model.named_parameters()}
    copies = {
        path: None if gradient is None else gradient.clone() for path, gradient in gradients.items()
    }
    model.zero_grad(set_to_none=True)
    return Learned({port: value.detach() for port, value in outputs.items()}, copies)


def learned_difference(
    actual: Learned, expected: Learned, graph: Graph, masks: Masks
) -> Difference:
    """Return the largest difference of outputs outside padding, or of gradients.

    An output whose padding is unknown is not compared.
    """
    worst = []
    for port, type_ in graph.outputs.items():
        values, two = actual.outputs[port], expected.outputs[port]
        if comparable(type_, masks.keys()):
            mask = valid(type_, two, masks)
            worst.append(difference(f"output {port}", values, two, type_.axes, mask))
    zero, pairs = torch.zeros(()), dict[str, tuple[Tensor, Tensor]]()
    for path, expected_gradient in expected.gradients.items():
        actual_gradient = actual.gradients[path]
        if actual_gradient is not None or expected_gradient is not None:
            pairs[path] = (
                zero if actual_gradient is None else actual_gradient,
                zero if expected_gradient is None else expected_gradient,
            )
    # Gradients are compared relative to the largest one, because small ones may be sums of large.
    scale = max([1.0, *(two.abs().max().item() for _, two in pairs.values() if two.numel())])
    for path, pair in pairs.items():
        values, two = torch.broadcast_tensors(*pair)
        worst.append(difference(f"gradient of {path}", values / scale, two / scale))
    return largest(worst)
