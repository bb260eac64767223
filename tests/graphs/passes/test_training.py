"""Passes of training, and the plans that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.execution import PLAIN, WeightCasts
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.freeze import chosen, frozen_weights, trained_weights
from weft.graphs.passes.partition import partition
from weft.graphs.passes.pipeline import NAMES, PassSettings, after, pipeline
from weft.graphs.passes.unpad import BatchAxes, UnpadPlan, plan_unpad
from weft.graphs.passes.widths import WidthGrowth, growth, wider_heads
from weft.runtime.codegen.build import build, build_sharing
from weft.runtime.spec.check import graph_of
from weft.runtime.train.recipe.optimizers import OPTIMIZERS
from weft.specs.findings import InputError, SpecError
from weft.specs.load import load, loaded
from weft.specs.reader import shipped_names


def objective(name: str) -> Graph:
    """Return the graph of a shipped objective."""
    return graph_of(load(str(shipped_names("objectives")[name])))


def test_passes_run_in_order_and_tell_what_they_change() -> None:
    """Translation is unpadded in its model, and its loss computes the head."""
    graph = objective("translation")
    selected = PassSettings(activation_checkpointing=("model.encoder.0-1",))

    steps = pipeline(graph, selected)

    assert tuple(step.name for step in steps) == NAMES["train"]
    assert [step.changed for step in steps] == [
        (),
        ("S and T of model; padded for source_position, target_position",),
        ("cross_entropy computes model.head",),
        ("2 modules, from model.encoder.0",),
        (),
        (),
        (),
    ]
    assert graph.execution == PLAIN
    last = steps[-1].graph.execution
    assert last.models["model"].checkpointed == {"encoder.0", "encoder.1"}
    assert last.models["model"].deferred == ("head",)


def test_a_pass_can_be_left_out_and_the_pipeline_stopped() -> None:
    """The others do what they did."""
    graph = objective("translation")
    whole = after(graph, PassSettings()).execution

    without = after(graph, PassSettings(without=("fuse",))).execution
    first = after(graph, PassSettings(), "unpad").execution

    assert (without.fused, without.models["model"].deferred) == ({}, ())
    assert without.models["model"].unpad == whole.models["model"].unpad
    assert first == without
    assert after(graph, PassSettings(unpad=False, without=("fuse",))).execution == PLAIN


def test_a_model_that_must_be_unpadded_but_cannot_be_is_an_error() -> None:
    """By default it stays padded."""
    graph = graph_of(load("vit"))

    assert after(graph, PassSettings()).execution == PLAIN
    with pytest.raises(InputError, match="cannot be unpadded"):
        after(graph, PassSettings(strict=True))


@pytest.mark.integration
def test_graphs_of_every_kind_pass_through() -> None:
    """Every shipped objective, whether a pass changes it or not."""
    for name in shipped_names("objectives"):
        graph = objective(name)
        last = pipeline(graph, PassSettings())[-1].graph
        assert (last.root, last.outputs) == (graph.root, graph.outputs), name


def test_weights_are_cast_in_the_precision_of_the_settings_by_copies_or_by_fsdp() -> None:
    """In float32 nothing is cast; FSDP makes its own copies, DDP does not."""
    graph = objective("translation")
    half = PassSettings(precision="float16", processes=2)

    assert after(graph, PassSettings()).execution.casts is None
    assert after(graph, half).execution.casts == WeightCasts("float16", "copies")
    sharded = pipeline(graph, replace(half, data="fsdp"))[-1]
    assert sharded.graph.execution.casts == WeightCasts("float16", "fsdp")
    assert sharded.changed == ("fsdp gathers weights in float16, and sums gradients in float32",)


SMALL = {"d_model": 8, "heads": 2, "d_ff": 12, "layers": 2, "vocab": 11}


def graph(name: str) -> Graph:
    """Return a shipped spec at a small size."""
    return check(load(name).form, registry(), SMALL)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "later", "crossing"),
    [
        ("transformer-base", ["target"], {"encoder_x": "f[B S 8]"}),
        (
            "mask-predict",
            ["target", "target_mask"],
            {"encoder_x": "f[B S+1 8]", "length_token_mask": "mask[B S+1]"},
        ),
        ("gru-attention", ["target"], None),
    ],
)
def test_running_both_parts_equals_the_complete_graph(
    name: str, later: list[str], crossing: dict[str, str] | None
) -> None:
    """Outputs are bit-identical, and the parts use the model's own weights."""
    small = {k: v for k, v in SMALL.items() if k in load(name).form.params}
    whole = check(load(name).form, registry(), small)
    first, second = partition(whole, later, registry())
    model = build(whole).eval()
    generator = torch.Generator().manual_seed(1)
    inputs = {
        "source": torch.randint(11, (2, 7), generator=generator),
        "source_mask": torch.arange(7) < torch.tensor([[7], [4]]),
        "target": torch.randint(11, (2, 5), generator=generator),
        "target_mask": torch.arange(5) < torch.tensor([[3], [5]]),
    }
    inputs = {port: value for port, value in inputs.items() if port in whole.inputs}

    begun = build_sharing(first, model, part=True)(
        **{p: v for p, v in inputs.items() if p in first.inputs}
    )
    known = inputs | begun
    ended = build_sharing(second, model, part=True)(**{port: known[port] for port in second.inputs})

    wanted = model(**inputs)
    assert not set(later) & set(first.inputs)
    for port, value in wanted.items():
        assert torch.equal((begun | ended)[port], value)
    if crossing is not None:
        assert {p: str(t) for p, t in first.outputs.items() if p not in wanted} == crossing
    paths = {*first.weights(), *second.weights()}
    assert set(whole.weights()) <= paths | {p for group in whole.ties for p in group}


