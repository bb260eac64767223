"""The order of positions: whether a model can see it, and in which direction it reads."""

from __future__ import annotations

from collections.abc import Iterator

from ...specs.findings import pointer
from ...specs.text.edits import removing
from ..ir.graph import Graph, Part
from ..ir.value_type import time_axes
from .remark import Remark, behaviors, blocks, scores_in, vocabularies


def missing_positions(graph: Graph) -> Iterator[Remark]:
    """Yield attention along an axis on which nothing depends on the order of the positions.

    Without positions, such a model sees a sequence as a set (Vaswani et al. 2017, section 3.5).
    Causal attention can tell positions apart by itself (Haviv et al. 2022).
    """
    parts = list(blocks(graph))
    for axis in time_axes(graph.spec.axes):
        reading = [(at, part) for at, part in parts if _reads(part, axis)]
        attending = [(at, part) for at, part in reading if part.block.family == "attention"]
        given = any(type_.kind == "pos" and axis in type_.axes for type_ in graph.inputs.values())
        if not attending or given or any(part.signature.ordered for _, part in reading):
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
    """Return whether a block reads other positions of an axis."""
    return any(each == axis for each, _ in behaviors(part))


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
