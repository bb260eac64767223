"""Compare an ONNX export, run by onnxruntime, with the model's own forward."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .....plugin import Graph, owned_parts, position_limits
from .step_state import Loop, Step
from .write import CAPACITY, PAST, ROWS, Named, Session, named_inputs

CLOSE = 1e-4
"""Largest allowed difference, relative to the largest number where that is above 1."""
SHAPES = ((1, 5), (3, 9), (2, 14))
"""(batch, length) pairs for which outputs are compared."""
STEPS = 8
"""Positions decoded for each pair."""


def compare_steps(step: Step, states: list[Named], folder: Path, graph: Graph) -> float:
    """Return the largest difference of single steps, from random states of several lengths.

    Args:
        step: the step module of the model.
        states: inputs of the step after the tokens.
        folder: folder with `step.onnx`.
        graph: graph of the model.

    Raises:
        InputError: the graph does not run for some number of past positions.
    """
    session, far = Session(folder / "step.onnx", graph), 0.0
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


def compare_decoding(graph: Graph, model: nn.Module, loop: Loop, folder: Path) -> tuple[int, float]:
    """Compare logits and greedy outputs with the model's forward for several shapes.

    Args:
        graph: graph of the model.
        model: in evaluation mode.
        loop: inputs and outputs of its steps.
        folder: folder with the graphs and `model.json`.

    Returns:
        Number of shapes with equal greedy outputs, and the largest difference of logits.

    Raises:
        InputError: a graph does not run for some lengths.
    """
    step = Session(folder / "step.onnx", graph)
    begin = Session(folder / "begin.onnx", graph) if loop.fixed else None
    description = json.loads((folder / "model.json").read_text())
    same, far = 0, 0.0
    for batch, length in SHAPES:
        examples = {
            example.name: example.example
            for example in named_inputs(graph, batch=batch, length=length)
        }
        fixed = {name: examples[name] for name in loop.fixed}
        tokens_RT = examples[loop.tokens][:, : min(STEPS, examples[loop.tokens].size(1))]
        state = _start(description, begin, fixed, tokens_RT.size(0))
        run = _Run(step, loop, state)
        logits = [run(tokens_RT[:, t : t + 1]) for t in range(tokens_RT.size(1))]
        expected = _plain(model, loop, fixed, tokens_RT)
        far = max(far, difference(expected, torch.stack(logits, 1)))
        first = tokens_RT[:, :1]
        theirs = _greedy(_Run(step, loop, _start(description, begin, fixed, len(first))), first)
        same += torch.equal(theirs, _plain_greedy(model, loop, fixed, first))
    return same, far


def _start(
    description: Mapping[str, Any], begin: Session | None, fixed: Mapping[str, Tensor], rows: int
) -> dict[str, Tensor]:
    """Return the state before the first step, as described by `model.json`."""
    if begin is not None:
        return begin(fixed)
    sizes = {ROWS: rows, PAST: 0, CAPACITY: 0}
    return {
        state["name"]: torch.zeros(
            [sizes.get(axis, axis) for axis in state["shape"]], dtype=getattr(torch, state["type"])
        )
        for state in description["graphs"]["step"]["inputs"][1:]
    }


class _Run:
    """Runs `step.onnx` repeatedly and carries its state."""

    def __init__(self, step: Session, loop: Loop, state: Mapping[str, Tensor]) -> None:
        self.step, self.loop, self.state = step, loop, dict(state)
        self.written = 0

    def __call__(self, tokens_R1: Tensor) -> Tensor:
        past = torch.zeros(self.written, dtype=torch.long)
        outputs = self.step({self.loop.tokens: tokens_R1, **self.state, PAST: past})
        self.written += 1
        logits = outputs.pop(self.loop.output)
        self.state |= {name.removeprefix("next."): value for name, value in outputs.items()}
        return logits


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
