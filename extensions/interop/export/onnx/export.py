"""Export to ONNX: a model's forward, or its encoder and decoding step, then check it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .....graphs.passes.pipeline import Settings, after
from .....plugin import (
    Capacity,
    Checkpoint,
    Graph,
    InputError,
    build_sharing,
    new_folder,
    sizes_for,
    special_tokens_of,
    write_marker,
)
from .check import CLOSE, SHAPES, compare_decoding, compare_steps, difference
from .step_state import GROWN, Begin, Leaf, Loop, Step, grown_of, leaves, loop_of
from .write import (
    CAPACITY,
    PAST,
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
    """Result of comparing an export with the model."""

    graphs: tuple[str, ...]
    """Names of the written graph files."""
    outputs: int
    """Number of greedy outputs or calls that were compared."""
    same: int
    """Number of them with identical tokens, or close enough values."""
    largest: float
    """Largest difference of two output numbers, relative where they are above 1."""

    @property
    def report(self) -> str:
        """The result as text."""
        return (
            f"{', '.join(self.graphs)}: {self.same} of {self.outputs} outputs equal\n"
            f"largest difference {self.largest:.2g}, for sequences of several lengths"
        )


def export_onnx(checkpoint: Checkpoint, out: Path | str) -> CheckedOnnx:
    """Write a checkpoint as ONNX graphs with free lengths, and check them with onnxruntime.

    A spec that decodes becomes `begin.onnx`, run once, and `step.onnx`; any other spec becomes
    `model.onnx`.  `model.json` describes inputs and outputs.  Tokenizers are copied too.

    Args:
        checkpoint: an opened checkpoint.
        out: the folder; an older export there is replaced.

    Raises:
        InputError: an engine is missing, a node cannot be expressed, the path exists and is not
            an export, or the export does not match the model; then it is removed.
    """
    try:
        import onnx  # noqa: F401, PLC0415 - an extra
        import onnxruntime  # noqa: F401, PLC0415 - an extra
        import onnxscript  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise InputError(
            f"ONNX cannot be loaded: {error}", help="pip install 'weft[onnx]'"
        ) from error
    onnx_files(checkpoint.graph)  # refuse early, before the model is built
    model = checkpoint.build()
    formed = in_onnx_forms(checkpoint.graph, model)
    with new_folder(Path(out)) as folder:
        if checkpoint.graph.step_axis is None:
            checked = _forward(checkpoint.graph, model, formed, folder)
        else:
            checked = _stepping(checkpoint, model, formed, folder)
        if not checked.largest <= CLOSE or checked.same < checked.outputs:
            raise refused(
                checkpoint.graph,
                f"the export does not compute the same as the model: {checked.same} of "
                f"{checked.outputs} outputs are equal, numbers differ by up to "
                f"{checked.largest:.2g}",
            )
        for name, data in checkpoint.tokenizers.items():
            (folder / name).write_bytes(data)
        write_marker(folder, checkpoint.graph, "onnx", {"checked": asdict(checked)})
    return checked


def in_onnx_forms(graph: Graph, model: nn.Module) -> nn.Module:
    """Return a model whose blocks have the forms that torch's exporter can follow.

    Args:
        graph: graph of the model.
        model: has the weights; both models share them.
    """
    return build_sharing(after(graph, Settings(purpose="export")), model)


def onnx_files(graph: Graph) -> tuple[str, ...]:
    """Return the graph files that a spec is exported to, judged by the spec only.

    Args:
        graph: a checked graph.

    Raises:
        InputError: the spec cannot be exported; the nodes that prevent it are named.
    """
    if graph.step_axis is not None:
        return ("begin.onnx", "step.onnx") if loop_of(graph).fixed else ("step.onnx",)
    nodes = looping(graph)
    if nodes:
        raise refused(
            graph, f"{nodes[0]} loops over positions, so each length would need its own graph"
        )
    return ("model.onnx",)


EXAMPLES = ((3, 7), (4, 11))
"""(rows, length) of two example calls; sizes that differ between them are free axes."""
WIDE = 23
"""State capacity, in positions, above all example lengths."""


class _Forward(nn.Module):
    """A model called with positional arguments."""

    def __init__(self, model: nn.Module, graph: Graph) -> None:
        super().__init__()
        self.model = model
        self.names, self.outputs = list(graph.inputs), _given(graph)

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        outputs = self.model(**dict(zip(self.names, values, strict=True)))
        return tuple(outputs[name] for name in self.outputs)


def _given(graph: Graph) -> list[str]:
    return [name for name, type_ in graph.outputs.items() if type_.kind != "loss"]


def _forward(graph: Graph, model: nn.Module, formed: nn.Module, folder: Path) -> CheckedOnnx:
    """Write a spec that does not decode as one graph, and compare its outputs with the model's."""
    examples = named_inputs(graph, batch=3, length=7)
    outputs = _given(graph)
    # An output may have the same name as an input.
    names = [f"{name}.y" if name in graph.inputs else name for name in outputs]
    write_onnx(_Forward(formed, graph), examples, names, folder / "model.onnx", graph)
    session, far = Session(folder / "model.onnx", graph), []
    for batch, length in SHAPES:
        inputs = {
            input_.name: input_.example
            for input_ in named_inputs(graph, batch=batch, length=length)
        }
        with torch.no_grad():
            expected = model(**inputs)
        results = session(inputs)
        far += [
            difference(expected[ours], results[theirs])
            for ours, theirs in zip(outputs, names, strict=True)
        ]
    shapes = [
        {"name": theirs, "shape": list(axes_of(graph.outputs[ours], graph))}
        for ours, theirs in zip(outputs, names, strict=True)
    ]
    graphs = {"model": {"inputs": [input_.as_json() for input_ in examples], "outputs": shapes}}
    _write_json(folder, graph, {"graphs": graphs})
    near = sum(gap <= CLOSE for gap in far)
    return CheckedOnnx(("model.onnx",), len(far), near, max(far))


