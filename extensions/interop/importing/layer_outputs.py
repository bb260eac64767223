"""The result of a comparison with an imported model, and the first layer that differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ....plugin import Graph, RepeatNode

DOUBLE = " in float64"
"""Ending of the name of an output that was computed in float64."""
_TOLERANCE = 1e-5
"""Largest difference of two outputs, as a fraction of the largest value of theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The comparison of one output for one batch."""

    output: str
    sizes: Mapping[str, int]
    """Sizes of the spec's axes."""
    values: int
    """Number of compared values; positions of padding are omitted."""
    difference: float
    """Largest absolute difference."""
    relative: float
    """The same as a fraction of the largest absolute value of theirs."""

    @property
    def equal(self) -> bool:
        """Whether the difference is at most `_TOLERANCE`; not if a value is not finite."""
        return self.relative <= _TOLERANCE

    def __str__(self) -> str:
        """Return the sizes and the difference."""
        sizes = ", ".join(f"{axis} = {size}" for axis, size in self.sizes.items())
        return (
            f"{self.output} ({sizes}): largest difference {self.difference:.1e}, relative "
            f"{self.relative:.1e}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerComparison:
    """The comparison of two models; `str` of it is a report of several lines."""

    name: str
    """The class of the other library."""
    compared: tuple[Compared, ...]
    first: str = ""
    """The first layer whose outputs differ, if the models differ and their layers correspond."""
    notes: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether all outputs are equal within `_TOLERANCE`."""
        return all(entry.equal for entry in self.compared)

    @property
    def worst(self) -> Compared:
        """The comparison with the largest relative difference."""
        return max(self.compared, key=lambda entry: entry.relative)

    def __str__(self) -> str:
        """Return the class, the largest difference and, if they differ, where."""
        values = sum(entry.values for entry in self.compared)
        batches = len({tuple(result.sizes.items()) for result in self.compared})
        head = f"compared {values:,} values in {batches} batches with {self.name}"
        lines = [head, f"  {self.worst}, tolerance {_TOLERANCE:.0e}"]
        double = [entry for entry in self.compared if entry.output.endswith(DOUBLE)]
        if double and self.equal:
            lines.append(f"  {max(double, key=lambda entry: entry.relative)}")
        if not self.equal:
            lines += [f"  differs: {entry}" for entry in self.compared if not entry.equal]
            lines += [f"  first difference: {self.first}"] if self.first else []
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON data; a difference that is not finite is null."""
        return {
            "equal": self.equal,
            "tolerance": _TOLERANCE,
            "class": self.name,
            "compared": [
                {
                    "output": entry.output,
                    "sizes": dict(entry.sizes),
                    "values": entry.values,
                    "difference": _finite(entry.difference),
                    "relative": _finite(entry.relative),
                }
                for entry in self.compared
            ],
            "first": self.first or None,
            "notes": list(self.notes),
        }


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None


def without_padding(values: Tensor, real: Mapping[int, Tensor]) -> Tensor:
    """Return the values at positions without padding, if the second axis has padding.

    Args:
        values: [B, T, D], or values without such axes, which are returned as they are.
        real: length of a time axis to the mask [B, length] of positions without padding.
    """
    valid = real.get(values.size(1)) if values.dim() > 2 else None  # noqa: PLR2004 - [B, T, D]
    return values if valid is None or valid.shape != values.shape[:2] else values[valid]


def distance(actual: Tensor, expected: Tensor) -> tuple[float, float]:
    """Return the largest absolute and relative difference; infinite if a value is not finite."""
    actual, expected = actual.double(), expected.double()
    if not (actual.isfinite().all() and expected.isfinite().all()):
        return float("inf"), float("inf")
    difference = float((actual - expected).abs().max())
    scale = float(expected.abs().max())
    return difference, difference / scale if scale else float(difference > 0)


class LayerOutputs:
    """The outputs of corresponding layers of both models, in the order of execution."""

    def __init__(self) -> None:
        """Start without outputs."""
        self.ours: dict[str, Tensor] = {}
        self.theirs: dict[str, Tensor] = {}
        self.names: dict[str, str] = {}
        """Name of our layer to that of theirs, in order."""

    def first(self, real: Mapping[int, Tensor]) -> str:
        """Return the first layer whose outputs differ; the text is empty if none is known to.

        Args:
            real: length of a time axis to the mask [B, length] of positions without padding.
        """
        for name, other in self.names.items():
            mine, their = self.ours.get(name), self.theirs.get(other)
            if mine is None or their is None or mine.shape != their.shape:
                continue
            difference, relative = distance(
                *(without_padding(output, real) for output in (mine, their))
            )
            if relative > _TOLERANCE:
                what = f"{name}, theirs {other}"
                return f"{what}: largest difference {difference:.1e}, relative {relative:.1e}"
        return ""


@contextmanager
def watched(graph: Graph, ours: nn.Module, theirs: nn.Module) -> Iterator[LayerOutputs]:
    """Record the inputs of the first layers and the outputs of all layers during a run."""
    layers = LayerOutputs()
    with ExitStack() as hooks:
        for (node, mine), (other, their) in _stacks(graph, ours, theirs):
            name, port = node.name, node.carry[0] if node.carry else ""
            pairs = zip(mine, their, strict=True)
            for index, (our_layer, two) in enumerate(pairs):
                for module, path, recorded in (
                    (our_layer, f"{name}.{index}", layers.ours),
                    (two, f"{other}.{index}", layers.theirs),
                ):
                    hooks.callback(module.register_forward_hook(_output_to(recorded, path)).remove)
                    if index == 0:
                        entry = module.register_forward_pre_hook(
                            _input_to(recorded, f"the input of {path}", port), with_kwargs=True
                        )
                        hooks.callback(entry.remove)
                if index == 0:
                    layers.names[f"the input of {name}.0"] = f"the input of {other}.0"
                layers.names[f"{name}.{index}"] = f"{other}.{index}"
        yield layers


def _stacks(
    graph: Graph, ours: nn.Module, theirs: nn.Module
) -> list[tuple[tuple[RepeatNode, nn.ModuleList], tuple[str, nn.ModuleList]]]:
    """Return the corresponding stacks of layers, in the order of execution; none if unclear."""
    mine = [
        (node, stack)
        for node in graph.root.nodes
        if isinstance(node, RepeatNode)
        and isinstance(stack := getattr(ours, node.module), nn.ModuleList)
    ]
    stacks: list[tuple[str, nn.ModuleList]] = []
    for name, module in theirs.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer, _ in stacks)
        if isinstance(module, nn.ModuleList) and not inside:
            stacks.append((name, module))
    lengths = [len(stack) for _, stack in mine]
    if [len(stack) for _, stack in stacks] != lengths:
        return []
    return list(zip(mine, stacks, strict=True))


def _output_to(recorded: dict[str, Tensor], path: str) -> Any:
    def keep(_module: nn.Module, _inputs: Any, output: Any) -> None:
        value = output[0] if isinstance(output, tuple) and output else output
        if isinstance(value, Tensor):
            recorded.setdefault(path, value)

    return keep


def _input_to(recorded: dict[str, Tensor], path: str, port: str) -> Any:
    """Return a hook that keeps the first input of a layer; in ours, that is a carried port."""

    def keep(_module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        value = kwargs.get(port, args[0] if args else next(iter(kwargs.values()), None))
        if isinstance(value, Tensor):
            recorded.setdefault(path, value)

    return keep
