"""Saving changes no meaning: a spec as written, shuffled, expanded, saved, and as a template.

The order of keys in a spec has no meaning, and `weft expand` and checkpoints sort keys.  So all
forms of a spec have one fingerprint and one drawing, and compute the same outputs, gradients and
decoding steps, to the last bit.
"""

from __future__ import annotations

import functools
import json
import math
import random
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import Tensor, nn
from weft.graphs.draw.diagram import diagram
from weft.graphs.ir.canonical import canonical, fingerprint
from weft.graphs.ir.graph import Graph
from weft.runtime.checkpoint.saving import Contents, save, weights_of
from weft.specs.load import FOLDERS
from weft.specs.reader import SHIPPED, find, read_json

from .entries import ENTRIES, PUBLISHED, PUBLISHED_FOLDER, few_fast, representative
from .test_shipped import LENGTH, SENTENCES, STEP_LENGTH

ELSEWHERE = {"cpc-classifier", "e-branchformer", "gated-attention-unit"}
"""Examples whose copies have findings: specs that two of them read are beside them, and only a
requirement reads the inherited `heads` of the other."""
SPECS = {name: entry["small"] for name, entry in ENTRIES.items()}
SPECS |= {
    str(PUBLISHED_FOLDER / f"{name}.json"): params
    for name, params in PUBLISHED.items()
    if name not in ELSEWHERE
}
UNUSUAL = Path(__file__).parents[1] / "graphs" / "unusual"
SPECS |= {str(UNUSUAL / f"{name}.json"): {} for name in ("wavenet", "functions")}
"""Templates that are used with params, also with the number of the copy."""
EVERY = pytest.mark.parametrize("name", SPECS, ids=lambda name: Path(name).stem)
REPRESENTATIVE = representative(SPECS)
FEW = few_fast(SPECS)
OBJECTIVES = sorted(path.stem for path in (SHIPPED / "objectives").glob("*.json"))
LOOKS: list[dict[str, Any]] = [{"form": "folded"}, {"form": "expanded"}, {"style": "paper"}]


def shuffled(value: Any, rng: random.Random) -> Any:
    """Return a JSON value with the keys of all objects in a random order."""
    if isinstance(value, dict):
        keys = rng.sample(list(value), len(value))
        return {key: shuffled(value[key], rng) for key in keys}
    return [shuffled(item, rng) for item in value] if isinstance(value, list) else value


def reloaded(value: Mapping[str, Any], folder: Path, params: Mapping[str, Any]) -> Graph:
    """Return the graph of a spec that is written to a file and read again."""
    file = folder / "spec.json"
    file.write_text(json.dumps(value), encoding="utf-8")
    return weft.load(file, **params).graph()


@functools.cache
def written(name: str) -> Graph:
    """Return the graph of a spec as it was written."""
    return weft.load(name, **SPECS.get(name, {})).graph()


def shuffles(name: str, folder: Path) -> list[Graph]:
    """Return the graphs of a spec with shuffled keys: merged with its parents, and its file."""
    values = (weft.load(name).value(), read_json(find(name, *FOLDERS).read_text("utf-8"), name))
    return [
        reloaded(shuffled(value, random.Random(seed)), folder, SPECS.get(name, {}))
        for seed, value in enumerate(values)
    ]


def expanded(graph: Graph, folder: Path, seed: int | None = None) -> Graph:
    """Return the graph of a spec that `weft expand` wrote; with a seed, with shuffled keys."""
    value = canonical(graph)
    rng = random.Random(seed)
    return reloaded(value if seed is None else shuffled(value, rng), folder, {})


def pictures(name: str, graph: Graph) -> list[str]:
    """Return the drawings of a graph as DOT text: in all looks if others lack what is in it."""
    looks = LOOKS if name in REPRESENTATIVE else LOOKS[:1]
    return [diagram(graph, **look).source for look in looks]


