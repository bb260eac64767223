"""Tests that run on every shipped spec.

Each file of `models/` describes one family in `MODELS` and `VARIANTS` (the specs of
`specs/models` and `specs/variants`), by name: `parameters`, counted by hand; `small`, params
that make the spec tiny; `sizes` of its axes, if the default lengths do not fit; and `updates`,
if two updates do not change every weight.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import weft
from torch import Tensor, nn
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.cost.budgets import measured_flops, measured_state
from weft.graphs.cost.decode_state import state_by_node
from weft.graphs.cost.flops import default_sizes, flops
from weft.graphs.cost.table import cost_table
from weft.graphs.draw.diagram import diagram
from weft.graphs.ir.graph import Graph
from weft.graphs.ir.value_type import ValueType, evaluate, is_arithmetic, names_of
from weft.runtime import api
from weft.runtime.codegen.build import build
from weft.specs.load import load
from weft.specs.reader import SHIPPED

from .entries import ENTRIES, MODELS, VARIANTS, few_fast, small

EVERY = pytest.mark.parametrize("name", ENTRIES)
STEP_LENGTH, LENGTH = 7, 40
"""Positions of the step axis, and of any other time axis."""
SENTENCES, BEAMS = 2, 2
UNSEEN = re.compile(r"(.*\.)?key\.bias")
"""A key's bias shifts all scores of a query equally, which does not change the softmax."""


def graph(name: str, **params: Any) -> Graph:
    """Return a shipped spec, checked, with some params set."""
    return check(load(name).form, registry(), params)


@functools.cache
def shipped(name: str) -> Graph:
    """Return a shipped spec, checked."""
    return graph(name)


def sizes_of(name: str, made: Graph) -> dict[str, int]:
    """Return the axis lengths used in these tests."""
    usual = {
        axis: SENTENCES * BEAMS
        if kind == "batch"
        else STEP_LENGTH
        if axis == made.step_axis
        else LENGTH
        for axis, kind in made.spec.axes.items()
    }
    return {**usual, **ENTRIES[name].get("sizes", {})}


def inputs_of(name: str, made: Graph) -> dict[str, Tensor]:
    """Return random inputs of a spec."""
    return weft.example_inputs(made, sizes_of(name, made), seed=2)


def perturbed(model: nn.Module) -> nn.Module:
    """Perturb every weight, so that no bias or gate is zero and no scale is one."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    return model.eval()


def doubled(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return values with their floats in double precision."""
    return {port: v.double() if v.is_floating_point() else v for port, v in values.items()}


def batch_dim(type_: ValueType, made: Graph) -> int | None:
    """Return the batch dimension of a value; None if it has no batch axis."""
    batches = [i for i, a in enumerate(type_.axes) if made.spec.axes.get(str(a)) == "batch"]
    return batches[0] if batches else None


def loss_of(made: Graph, outputs: Mapping[str, Tensor]) -> Tensor:
    """Return a loss with a differentiable term for every output."""
    generator, total = torch.Generator().manual_seed(3), torch.zeros(())
    for port, type_ in made.outputs.items():
        given = outputs[port]
        if type_.kind in ("logits", "logp"):
            right = torch.randint(given.size(-1), given.shape[:-1], generator=generator)
            total = total + F.cross_entropy(given.flatten(0, -2), right.flatten())
        elif type_.kind in ("f", "score"):
            total = total + F.mse_loss(given, torch.randn(given.shape, generator=generator))
        elif type_.kind == "loss":
            total = total + given.sum()
    return total


TRANSLATORS = [
    name
    for name in ENTRIES
    if set(inputs := small(name).inputs) == {"source", "source_mask", "target"}
    and inputs["source"].kind == "ids"
]
STEPPED = [name for name in ENTRIES if small(name).step_axis]
PADDED = [name for name in ENTRIES if any(t.kind == "mask" for t in small(name).inputs.values())]


def test_all_that_is_shipped_is_here_and_nothing_else() -> None:
    """Every spec has a count by hand; the rows of table 3 have a separate test."""
    shipped = {
        folder: {path.stem for path in (SHIPPED / folder).glob("*.json")}
        for folder in ("models", "variants")
    }

    assert shipped["models"] == set(MODELS)
    assert {n for n in shipped["variants"] if not n.startswith("table3-")} == set(VARIANTS)


@EVERY
def test_the_file_has_the_name_of_the_spec_and_a_doc(name: str) -> None:
    """The doc is one line that ends in a full stop."""
    form = load(name).form

    assert form.name == name
    assert form.doc.endswith(".")
    assert "\n" not in form.doc


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_of_the_base_is_a_patch_of_a_dozen_lines(name: str) -> None:
    """A variant contains only its differences from the base."""
    text = (SHIPPED / "variants" / f"{name}.json").read_text(encoding="utf-8")
    written = json.loads(text)

    assert "extends" in written
    assert "nodes" not in written
    assert len(text.splitlines()) <= 12 or written["extends"] != "transformer-base"


