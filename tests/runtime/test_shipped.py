"""What every shipped spec promises, said once and run on all of them.

A file of `models/` tells of its family, as `MODELS` and `VARIANTS` (the specs of
`specs/models` and `specs/variants`), by name: `parameters`, counted by hand; `small`, params
that make it tiny; where the usual lengths do not do, `sizes` of its axes; and `updates`,
where two do not reach every weight.
"""

from __future__ import annotations

import functools
import json
import re
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.cost.flops import flops
from weft.graphs.cost.table import cost_table
from weft.graphs.draw.diagram import diagram
from weft.graphs.ir.dims import evaluate, is_arithmetic, names_of
from weft.graphs.ir.graph import Graph
from weft.graphs.ir.value_type import ValueType
from weft.runtime import api
from weft.runtime.analysis.memory_cost import cache_by_node
from weft.runtime.codegen.build import build
from weft.specs.load import load
from weft.specs.reader import SHIPPED

MODELS: dict[str, dict[str, Any]] = {}
VARIANTS: dict[str, dict[str, Any]] = {}
for _file in sorted((Path(__file__).parent / "models").glob("*.py")):
    _names = runpy.run_path(str(_file))
    MODELS |= _names.get("MODELS", {})
    VARIANTS |= _names.get("VARIANTS", {})
ENTRIES = MODELS | VARIANTS
EVERY = pytest.mark.parametrize("name", ENTRIES)
STEP_LENGTH, LENGTH = 7, 40
"""Positions of the step axis, and of any other time axis."""
SENTENCES, BEAMS = 2, 2
UNSEEN = re.compile(r"(.*\.)?key\.bias")
"""A key's bias shifts all scores of a query alike, which softmax does not see."""


def graph(name: str, **params: Any) -> Graph:
    """Return a shipped spec, checked, with some params set."""
    return check(load(name).form, registry(), params)


@functools.cache
def shipped(name: str) -> Graph:
    """Return a shipped spec, checked."""
    return graph(name)


@functools.cache
def small(name: str) -> Graph:
    """Return a shipped spec, checked, at its small size."""
    return graph(name, **ENTRIES[name]["small"])


def sizes_of(name: str, made: Graph) -> dict[str, int]:
    """Return how long the axes of a spec are here."""
    usual = {
        axis: SENTENCES * BEAMS
        if kind == "batch"
        else STEP_LENGTH
        if axis == made.step_axis
        else LENGTH
        for axis, kind in made.spec.axes.items()
    }
    return {**usual, **ENTRIES[name].get("sizes", {})}


def value_of(type_: ValueType, sizes: Mapping[str, int], generator: torch.Generator) -> Tensor:
    """Return a random value of a type; what is kept are the first positions of each row."""
    shape = [evaluate(axis, sizes) for axis in type_.axes]
    if type_.kind in ("f", "bias", "score"):
        return torch.randn(shape, generator=generator)
    if type_.kind in ("ids", "label"):
        return torch.randint(evaluate(type_.size or 0, sizes), shape, generator=generator)
    if type_.kind == "len":
        return torch.randint(1, min(sizes.values()), shape, generator=generator)
    if type_.kind == "pos":
        return torch.arange(shape[-1]).expand(shape)
    if type_.kind == "mask":
        lengths = (torch.arange(shape[0]) % 3 + shape[-1] - 2).view(-1, *[1] * (len(shape) - 1))
        return (torch.arange(shape[-1]) < lengths).expand(shape)
    return pytest.fail(f"teach this test to draw values of kind '{type_.kind}'")


def inputs_of(name: str, made: Graph) -> dict[str, Tensor]:
    """Return random inputs of a spec."""
    generator, sizes = torch.Generator().manual_seed(2), sizes_of(name, made)
    return {port: value_of(type_, sizes, generator) for port, type_ in made.inputs.items()}


def scattered(model: nn.Module) -> nn.Module:
    """Move every weight, so that no bias is zero, no gate shut and no scale one."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    return model.eval()


def doubled(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return values with their floats in double precision."""
    return {port: v.double() if v.is_floating_point() else v for port, v in values.items()}


def spread_along(type_: ValueType, made: Graph) -> int | None:
    """Return which dimension of a value is the batch; None if there is none."""
    batches = [i for i, a in enumerate(type_.axes) if made.spec.axes.get(str(a)) == "batch"]
    return batches[0] if batches else None