def test_weights_are_shared_and_not_copied() -> None:
    """Changing a weight of the model changes it in the parts, also for tied weights."""
    whole = graph("mask-predict")
    model = build(whole)
    first, second = (
        build_sharing(half, model, part=True)
        for half in partition(whole, ["target", "target_mask"], registry())
    )

    assert first.source_embedding.weight is model.source_embedding.weight
    assert second.head.weight is second.target_embedding.weight
    assert second.head.weight is model.source_embedding.weight


def test_an_empty_part_is_refused() -> None:
    """No node depends on an empty set of inputs."""
    with pytest.raises(SpecError):
        partition(graph("transformer-base"), [], registry())


FREEZE_SMALL = {"d_model": 16, "heads": 2, "d_ff": 24, "layers": 1}


def test_a_tied_weight_trains_under_all_of_its_paths() -> None:
    """The three matrices of the paper's model are one weight; naming one path is enough."""
    spec = load("transformer-base", {"vocab": 20, **FREEZE_SMALL})
    graph = graph_of(spec)
    model = build(graph)
    every = {name: id(one) for name, one in model.named_parameters(remove_duplicate=False)}
    tied = {name for name, one in every.items() if one == every["head.weight"]}
    assert len(tied) == 3

    frozen = frozen_weights(graph, ["encoder", "*embedding*", "head"], ["head.weight"])

    assert not frozen & tied
    assert any(name.startswith("encoder.") for name in frozen)
    with pytest.raises(InputError, match="selects no frozen weight"):
        frozen_weights(graph, ["encoder"], ["head.weight"])


def test_what_trains_is_the_rest_without_tied_weights_and_teachers() -> None:
    """The student of a distillation trains, but no weight that is tied to a frozen one."""
    graph = graph_of(load("distillation"))
    student = {name for name in graph.root.weights() if name.startswith("model.")}
    embeddings = {name for group in graph.ties for name in group if name.startswith("model.")}
    assert len(embeddings) == 3

    assert trained_weights(graph, []) == student
    assert trained_weights(graph, ["model.head"]) == {
        name for name in student - embeddings if not name.startswith("model.head.")
    }
    assert not trained_weights(graph, ["model"])
    assert trained_weights(graph, ["model"], ["model.head.weight"]) == embeddings