def _write_json(folder: Path, graph: Graph, value: Mapping[str, Any]) -> None:
    text = json.dumps({"format": 1, "spec": graph.name, **value}, indent=2)
    (folder / "model.json").write_text(text + "\n")


def _stepping(
    checkpoint: Checkpoint, model: nn.Module, formed: nn.Module, folder: Path
) -> CheckedOnnx:
    """Write a spec that decodes as one or two graphs, and compare logits and greedy outputs."""
    graph = checkpoint.graph
    loop = loop_of(graph)
    begun = [_begun(model, graph, loop, example) for example in EXAMPLES]
    like, fixed = begun[0]
    grown = grown_of(like, _begun(model, graph, loop, EXAMPLES[0], capacity=WIDE)[0])
    lengths = _lengths(graph)
    states = [
        # Clone, since two inputs that share a tensor would be traced as one input.
        Named(leaf.name, _state_axes(leaf, other, lengths, grown), leaf.value.clone())
        for leaf, other in zip(leaves(like), leaves(begun[1][0]), strict=True)
    ]
    kinds = {leaf.name: GROWN if leaf.name in grown else leaf.kind for leaf in leaves(like)}
    counted = "appended" not in kinds.values() and _counts(model, loop, begun[0])
    if loop.fixed:
        names = [state.name for state in states]
        write_onnx(Begin(formed, loop, like), fixed, names, folder / "begin.onnx", graph)
    elif any(leaf.value.any() for leaf in leaves(_fresh(model, fixed))):
        raise InputError("the initial decoding state is not all zeros", location=graph.source)
    tokens = Named(loop.tokens, (ROWS, 1), torch.zeros(3, 1, dtype=torch.long))
    count = [Named(PAST, (PAST,), torch.zeros(2, dtype=torch.long))] if counted else []
    changed = [f"next.{state.name}" for state in states if kinds[state.name] != "fixed"]
    write_onnx(
        Step(formed, loop, like, counted=counted, grown=grown),
        [tokens, *count, *states],
        [loop.output, *changed],
        folder / "step.onnx",
        graph,
    )
    graphs: dict[str, Any] = {}
    if loop.fixed:
        graphs["begin"] = {
            "inputs": [input_.as_json() for input_ in fixed],
            "outputs": [state.as_json() for state in states],
        }
    graphs["step"] = {
        "inputs": [input_.as_json() for input_ in [tokens, *count, *states]],
        "outputs": [
            {"name": loop.output, "type": "float32", "shape": [ROWS, graph.outputs["logits"].size]},
            *({"name": name, "becomes": name.removeprefix("next.")} for name in changed),
        ],
    }
    _write_json(
        folder, graph, {"graphs": graphs, "special": _special_tokens(checkpoint), "kinds": kinds}
    )
    step = Step(model, loop, like, counted=counted, grown=grown)
    far = compare_steps(step, [*count, *states], folder, graph)
    same, other = compare_decoding(graph, model, loop, folder)
    return CheckedOnnx(onnx_files(graph), len(SHAPES), same, max(far, other))