def loss_of(made: Graph, outputs: Mapping[str, Tensor]) -> Tensor:
    """Return a loss in which every output has a part that its weights can lower."""
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
    if set(inputs := shipped(name).inputs) == {"source", "source_mask", "target"}
    and inputs["source"].kind == "ids"
]
STEPPED = [name for name in ENTRIES if shipped(name).step_axis]
PADDED = [name for name in ENTRIES if any(t.kind == "mask" for t in shipped(name).inputs.values())]


def test_all_that_is_shipped_is_here_and_nothing_else() -> None:
    """No spec without a count by hand; the rows of table 3 have a test of their own."""
    shipped = {
        capacity: {path.stem for path in (SHIPPED / capacity).glob("*.json")}
        for capacity in ("models", "variants")
    }

    assert shipped["models"] == set(MODELS)
    assert {n for n in shipped["variants"] if not n.startswith("table3-")} == set(VARIANTS)


@EVERY
def test_the_file_is_called_as_the_spec_and_says_what_it_is(name: str) -> None:
    """In one line, with a source."""
    form = load(name).form

    assert form.name == name
    assert form.doc.endswith(".")
    assert "\n" not in form.doc


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_of_the_base_is_a_patch_of_a_dozen_lines(name: str) -> None:
    """It says only what differs."""
    text = (SHIPPED / "variants" / f"{name}.json").read_text(encoding="utf-8")
    written = json.loads(text)

    assert "extends" in written
    assert "nodes" not in written
    assert len(text.splitlines()) <= 12 or written["extends"] != "transformer-base"


@EVERY
def test_parameters_by_hand(name: str) -> None:
    """Each count is worked out in the file of its family."""
    assert shipped(name).parameters() == ENTRIES[name]["parameters"]


@EVERY
def test_costs_of_nodes_add_up(name: str) -> None:
    """To the parameters and the work of the whole; and the memory is that of a real state."""
    made = small(name)
    sizes = sizes_of(name, made)
    table = cost_table(made, sizes)

    assert sum(node.parameters for node in table.nodes) == made.parameters()
    assert table.flops == flops(made, sizes)
    if made.step_axis:
        fixed = {
            port: value
            for port, value in inputs_of(name, made).items()
            if made.step_axis not in made.inputs[port].axes
        }
        capacity = Capacity(
            sizes["B"], 1, sizes[made.step_axis], torch.float32, torch.device("cpu")
        )
        model: Any = build(made).eval()
        with torch.inference_mode():
            state = model.begin(capacity, **fixed)
        assert sum(cache_by_node(made, sizes).values()) == bytes_of(state)


def bytes_of(state: Any) -> int:
    """Return the bytes of all tensors in a state."""
    if isinstance(state, Tensor):
        return state.nbytes
    rooms = state.values() if isinstance(state, Mapping) else state
    return sum(map(bytes_of, rooms))


@EVERY
def test_it_draws(name: str) -> None:
    """Every input and output stands in the picture, and so does its name."""
    made = shipped(name)
    text = diagram(made).source

    assert text.startswith("digraph")
    assert name in text
    assert [port for port in (*made.inputs, *made.outputs) if port not in text] == []


@EVERY
def test_the_small_one_gives_the_declared_shapes(name: str) -> None:
    """Whatever the lengths."""
    made = small(name)
    sizes = sizes_of(name, made)

    with torch.inference_mode():
        outputs = build(made).eval()(**inputs_of(name, made))

    for port, type_ in made.outputs.items():
        axes = type_.axes if type_.size is None or type_.kind in ("ids", "label") else None
        wanted = [evaluate(axis, sizes) for axis in axes or (*type_.axes, type_.size or 0)]
        assert list(outputs[port].shape) == wanted, port