def select_graph(name: str = "transformer-base", **params: Any) -> Graph:
    """Return the graph of a shipped spec with three layers."""
    return graph_of(load(name, {"layers": 3, **params}))


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("encoder.*", ("encoder.0", "encoder.1", "encoder.2")),
        ("encoder", ("encoder.0", "encoder.1", "encoder.2")),
        ("encoder.1-2", ("encoder.1", "encoder.2")),
        ("encoder.**", ("encoder.0", "encoder.1", "encoder.2")),
        ("decoder.0.*_attention", ("decoder.0.cross_attention", "decoder.0.self_attention")),
        ("*.2.feed_forward/f", ("decoder.2.feed_forward.f", "encoder.2.feed_forward.f")),
        ("decoder.1.*/*", ()),
        ("head", ("head",)),
        ("/blocks/encoder_*", ("encoder.0", "encoder.1", "encoder.2")),
        (
            "encoder.**[use=attention@1]",
            tuple(f"encoder.{layer}.self_attention.f" for layer in range(3)),
        ),
        ("**[params.causal=true]", tuple(f"decoder.{n}.self_attention.f" for n in range(3))),
    ],
)
def test_a_selection_names_modules(text: str, paths: tuple[str, ...]) -> None:
    """The outermost ones, by their paths in the model."""
    if not paths:
        expected = tuple(
            f"decoder.1.{name}.f" for name in ("cross_attention", "feed_forward", "self_attention")
        )
        assert chosen(select_graph(), text) == expected
        return
    assert chosen(select_graph(), text) == paths


def test_copies_that_share_weights_are_one_module() -> None:
    """A Universal Transformer applies its stack repeatedly."""
    shared = chosen(graph_of(load("universal-transformer")), "encoder.*")

    assert len(shared) == 1
    assert not shared[0].split(".")[-1].isdigit()


@pytest.mark.parametrize(
    ("text", "problem", "help_"),
    [
        ("encodr.*", "'encodr.*' selects nothing in 'transformer-base'", "mean 'encoder.*'?"),
        ("encoder.7", "'encoder.7' selects nothing", ""),
        ("encoder.*[use=linear@1]", "does not match the brackets", ""),
        ("encoder..f", "a segment is missing: 'encoder..f'", "write a path such as"),
        ("/", "'/' selects the complete model", "encoder.*"),
    ],
)
def test_an_empty_selection_names_the_nearest_path(text: str, problem: str, help_: str) -> None:
    """With its place and the nearest path."""
    with pytest.raises(InputError) as caught:
        chosen(select_graph(), text, location="/activation_checkpointing")

    assert problem in caught.value.problem
    assert caught.value.location == "/activation_checkpointing"
    assert help_ in caught.value.help


BASE = {"vocab": 20, "d_model": 16, "heads": 1, "layers": 1}
WIDE = {**BASE, "d_model": 64, "heads": 4}
HIDDEN, TABLE = "encoder.0.self_attention.f.query.weight", "source_embedding.weight"


def widths_graph(params: dict[str, Any], spec: str = "transformer-untied") -> Graph:
    """Return the graph of a spec with params."""
    return graph_of(load(spec, params))


@pytest.mark.parametrize(
    ("path", "expected", "size"),
    [
        (HIDDEN, WidthGrowth(4.0, 4.0, 1.0), 0.5),
        ("encoder.0.feed_forward.f.outer.weight", WidthGrowth(4.0, 4.0, 1.0), 0.5),
        ("head.weight", WidthGrowth(4.0, 1.0, 1.0), 0.25),
        (TABLE, WidthGrowth(1.0, 4.0, 2.0), 0.5),
        ("encoder.0.self_attention.norm.weight", WidthGrowth(1.0, 4.0, 1.0), 1.0),
    ],
)
def test_weights_grow_by_their_inputs_and_outputs(
    path: str, expected: WidthGrowth, size: float
) -> None:
    """Four times as wide; a table is multiplied by the root of the width, which is twice as large.

    Initial entries fall with the root of the inputs, with the inputs in front of a fixed number of
    outputs, and for a table only with the multiplier (table 3).
    """
    grown = growth(widths_graph(WIDE), widths_graph(BASE))

    assert grown[path] == expected
    assert grown[path].size == size


