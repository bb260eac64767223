"""Outputs of corresponding layers of two models, to find the first layer that differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from .....plugin import Graph, RepeatNode
from .comparison import TOLERANCE, distance, without_padding


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
            if relative > TOLERANCE:
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
