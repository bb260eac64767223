"""Advise: report what is unusual in a correct spec, unless the spec says that it is meant.

A spec says so by listing the code: `"allow": ["D03"]`.  Each check yields remarks about places of
the graph, one of each kind of warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..specs.findings import Finding, did_you_mean, pointer, respelled
from ..specs.text_edits import Fix, PatchOperation, adding, removing
from .ir.carrying import carried
from .ir.graph import BlockNode, Graph, Node, Part, RepeatNode, Scope
from .ir.traverse import holds_model, scopes, uses
from .ir.value_type import Axis, Misfit, ValueType, fit, names_of, time_axes


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What is unusual, where, and what would be usual."""

    at: str
    """JSON Pointer into the merged spec."""
    problem: str
    """One lower-case clause without a full stop."""
    help: str
    """The usual way, as an instruction."""
    evidence: tuple[str, ...] = ()
    fix: Fix | None = None
    """Edits of the merged spec that carry out `help`, if a program can make them."""


def blocks(graph: Graph) -> Iterator[tuple[str, Part]]:
    """Yield every block of a graph with its JSON Pointer; those of a template once."""
    return ((at, part) for at, part, _, _ in placed_blocks(graph))


def placed_blocks(graph: Graph) -> Iterator[tuple[str, Part, BlockNode, Scope]]:
    """Yield every block of a graph as `blocks` does, with its node and the scope of the node."""
    for scope in scopes(graph.root, models=False):
        for node in scope.nodes:
            if isinstance(node, BlockNode):
                yield from ((at, part, node, scope) for at, part in uses(node))


def vocabularies(graph: Graph, axis: str | None) -> set[Axis]:
    """Return the sizes of the ids among the inputs along an axis."""
    types = (type_ for type_ in graph.inputs.values() if type_.kind == "ids" and axis in type_.axes)
    return {type_.size for type_ in types if type_.size is not None}


def scores_in(type_: ValueType) -> Axis | None:
    """Return the number of scores at each position of a value; None if it has no axis."""
    return type_.size if type_.size is not None else (type_.axes or (None,))[-1]


def behaviors(part: Part) -> Iterator[tuple[str, str]]:
    """Yield each axis along which a block reads other positions, and how: causal or full."""
    for name, behavior in part.signature.behavior.items():
        axis = part.axes.get(name)
        if isinstance(axis, str) and behavior != "pointwise":
            yield axis, behavior


_ABOUT = frozenset({"name", "doc", "axes"})
"""Keys of a spec whose texts have no types."""


def unused_axes(graph: Graph) -> Iterator[Remark]:
    """Yield the axes that no type, step or segment of the spec names."""
    spec = graph.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    words = {*_words({key: value for key, value in spec.items() if key not in _ABOUT})}
    for axis in graph.spec.axes:
        if axis not in words:
            at = pointer("axes", axis)
            yield Remark(
                at=at,
                problem=f"no type of the spec has the axis '{axis}'",
                help="remove it, or use it in the type of an input",
                fix=removing(at),
            )