@pytest.mark.parametrize(
    ("kind", "rates"),
    [
        ({"type": "adam"}, [0.25, 0.25, 0.5, 1.0]),
        ({"type": "sgd"}, [1.0, 0.25, 1.0, 4.0]),
        ({"type": "muon"}, [0.5, 0.25, 0.5]),
        ({"type": "muon", "scale": "spectral"}, [1.0, 0.5, 1.0]),
        ({"type": "adafactor"}, [0.5, 1.0, 1.0, 1.0]),
    ],
)
def test_rates_follow_the_optimizer(kind: dict[str, Any], rates: list[float]) -> None:
    """A hidden map, the head, a table and a vector, four times as wide.

    Adam and gradient descent by table 3, divided by the multiplier and its square.  Muon keeps the
    spectral norm near the root of outputs by inputs; its update in the size of Adam's has one that
    grows with the root of the larger side, 2.  Adafactor's rate is relative to the weight's size.
    """
    grown = growth(widths_graph(WIDE), widths_graph(BASE))
    paths = [HIDDEN, "head.weight", TABLE, "encoder.0.self_attention.norm.weight"]

    factors = [OPTIMIZERS.validate(kind).width_factor(grown[path]) for path in paths[: len(rates)]]

    assert factors == pytest.approx(rates)


def test_a_model_of_the_base_width_is_the_base() -> None:
    """Every factor is 1."""
    assert set(growth(widths_graph(BASE), widths_graph(BASE)).values()) == {
        WidthGrowth(1.0, 1.0, 1.0)
    }


def test_a_tied_table_and_map_are_refused() -> None:
    """One grows by its outputs, the other by its inputs; the help unties them."""
    with pytest.raises(InputError, match="transformer-untied") as error:
        growth(widths_graph(WIDE, "transformer-base"), widths_graph(BASE, "transformer-base"))
    assert "'source_embedding.weight' is tied to 'head.weight'" in error.value.problem


def test_a_base_of_other_layers_is_refused() -> None:
    """Its weights have no counterpart."""
    with pytest.raises(InputError, match="other weights"):
        growth(widths_graph(WIDE), widths_graph({**BASE, "layers": 2}))


def test_heads_that_get_wider_are_told() -> None:
    """Their number must grow instead."""
    assert list(wider_heads(widths_graph(WIDE), widths_graph(BASE))) == []
    wide = widths_graph({**WIDE, "heads": 1})
    assert "encoder.0.self_attention.f" in list(wider_heads(wide, widths_graph(BASE)))


@pytest.mark.parametrize("block", [block for block in registry() if block.fans])
def test_each_axis_of_a_weight_counts_something(block: Any) -> None:
    """Of blocks that say so: in known words, one for each axis."""
    for words in block.fans.values():
        assert words == "?" or set(words.split()) <= {"in", "out", "each"}


IDS = {"tokens": "ids:9[B T]"}
EMBED = {"use": "embedding@1", "in": {"ids": "tokens"}, "params": {"d_model": 4}}
T3 = BatchAxes("T", 0, 3)


def plan(
    nodes: Mapping[str, Any],
    outputs: Mapping[str, str],
    inputs: Mapping[str, str] = IDS,
    blocks: Mapping[str, Any] | None = None,
) -> UnpadPlan:
    """Return the unpadding plan of a spec."""
    form: dict[str, Any] = {
        "format": 1,
        "name": "some",
        "axes": {"B": "batch", "S": "time", "T": "time"},
        "inputs": dict(inputs),
        "outputs": dict(outputs),
        "blocks": dict(blocks or {}),
        "nodes": dict(nodes),
    }
    return plan_unpad(check(loaded(form).form, registry(), {}))


def around(found: UnpadPlan) -> dict[str, tuple[dict[str, BatchAxes], dict[str, BatchAxes | None]]]:
    """Return the conversions around each block."""
    return {path: (dict(a.inputs), dict(a.outputs)) for path, a in found.blocks.items()}