@pytest.mark.parametrize("name", STEPPED)
def test_stepping_equals_the_parallel_pass(name: str) -> None:
    """Some positions at a time, two beams a sentence, give what all at once give."""
    made = small(name)
    axis = made.step_axis
    model: Any = scattered(build(made)).double()
    inputs = doubled(inputs_of(name, made))
    moving = {port for port, type_ in made.inputs.items() if axis in type_.axes}
    length = sizes_of(name, made)[axis or ""]
    fixed, whole = {}, {}
    for port, value in inputs.items():
        place = None if port in moving else spread_along(made.inputs[port], made)
        if place is None:
            whole[port] = value
            fixed |= {} if port in moving else {port: value}
        else:
            fixed[port] = value.index_select(place, torch.arange(0, value.size(place), BEAMS))
            whole[port] = fixed[port].repeat_interleave(BEAMS, place)

    with torch.inference_mode():
        expected = model(**whole)
        capacity = Capacity(SENTENCES, BEAMS, length, torch.float64, torch.device("cpu"))

        def some(position: int, count: int) -> dict[str, Tensor]:
            return {
                port: inputs[port].narrow(made.inputs[port].axes.index(axis or ""), position, count)
                for port in moving
            }

        alone, together = model.begin(capacity, **fixed), model.begin(capacity, **fixed)
        model.read(**some(0, length // 2), state=together, position=0)
        last = length - 1
        ways = {
            "one by one": [
                model.step(**some(position, 1), state=alone, position=position)
                for position in range(length)
            ],
            "read, then several, then one": [
                model.step(**some(begin, count), state=together, position=begin)
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


@pytest.mark.parametrize("name", PADDED)
def test_what_stands_at_padded_positions_changes_nothing(name: str) -> None:
    """Neither outputs at positions that are kept, nor those that are not one for each."""
    made = small(name)
    model = scattered(build(made)).double()
    inputs = doubled(inputs_of(name, made))
    changed, kept = dict(inputs), dict[str, Tensor]()
    for mask, type_ in made.inputs.items():
        if type_.kind == "mask":
            axis = str(type_.axes[-1])
            kept[axis] = inputs[mask]
            for port, other in made.inputs.items():
                if other.kind in ("ids", "f") and other.axes[:2] == type_.axes:
                    ids, was = other.kind == "ids", changed[port]
                    rubbish = (was + 1) % evaluate(other.size or 0, {}) if ids else was + 50.0
                    mask_ = inputs[mask].view(*inputs[mask].shape, *[1] * (was.dim() - 2))
                    changed[port] = torch.where(mask_, was, rubbish)
    assert any(not torch.equal(changed[port], inputs[port]) for port in inputs)

    with torch.inference_mode():
        before, after = model(**inputs), model(**changed)

    for port, type_ in made.outputs.items():
        axis = type_.axes[1] if len(type_.axes) > 1 else 1
        if is_arithmetic(axis) and names_of(axis) & kept.keys():
            continue  # a longer or shorter sequence, in which other positions are kept
        mask_ = kept.get(str(axis), torch.ones(before[port].shape[:2], dtype=torch.bool))
        torch.testing.assert_close(before[port][mask_], after[port][mask_])


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_translator_takes_and_gives_what_the_transformer_does(name: str) -> None:
    """So one run document trains any of them."""
    own = {each for each in ("target_vocab",) if each in load(name).form.params}
    ours = graph(name, **dict.fromkeys(("vocab", *own), 30))
    base = graph("transformer-base", vocab=30)

    assert ours.inputs == base.inputs
    assert ours.outputs["logits"] == base.outputs["logits"]


@pytest.mark.parametrize("name", TRANSLATORS)
def test_padding_of_the_source_is_as_if_it_were_not_there(name: str) -> None:
    """A sentence gives the same logits alone as beside a longer one."""
    made = small(name)
    model = scattered(build(made)).double()
    inputs = inputs_of(name, made)
    inputs["source_mask"] = torch.arange(LENGTH).expand(SENTENCES * BEAMS, LENGTH) < 25
    short = {port: v[:, :25] if port.startswith("source") else v for port, v in inputs.items()}

    with torch.inference_mode():
        padded, alone = model(**inputs)["logits"], model(**short)["logits"]

    torch.testing.assert_close(padded, alone)


@pytest.mark.slow
@EVERY
def test_two_updates_move_every_weight(name: str) -> None:
    """In float32, with a loss made of the outputs; what is frozen, and what ties to it, stays."""
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
    """Two updates of a run move every weight that is not frozen, and the checkpoint translates."""
    sizes = {"vocab", "source_vocab", "target_vocab"}  # the tokenizer's
    params = {key: value for key, value in ENTRIES[name]["small"].items() if key not in sizes}
    updates = ENTRIES[name].get("updates", 2)
    run = toy_run(spec=name, params=params, updates=updates)
    result = api.train(run, out=tmp_path / "out")
    assert result.checkpoint is not None
    model = api.open_model(result.checkpoint)
    fresh = build(model.graph, seed=run.seed).state_dict()
    learnt = model.module.state_dict()

    still = {path for path, value in learnt.items() if torch.equal(value, fresh[path])}
    frozen = {path for path, w in model.module.named_parameters() if not w.requires_grad}
    tied = {path for group in model.graph.ties for path in group if frozen & {*group}}
    assert {path for path in still if not UNSEEN.fullmatch(path)} <= frozen | tied
    assert len(model.translate(["sun moon"])) == 1
