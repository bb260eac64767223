"""Segments: check that an objective can carry state from one segment of a document to the next.

The state is that of decoding, and a segment is a step of many positions.  So the nodes must not
read later positions, which `decodability.py` shows, and each state must stay right when its oldest
positions are dropped, which the block declares (`BlockType.carries`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ....specs.findings import did_you_mean, respelled
from ....specs.form import Spec
from ...cost.decode_state import keepers
from ...ir.graph import Graph, Part, Scope
from ...ir.moving import moving_ports, moving_values, root_moving
from ...ir.state_tensor import Segments
from ...ir.traverse import holds_model, model_of
from ..decodability import Obstacle, find_obstacles
from ..records import MISSING, Findings, Values


def segments_of(spec: Spec, values: Values, findings: Findings) -> Segments | None:
    """Return the segments of a spec, or None; report a memory that is not a positive integer."""
    if spec.segments is None:
        return None
    at = "/segments/memory"
    memory = values.resolve(spec.segments.memory, at)
    if memory is MISSING:
        return None
    if isinstance(memory, bool) or not isinstance(memory, int) or memory < 1:
        findings.report(
            code="O06",
            at=at,
            problem=f"the memory of segments is {memory!r:.40}, not a positive integer",
            help="write how many earlier positions are kept, such as 128",
        )
        return None
    return Segments(spec.segments.axis, memory)


def check_segments(spec: Spec, graph: Graph, findings: Findings) -> None:
    """Report why an objective cannot be computed segment by segment."""
    if graph.segments is None:
        return
    axis = graph.segments.axis
    times = [name for name, kind in spec.axes.items() if kind == "time"]
    if axis not in times:
        findings.report(
            code="O06",
            at="/segments/axis",
            problem=f"'{axis}' is not a time axis of the spec",
            help=did_you_mean(axis, times) or "name the time axis of the text",
            fix=respelled("/segments/axis", axis, times),
        )
        return
    if not graph.losses or graph.step_axis is not None:
        findings.report(
            code="O06",
            at="/segments",
            problem="only an objective is computed in segments, and this spec has no loss"
            if not graph.losses
            else "an objective in segments cannot have 'step'",
            help="remove 'segments'" if not graph.losses else "remove 'step'",
        )
        return
    along = replace(graph, step_axis=axis)
    obstacles = list(find_obstacles(along)) or [*_models(along), *_states(along)]
    for obstacle in obstacles:
        at = "/segments/axis" if obstacle.at == "/step/axis" else obstacle.at
        findings.report(
            code="O06",
            at=at,
            problem=f"the objective cannot be computed in segments of {axis}: {obstacle.problem}",
            help=obstacle.help,
        )


def _models(graph: Graph) -> Iterator[Obstacle]:
    """Yield an obstacle for each model that does not decode along the axis of the segments."""

    def in_scope(scope: Scope, moving_in: frozenset[str]) -> Iterator[Obstacle]:
        moving = moving_values(scope, moving_in)
        for node in scope.nodes:
            ports, model = moving_ports(node, moving), model_of(node)
            if not ports or not holds_model(node) or model is None:
                continue
            steps = root_moving(model) if model.step_axis is not None else frozenset[str]()
            if steps != ports:
                problem = f"the model '{model.name}' does not decode along it"
                help_ = f"give the model a 'step' along the axis of {', '.join(sorted(ports))}"
                yield Obstacle(node.at, problem, help_)

    yield from in_scope(graph.root, root_moving(graph))


def _states(graph: Graph) -> Iterator[Obstacle]:
    """Yield an obstacle for each block whose state cannot be carried."""
    nodes = {node.name: node for node in graph.root.nodes}
    for keeper in keepers(graph):
        if not isinstance(keeper.kept, Part):
            continue
        part = keeper.kept
        carries = part.block.carries
        why = "its state cannot be carried" if carries is None else carries(part)
        if why:
            name = keeper.path.partition(".")[0]
            problem = f"{part.key} at {keeper.path}: {why}"
            help_ = "use a block whose state can be carried, such as attention@2 with relative"
            yield Obstacle(nodes[name].at, problem, f"{help_} positions and 'cache': \"inputs\"")