@EVERY
def test_parameters_by_hand(name: str) -> None:
    """Each count is calculated in the file of its family."""
    assert shipped(name).parameters() == ENTRIES[name]["parameters"]


@pytest.mark.integration
@EVERY
def test_costs_of_nodes_add_up(name: str) -> None:
    """They sum to the model's parameters and FLOPs; the memory equals that of a real state."""
    made = small(name)
    sizes = sizes_of(name, made)
    table = cost_table(made, sizes)

    assert sum(node.parameters for node in table.nodes) == made.parameters()
    assert table.flops == flops(made, sizes)
    assert measured_flops(made, None).count == flops(made, default_sizes(made))
    if made.step_axis:
        inputs, moving = inputs_of(name, made), dict[str, Tensor]()
        for port, type_ in made.inputs.items():
            if made.step_axis in type_.axes:
                place = type_.axes.index(made.step_axis)
                moving[port] = inputs[port].narrow(place, 0, 1)
        fixed = {port: value for port, value in inputs.items() if port not in moving}
        capacity = Capacity(
            sizes["B"], 1, sizes[made.step_axis], torch.float32, torch.device("cpu")
        )
        model: Any = build(made).eval()
        with torch.inference_mode():
            state = model.begin(capacity, **fixed)
            model.step(**moving, state=state, position=0)
        assert sum(state_by_node(made, sizes).values()) == bytes_of(state)
        usual = state_by_node(made, default_sizes(made))
        assert measured_state(made, None).count == sum(usual.values())


def bytes_of(state: Any) -> int:
    """Return the bytes of all tensors in a state, without weights, which are those of the model."""
    if isinstance(state, Tensor):
        return 0 if state.requires_grad else state.nbytes
    parts = state.values() if isinstance(state, Mapping) else state
    return sum(map(bytes_of, parts))


@EVERY
def test_it_can_be_drawn(name: str) -> None:
    """The drawing contains every input, every output and the name."""
    made = shipped(name)
    text = diagram(made).source

    assert text.startswith("digraph")
    assert name in text
    assert [port for port in (*made.inputs, *made.outputs) if port not in text] == []


@pytest.mark.integration
@EVERY
def test_the_small_one_gives_the_declared_shapes(name: str) -> None:
    """The output shapes follow from the axis lengths."""
    made = small(name)
    sizes = sizes_of(name, made)

    with torch.inference_mode():
        outputs = build(made).eval()(**inputs_of(name, made))

    for port, type_ in made.outputs.items():
        axes = type_.axes if type_.size is None or type_.kind in ("ids", "label") else None
        wanted = [evaluate(axis, sizes) for axis in axes or (*type_.axes, type_.size or 0)]
        assert list(outputs[port].shape) == wanted, port


