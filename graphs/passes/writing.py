"""Writing: the part of a model that writes one of its inputs, token by token, before the others.

A model of two passes, such as a deliberation network, reads a draft that it has written itself.
The nodes before the logits of the draft become a graph of their own, whose step axis is the time
axis of the draft.

Source: Xia et al. 2017, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...specs.findings import InputError, SpecError, did_you_mean
from ..ir.block_type import Registry
from ..ir.canonical import canonical
from ..ir.graph import Graph, Node, reached
from .partition import subgraph


@dataclass(frozen=True, slots=True)
class WrittenInput:
    """The part of a model that writes one of its inputs."""

    graph: Graph
    """Its step axis is the time axis of the input, and its output is `logits`."""
    masks: tuple[str, ...]
    """Inputs of the model that are masks of this axis."""


def written_before(
    model: Graph, drafts: Iterable[tuple[str, str]], registry: Registry
) -> dict[str, WrittenInput]:
    """Return the parts of a model that write inputs before the answer, by input, in order.

    Args:
        model: graph of the model.
        drafts: each input of ids, and the output with the logits of its next token.
        registry: the block types that the model names.

    Raises:
        InputError: one is no input of ids and its logits, is written twice, depends on what is
            written later, or cannot be written token by token.
    """
    parts: dict[str, WrittenInput] = {}
    for port, output in drafts:
        if port in parts:
            problem = f"two drafts write the input '{port}'"
            raise InputError(problem, location=_at(model, "inputs"), help="remove one of them")
        masks = _masks(model, port)
        _check_logits(model, port, output)
        graph = _writing_graph(model, port, output, registry)
        parts[port] = WrittenInput(graph, masks)
    ports = [*parts]
    for at, (port, part) in enumerate(parts.items()):
        if later := [name for name in ports[at + 1 :] if name in part.graph.inputs]:
            raise InputError(
                f"the draft '{port}' depends on the draft '{later[0]}', which is written after it",
                location=_at(model, "inputs"),
                help="list them in the order in which they are written",
            )
    return parts


def _at(model: Graph, key: str) -> str:
    return f"{model.source}#/{key}"


def _masks(model: Graph, port: str) -> tuple[str, ...]:
    """Return the masks of an input that is written.

    Raises:
        InputError: another input has a value for each of its tokens.
    """
    axis = _time_axis(model, port)
    others = {n: t.kind for n, t in model.inputs.items() if axis in t.axes and n != port}
    if wrong := sorted(name for name, kind in others.items() if kind != "mask"):
        raise InputError(
            f"the draft '{port}' cannot be written, because '{wrong[0]}' has a value for each of"
            " its tokens",
            location=_at(model, "inputs"),
            help=f"compute '{wrong[0]}' from '{port}' in the model, or give it another axis",
        )
    return tuple(sorted(others))


def _writing_graph(model: Graph, port: str, output: str, registry: Registry) -> Graph:
    """Return the graph that writes an input of a model.

    A node keeps its name, or has that of the node whose weights it shares, so that its weights
    have their paths in the model.

    Raises:
        InputError: it does not read the input, or cannot be stepped.
    """
    full, value = canonical(model), model.root.outputs[output]
    nodes = _nodes_before(model, value)
    read = {value, *(wire for node in nodes.values() for wire in node.wires.values())}
    location = _at(model, "outputs")
    if port not in read:
        raise InputError(
            f"the output '{output}' does not depend on the draft '{port}' that it writes",
            location=location,
            help=f"name the output with the logits of the next token of '{port}'",
        )
    names: dict[str, str] = {}
    for name, node in sorted(nodes.items(), key=lambda pair: pair[0] != pair[1].module):
        names[name] = name if node.module in names.values() else node.module
    written = {}
    for name, node in nodes.items():
        definition = {"share": node.module}
        if names[name] == node.module:
            definition = full["nodes"][node.module]
        wires = {into: _renamed(wire, names) for into, wire in node.wires.items()}
        written[names[name]] = {**definition, "in": wires}
    outputs, axis = {"logits": _renamed(value, names)}, _time_axis(model, port)
    try:
        return subgraph(full, registry, port, written, full["inputs"], outputs, step=axis)
    except SpecError as error:
        finding = error.findings[0]
        raise InputError(
            f"the draft '{port}' of '{model.name}' cannot be written token by token:"
            f" {finding.problem} (at {finding.at})",
            location=location,
            help=finding.help,
        ) from error


def _renamed(value: str, names: Mapping[str, str]) -> str:
    """Return a value whose node has another name."""
    name, dot, port = value.partition(".")
    return f"{names.get(name, name)}{dot}{port}" if dot else value


def _time_axis(model: Graph, port: str) -> str:
    """Return the time axis of an input of ids that is not written last.

    Raises:
        InputError: it is none.
    """
    location = _at(model, "inputs")
    if port not in model.inputs:
        raise InputError(
            f"'{model.name}' has no input '{port}' for a draft",
            location=location,
            help=did_you_mean(port, model.inputs),
        )
    type_ = model.inputs[port]
    times = [axis for axis in map(str, type_.axes) if model.spec.axes.get(axis) == "time"]
    if type_.kind != "ids" or len(times) != 1:
        raise InputError(
            f"the input '{port}' of type {type_} is no text that can be written",
            location=location,
            help='name an input of ids with one time axis, such as "ids:vocab[B R]"',
        )
    if times[0] == model.step_axis:
        raise InputError(
            f"'{port}' is written by the predictor itself, so it is no draft",
            location=location,
            help="name another input of ids",
        )
    return times[0]


def _check_logits(model: Graph, port: str, output: str) -> None:
    """Raise an error if an output is not of the logits of an input.

    Raises:
        InputError: there is no such output, or it has another type.
    """
    location = _at(model, "outputs")
    if output not in model.outputs:
        raise InputError(
            f"'{model.name}' has no output '{output}' for the draft '{port}'",
            location=location,
            help=did_you_mean(output, model.outputs),
        )
    ids, type_ = model.inputs[port], model.outputs[output]
    if type_.kind != "f" or type_.axes != (*ids.axes, ids.size):
        raise InputError(
            f"the output '{output}' of type {type_} does not give the logits of '{port}' of type"
            f" {ids}",
            location=location,
            help=f"name an output of type f[{' '.join(map(str, (*ids.axes, ids.size)))}]",
        )


def _nodes_before(model: Graph, value: str) -> dict[str, Node]:
    """Return the nodes from which a value is computed, by name, in the order of the graph."""
    nodes = {node.name: node for node in model.root.nodes}
    reads = {
        name: {wire.partition(".")[0] for wire in node.wires.values()} & nodes.keys()
        for name, node in nodes.items()
    }
    start = value.partition(".")[0]
    names = reached(start, reads) if start in nodes else set[str]()
    return {name: node for name, node in nodes.items() if name in names}