HEADS = "f[B 2 T 2]"
"""Type of what a template gets in a slot of attention with two heads."""
FIRST_OR_LAST = pytest.mark.parametrize("wire", ["a", "z"])
"""A name that sorts before `x`, and one that sorts after it."""


def adding(wire: str, type_: str) -> dict[str, Any]:
    """Return a template that adds twice a wire to `x`, which may be split into heads."""
    heads = {"y": "b t (h k) -> b h t k", "sizes": {"h": 2}}
    split = {"use": "einsum@1", "in": {"x": wire}, "params": heads}
    nodes = {
        "more": {"use": "elementwise@1", "in": {"x": wire}, "params": {"y": "2 * x"}},
        "sum": {"use": "elementwise@1", "in": {"x": "x", "z": "more.y"}, "params": {"y": "x + z"}},
    }
    if type_ == HEADS:
        nodes["split"], nodes["more"]["in"] = split, {"x": "split.y"}
    return {"inputs": {wire: "f[B T 4]", "x": type_}, "outputs": {"y": "sum.y"}, "nodes": nodes}


def with_slots(
    use: str, slots: Collection[str], wire: str, type_: str, **params: Any
) -> dict[str, Any]:
    """Return a spec of one block, with a template in slots that adds twice a wire to `x`.

    Args:
        use: the block.
        slots: its slots.
        wire: name of the wire.
        type_: type of `x` in the slots.
        **params: params of the block.
    """
    return {
        "format": 1,
        "name": "slots",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {wire: "f[B T 4]", "x": "f[B T 4]"},
        "outputs": {"y": "block.y"},
        "blocks": {"adding": adding(wire, type_)},
        "nodes": {
            "block": {
                "use": use,
                "params": params,
                "in": {wire: wire, "x": "x"},
                "fill": {slot: {"use": "adding"} for slot in slots},
            }
        },
        "step": {"axis": "T"},
    }


def vectors(wire: str) -> dict[str, Tensor]:
    """Return the inputs of `with_slots`."""
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(2, 3, 4, generator=generator) for name in ("x", wire)}


