"""The model that a proof is about, and what all properties need of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...graphs.cost.table import cost_table
from ...graphs.ir.graph import Graph
from ...specs.findings import InputError
from ..codegen.build import build, build_empty
from ..system.memory import available
from ..train.passes import Dropouts
from .comparison import Compare, Difference, difference, traced
from .report import Name, Property

NOISE = 0.1
"""Standard deviation of the noise on initial weights."""
LEAST = 0.5
"""Smallest factor by which noise changes a weight that is not zero."""
COPIES = 6
"""Copies of the weights at most: models, gradients, and what backward passes allocate."""
Outputs = Mapping[str, Tensor]


class BlockError(Exception):
    """A block raised an exception, so the property that was tested does not hold."""


@contextmanager
def running(what: str) -> Iterator[None]:
    """Name what was running if a block raises an exception.

    Raises:
        BlockError: the code of a block raised any exception.
    """
    try:
        yield
    except Exception as error:  # a plug-in may raise anything
        message = str(error).strip().partition("\n")[0]
        raise BlockError(f"{what} raises {type(error).__name__}: {message:.200}") from error


@dataclass(frozen=True, slots=True)
class Subject:
    """A model with random weights in evaluation mode, and the settings of its proof."""

    graph: Graph
    model: nn.Module
    """In float64 on the CPU."""
    sizes: Mapping[str, int]
    seed: int
    tolerance: float

    def run(self, inputs: Mapping[str, Tensor], what: str = "the parallel pass") -> Outputs:
        """Return the outputs of the model, without gradients.

        Raises:
            BlockError: a block raises an exception; `what` names the pass.
        """
        with torch.no_grad(), running(what):
            outputs: Outputs = self.model(**inputs)
        return outputs

    def trainable(self, seed: int | None = None, *, noise: bool = True) -> nn.Module:
        """Return a model in training mode that drops nothing at random.

        Args:
            seed: seed of its weights; default: they are those of the model.
            noise: whether noise is added to new weights.
        """
        if seed is None:
            return self.trainable_as(self.graph)
        model = random_model(self.graph, seed, noise=noise)
        model.train()
        Dropouts(model, self.graph).set(0.0)
        return model

    def trainable_as(self, graph: Graph) -> nn.Module:
        """Return the model of a graph that passes changed, with these weights, to train."""
        model = build_empty(graph).to(torch.get_default_dtype())
        model.load_state_dict(self.model.state_dict())
        model.train()
        Dropouts(model, graph).set(0.0)
        return model

    def batch(self, times: int = 1) -> dict[str, int]:
        """Return the sizes with the batch axes multiplied."""
        kinds = self.graph.spec.axes
        return {
            axis: size * (times if kinds[axis] == "batch" else 1)
            for axis, size in self.sizes.items()
        }

    def first_difference(
        self, first_inputs: Mapping[str, Tensor], two: Mapping[str, Tensor], compare: Compare
    ) -> str:
        """Return the first block whose values differ between two inputs, or an empty text."""
        traces = []
        for inputs in (first_inputs, two):
            with traced(self.model, self.graph) as trace:
                self.run(inputs)
            traces.append(trace)
        return traces[0].first_difference(traces[1], compare, self.tolerance)

    def random(
        self, name: Name, inputs: Mapping[str, Tensor], worst: Difference, *notes: str
    ) -> Property | None:
        """Return the failed property if a second run gives other values; None if it does not."""
        node = self.first_difference(inputs, inputs, lambda _, a, b: difference("", a, b).amount)
        detail = "two passes over the same inputs differ, so outputs are random in evaluation mode"
        return self.failed(name, detail, worst, node, *notes) if node else None

    def passed(self, name: Name, detail: str, worst: Difference, *notes: str) -> Property:
        """Return a property that holds."""
        return Property(
            name=name,
            outcome="passed",
            detail=detail,
            difference=worst.amount,
            tolerance=self.tolerance,
            notes=tuple(notes),
        )

    def failed(
        self, name: Name, detail: str, worst: Difference, node: str, *notes: str
    ) -> Property:
        """Return a property that does not hold."""
        return Property(
            name=name,
            outcome="failed",
            detail=detail,
            difference=worst.amount,
            tolerance=self.tolerance,
            location=worst.location,
            node=node,
            notes=tuple(notes),
        )


def not_applicable(name: Name, reason: str, *notes: str) -> Property:
    """Return a property that does not apply, with the reason."""
    return Property(name=name, outcome="does not apply", detail=reason, notes=tuple(notes))


@contextmanager
def in_float64() -> Iterator[None]:
    """Make float64 the default dtype, so that blocks also compute their own constants in it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def random_model(graph: Graph, seed: int, *, noise: bool = True) -> nn.Module:
    """Return a model with random weights in evaluation mode, in the default dtype.

    Args:
        graph: a checked graph.
        seed: seed of the weights.
        noise: whether noise is added to the initial weights.
    """
    model = build(graph, seed=seed).to(torch.get_default_dtype()).eval()
    if noise:
        perturb(model, seed)
    return model


def perturb(model: nn.Module, seed: int) -> None:
    """Change every weight, so that none is zero or one and no gate is closed.

    A weight that is not zero keeps its sign, because some blocks need positive ones.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.is_floating_point():
                noise = NOISE * torch.randn(weight.shape, generator=generator)
                scaled = weight * (1 + noise).clamp(min=LEAST)
                weight.copy_(torch.where(weight == 0, noise, scaled))


def refuse_large(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Check that the model and its activations fit into the free memory.

    Raises:
        InputError: they do not.
    """
    activations = cost_table(graph, sizes, 8).activation_bytes
    needed, free = 8 * COPIES * graph.parameters() + 4 * activations, available()
    if free and needed > free:
        raise InputError(
            f"a proof of {graph.name} with {graph.parameters():,} parameters in float64 needs about"
            f" {needed / 2**30:,.1f} GiB of memory; {free / 2**30:,.1f} GiB are free",
            location=graph.source,
            help="make the model smaller, such as --set layers=2, or the inputs, with --axes;"
            " the properties do not depend on sizes",
        )