def _words(value: Any) -> Iterator[str]:
    """Yield the words of all strings in a JSON value."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from _words(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _words(inner)
    elif isinstance(value, str):
        yield from re.findall(r"[A-Za-z]\w*", value)


def dropped_losses(graph: Graph) -> Iterator[Remark]:
    """Yield the nodes with an output of kind loss that nothing reads.

    Training adds the losses among the outputs of the spec, such as the balance of experts.
    """
    for scope in scopes(graph.root, models=False):
        yield from _losses_in(scope)


def _losses_in(scope: Scope) -> Iterator[Remark]:
    read = {value for node in scope.nodes for value in node.wires.values()}
    read |= {*scope.outputs.values()}
    for node in scope.nodes:
        if holds_model(node):
            continue  # training adds the losses of a model
        dropped = [
            port
            for port, type_ in node.outputs.items()
            if type_.kind == "loss" and f"{node.name}.{port}" not in read
        ]
        if isinstance(node, RepeatNode):
            retained = {*node.carry, *node.collect}
            types = node.body.gives()
            dropped += [
                p for p, type_ in types.items() if type_.kind == "loss" and p not in retained
            ]
        for port in dropped:
            yield Remark(
                at=node.at,
                problem=f"nothing reads the loss '{port}' of node '{node.name}'",
                help=f"make '{node.name}.{port}' an output of the spec; repeats 'collect' it",
            )


def unused_masks(graph: Graph) -> Iterator[Remark]:
    """Yield the blocks that read padding though an input of the spec masks it.

    A block that reads only earlier positions needs no mask: padding comes last, and what stands
    there is not used.
    """
    masks = {name: type_ for name, type_ in graph.inputs.items() if type_.kind == "mask"}
    for at, part, node, scope in placed_blocks(graph):
        full = {axis for axis, behavior in behaviors(part) if behavior == "full"}
        if _masked(part):
            continue
        for port in part.signature.inputs:
            if port.type.kind != "mask" or not port.optional or port.name in part.inputs:
                continue
            for name, type_ in masks.items():
                bound = {key: axis for key, axis in part.axes.items() if key != "..."}
                if isinstance(fit(port.type, type_, bound, {}), Misfit):
                    continue
                if not full & {axis for axis in type_.axes if isinstance(axis, str)}:
                    continue
                help_, fix = _wiring(graph, scope, node, port.name, name)
                yield Remark(
                    at=at,
                    problem=f"{part.block.key} reads padding, though there is a mask '{name}'",
                    evidence=(f"given  {type_}  by input {name}",),
                    help=help_,
                    fix=fix,
                )


def _wiring(
    graph: Graph, scope: Scope, node: BlockNode, port: str, mask: str
) -> tuple[str, Fix | None]:
    """Return how to wire a mask of the spec to a port, inside a template by its own inputs.

    Args:
        graph: the graph.
        scope: the root, or the inside of a template.
        node: the node with the port, also if a block in its slots has the port.
        port: the port.
        mask: the input of the spec.
    """
    wire = node.at + pointer("in", port)
    if scope is graph.root:
        return f"wire '{mask}' to its port '{port}'", adding(wire, mask)
    matching = [name for name, type_ in scope.inputs.items() if type_ == graph.inputs[mask]]
    if matching:
        help_ = f"wire '{matching[0]}', an input of template '{scope.name}', to its port '{port}'"
        return help_, adding(wire, matching[0])
    insides = scopes(graph.root, models=False)
    way = carried(graph.spec, graph.params, scope.name, mask, graph.root, insides)
    if way is None:
        return f"wire '{mask}' to its port '{port}', through an input of '{scope.name}'", None
    help_ = f"wire '{way.name}', an input of template '{scope.name}', to its port '{port}'"
    if way.type:
        help_ = f"give template '{scope.name}' an input '{way.name}' of type {way.type}, wire"
        help_ += f" '{mask}' to it wherever it is used, and to the port '{port}' of this block"
    return help_, Fix((*way.edits, *adding(wire, way.name).edits))


def _masked(part: Part) -> bool:
    """Return whether a block reads a mask, or a bias that a mask may have become."""
    return any(type_.kind in ("mask", "bias") for type_ in part.inputs.values())


def missing_norms(graph: Graph) -> Iterator[Remark]:
    """Yield the stacks whose accumulated output reaches weights or an output without a norm.

    Pre-norm layers add to their input, so that its magnitude grows with depth; a norm after the
    last layer is part of the architecture (Xiong et al. 2020, section 3.1).
    """
    for scope in scopes(graph.root, models=False):
        yield from _norms_in(scope, outermost=scope is graph.root)


def _norms_in(scope: Scope, *, outermost: bool) -> Iterator[Remark]:
    for node in scope.nodes:
        if not isinstance(node, RepeatNode):
            continue
        for port in node.carry:
            last = node.instead.get(node.repeat - 1, node.body)
            sublayer = _accumulates(last, last.outputs.get(port, ""))
            if sublayer is None:
                continue
            value = f"{node.name}.{port}"
            reader = next(_readers(scope, value, set(), outermost=outermost), None)
            if reader is not None:
                yield Remark(
                    at=node.at,
                    problem=f"no norm follows the pre-norm stack '{node.name}'",
                    evidence=(f"its output '{port}' is read by {reader}",),
                    help=f"put a norm, such as 'layer_norm@1', between '{value}' and its readers",
                    fix=_normed(scope, node, value, _norm(sublayer)),
                )


def _accumulates(scope: Scope, value: str) -> Part | None:
    """Return the block whose residual path a value of a scope is the sum of, without a norm."""
    node = _source(scope, value)
    if isinstance(node, BlockNode):
        return node.part if node.part.signature.scale == "accumulated" else None
    if node is None:
        return None
    port = value.partition(".")[2]
    bodies = [body for _, body, _ in node.insides()]
    sources = (_accumulates(body, body.outputs.get(port, "")) for body in bodies)
    return next(filter(None, sources), None)


def _norm(sublayer: Part) -> dict[str, Any]:
    """Return the use of a norm as it stands in a residual block."""
    kind = str(sublayer.arguments.get("norm", "layer_norm"))
    params: dict[str, Any] = {}
    if "eps" in sublayer.params.model_fields_set:
        params["eps"] = sublayer.arguments["eps"]
    if kind == "layer_norm" and sublayer.arguments.get("norm_bias") is False:
        params["bias"] = False
    return {"use": f"{kind}@1"} | ({"params": params} if params else {})


def _normed(scope: Scope, node: Node, value: str, norm: dict[str, Any]) -> Fix:
    """Return the fix that puts a norm between a value of a scope and everything that reads it."""
    name, taken = f"{node.name}_norm", {sibling.name for sibling in scope.nodes}
    while name in taken:
        name += "_"
    record = {"use": norm["use"], "in": {"x": value}, **norm}
    nodes_at = node.at.rpartition("/")[0]
    ports = [
        nodes_at + pointer(sibling.name, "in", port)
        for sibling in scope.nodes
        for port, source in sibling.wires.items()
        if source == value
    ]
    outputs_at = nodes_at.removesuffix("/nodes") + pointer("outputs")
    ports += [outputs_at + pointer(p) for p, source in scope.outputs.items() if source == value]
    edits = [PatchOperation("replace", at, f"{name}.y") for at in ports]
    return Fix((PatchOperation("add", nodes_at + pointer(name), record), *edits))


def _source(scope: Scope, value: str) -> Node | None:
    name = value.partition(".")[0]
    return next((node for node in scope.nodes if node.name == name), None)


def _readers(
    scope: Scope, value: str, visited: set[tuple[int, str]], *, outermost: bool
) -> Iterator[str]:
    """Yield what reads an accumulated value as it is, not through a norm.

    The value is followed through blocks without weights, such as dropout and sums, and through
    further pre-norm layers.  What a template returns belongs to whatever uses the template.
    `visited` has the values that were followed, of which sums have many.
    """
    if (id(scope), value) in visited:
        return
    visited.add((id(scope), value))
    if outermost:
        for port, source in scope.outputs.items():
            if source == value:
                yield f"output {pointer(port)[1:]}"
    for node in scope.nodes:
        ports = [port for port, source in node.wires.items() if source == value]
        for port in ports:
            if isinstance(node, BlockNode):
                yield from _through(scope, node, port, visited, outermost=outermost)
                continue
            for _, body, _ in node.insides():
                yield from _readers(body, port, visited, outermost=False)


def _through(
    scope: Scope, node: BlockNode, port: str, visited: set[tuple[int, str]], *, outermost: bool
) -> Iterator[str]:
    """Yield what reads an accumulated value that enters a block, if the block does not norm it."""
    signature = node.part.signature
    main = port == signature.inputs[0].name
    if main and signature.scale:
        return  # a norm, or a residual block, which norms its input or its output
    if node.part.weights():
        yield f"'{node.name}', a {node.part.block.key}"
        return
    for output in node.outputs:
        yield from _readers(scope, f"{node.name}.{output}", visited, outermost=outermost)


def missing_positions(graph: Graph) -> Iterator[Remark]:
    """Yield attention along an axis on which nothing depends on the order of the positions.

    Without positions, such a model sees a sequence as a set (Vaswani et al. 2017, section 3.5).
    Causal attention can tell positions apart by itself (Haviv et al. 2022), and so can any that
    adds an input with a value for each pair of positions, such as a bias of their distance.
    """
    parts, times = list(blocks(graph)), {*time_axes(graph.spec.axes)}
    for axis in time_axes(graph.spec.axes):
        reading = [(at, part) for at, part in parts if _reads(part, axis)]
        attending = [(at, part) for at, part in reading if part.block.family == "attention"]
        has_positions = any(_relates(type_, axis, times) for type_ in graph.inputs.values())
        if not attending or has_positions or any(part.signature.ordered for _, part in reading):
            continue
        if _from_elsewhere(graph, axis, [part for _, part in attending]):
            continue
        if any(part.block.family == "position" and _has(part, axis) for _, part in parts):
            continue
        at, part = attending[0]
        yield Remark(
            at=at,
            problem=f"nothing in the model depends on the order of positions along {axis}",
            evidence=(f"{part.block.key} attends along {axis} to a set of positions",),
            help="add a block such as 'sinusoidal_position@1' before it, or fill its 'position'",
        )


def causal_encoders(graph: Graph) -> Iterator[Remark]:
    """Yield attention that hides later positions of an axis that is known before decoding.

    The axis of another decoder, such as one of a second language, is teacher-forced instead.
    """
    if graph.step_axis is None:
        return
    for at, part in blocks(graph):
        if part.block.family != "attention":
            continue
        for axis, behavior in behaviors(part):
            if axis == graph.step_axis or _is_decoded(graph, axis):
                continue
            if behavior == "causal" and axis in time_axes(graph.spec.axes):
                yield Remark(
                    at=at,
                    problem=f"{part.block.key} hides later positions of {axis}, "
                    "all of which are known before decoding",
                    evidence=(f"decoding is along {graph.step_axis}",),
                    help="remove 'causal'",
                    fix=removing(at + pointer("params", "causal")),
                )


def unmixed_steps(graph: Graph) -> Iterator[Remark]:
    """Yield the step axis if no output position depends on an earlier position."""
    axis = graph.step_axis
    if axis is None or any(_reads(part, axis) for _, part in blocks(graph)):
        return
    yield Remark(
        at="/step/axis",
        problem=f"no block reads earlier positions of {axis}, so each step ignores the others",
        help="add causal self-attention or a recurrent block, or remove 'step'",
    )


def _reads(part: Part, axis: str) -> bool:
    """Return whether a block reads other positions of an axis, also in a length such as 4*S."""
    return any(
        behavior != "pointwise" and axis in names_of(part.axes.get(name, ""))
        for name, behavior in part.signature.behavior.items()
    )


def _relates(type_: ValueType, axis: str, times: Collection[str]) -> bool:
    """Return whether an input has the positions of an axis, or a value for each pair of them."""
    names = [names_of(other) for other in type_.axes]
    along = any(axis in of_axis for of_axis in names)
    pairs = sum(not of_axis.isdisjoint(times) for of_axis in names) > 1
    return along and (pairs or type_.kind == "pos")


def _from_elsewhere(graph: Graph, axis: str, attending: list[Part]) -> bool:
    """Return whether an axis holds only activations of another model, read by other sequences.

    These may contain their positions, or be a set, such as the regions of a picture.
    """
    has_ids = any(type_.kind == "ids" and axis in type_.axes for type_ in graph.inputs.values())
    mains = (part.inputs[part.signature.inputs[0].name] for part in attending)
    return not has_ids and all(axis not in type_.axes for type_ in mains)


def _is_decoded(graph: Graph, axis: str) -> bool:
    """Return whether an output predicts the ids of an input along an axis, as a decoder does."""
    along = (type_ for type_ in graph.outputs.values() if axis in type_.axes)
    return any(scores_in(type_) in vocabularies(graph, axis) for type_ in along)


def _has(part: Part, axis: str) -> bool:
    return any(axis in type_.axes for type_ in [*part.inputs.values(), *part.outputs.values()])


_FEW = 4
"""Number of special symbols, such as begin and end, that may be only read or only generated."""


def missing_projection(graph: Graph) -> Iterator[Remark]:
    """Yield the first output on the step axis if none has the size of the generated vocabulary.

    An output may also have the width of an input of activations along this axis: then the model
    generates these, and the ids are a condition of them.
    """
    axis = graph.step_axis
    sizes = vocabularies(graph, axis)
    along = {port: type_ for port, type_ in graph.outputs.items() if axis in type_.axes}
    if axis is None or not sizes or not along:
        return
    widths = {type_.axes[-1] for type_ in graph.inputs.values() if _generated(type_, axis)}
    if any(scores_in(t) in widths or _scores(t, sizes) for t in along.values()):
        return
    port, type_ = next(iter(along.items()))
    counts = " or ".join(map(str, sorted(map(str, sizes))))
    yield Remark(
        at=pointer("outputs", port),
        problem=f"output '{port}' does not have a score for each of the {counts} symbols",
        evidence=(f"given  {type_}",),
        help=f"end the model with a map to {counts} values, such as 'linear@1'",
    )


def _generated(type_: ValueType, axis: str) -> bool:
    """Return whether a type is of activations along an axis."""
    return type_.kind == "f" and axis in type_.axes[:-1]


def _scores(type_: ValueType, sizes: Collection[object]) -> bool:
    """Return whether a type has a score for each symbol of one of the vocabularies."""
    size = scores_in(type_)
    integers = [number for number in sizes if isinstance(number, int)]
    return size in sizes or (isinstance(size, int) and any(abs(size - n) <= _FEW for n in integers))


CHECKS: Mapping[str, Callable[[Graph], Iterator[Remark]]] = {
    "D02": unused_masks,
    "D03": missing_positions,
    "D04": causal_encoders,
    "D05": unmixed_steps,
    "D06": missing_norms,
    "D07": missing_projection,
    "D09": dropped_losses,
    "D10": unused_axes,
}
"""Code of each warning to the function that looks for it."""
IDLE_EXCEPTION = "D08"
"""Code of the warning about an entry of `allow` without effect."""


def advise(graph: Graph) -> list[Finding]:
    """Return the warnings about a checked graph, without those that its spec allows.

    The pointers are those of the merged spec, as in the findings of the checker.
    """
    allowed = graph.spec.allow
    by_code = {code: list(_findings(code, graph)) for code in CHECKS}
    findings = [finding for code in CHECKS if code not in allowed for finding in by_code[code]]
    for index, code in enumerate(allowed):
        if by_code.get(code):
            continue
        is_known, at = code in CHECKS, pointer("allow", index)
        findings.append(
            Finding(
                code=IDLE_EXCEPTION,
                level="warning",
                at=at,
                problem=f"nothing in the spec needs the exception '{code}'"
                if is_known
                else f"'{code}' is not the code of a warning",
                help="remove it" if is_known else did_you_mean(code, CHECKS),
                source=graph.source,
                fix=removing(at, certain=True) if is_known else respelled(at, code, CHECKS),
            )
        )
    return findings


def _findings(code: str, graph: Graph) -> Iterator[Finding]:
    """Yield the warnings of one kind, each place once."""
    visited = set[str]()
    for remark in CHECKS[code](graph):
        if remark.at in visited:
            continue
        visited.add(remark.at)
        yield Finding(
            code=code,
            level="warning",
            at=remark.at,
            problem=remark.problem,
            evidence=remark.evidence,
            help=f"{remark.help}; if it is meant, add '{code}' to 'allow'",
            source=graph.source,
            fix=remark.fix,
        )
