"""Gradients: a finite gradient that is not zero reaches every parameter.

A gradient can be zero for good reasons: a key's bias shifts all scores of a query equally, a ReLU
is off, an expert gets no token.  So several batches, which grow, are tried with other weights
each, as long as they reach more parameters.  A parameter whose gradient stays zero fails only if an
output depends on it: it is changed, and the outputs are compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ...graphs.ir.graph import Graph
from .comparison import Difference, difference, largest
from .inputs import Masks, comparable, draw, mask_inputs, masks_of, valid
from .report import Property
from .subject import NOISE, Subject, not_applicable, running


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


BATCHES = (1, 1, 2, 4, 8)
"""Factor of the batch size of each attempt; later ones have the last factor."""
PATIENCE = 4
"""Attempts in a row without another parameter that end the search."""
MORE_PATIENCE = 16
"""The same if a parameter was not used at all, as an expert without tokens."""
ZERO = 1e-12
"""Largest gradient that counts as zero, relative to the largest gradient of any parameter."""
SHOWN = 6
"""Most parameters that a report names."""


@dataclass(slots=True)
class _Seen:
    """What the attempts so far have shown of each parameter."""

    connected: set[str] = field(default_factory=set)
    """Parameters with a gradient, even if it is zero."""
    reached: set[str] = field(default_factory=set)
    """Parameters with a gradient that is not zero."""
    infinite: dict[str, int] = field(default_factory=dict)
    """Parameters with a NaN or an infinite gradient, and the attempt."""


def gradients(subject: Subject) -> Property:
    """Find parameters without a gradient, with a non-finite one, and with one that stays zero."""
    parameters = dict(subject.model.named_parameters())
    trainable = {path for path, parameter in parameters.items() if parameter.requires_grad}
    frozen = sorted(parameters.keys() - trainable)
    notes = [f"frozen, so without a gradient: {_listed(frozen)}"] if frozen else []
    if not trainable:
        return not_applicable("gradients", "the model has no parameters to train", *notes)
    observed = _Seen()
    attempts = idle = 0
    for number, learned in enumerate(_attempts(subject)):
        before = len(observed.reached)
        if not any(value.is_floating_point() for value in learned.outputs.values()):
            return not_applicable("gradients", "no output has a gradient", *notes)
        _look(learned, number, observed)
        attempts = number + 1
        if observed.infinite:
            path, count = next(iter(observed.infinite.items()))
            weights = "the initial weights" if count == 0 else "random weights"
            detail = f"the gradient of {_listed(sorted(observed.infinite))} is not finite"
            return _failed(f"{detail}, with {weights}", path, notes)
        idle = 0 if len(observed.reached) > before else idle + 1
        missing = trainable - observed.reached
        if not missing or idle >= (MORE_PATIENCE if missing - observed.connected else PATIENCE):
            break
    zero = sorted(trainable - observed.reached)
    effects = _effects(subject, zero)
    silent = [path for path in zero if path in observed.connected and not effects[path]]
    if silent:
        notes.append(
            "connected, but the gradient is zero and changing them changes no output, as for the"
            f" bias of attention keys: {_listed(silent)}"
        )
    accused = [path for path in zero if path not in silent]
    if accused:
        return _unreached(accused, effects, observed, notes)
    batches = f"{attempts} batch{'es' * (attempts > 1)}"
    detail = f"{len(observed.reached)} of {len(trainable)} parameters have gradients, in {batches}"
    return Property(name="gradients", outcome="passed", detail=detail, notes=tuple(notes))


def _unreached(
    paths: list[str], effects: Mapping[str, bool], observed: _Seen, notes: list[str]
) -> Property:
    """Return the failed property for parameters that no gradient reaches, with the reason."""
    cut = [path for path in paths if effects[path]]
    if not cut:
        return _failed(f"no output depends on {_listed(paths)}", paths[0], notes)
    loose = [path for path in cut if path not in observed.connected]
    why = "they are detached or used without gradients" if loose else "their gradient is zero"
    detail = f"outputs depend on {_listed(cut)}, but no gradient reaches them: {why}"
    return _failed(detail, cut[0], notes)


def _failed(detail: str, path: str, notes: list[str]) -> Property:
    return Property(
        name="gradients",
        outcome="failed",
        detail=detail,
        location=f"parameter {path}",
        notes=tuple(notes),
    )


def _listed(paths: list[str]) -> str:
    """Return the names of parameters; a long list is shortened."""
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return ", ".join(paths[:SHOWN]) + more


def _attempts(subject: Subject) -> Iterator[Learned]:
    """Yield the gradients of one batch after another, the first at weights without noise."""
    graph, masked = subject.graph, mask_inputs(subject.graph)
    for number in itertools.count():
        seed = subject.seed + number
        model = subject.trainable(seed, noise=number > 0)
        # At every second attempt there is padding, where some blocks divide by zero.
        sizes = subject.batch(BATCHES[min(number, len(BATCHES) - 1)])
        inputs = draw(graph, sizes, seed, padded=masked if number % 2 else ())
        masks = masks_of(graph, inputs) if number % 2 else {}
        with running("a forward and backward pass in training"):
            learned = learn(model, graph, inputs, masks, seed)
        yield learned


def _look(learned: Learned, number: int, observed: _Seen) -> None:
    """Record what one batch shows."""
    gradient_by_path = {
        path: gradient
        for path, gradient in learned.gradients.items()
        if gradient is not None and gradient.numel()
    }
    observed.connected |= gradient_by_path.keys()
    sizes = {path: gradient.abs().max().item() for path, gradient in gradient_by_path.items()}
    infinite = [
        path for path, gradient in gradient_by_path.items() if not gradient.isfinite().all()
    ]
    observed.infinite |= dict.fromkeys(infinite, number)
    scale = max((size for path, size in sizes.items() if path not in infinite), default=0.0)
    observed.reached |= {path for path, size in sizes.items() if size > ZERO * scale}


def _effects(subject: Subject, paths: list[str]) -> Mapping[str, bool]:
    """Return for each parameter whether changing it changes an output."""
    graph, model = subject.graph, subject.trainable()
    inputs = draw(graph, subject.sizes, subject.seed, padded=mask_inputs(graph))
    parameters = dict(model.named_parameters())
    generator = torch.Generator().manual_seed(subject.seed)
    effects: dict[str, bool] = {}
    with torch.no_grad():
        before: Mapping[str, Tensor] = model(**inputs)
        for path in paths:
            original = parameters[path].clone()
            parameters[path].add_(NOISE * torch.randn(original.shape, generator=generator))
            after: Mapping[str, Tensor] = model(**inputs)
            parameters[path].copy_(original)
            change = largest(difference(port, after[port], before[port]) for port in graph.outputs)
            effects[path] = change.amount > subject.tolerance
    return effects
