"""Coordinate check: whether the values of a model keep their size when it gets wider.

A model is built at several widths, scaled from the narrowest, and trained for a few updates on one
random batch.  What each block computes must be about as large at every width, before and after.

Source: Yang et al. 2022, appendix D.1, https://arxiv.org/abs/2203.03466
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...graphs.ir.graph import Graph
from ...graphs.passes.widths import growth
from ...specs.findings import InputError
from ...specs.load import FOLDERS, load
from ...specs.reader import RUN_FOLDER, find
from ..codegen.build import build
from ..codegen.examples import example_inputs, sizes_for
from ..spec.check import graph_of
from ..train.objective import Objective
from ..train.passes import Dropouts
from ..train.plan import run_at
from ..train.recipe.groups import WeightGroup, weight_groups, with_widths
from ..train.recipe.optimize import make_optimizer, scale_weights, set_rates
from ..train.recipe.optimizers import Adam, OptimizerSettings

MULTIPLES = (1, 2, 4, 8)
"""Widths, as multiples of the base."""
UPDATES, RATE = 4, 0.01
"""Updates of Adam, and their rate at the base."""
BATCH, LENGTH = 8, 16
"""Size of batch axes, and of the first other axis."""
SEEDS = 3
"""Models of each width, over whose values the root of the mean square is taken."""
STEEPEST = 0.25
"""Largest growth of a value's size for each doubling of the width, as a power of two: the size of a
value that grows with the root of the width has 0.5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSizes:
    """The size of what one block computes, at each width."""

    node: str
    """Path of the block, with `*` for copies of a repeat."""
    before: tuple[float, ...]
    """Root of the mean square of its values before training."""
    after: tuple[float, ...]
    """The same after the updates."""

    @property
    def exponent(self) -> float:
        """Growth of its size after training for each doubling of the width, as a power of two."""
        return _exponent(self.after)

    @property
    def grows(self) -> bool:
        """Whether it grows with the width, before or after training."""
        return max(_exponent(self.before), self.exponent) > STEEPEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinates:
    """The outcome of a coordinate check."""

    spec: str
    widths: tuple[Mapping[str, int], ...]
    """Params of the model at each width."""
    parametrization: str
    """`mup`, or `standard` for equal initial weights and rates at all widths."""
    values: tuple[BlockSizes, ...]
    losses: tuple[float, ...]
    """Loss after the updates, at each width."""

    @property
    def passed(self) -> bool:
        """Whether no value grows with the width."""
        return not any(value.grows for value in self.values)

    @property
    def steepest(self) -> BlockSizes:
        """The value that grows most after training."""
        return max(self.values, key=lambda value: value.exponent)

    def render(self) -> str:
        """Return a table: a row for each block, with its sizes after training."""
        name, *_ = self.widths[0]
        marks = [f"{name} {params[name]}" for params in self.widths]
        rows = [["after training", *marks, "exponent"]]
        for value in self.values:
            sizes = [f"{size:.3g}" for size in value.after]
            rows.append([value.node, *sizes, f"{value.exponent:+.2f}{' grows' * value.grows}"])
        rows.append(["loss", *(f"{loss:.3f}" for loss in self.losses), ""])
        columns = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, columns, strict=True)) for row in rows]
        end = "values keep their size" if self.passed else "values grow with the width"
        return "\n".join([*(line.rstrip() for line in lines), f"{self.parametrization}: {end}"])

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as JSON-compatible data."""
        exponents = [{"exponent": value.exponent, "grows": value.grows} for value in self.values]
        values = [asdict(v) | s for v, s in zip(self.values, exponents, strict=True)]
        return asdict(self) | {"values": values, "passed": self.passed}


def coordinates(
    spec: str,
    base: Mapping[str, int],
    *,
    overrides: Mapping[str, Any] | None = None,
    optimizer: OptimizerSettings | None = None,
    standard: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Coordinates:
    """Train a model at several widths for a few updates, and return how large its values are.

    Args:
        spec: path or name of a model, an objective or a run.
        base: params of the narrowest model that grow with the width, such as `{"d_model": 64,
            "heads": 1}`; the others are 2, 4 and 8 times as large.
        overrides: other params by name; of a run, its settings by dotted path.
        optimizer: the optimizer; default: that of the run, or Adam.
        standard: whether initial weights and rates do not follow the width, for a comparison.
        progress: called with a line of text before each width.

    Raises:
        InputError: there is no such param, or the weights of the spec cannot follow its width.
        SpecError: the spec has mistakes.
    """
    if not base:
        raise InputError(
            "no param grows with the width",
            location="--coordinates",
            help="name them with their smallest values, such as d_model=64,heads=1",
        )
    widths = [{name: size * times for name, size in base.items()} for times in MULTIPLES]
    graphs, settings = _graphs(spec, widths, overrides or {})
    settings = settings if optimizer is None else optimizer
    sizes: dict[str, list[tuple[float, float]]] = {}
    losses = []
    for graph, params in zip(graphs, widths, strict=True):
        if progress is not None:
            progress(", ".join(f"{name} {size}" for name, size in params.items()))
        summed: dict[str, list[float]] = {}
        last = 0.0
        for seed in range(1, SEEDS + 1):
            measured, loss = _trained(graph, graphs[0], settings, seed, standard=standard)
            last += loss / SEEDS
            for name, squares in measured.items():
                totals = summed.setdefault(name, [0.0, 0.0])
                summed[name] = [t + s / SEEDS for t, s in zip(totals, squares, strict=True)]
        losses.append(last)
        for name, (before, after) in summed.items():
            sizes.setdefault(name, []).append((math.sqrt(before), math.sqrt(after)))
    return Coordinates(
        spec=graphs[0].name,
        widths=tuple(widths),
        parametrization="standard" if standard else "mup",
        values=tuple(
            BlockSizes(node=n, before=tuple(b for b, _ in s), after=tuple(a for _, a in s))
            for n, s in sizes.items()
            if all(math.isfinite(a) and b > 0 and a > 0 for b, a in s)
        ),
        losses=tuple(losses),
    )


def _graphs(
    spec: str, widths: Sequence[Mapping[str, int]], overrides: Mapping[str, Any]
) -> tuple[list[Graph], OptimizerSettings]:
    """Return the graph at each width, and the optimizer: of a run, its objective and its own."""
    if (read := run_at(spec, dict(overrides))) is None:
        find(spec, *FOLDERS, RUN_FOLDER)  # an error suggests names of runs too
        return [graph_of(load(spec, {**overrides, **params})) for params in widths], Adam()
    run, source = read
    objective = Objective.of(run, source)
    return [objective.base(params) for params in widths], run.optimizer


def _trained(
    graph: Graph, base: Graph, settings: OptimizerSettings, seed: int, *, standard: bool
) -> tuple[dict[str, tuple[float, float]], float]:
    """Return the mean square of what each block computes before and after training, and the loss.

    Args:
        graph: the graph of a model or an objective.
        base: the graph of the narrowest one.
        settings: the optimizer.
        seed: seed of the weights and the inputs.
        standard: whether initial weights and rates do not follow the width.
    """
    model = build(graph, seed=seed)
    Dropouts(model, graph).set(0.0)
    groups: list[WeightGroup] = weight_groups(settings, graph, graph.root.weights())
    if not standard:
        grown = growth(graph, base)
        scale_weights(model, build(base, seed=seed), grown)
        groups = with_widths(groups, grown)
    optimizer = make_optimizer(model, groups, RATE)
    inputs = example_inputs(graph, sizes_for(graph, batch=BATCH, length=LENGTH), seed=seed)
    before = _squares(model, inputs)
    for update in range(1, UPDATES + 1):
        _loss(graph, model(**inputs), seed).backward()
        set_rates(optimizer, 1.0, update, UPDATES)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    after = _squares(model, inputs)
    with torch.no_grad():
        loss = float(_loss(graph, model(**inputs), seed))
    return {name: (before[name], after[name]) for name in before if name in after}, loss


def _loss(graph: Graph, outputs: Mapping[str, Tensor], seed: int) -> Tensor:
    """Return the loss of an objective; of a model, the cross-entropy of random classes."""
    if graph.losses:
        total: Tensor = sum(outputs[name].mean() for name in graph.losses)  # type: ignore[assignment]
        return total
    generator = torch.Generator().manual_seed(seed)
    losses = []
    for logits in outputs.values():
        if logits.is_floating_point() and logits.dim():
            rows = logits.flatten(0, -2) if logits.dim() > 1 else logits[:, None]
            labels = torch.randint(rows.shape[-1], (len(rows),), generator=generator)
            losses.append(nn.functional.cross_entropy(rows, labels))
    return torch.stack(losses).mean()


@torch.no_grad()
def _squares(model: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the mean square of what each block computes, over the copies of a repeat."""
    squares: dict[str, list[float]] = {}
    hooks = []

    def keep(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, __: Any, outputs: Any) -> None:
            values: Sequence[Any] = outputs if isinstance(outputs, tuple | list) else [outputs]
            for value in values[:1]:
                if isinstance(value, Tensor) and value.is_floating_point():
                    finite = value[value.isfinite()]
                    squares.setdefault(name, []).append(float(finite.square().mean()))

        return hook

    for path, module in model.named_modules():
        if path and next(module.parameters(), None) is not None:
            folded = re.sub(r"\.\d+(?=\.|$)", ".*", path)
            hooks.append(module.register_forward_hook(keep(folded)))
    model.eval()
    model(**inputs)
    model.train()
    for hook in hooks:
        hook.remove()
    return {name: sum(values) / len(values) for name, values in squares.items()}


def _exponent(sizes: Sequence[float]) -> float:
    """Return the exponent: that of the line through the logarithms of sizes at doubled widths."""
    logs = [math.log2(size) for size in sizes]
    middle = (len(logs) - 1) / 2
    spread = sum((at - middle) ** 2 for at in range(len(logs)))
    return sum((at - middle) * log for at, log in enumerate(logs)) / spread
