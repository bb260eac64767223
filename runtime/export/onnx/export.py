"""To ONNX: the forward of a spec, or its encoder and one step, checked by onnxruntime."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ....blocks.kernels.decode_state import Capacity
from ....graphs.ir.graph import Graph
from ....specs.findings import InputError
from ...checkpoint.checkpoint import Checkpoint
from ...checkpoint.tokenizers import special_tokens_of
from ..atomic_folder import new_folder, write_marker
from ..examples import sizes_for
from .check import CLOSE, SHAPES, compare_decoding, compare_steps, difference
from .step_state import GROWN, Begin, Leaf, Loop, Step, grown_of, leaves, loop_of
from .write import (
    PAST,
    ROOM,
    ROWS,
    Axes,
    Named,
    Session,
    axes_of,
    looping,
    named_inputs,
    refused,
    write_onnx,
)


@dataclass(frozen=True, slots=True)
class CheckedOnnx:
    """How far an export is from the model, by what was compared after writing."""

    graphs: tuple[str, ...]
    """Files that were written."""
    outputs: int
    """Greedy outputs, or calls, that were compared."""
    same: int
    """Those of which both made the same tokens; or that were near enough."""
    largest: float
    """Largest difference of two numbers that come out, as a share where they are above 1."""

    @property
    def report(self) -> str:
        """What was compared, for a person."""
        return (
            f"{', '.join(self.graphs)}: {self.same} of {self.outputs} outputs equal\n"
            f"numbers differ by {self.largest:.2g} at most, for sequences of several lengths"
        )


def export_onnx(held: Checkpoint, out: Path | str) -> CheckedOnnx:
    """Write a checkpoint as ONNX graphs with free lengths, and check them with onnxruntime.

    A spec that decodes becomes `begin.onnx`, what runs once, and `step.onnx`; any other
    `model.onnx`.  `model.json` says what goes in and comes out.  Tokenizers lie beside them.

    Args:
        held: an opened checkpoint.
        out: the folder; an older export there is replaced.

    Raises:
        InputError: an engine is missing; a node cannot be expressed; the folder is something
            else; or what was written does not compute the same, then it is gone.
    """
    try:
        import onnx  # noqa: F401, PLC0415 - an extra
        import onnxruntime  # noqa: F401, PLC0415 - an extra
        import onnxscript  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise InputError(
            f"ONNX cannot be loaded: {error}", help="pip install 'weft[onnx]'"
        ) from error
    onnx_files(held.graph)  # what cannot be, before anything is built
    model = held.build()
    with new_folder(Path(out)) as folder:
        if held.graph.step_axis is None:
            checked = _forward(held.graph, model, folder)
        else:
            checked = _stepping(held, model, folder)
        if not checked.largest <= CLOSE or checked.same < checked.outputs:
            raise refused(
                held.graph,
                f"what was written does not compute the same: {checked.same} of "
                f"{checked.outputs} outputs are equal, numbers differ by up to "
                f"{checked.largest:.2g}",
            )
        for name, data in held.tokenizers.items():
            (folder / name).write_bytes(data)
        write_marker(folder, held.graph, "onnx", {"checked": asdict(checked)})
    return checked


def onnx_files(graph: Graph) -> tuple[str, ...]:
    """Return the files of graphs that a spec becomes, as far as the spec itself tells.

    Args:
        graph: a checked graph.

    Raises:
        InputError: it cannot become any; the nodes that prevent it are named.
    """
    if graph.step_axis is not None:
        return ("begin.onnx", "step.onnx") if loop_of(graph).fixed else ("step.onnx",)
    nodes = looping(graph)
    if nodes:
        raise refused(graph, f"{nodes[0]} moves position by position: one graph for each length")
    return ("model.onnx",)


EXAMPLES = ((3, 7), (4, 11))
"""Rows and length of the calls by which lengths are told from numbers."""
WIDE = 23
"""Positions of a room that is longer than any of them."""


class _Forward(nn.Module):
    """A model called by position."""

    def __init__(self, model: nn.Module, graph: Graph) -> None:
        super().__init__()
        self.model = model
        self.names, self.outputs = list(graph.inputs), _given(graph)

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        found = self.model(**dict(zip(self.names, values, strict=True)))
        return tuple(found[name] for name in self.outputs)


def _given(graph: Graph) -> list[str]:
    return [name for name, type_ in graph.outputs.items() if type_.kind != "loss"]


def _forward(graph: Graph, model: nn.Module, folder: Path) -> CheckedOnnx:
    """Write a spec that does not decode as one graph, and compare its outputs."""
    given = named_inputs(graph, batch=3, length=7)
    outputs = _given(graph)
    # An output may be called as an input is.
    names = [f"{name}.y" if name in graph.inputs else name for name in outputs]
    write_onnx(_Forward(model, graph), given, names, folder / "model.onnx", graph)
    session, far = Session(folder / "model.onnx", graph), []
    for batch, length in SHAPES:
        inputs = {one.name: one.example for one in named_inputs(graph, batch=batch, length=length)}
        with torch.no_grad():
            expected = model(**inputs)
        found = session(inputs)
        far += [
            difference(expected[ours], found[theirs])
            for ours, theirs in zip(outputs, names, strict=True)
        ]
    shapes = [
        {"name": theirs, "shape": list(axes_of(graph.outputs[ours], graph))}
        for ours, theirs in zip(outputs, names, strict=True)
    ]
    told = {"model": {"inputs": [one.as_json() for one in given], "outputs": shapes}}
    _write_json(folder, graph, {"graphs": told})
    near = sum(one <= CLOSE for one in far)
    return CheckedOnnx(("model.onnx",), len(far), near, max(far))


def _write_json(folder: Path, graph: Graph, value: Mapping[str, Any]) -> None:
    text = json.dumps({"format": 1, "spec": graph.name, **value}, indent=2)
    (folder / "model.json").write_text(text + "\n")


def _stepping(held: Checkpoint, model: nn.Module, folder: Path) -> CheckedOnnx:
    """Write a spec that decodes as two graphs, and compare logits and greedy outputs."""
    graph = held.graph
    loop = loop_of(graph)
    begun = [_begun(model, graph, loop, example) for example in EXAMPLES]
    like, fixed = begun[0]
    grown = grown_of(like, _begun(model, graph, loop, EXAMPLES[0], capacity=WIDE)[0])
    lengths = _lengths(graph)
    states = [
        # Copies, since two inputs that are one tensor would be traced as one.
        Named(one.name, _state_axes(one, other, lengths, grown), one.value.clone())
        for one, other in zip(leaves(like), leaves(begun[1][0]), strict=True)
    ]
    kinds = {one.name: GROWN if one.name in grown else one.kind for one in leaves(like)}
    counted = "appended" not in kinds.values() and _counts(model, loop, begun[0])
    if loop.fixed:
        names = [one.name for one in states]
        write_onnx(Begin(model, loop, like), fixed, names, folder / "begin.onnx", graph)
    elif any(one.value.any() for one in leaves(_fresh(model, fixed))):
        raise InputError("its state does not begin with zeros", place=graph.source)
    tokens = Named(loop.tokens, (ROWS, 1), torch.zeros(3, 1, dtype=torch.long))
    count = [Named(PAST, (PAST,), torch.zeros(2, dtype=torch.long))] if counted else []
    changed = [f"next.{one.name}" for one in states if kinds[one.name] != "fixed"]
    step = Step(model, loop, like, counted=counted, grown=grown)
    write_onnx(
        step,
        [tokens, *count, *states],
        [loop.output, *changed],
        folder / "step.onnx",
        graph,
    )
    told: dict[str, Any] = {}
    if loop.fixed:
        told["begin"] = {
            "inputs": [one.as_json() for one in fixed],
            "outputs": [one.as_json() for one in states],
        }
    told["step"] = {
        "inputs": [one.as_json() for one in [tokens, *count, *states]],
        "outputs": [
            {"name": loop.output, "type": "float32", "shape": [ROWS, graph.outputs["logits"].size]},
            *({"name": name, "becomes": name.removeprefix("next.")} for name in changed),
        ],
    }
    _write_json(folder, graph, {"graphs": told, "special": _special_tokens(held), "kinds": kinds})
    far = compare_steps(step, [*count, *states], folder, graph)
    same, other = compare_decoding(graph, model, loop, folder)
    return CheckedOnnx(onnx_files(graph), len(SHAPES), same, max(far, other))


def _fresh(model: nn.Module, fixed: list[Named], capacity: int = 3) -> Any:
    """Return a state with room for some positions, before the first."""
    rows = fixed[0].example.size(0) if fixed else 3
    parameter = next(model.parameters())
    begin: Any = model.begin
    with torch.no_grad():
        place = Capacity(rows, 1, capacity, parameter.dtype, parameter.device)
        return begin(place, **{one.name: one.example for one in fixed})


def _begun(
    model: nn.Module, graph: Graph, loop: Loop, example: tuple[int, int], *, capacity: int = 3
) -> tuple[Any, list[Named]]:
    """Return a state after a step, which then has every tensor, and the inputs it is of."""
    batch, length = example
    given = {one.name: one for one in named_inputs(graph, batch=batch, length=length)}
    fixed = [given[name] for name in loop.fixed]
    state = _fresh(model, fixed, capacity)
    rows = fixed[0].example.size(0) if fixed else 3
    tokens = torch.zeros(rows, 1, dtype=torch.long)
    moving = {loop.tokens: tokens, **dict.fromkeys(loop.masks, torch.ones_like(tokens).bool())}
    step: Any = model.step
    with torch.no_grad():
        step(**moving, state=state, position=0)
    return state, fixed


def _lengths(graph: Graph) -> dict[tuple[int, int], str]:
    """Return the names of axes, by how long they are in the two examples."""
    first, second = (sizes_for(graph, batch=b, length=n) for b, n in EXAMPLES)
    named = {(first[axis], second[axis]): axis for axis in first}
    return {**named, (EXAMPLES[0][0], EXAMPLES[1][0]): ROWS}


def _state_axes(
    one: Leaf, other: Leaf, lengths: Mapping[tuple[int, int], str], grown: Mapping[str, int]
) -> Axes:
    """Return the shape of a tensor of a state, by how it differs for other lengths."""
    found: list[str | int] = []
    for place, pair in enumerate(zip(one.value.shape, other.value.shape, strict=True)):
        if place == 0:
            found.append(ROWS)
        elif one.kind == "appended" and place == one.value.dim() - 2:
            found.append(PAST)
        elif place == grown.get(one.name):
            found.append(ROOM)
        elif pair[0] != pair[1]:
            found.append(lengths.get(pair, f"{one.name}.{place}"))
        else:
            found.append(pair[0])
    return tuple(found)


def _counts(model: nn.Module, loop: Loop, begun: tuple[Any, list[Named]]) -> bool:
    """Say whether a step whose state does not grow asks at which position it stands."""
    step: Any = model.step
    outputs = []
    for position in (0, 2):
        state = _fresh(model, begun[1])
        rows = next(leaves(begun[0])).value.size(0)
        tokens = torch.ones(rows, 1, dtype=torch.long)
        moving = {loop.tokens: tokens, **dict.fromkeys(loop.masks, tokens.bool())}
        with torch.no_grad():
            outputs.append(step(**moving, state=state, position=position)[loop.output])
    return not torch.equal(outputs[0], outputs[1])


def _special_tokens(held: Checkpoint) -> dict[str, Any] | None:
    try:
        found = special_tokens_of(held)
    except InputError:
        return None
    return {**found._asdict(), "never": sorted(found.never)}