def test_blocks_with_any_axes_run_unpadded() -> None:
    """For an embedding and a map, only the output is padded."""
    head = {"use": "linear@1", "in": {"x": "embed.y"}, "params": {"d_out": 9}}

    found = plan({"embed": EMBED, "head": head}, {"logits": "head.y"})

    assert found.axes == ("T",)
    assert found.boundary.inputs == {"tokens": BatchAxes("T", 0, 2)}
    assert found.boundary.outputs == {"logits": T3}
    assert found.blocks == {}


def test_a_block_that_names_its_axes_is_given_padded_values() -> None:
    """Each copy of a causal LSTM reads padded values, and its output is unpadded again."""
    layer = {
        "inputs": {"x": "f[B T 4]"},
        "outputs": {"x": "lstm.y"},
        "nodes": {"lstm": {"use": "lstm@1", "in": {"x": "x"}, "params": {"d_hidden": 4}}},
    }
    stack = {"repeat": 2, "block": "layer", "carry": ["x"], "in": {"x": "embed.y"}}

    found = plan({"embed": EMBED, "stack": stack}, {"y": "stack.x"}, blocks={"layer": layer})

    assert around(found) == {f"stack.{n}.lstm": ({"x": T3}, {"y": T3}) for n in range(2)}


def test_a_block_that_mixes_positions_needs_a_mask() -> None:
    """With `mask` it is unpadded; without, it stays padded, and the plan names the block."""
    nodes = {
        "embed": EMBED,
        "f": {"use": "attention@1", "in": {"x": "embed.y"}, "params": {"heads": 2}},
    }
    kept = {**nodes, "f": {**nodes["f"], "in": {"x": "embed.y", "mask": "mask"}}}

    without = plan(nodes, {"y": "f.y"})
    with_mask = plan(kept, {"y": "f.y"}, {**IDS, "mask": "mask[B T]"})

    assert (without.axes, without.blocks) == ((), {})
    assert without.why == "'f' (attention@1) reads all of T without a mask"
    assert (with_mask.axes, with_mask.masks) == (("T",), {"T": "mask"})
    assert around(with_mask) == {"f": ({"x": T3}, {"y": T3})}


def test_a_sublayer_with_drop_path_stays_padded() -> None:
    """A sub-layer that drops complete rows in training, and the sub-layer inside it."""

    def sublayer(drop_path: float) -> UnpadPlan:
        inner = {"use": "attention@1", "params": {"heads": 2, "causal": True}}
        node = {
            "use": "sublayer@1",
            "in": {"x": "embed.y"},
            "params": {"drop_path": drop_path},
            "fill": {"f": inner},
        }
        return plan({"embed": EMBED, "sub": node}, {"y": "sub.y"})

    assert around(sublayer(0.0)) == {"sub.f": ({"x": T3}, {"y": T3})}
    assert around(sublayer(0.5)) == {"sub": ({"x": T3}, {"y": T3})}


def test_collected_copies_are_unpadded_after_their_first_axis() -> None:
    """`collect` puts the axis of copies before the batch."""
    layer = {
        "inputs": {"x": "f[B T 4]"},
        "outputs": {"x": "map.y", "each": "map.y"},
        "nodes": {"map": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 4}}},
    }
    stack = {
        "repeat": 3,
        "block": "layer",
        "carry": ["x"],
        "collect": ["each"],
        "in": {"x": "embed.y"},
    }

    found = plan({"embed": EMBED, "stack": stack}, {"all": "stack.each"}, blocks={"layer": layer})

    assert found.boundary.outputs == {"all": BatchAxes("T", 1, 4)}


def test_values_of_a_longer_axis_stay_padded() -> None:
    """T + 1 is another axis, whose padding is unknown."""
    nodes = {
        "embed": EMBED,
        "front": {"use": "prepend@1", "in": {"x": "embed.y"}, "params": {"count": 1}},
    }

    found = plan(nodes, {"y": "front.y"})

    assert found.boundary.outputs == {"y": None}
    assert around(found)["front"][0] == {"x": T3}
    assert set(around(found)["front"][1].values()) == {None}