def stepped(model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the outputs of decoding, one position at a time."""
    state = model.begin(weft.Capacity(2, 1, 3, torch.float32, torch.device("cpu")))
    steps = [
        model.step(**{n: v[:, t : t + 1] for n, v in inputs.items()}, state=state, position=t)["y"]
        for t in range(3)
    ]
    return torch.cat(steps, 1)


@FIRST_OR_LAST
@pytest.mark.parametrize(
    ("use", "slots", "factors"),
    [("sublayer@1", ("f",), (2, 2)), ("parallel_sublayer@1", ("f", "g"), (3, 4))],
    ids=["sublayer", "parallel"],
)
def test_a_template_on_a_residual_path_reads_its_wires_by_name(
    use: str, slots: tuple[str, ...], factors: tuple[int, int], wire: str, tmp_path: Path
) -> None:
    """By hand: x + (x + 2 z), and x + (x + 2 z) + (x + 2 z)."""
    spec = with_slots(use, slots, wire, "f[B T 4]", norm="none")
    inputs = vectors(wire)
    expected = factors[0] * inputs["x"] + factors[1] * inputs[wire]

    for value in (spec, shuffled(spec, random.Random(1)), shuffled(spec, random.Random(2))):
        model = weft.build(reloaded(value, tmp_path, {})).eval()
        torch.testing.assert_close(model(**inputs)["y"], expected)
        torch.testing.assert_close(stepped(model, inputs), expected)


@FIRST_OR_LAST
@pytest.mark.parametrize("slot", ["after_query", "after_key", "after_value", "output"])
def test_a_template_in_attention_reads_its_wires_by_name(
    slot: str, wire: str, tmp_path: Path
) -> None:
    """Causal attention of two heads, computed here from its weights."""
    spec = with_slots("attention@1", [slot], wire, HEADS, heads=2, causal=True)
    inputs = vectors(wire)
    later = torch.ones(3, 3, dtype=torch.bool).triu(1)
    for value in (spec, shuffled(spec, random.Random(3))):
        model: Any = weft.build(reloaded(value, tmp_path, {})).eval()
        block, x = model.block, inputs["x"]
        added: dict[str, Any] = dict.fromkeys(
            ("after_query", "after_key", "after_value", "output"), 0.0
        )
        added[slot] = 2 * inputs[wire]

        def heads(rows: Tensor) -> Tensor:
            return rows.unflatten(-1, (2, 2)).transpose(1, 2)

        query = heads(block.query(x) + added["after_query"])
        key = heads(block.key(x) + added["after_key"])
        read = heads(block.value(x) + added["after_value"])
        score = (query @ key.mT / math.sqrt(2)).masked_fill(later, -math.inf)
        mixed = (score.softmax(-1) @ read).transpose(1, 2).flatten(2) + added["output"]
        torch.testing.assert_close(model(**inputs)["y"], block.out(mixed))
        torch.testing.assert_close(stepped(model, inputs), block.out(mixed))


def assert_described_alike(name: str, folder: Path) -> None:
    """Compare fingerprints and drawings of all forms of a spec, and what `weft diff` says."""
    graph = written(name)
    drawn, inputs = pictures(name, graph), weft.example_inputs(graph)
    for form in (expanded(graph, folder), *shuffles(name, folder)):
        assert fingerprint(form) == fingerprint(graph)
        assert weft.diff(graph, form).changes == ()
        assert pictures(name, form) == drawn
        assert [*form.outputs] == [*graph.outputs]
        assert_equal(weft.example_inputs(form), inputs)


def test_every_example_is_compared() -> None:
    """All but runs and objectives, which other tests train."""
    values = {path: json.loads(path.read_text("utf-8")) for path in PUBLISHED_FOLDER.glob("*.json")}
    files = [path for path, value in values.items() if "objective" not in value]
    models = {path.stem for path in files if weft.load(path).graph().deploy is None}

    assert models == {*PUBLISHED} | ELSEWHERE


@pytest.mark.integration
@EVERY
def test_every_form_has_one_fingerprint_and_one_drawing(name: str, tmp_path: Path) -> None:
    """So files that are made from equal specs are equal; keys of patches have no order either."""
    assert_described_alike(name, tmp_path)


@pytest.mark.integration
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_form_of_an_objective_has_one_fingerprint_and_one_drawing(
    name: str, tmp_path: Path
) -> None:
    """Their models are expanded with them."""
    assert_described_alike(name, tmp_path)


def sizes_of(name: str, graph: Graph) -> dict[str, int]:
    """Return lengths of the axes."""
    kinds = graph.spec.axes
    lengths = {axis: LENGTH if axis != graph.step_axis else STEP_LENGTH for axis in kinds}
    rows = {axis: SENTENCES for axis, kind in kinds.items() if kind == "batch"}
    return {**lengths, **rows, **ENTRIES.get(name, {}).get("sizes", {})}


Results = dict[str, Tensor]


def results(model: Any, graph: Graph, inputs: Mapping[str, Tensor], prefix: str = "") -> Results:
    """Return outputs and gradients of a training pass with dropout, and of decoding steps."""
    torch.manual_seed(5)
    outputs = model.train()(**inputs)
    found = {f"output {port}": value.detach() for port, value in outputs.items()}
    floats = [value for _, value in sorted(outputs.items()) if value.is_floating_point()]
    sum(value.nan_to_num(0, 0, 0).square().sum() for value in floats).backward()
    for path, weight in model.named_parameters():
        if weight.grad is not None:
            found[f"gradient {path.removeprefix(prefix)}"] = weight.grad
    if graph.step_axis is None:
        return found
    moving = {
        port: type_.axes.index(graph.step_axis)
        for port, type_ in graph.inputs.items()
        if graph.step_axis in type_.axes
    }
    fixed = {port: value for port, value in inputs.items() if port not in moving}
    place = torch.device("cpu")
    with torch.inference_mode():
        model.eval()
        state = model.begin(weft.Capacity(SENTENCES, 1, STEP_LENGTH, torch.float32, place), **fixed)
        for position in range(3):
            now = {port: inputs[port].narrow(at, position, 1) for port, at in moving.items()}
            step = model.step(**now, state=state, position=position)
            found |= {f"step {position} {port}": value for port, value in step.items()}
    return found


def assert_equal(found: Results, expected: Results) -> None:
    """Compare results to the last bit."""
    assert found.keys() == expected.keys()
    different = [
        name
        for name, value in expected.items()
        if not torch.equal(found[name].nan_to_num(), value.nan_to_num())
    ]
    assert different == []


@functools.cache
def as_written(name: str) -> tuple[nn.Module, dict[str, Tensor], Results]:
    """Return the model of a spec as written, inputs, and the results for them."""
    graph = written(name)
    model = weft.build(graph, seed=3)
    inputs = weft.example_inputs(graph, sizes_of(name, graph), seed=2)
    return model, inputs, results(model, graph, inputs)


def test_expanding_keeps_the_rules_for_initial_weights(tmp_path: Path) -> None:
    """Few specs have rules, so those that cover the blocks have none."""
    graph = written("modded-nanogpt")

    assert graph.root.init
    assert expanded(graph, tmp_path).root.init == graph.root.init


@pytest.mark.integration
@FEW
def test_expanded_and_shuffled_specs_compute_the_same(name: str, tmp_path: Path) -> None:
    """With weights of one seed and dropout of one seed; the outputs depend on names alone."""
    model, inputs, expected = as_written(name)
    form = expanded(written(name), tmp_path, seed=0)
    again = weft.build(form, seed=3)

    assert [*again.state_dict()] == [*model.state_dict()]
    assert_equal(results(again, form, inputs), expected)


@pytest.mark.integration
@FEW
def test_a_checkpoint_opens_and_computes_the_same(name: str, tmp_path: Path) -> None:
    """What was trained can be used."""
    model, inputs, expected = as_written(name)
    graph = written(name)
    save(tmp_path / "saved", Contents(graph=graph, weights=weights_of(model, graph)))

    opened = weft.open(tmp_path / "saved")

    assert fingerprint(opened.graph) == fingerprint(graph)
    assert pictures(name, opened.graph) == pictures(name, graph)
    module = opened.module.requires_grad_(True)
    for path, weight in model.named_parameters():
        module.get_parameter(path).requires_grad_(weight.requires_grad)
    assert_equal(results(module, opened.graph, inputs), expected)


def as_template(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec that uses another one as a template, once."""
    inside = {
        key: value[key] for key in ("inputs", "outputs", "nodes", "tie", "init") if key in value
    }
    outer = {
        key: value[key] for key in ("format", "axes", "params", "inputs", "step") if key in value
    }
    return {
        **outer,
        "name": "around",
        "blocks": {**value.get("blocks", {}), "taken_in": inside},
        "outputs": {port: f"inner.{port}" for port in value["outputs"]},
        "nodes": {"inner": {"use": "taken_in", "in": {port: port for port in value["inputs"]}}},
    }


@pytest.mark.integration
@FEW
def test_a_spec_taken_in_as_a_template_computes_the_same(name: str, tmp_path: Path) -> None:
    """With shuffled keys, so that nothing depends on the order as written either."""
    model, inputs, expected = as_written(name)
    spec = shuffled(as_template(weft.load(name).value()), random.Random(4))
    graph = reloaded(spec, tmp_path, SPECS[name])
    around = weft.build(graph)
    state = {f"inner.{path}": weight for path, weight in model.state_dict().items()}
    around.load_state_dict(state)

    assert_equal(results(around, graph, inputs, "inner."), expected)