def _fresh(model: nn.Module, fixed: list[Named], capacity: int = 3) -> Any:
    """Return the state before the first position, with the given capacity."""
    rows = fixed[0].example.size(0) if fixed else 3
    parameter = next(model.parameters())
    begin: Any = model.begin
    with torch.no_grad():
        sizes = Capacity(rows, 1, capacity, parameter.dtype, parameter.device)
        return begin(sizes, **{input_.name: input_.example for input_ in fixed})


def _begun(
    model: nn.Module, graph: Graph, loop: Loop, example: tuple[int, int], *, capacity: int = 3
) -> tuple[Any, list[Named]]:
    """Return a state after one step, which has every tensor, and the fixed inputs."""
    batch, length = example
    inputs = {input_.name: input_ for input_ in named_inputs(graph, batch=batch, length=length)}
    fixed = [inputs[name] for name in loop.fixed]
    state = _fresh(model, fixed, capacity)
    rows = fixed[0].example.size(0) if fixed else 3
    tokens = torch.zeros(rows, 1, dtype=torch.long)
    moving = {loop.tokens: tokens, **dict.fromkeys(loop.masks, torch.ones_like(tokens).bool())}
    step: Any = model.step
    with torch.no_grad():
        step(**moving, state=state, position=0)
    return state, fixed


def _lengths(graph: Graph) -> dict[tuple[int, int], str]:
    """Return axis names by their lengths in the two examples."""
    first, second = (sizes_for(graph, batch=b, length=n) for b, n in EXAMPLES)
    axes = {(first[axis], second[axis]): axis for axis in first}
    return {**axes, (EXAMPLES[0][0], EXAMPLES[1][0]): ROWS}


def _state_axes(
    leaf: Leaf, other: Leaf, lengths: Mapping[tuple[int, int], str], grown: Mapping[str, int]
) -> Axes:
    """Return the shape of a state tensor; sizes that differ between examples become names."""
    axes: list[str | int] = []
    for index, pair in enumerate(zip(leaf.value.shape, other.value.shape, strict=True)):
        if index == 0:
            axes.append(ROWS)
        elif leaf.kind == "appended" and index == leaf.value.dim() - 2:
            axes.append(PAST)
        elif index == grown.get(leaf.name):
            axes.append(CAPACITY)
        elif pair[0] != pair[1]:
            axes.append(lengths.get(pair, f"{leaf.name}.{index}"))
        else:
            axes.append(pair[0])
    return tuple(axes)


def _counts(model: nn.Module, loop: Loop, begun: tuple[Any, list[Named]]) -> bool:
    """Return whether a step whose state does not grow depends on its position."""
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


def _special_tokens(checkpoint: Checkpoint) -> dict[str, Any] | None:
    try:
        special = special_tokens_of(checkpoint)
    except InputError:
        return None
    return {**special._asdict(), "never": sorted(special.never)}
