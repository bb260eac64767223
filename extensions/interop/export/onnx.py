"""Export to ONNX: a model's forward, or its encoder and decoding step, then check it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ....graphs.passes.pipeline import PassSettings, after
from ....plugin import (
    Capacity,
    Checkpoint,
    Graph,
    InputError,
    build_sharing,
    new_folder,
    owned_parts,
    position_limits,
    sizes_for,
    special_tokens_of,
    write_marker,
)
from .onnx_graph import (
    CAPACITY,
    GROWN,
    PAST,
    ROWS,
    Axes,
    Begin,
    Loop,
    NamedTensor,
    OnnxLeaf,
    OnnxSession,
    OnnxStep,
    axes_of,
    grown_of,
    leaves,
    loop_of,
    looping,
    named_inputs,
    refused,
    write_onnx,
)

_CLOSE = 1e-4
"""Largest allowed difference, relative to the largest number where that is above 1."""
_SHAPES = ((1, 5), (3, 9), (2, 14))
"""(batch, length) pairs for which outputs are compared."""
STEPS = 8
"""Positions decoded for each pair."""


def _compare_steps(step: OnnxStep, states: list[NamedTensor], folder: Path, graph: Graph) -> float:
    """Return the largest difference of single steps, from random states of several lengths.

    Args:
        step: the step module of the model.
        states: inputs of the step after the tokens.
        folder: folder with `step.onnx`.
        graph: graph of the model.

    Raises:
        InputError: the graph does not run for some number of past positions.
    """
    session, far = OnnxSession(folder / "step.onnx", graph), 0.0
    windows = {int(part.arguments.get("window") or 0) for _, _, part in owned_parts(graph.root)}
    pasts = {0, 1, 2, 17}.union(*({window, window + 1, window + 9} for window in windows))
    tables = position_limits(graph)
    generator = torch.Generator().manual_seed(4)
    for past in sorted(count for count in pasts if count < min(tables, default=count + 1)):
        free = {ROWS: 2, PAST: past, CAPACITY: past + 6}
        values = {}
        for state in states:
            shape = [free.get(a, 6) if isinstance(a, str) else a for a in state.axes]
            values[state.name] = (
                torch.randn(shape, generator=generator).to(state.example.dtype)
                if state.example.is_floating_point()
                else torch.ones(shape, dtype=state.example.dtype)
            )
        tokens = torch.ones(2, 1, dtype=torch.long)
        with torch.no_grad():
            expected = step(tokens, *values.values())
        outputs = session({step.loop.tokens: tokens, **values})
        pairs = zip(expected, outputs.values(), strict=True)
        far = max(far, *(difference(ours, theirs) for ours, theirs in pairs))
    return far


def _compare_decoding(
    graph: Graph, model: nn.Module, loop: Loop, states: list[NamedTensor], folder: Path
) -> tuple[int, float]:
    """Compare logits and greedy outputs with the model's forward for several shapes.

    After half of the steps, the order of the rows is reversed, as beams reorder them.

    Args:
        graph: graph of the model.
        model: in evaluation mode.
        loop: inputs and outputs of its steps.
        states: the tensors of the state, with their axes.
        folder: folder with the graphs.

    Returns:
        Number of shapes with equal greedy outputs, and the largest difference of logits.

    Raises:
        InputError: a graph does not run for some lengths.
    """
    step = OnnxSession(folder / "step.onnx", graph)
    begin = OnnxSession(folder / "begin.onnx", graph)
    same, far = 0, 0.0
    for batch, length in _SHAPES:
        examples = {
            example.name: example.example
            for example in named_inputs(graph, batch=batch, length=length)
        }
        fixed = {name: examples[name] for name in loop.fixed}
        tokens_RT = examples[loop.tokens][:, : min(STEPS, examples[loop.tokens].size(1))]
        state = begin({**fixed, ROWS: torch.zeros(batch, dtype=torch.long)})
        expected = _plain(model, loop, fixed, tokens_RT)
        first, second = tokens_RT.tensor_split(2, dim=1)
        run = _Run(step, loop, state)
        logits = [run(tokens_R1) for tokens_R1 in first.split(1, dim=1)]
        run.reverse(states)
        logits += [run(tokens_R1.flip(0)).flip(0) for tokens_R1 in second.split(1, dim=1)]
        far = max(far, difference(expected, torch.stack(logits, 1)))
        first = tokens_RT[:, :1]
        theirs = _greedy(_Run(step, loop, state), first)
        same += torch.equal(theirs, _plain_greedy(model, loop, fixed, first))
    return same, far


class _Run:
    """Runs `step.onnx` repeatedly and carries its state."""

    def __init__(self, step: OnnxSession, loop: Loop, state: Mapping[str, Tensor]) -> None:
        self.step, self.loop, self.state = step, loop, dict(state)
        self.written = 0

    def __call__(self, tokens_R1: Tensor) -> Tensor:
        past = torch.zeros(self.written, dtype=torch.long)
        outputs = self.step({self.loop.tokens: tokens_R1, **self.state, PAST: past})
        self.written += 1
        logits = outputs.pop(self.loop.output)
        self.state |= {name.removeprefix("next."): value for name, value in outputs.items()}
        return logits

    def reverse(self, states: list[NamedTensor]) -> None:
        """Reverse the order of the rows of the state."""
        for state in states:
            rows = [axis for axis, name in enumerate(state.axes) if name == ROWS]
            self.state[state.name] = self.state[state.name].flip(rows)


def _greedy(run: _Run, tokens_R1: Tensor) -> Tensor:
    generated = []
    for _ in range(STEPS):
        tokens_R1 = run(tokens_R1).argmax(-1, keepdim=True)
        generated.append(tokens_R1)
    return torch.cat(generated, 1)


@torch.no_grad()
def _plain(model: nn.Module, loop: Loop, fixed: Mapping[str, Tensor], tokens_RT: Tensor) -> Tensor:
    masks = dict.fromkeys(loop.masks, torch.ones_like(tokens_RT, dtype=torch.bool))
    logits: Tensor = model(**fixed, **{loop.tokens: tokens_RT}, **masks)[loop.output]
    return logits


def _plain_greedy(
    model: nn.Module, loop: Loop, fixed: Mapping[str, Tensor], tokens_R1: Tensor
) -> Tensor:
    written_RT = tokens_R1
    for _ in range(STEPS):
        best_R1 = _plain(model, loop, fixed, written_RT)[:, -1].argmax(-1, keepdim=True)
        written_RT = torch.cat((written_RT, best_R1), 1)
    return written_RT[:, 1:]


def difference(expected: Tensor, actual: Tensor) -> float:
    """Return the largest difference, relative to the largest number where that is above 1.

    Infinities of one sign are equal, and so are two NaN; a NaN and a number differ infinitely.
    """
    if expected.shape != actual.shape:
        return float("inf")
    if not expected.is_floating_point():
        return 0.0 if torch.equal(expected, actual) else float("inf")
    finite = expected[expected.isfinite()]
    scale = max(1.0, finite.abs().max().item()) if finite.numel() else 1.0
    same = (expected == actual) | (expected.isnan() & actual.isnan())
    far = torch.where(same, 0.0, (expected - actual).abs() / scale).nan_to_num(
        nan=torch.inf, posinf=torch.inf
    )
    return far.max().item() if far.numel() else 0.0


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
        if not checked.largest <= _CLOSE or checked.same < checked.outputs:
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
    return build_sharing(after(graph, PassSettings(purpose="export")), model)


def onnx_files(graph: Graph) -> tuple[str, ...]:
    """Return the graph files that a spec is exported to, judged by the spec only.

    Args:
        graph: a checked graph.

    Raises:
        InputError: the spec cannot be exported; the nodes that prevent it are named.
    """
    if graph.step_axis is not None:
        loop_of(graph)
        return ("begin.onnx", "step.onnx")
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
    session, far = OnnxSession(folder / "model.onnx", graph), []
    for batch, length in _SHAPES:
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
    near = sum(gap <= _CLOSE for gap in far)
    return CheckedOnnx(("model.onnx",), len(far), near, max(far))


def _write_json(folder: Path, graph: Graph, value: Mapping[str, Any]) -> None:
    text = json.dumps({"format": 1, "spec": graph.name, **value}, indent=2)
    (folder / "model.json").write_text(text + "\n")


def _stepping(
    checkpoint: Checkpoint, model: nn.Module, formed: nn.Module, folder: Path
) -> CheckedOnnx:
    """Write a spec that decodes as two graphs, and compare logits and greedy outputs."""
    graph = checkpoint.graph
    loop = loop_of(graph)
    begun = [_begun(model, graph, loop, example) for example in EXAMPLES]
    like, fixed = begun[0]
    grown = grown_of(like, _begun(model, graph, loop, EXAMPLES[0], capacity=WIDE)[0])
    lengths = _lengths(graph)
    states = [
        # Clone, since two inputs that share a tensor would be traced as one input.
        NamedTensor(leaf.name, _state_axes(leaf, other, lengths, grown), leaf.value.clone())
        for leaf, other in zip(leaves(like), leaves(begun[1][0]), strict=True)
    ]
    kinds = {leaf.name: GROWN if leaf.name in grown else leaf.kind for leaf in leaves(like)}
    counted = "appended" not in kinds.values() and _counts(model, loop, begun[0])
    rows = NamedTensor(ROWS, (ROWS,), torch.zeros(EXAMPLES[0][0], dtype=torch.long))
    begins = [*fixed, rows] if loop.rows is None else fixed
    names = [state.name for state in states]
    write_onnx(Begin(formed, loop, like), begins, names, folder / "begin.onnx", graph)
    tokens = NamedTensor(loop.tokens, (ROWS, 1), torch.zeros(3, 1, dtype=torch.long))
    count = [NamedTensor(PAST, (PAST,), torch.zeros(2, dtype=torch.long))] if counted else []
    changed = [f"next.{state.name}" for state in states if kinds[state.name] != "fixed"]
    write_onnx(
        OnnxStep(formed, loop, like, counted=counted, grown=grown),
        [tokens, *count, *states],
        [loop.output, *changed],
        folder / "step.onnx",
        graph,
    )
    logits = {"name": loop.output, "type": "float32", "shape": [ROWS, graph.outputs["logits"].size]}
    graphs = {
        "begin": {
            "inputs": [input_.as_json() for input_ in begins],
            "outputs": [state.as_json() for state in states],
        },
        "step": {
            "inputs": [input_.as_json() for input_ in [tokens, *count, *states]],
            "outputs": [
                logits,
                *({"name": name, "becomes": name.removeprefix("next.")} for name in changed),
            ],
        },
    }
    _write_json(
        folder, graph, {"graphs": graphs, "special": _special_tokens(checkpoint), "kinds": kinds}
    )
    step = OnnxStep(model, loop, like, counted=counted, grown=grown)
    far = _compare_steps(step, [*count, *states], folder, graph)
    same, other = _compare_decoding(graph, model, loop, states, folder)
    return CheckedOnnx(onnx_files(graph), len(_SHAPES), same, max(far, other))


def _fresh(model: nn.Module, fixed: list[NamedTensor], rows: int, capacity: int = 3) -> Any:
    """Return the state before the first position, with the given rows and capacity."""
    parameter = next(model.parameters())
    begin: Any = model.begin
    with torch.no_grad():
        sizes = Capacity(rows, 1, capacity, parameter.dtype, parameter.device)
        return begin(sizes, **{input_.name: input_.example for input_ in fixed})


def _begun(
    model: nn.Module, graph: Graph, loop: Loop, example: tuple[int, int], *, capacity: int = 3
) -> tuple[Any, list[NamedTensor]]:
    """Return a state after one step, which has every tensor, and the fixed inputs."""
    rows, length = example
    inputs = {input_.name: input_ for input_ in named_inputs(graph, batch=rows, length=length)}
    fixed = [inputs[name] for name in loop.fixed]
    state = _fresh(model, fixed, rows, capacity)
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
    leaf: OnnxLeaf,
    other: OnnxLeaf,
    lengths: Mapping[tuple[int, int], str],
    grown: Mapping[str, int],
) -> Axes:
    """Return the shape of a state tensor; sizes that differ between examples become names."""
    axes: list[str | int] = []
    for index, pair in enumerate(zip(leaf.value.shape, other.value.shape, strict=True)):
        if leaf.kind == "appended" and index == leaf.value.dim() - 2:
            axes.append(PAST)
        elif index == grown.get(leaf.name):
            axes.append(CAPACITY)
        elif pair[0] != pair[1]:
            axes.append(lengths.get(pair, f"{leaf.name}.{index}"))
        else:
            axes.append(pair[0])
    return tuple(axes)


def _counts(model: nn.Module, loop: Loop, begun: tuple[Any, list[NamedTensor]]) -> bool:
    """Return whether a step whose state does not grow depends on its position."""
    step: Any = model.step
    outputs = []
    rows = EXAMPLES[0][0]
    for position in (0, 2):
        state = _fresh(model, begun[1], rows)
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