@pytest.mark.integration
@pytest.mark.parametrize("name", STEPPED)
def test_stepping_equals_the_parallel_pass(name: str) -> None:
    """Steps over some positions, with two beams per sentence, give the parallel outputs."""
    made = small(name)
    axis = made.step_axis
    model: Any = perturbed(build(made)).double()
    inputs = doubled(inputs_of(name, made))
    moving = {port for port, type_ in made.inputs.items() if axis in type_.axes}
    length = sizes_of(name, made)[axis or ""]
    fixed, full = {}, {}
    for port, value in inputs.items():
        place = None if port in moving else batch_dim(made.inputs[port], made)
        if place is None:
            full[port] = value
            fixed |= {} if port in moving else {port: value}
        else:
            fixed[port] = value.index_select(place, torch.arange(0, value.size(place), BEAMS))
            full[port] = fixed[port].repeat_interleave(BEAMS, place)

    with torch.inference_mode():
        expected = model(**full)
        capacity = Capacity(SENTENCES, BEAMS, length, torch.float64, torch.device("cpu"))

        def some(position: int, count: int) -> dict[str, Tensor]:
            return {
                port: inputs[port].narrow(made.inputs[port].axes.index(axis or ""), position, count)
                for port in moving
            }

        single, several = model.begin(capacity, **fixed), model.begin(capacity, **fixed)
        model.read_prompt(**some(0, length // 2), state=several, position=0)
        last = length - 1
        ways = {
            "one by one": [
                model.step(**some(position, 1), state=single, position=position)
                for position in range(length)
            ],
            "read, then several, then one": [
                model.step(**some(begin, count), state=several, position=begin)
                for begin, count in ((length // 2, last - length // 2), (last, 1))
                if count
            ],
        }

    ports = [port for port, type_ in made.outputs.items() if axis in type_.axes]
    assert ports
    for port in ports:
        place = made.outputs[port].axes.index(axis or "")
        for way, steps in ways.items():
            stepped = torch.cat([step[port] for step in steps], place)
            there = expected[port].narrow(place, length - stepped.size(place), stepped.size(place))
            torch.testing.assert_close(stepped, there, rtol=0, atol=1e-9, msg=way)


@pytest.mark.integration
@pytest.mark.parametrize("name", PADDED)
def test_values_at_padded_positions_do_not_change_the_outputs(name: str) -> None:
    """This holds at unmasked positions and for outputs without one value per position."""
    made = small(name)
    model = perturbed(build(made)).double()
    inputs = doubled(inputs_of(name, made))
    changed, unmasked = dict(inputs), dict[str, Tensor]()
    for mask, type_ in made.inputs.items():
        if type_.kind == "mask":
            axis = str(type_.axes[-1])
            unmasked[axis] = inputs[mask]
            for port, other in made.inputs.items():
                if other.kind in ("ids", "f") and other.axes[:2] == type_.axes:
                    ids, was = other.kind == "ids", changed[port]
                    garbage = (was + 1) % evaluate(other.size or 0, {}) if ids else was + 50.0
                    mask_ = inputs[mask].view(*inputs[mask].shape, *[1] * (was.dim() - 2))
                    changed[port] = torch.where(mask_, was, garbage)
    assert any(not torch.equal(changed[port], inputs[port]) for port in inputs)

    with torch.inference_mode():
        before, after = model(**inputs), model(**changed)

    for port, type_ in made.outputs.items():
        axis = type_.axes[1] if len(type_.axes) > 1 else 1
        if is_arithmetic(axis) and names_of(axis) & unmasked.keys():
            continue  # a longer or shorter sequence, with different unmasked positions
        mask_ = unmasked.get(str(axis), torch.ones(before[port].shape[:2], dtype=torch.bool))
        torch.testing.assert_close(before[port][mask_], after[port][mask_])


@pytest.mark.parametrize("name", TRANSLATORS)
def test_translators_have_the_interface_of_the_transformer(name: str) -> None:
    """The same run document can train any of them."""
    own = {each for each in ("target_vocab",) if each in load(name).form.params}
    graph_ = graph(name, **dict.fromkeys(("vocab", *own), 30))

    inputs = {port: str(type_) for port, type_ in graph_.inputs.items()}
    assert inputs == {"source": "ids:30[B S]", "source_mask": "mask[B S]", "target": "ids:30[B T]"}
    assert str(graph_.outputs["logits"]) == "f[B T 30]"


@pytest.mark.integration
@few_fast(TRANSLATORS)
def test_padding_of_the_source_does_not_change_the_logits(name: str) -> None:
    """A sentence gives the same logits by itself and in a batch with a longer one."""
    made = small(name)
    model = perturbed(build(made)).double()
    inputs = inputs_of(name, made)
    inputs["source_mask"] = torch.arange(LENGTH).expand(SENTENCES * BEAMS, LENGTH) < 25
    short = {port: v[:, :25] if port.startswith("source") else v for port, v in inputs.items()}

    with torch.inference_mode():
        padded, unpadded = model(**inputs)["logits"], model(**short)["logits"]

    torch.testing.assert_close(padded, unpadded)


@pytest.mark.slow
@EVERY
def test_two_updates_move_every_weight(name: str) -> None:
    """In float32, with a loss of all outputs; frozen weights and their ties stay unchanged."""
    made = small(name)
    model = build(made, seed=1).train()
    inputs = inputs_of(name, made)
    before = {path: weight.clone() for path, weight in model.named_parameters()}
    optimizer = torch.optim.Adam([w for w in model.parameters() if w.requires_grad], 1e-3)
    for _ in range(ENTRIES[name].get("updates", 2)):
        optimizer.zero_grad()
        loss = loss_of(made, model(**inputs))
        loss.backward()
        optimizer.step()
        assert torch.isfinite(loss)

    after = dict(model.named_parameters())
    assert all(
        weight.dtype == torch.float32 and weight.isfinite().all() for weight in after.values()
    )
    moves = {path for path, weight in after.items() if weight.requires_grad}
    still = {path for path in moves if torch.equal(after[path], before[path])}
    assert {path for path in still if not UNSEEN.fullmatch(path)} == set()
    assert all(torch.equal(after[path], before[path]) for path in set(after) - moves)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_translator_trains(name: str, toy_run: Callable[..., Any], tmp_path: Path) -> None:
    """Two updates of a run change every unfrozen weight, and the checkpoint translates."""
    sizes = {"vocab", "source_vocab", "target_vocab"}  # the tokenizer's
    params = {key: value for key, value in ENTRIES[name]["small"].items() if key not in sizes}
    updates = ENTRIES[name].get("updates", 2)
    run = toy_run(spec=name, params=params, updates=updates)
    result = api.train(run, out=tmp_path / "out")
    assert result.checkpoint is not None
    model = api.open_model(result.checkpoint)
    fresh = build(model.graph, seed=run.seed).state_dict()
    learned = model.module.state_dict()

    still = {path for path, value in learned.items() if torch.equal(value, fresh[path])}
    frozen = {path for path, w in model.module.named_parameters() if not w.requires_grad}
    tied = {path for group in model.graph.ties for path in group if frozen & {*group}}
    assert {path for path in still if not UNSEEN.fullmatch(path)} <= frozen | tied
    assert len(model.translate(["sun moon"])) == 1
