"""Checkpoints made from others: pruned, merged, or a part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import Tensor, nn
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.diff.diff import diff
from weft.graphs.ir.canonical import fingerprint
from weft.graphs.ir.graph import Graph
from weft.graphs.ir.lora import A, B
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import Checkpoint, open_checkpoint
from weft.runtime.checkpoint.merge import graph_without_lora, lora_factors, merged
from weft.runtime.checkpoint.prune import attentions, head_importance, pruned
from weft.runtime.checkpoint.saving import Contents, save, weights_of
from weft.runtime.cli.main import main
from weft.runtime.codegen.build import build
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError, SpecError
from weft.specs.load import loaded

GATED = {"output": {"use": "head_gates@1"}}
SPEC: dict[str, Any] = {
    "format": 1,
    "name": "pair",
    "axes": {"B": "batch", "S": "time", "T": "time"},
    "inputs": {"x": "f[B T 8]", "memory": "f[B S 6]"},
    "outputs": {"y": "stack.x"},
    "blocks": {
        "layer": {
            "inputs": {"x": "f[B T 8]", "memory": "f[B S 6]"},
            "outputs": {"x": "across.y"},
            "nodes": {
                "itself": {
                    "use": "sublayer@1",
                    "in": {"x": "x"},
                    "fill": {
                        "f": {
                            "use": "attention@1",
                            "params": {"heads": 4, "causal": True},
                            "fill": GATED,
                        }
                    },
                },
                "across": {
                    "use": "attention@1",
                    "in": {"x": "itself.y", "memory": "memory"},
                    "params": {"heads": 4, "kv_heads": 2, "d_k": 3, "d_v": 5},
                    "fill": GATED,
                },
            },
        }
    },
    "nodes": {
        "stack": {
            "repeat": 3,
            "block": "layer",
            "carry": ["x"],
            "in": {"x": "x", "memory": "memory"},
        }
    },
    "step": {"axis": "T"},
}
GONE = {
    "stack.0.itself.f": [0, 3],
    "stack.2.itself.f": [1],
    "stack.1.across": [2, 3],
    "stack.2.across": [0, 1],
}


def with_part(slot: str = "", use: str = "", **params: Any) -> dict[str, Any]:
    """Return the spec with a block in a slot of its self-attention, and with other params."""
    layer = SPEC["blocks"]["layer"]
    itself = layer["nodes"]["itself"]
    own = itself["fill"]["f"]
    parts = {**own["fill"], **({slot: {"use": use}} if slot else {})}
    fill = {"f": {**own, "params": {**own["params"], **params}, "fill": parts}}
    nodes = {**layer["nodes"], "itself": {**itself, "fill": fill}}
    return {**SPEC, "blocks": {"layer": {**layer, "nodes": nodes}}}


def checkpoint_of(spec: dict[str, Any], folder: Path) -> tuple[Checkpoint, nn.Module]:
    """Return a checkpoint of a spec, with weights far from special values, and its model."""
    graph = check(loaded(spec).form, registry())
    model = build(graph).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    contents = Contents(graph=graph, weights=weights_of(model, graph))
    return open_checkpoint(save(folder, contents)), model


def held_graph() -> Graph:
    """Return the graph of the spec."""
    return check(loaded(SPEC).form, registry())


def inputs() -> dict[str, Tensor]:
    """Return values of both inputs."""
    return {"x": torch.randn(2, 5, 8), "memory": torch.randn(2, 4, 6)}


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"slot": "position", "use": "relative_bias@1"},
        {"slot": "position", "use": "relative_keys@1", "bias": False},
        {"slot": "after_query", "use": "rms_norm@1"},
    ],
    ids=str,
)
def test_without_a_head_is_with_its_gate_at_zero(parts: dict[str, Any], tmp_path: Path) -> None:
    """Heads are pruned in some copies of a repeat, with several widths and shared keys."""
    checkpoint, model = checkpoint_of(with_part(**parts), tmp_path / "whole")
    given = inputs()

    made = pruned(checkpoint, GONE)

    with torch.no_grad():
        for path, heads in GONE.items():
            model.get_parameter(f"{path}.output.weight")[heads] = 0.0
    torch.testing.assert_close(made.build()(**given)["y"], model(**given)["y"])
    left = {place.path: len(place.heads) for place in attentions(made.graph)}
    assert left == {
        "stack.0.itself.f": 2,
        "stack.0.across": 4,
        "stack.1.itself.f": 4,
        "stack.1.across": 2,
        "stack.2.itself.f": 3,
        "stack.2.across": 2,
    }
    assert made.graph.root.shape_of("stack.2.across.key.weight") == (3, 6)
    assert made.graph.root.shape_of("stack.0.itself.f.query.weight") == (4, 8)
    assert made.state["pruned_from"] == fingerprint(checkpoint.graph)


def test_nothing_taken_out_changes_nothing(tmp_path: Path) -> None:
    """Without heads to prune the spec stays the same."""
    checkpoint, model = checkpoint_of(SPEC, tmp_path / "whole")
    given = inputs()

    made = pruned(checkpoint, {"stack.0.across": []})

    assert fingerprint(made.graph) == fingerprint(checkpoint.graph)
    assert torch.equal(made.build()(**given)["y"], model(**given)["y"])


@pytest.mark.parametrize(
    ("heads", "problem", "help_"),
    [
        ({"stack.0.itself": [0]}, "'stack.0.itself' is not an attention", "'stack.0.itself.f'"),
        ({"stack.0.itself.f": [4]}, "has no head 4", "its heads are 0 to 3"),
        ({"stack.0.itself.f": [-1]}, "has no head -1", "its heads are 0 to 3"),
        ({"stack.0.itself.f": range(4)}, "no head of 'stack.0.itself.f' would remain", "keep"),
        ({"stack.0.across": [1]}, "share keys in groups of 2", "such as heads 0, 1"),
        ({"stack.0.across": [1, 2]}, "share keys in groups of 2", "such as heads 0, 1"),
    ],
    ids=str,
)
def test_invalid_heads_are_refused(
    heads: dict[str, Any], problem: str, help_: str, tmp_path: Path
) -> None:
    """Invalid heads are errors that say how to fix them."""
    checkpoint, _ = checkpoint_of(SPEC, tmp_path / "whole")

    with pytest.raises(InputError, match=problem) as caught:
        pruned(checkpoint, heads)

    assert help_ in caught.value.help


def test_heads_with_alibi_are_not_pruned(tmp_path: Path) -> None:
    """With fewer heads, the remaining heads would have other ALiBi slopes."""
    checkpoint, _ = checkpoint_of(with_part("position", "alibi@1"), tmp_path / "whole")

    with pytest.raises(InputError, match="depends on the number of its heads"):
        pruned(checkpoint, {"stack.0.itself.f": [1]})


def test_tied_heads_must_be_pruned_together(tmp_path: Path) -> None:
    """Tied tensors need the same size, so both attentions must lose the same heads."""
    tie = [["stack.0.itself.f.key.weight", "stack.1.itself.f.key.weight"]]
    checkpoint, model = checkpoint_of({**SPEC, "tie": tie}, tmp_path / "whole")
    given = inputs()

    with pytest.raises(SpecError):
        pruned(checkpoint, {"stack.0.itself.f": [1]})

    both = {"stack.0.itself.f": [1], "stack.1.itself.f": [1]}
    with torch.no_grad():
        for path in both:
            model.get_parameter(f"{path}.output.weight")[1] = 0.0
    torch.testing.assert_close(pruned(checkpoint, both).build()(**given)["y"], model(**given)["y"])


def test_importance_is_the_mean_gradient_of_the_loss_by_the_gate(tmp_path: Path) -> None:
    """Compare with finite differences of each gate over two batches."""
    _, model = checkpoint_of(SPEC, tmp_path / "whole")
    model = model.double()
    batches = [{name: value.double() for name, value in inputs().items()} for _ in range(2)]

    def loss(batch: dict[str, Tensor]) -> Tensor:
        return model(**batch)["y"].square().sum()

    found = head_importance(model, [lambda b=batch: loss(b) for batch in batches])

    assert sorted(found) == sorted(place.path for place in attentions(held_graph()))
    assert all(weight.grad is None for weight in model.parameters())
    for path in ("stack.0.itself.f", "stack.2.across"):
        gate, expected = model.get_parameter(f"{path}.output.weight"), torch.zeros(4).double()
        with torch.no_grad():
            for head in range(4):
                for batch in batches:
                    sides = []
                    for move in (1e-5, -2e-5):
                        gate[head] += move
                        sides.append(loss(batch))
                    gate[head] += 1e-5
                    expected[head] += (sides[0] - sides[1]).abs() / 2e-5 / 2
        torch.testing.assert_close(found[path], expected, rtol=1e-5, atol=1e-6)


def test_importance_needs_gates_and_a_batch(tmp_path: Path) -> None:
    """Each error says how to fix it."""
    _, model = checkpoint_of(SPEC, tmp_path / "whole")
    plain = json.loads(json.dumps(SPEC).replace("head_gates@1", "rms_norm@1"))
    _, without = checkpoint_of(plain, tmp_path / "plain")

    with pytest.raises(InputError, match="no batch"):
        head_importance(model, [])
    with pytest.raises(InputError, match="no attention of the model has gates"):
        head_importance(without, [])


@pytest.fixture
def trained(toy_checkpoint: Path) -> api.Model:
    """Return a model after a few updates."""
    return weft.open(toy_checkpoint)


@pytest.mark.integration
def test_a_pruned_model_translates_and_is_saved(
    trained: api.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python and the command both give the model in which the head outputs zeros."""
    path, lines = "decoder.0.cross_attention.f", ["sun moon", "river stone bird"]

    made = trained.prune({path: [1]})
    folder = str(trained.checkpoint.folder)
    out = str(tmp_path / "less")
    assert main(["prune", folder, "--heads", f"{path}:1", "-o", out]) == 0

    lines = capsys.readouterr().out.splitlines()
    # A head of width 8 in a model of 16: three maps of 8 x 16 with biases, and 8 columns.
    before = trained.graph.parameters()
    assert lines == [
        f"{path}  2 -> 1 heads",
        f"parameters  {before:,} -> {before - (3 * (8 * 16 + 8) + 16 * 8):,}",
        out,
    ]
    with torch.no_grad():
        trained.module.get_parameter(f"{path}.out.weight")[:, 8:] = 0.0
    expected = trained.translate(lines)
    assert made.translate(lines) == expected
    assert weft.open(out).translate(lines) == expected
    assert weft.open(made.save(tmp_path / "again")).translate(lines) == expected


@pytest.mark.parametrize("text", ["decoder.0.self_attention.f", "a:", "a:1,b", "a:-1"])
def test_an_argument_without_path_and_heads_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong command line, the expected form of the argument, and no folder."""
    checkpoint, _ = checkpoint_of(SPEC, tmp_path / "whole")
    out = tmp_path / "less"

    assert main(["prune", str(checkpoint.folder), "--heads", text, "-o", str(out)]) == 2

    assert "encoder.0.f:0,3" in capsys.readouterr().err
    assert not out.exists()


def spec_of(rank: int, maps: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a spec of two layers and a head, in which every linear map may have LoRA."""
    lora = {"lora": {"rank": "=rank", "alpha": 8}} if rank else {}
    heads = {"heads": 2, "causal": True, **lora}
    if maps and rank:
        heads["lora"] = {**lora["lora"], "maps": list(maps)}
    return {
        "format": 1,
        "name": "adapted",
        "params": {"rank": rank} if rank else {},
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": "head.y"},
        "blocks": {
            "layer": {
                "inputs": {"x": "f[B T 8]"},
                "outputs": {"x": "wide.y"},
                "nodes": {
                    "itself": {
                        "use": "sublayer@1",
                        "in": {"x": "x"},
                        "fill": {"f": {"use": "attention@1", "params": heads}},
                    },
                    "wide": {
                        "use": "gated_feed_forward@1",
                        "in": {"x": "itself.y"},
                        "params": {"d_ff": 6, **lora},
                    },
                },
            }
        },
        "nodes": {
            "stack": {"repeat": 2, "block": "layer", "carry": ["x"], "in": {"x": "x"}},
            "head": {"use": "linear@1", "in": {"x": "stack.x"}, "params": {"d_out": 5, **lora}},
        },
    }


def drawn(graph: Graph) -> nn.Module:
    """Return a model whose factors of LoRA are not zero."""
    model = build(graph).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.5 * torch.randn(weight.shape, generator=generator))
    return model


def computed(graph: Graph, weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """Return the output of a graph with given weights."""
    model = build(graph).eval()
    model.load_state_dict(weights)
    y: Tensor = model(x=x)["y"]
    return y


@pytest.mark.parametrize("maps", [("query", "value"), ()], ids=["two maps", "all maps"])
def test_the_merged_model_computes_the_same(maps: tuple[str, ...]) -> None:
    """W + alpha / rank * B A, in every adapted map, and nowhere else."""
    graph = graph_of(loaded(spec_of(2, maps)))
    model, x = drawn(graph), torch.randn(2, 5, 8)
    weights = dict(model.state_dict())

    made = merged(weights, graph)

    assert len(lora_factors(graph)) == 2 * ((len(maps) or 4) + 3) + 1
    torch.testing.assert_close(
        computed(graph_without_lora(graph), made, x), model(x=x)["y"], rtol=1e-4, atol=1e-4
    )
    head = weights["head.weight"] + 4 * weights[f"head.{B}"] @ weights[f"head.{A}"]
    torch.testing.assert_close(made["head.weight"], head)


def test_the_merged_spec_is_that_of_the_parent() -> None:
    """So a merged checkpoint opens as one of the parent."""
    parent = graph_of(loaded(spec_of(0)))
    adapted = graph_of(loaded(spec_of(2)))

    assert fingerprint(graph_without_lora(adapted)) == fingerprint(parent)
    assert fingerprint(adapted) != fingerprint(parent)


def test_all_weights_of_the_parent_carry_over() -> None:
    """Their paths do not change, and the fresh factors add nothing."""
    parent, adapted = graph_of(loaded(spec_of(0))), graph_of(loaded(spec_of(2)))
    old, new = build(parent).eval(), build(adapted).eval()
    x = torch.randn(2, 5, 8)

    sources = diff(parent, adapted).weight_transfer.sources

    assert dict(sources) == {path: path for path in parent.weights()}
    torch.testing.assert_close(new(x=x)["y"], old(x=x)["y"], rtol=0, atol=0)


def test_the_command_writes_the_merged_checkpoint(tmp_path: Path) -> None:
    """And refuses a checkpoint without LoRA."""
    graph = graph_of(loaded(spec_of(2)))
    model, x = drawn(graph), torch.randn(1, 4, 8)
    contents = Contents(graph=graph, weights=weights_of(model, graph), run={}, state={"update": 3})
    folder = save(tmp_path / "adapted", contents)

    assert main(["merge", str(folder), "-o", str(tmp_path / "plain")]) == 0

    opened = open_checkpoint(tmp_path / "plain")
    found = computed(opened.graph, dict(opened.weights), x)
    torch.testing.assert_close(found, model(x=x)["y"], rtol=1e-4, atol=1e-4)
    assert main(["merge", str(tmp_path / "plain"), "-o", str(tmp_path / "again")]) != 0
    assert not (tmp_path / "again").exists()


def test_a_tied_weight_is_refused() -> None:
    """What is added to one of two tied weights would be added to the other, too."""
    spec = spec_of(2)
    spec["tie"] = [["stack.0.wide.inner.weight", "stack.1.wide.inner.weight"]]
    graph = graph_of(loaded(spec))

    with pytest.raises(InputError, match="is tied to another weight"):
        merged(dict(drawn(graph).state_dict()), graph)


SMALL: dict[str, Any] = {
    "d_model": 16,
    "heads": 2,
    "d_ff": 32,
    "layers": 1,
    "dropout": 0.1,
    "vocab": 40,
}
LINES = ["sun moon", "river stone bird"]


def tokenizer(checkpoint: Path) -> Path:
    """Return the SentencePiece model of a checkpoint, which has 40 pieces."""
    [file] = checkpoint.glob("*.model")
    return file


@pytest.mark.integration
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_trained_module_becomes_a_checkpoint(
    toy_checkpoint: Path, tmp_path: Path, *, wrapped: bool
) -> None:
    """It translates as the model does that has the same weights, also from a wrapper of torch."""
    expected = weft.open(toy_checkpoint)
    module = weft.build(weft.load("transformer-tiny", **SMALL))
    module.load_state_dict(expected.module.state_dict())
    outer: Any = torch.compile(module, backend="eager") if wrapped else module

    model = weft.Model.from_module(
        outer,
        None if wrapped else weft.load("transformer-tiny", **SMALL),
        tokenizer(toy_checkpoint),
    )
    folder = model.save(tmp_path / "saved")

    opened = weft.open(folder, predict={"type": "beam", "beam": 2, "max_extra": 4})
    assert opened.translate(LINES) == expected.translate(LINES)
    assert opened.graph.name == "transformer-tiny"


@pytest.mark.integration
def test_a_saved_module_does_not_change_with_the_module(tmp_path: Path) -> None:
    """The weights are copied, and written in float32."""
    module = weft.build(weft.load("transformer-tiny", **SMALL)).bfloat16()
    model = weft.Model.from_module(module)
    before = module.state_dict()["head.weight"].float()

    with torch.no_grad():
        module.get_submodule("head").weight.zero_()  # type: ignore[operator]

    weights = weft.open(model.save(tmp_path / "saved")).module.state_dict()
    assert torch.equal(weights["head.weight"], before)
    assert weights["head.weight"].dtype == torch.float32


WRONG: list[tuple[dict[str, Any], Any, str]] = [
    ({"layers": 2}, None, "the module has no weight 'encoder.1"),
    ({"d_ff": 64}, None, r"has the shape \[32, 16\] in the module, and \[64, 16\]"),
    ({}, "nothing.model", "the tokenizer cannot be read: No such file"),
    ({}, b"x", "damaged or not a SentencePiece model"),
    ({}, {"source": b"x"}, "tokenizers of 'source'"),
]


@pytest.mark.integration
@pytest.mark.parametrize(("params", "tokenizers", "problem"), WRONG)
def test_a_module_of_another_spec_is_refused(
    params: dict[str, Any], tokenizers: Any, problem: str
) -> None:
    """The message names the first weight or the tokenizer that does not fit."""
    module = weft.build(weft.load("transformer-tiny", **SMALL))

    with pytest.raises(InputError, match=problem):
        weft.Model.from_module(
            module, weft.load("transformer-tiny", **{**SMALL, **params}), tokenizers
        )


@pytest.mark.integration
def test_a_tokenizer_of_another_size_is_refused(toy_checkpoint: Path) -> None:
    """Its pieces would not be the ids of the model."""
    module = weft.build(weft.load("transformer-tiny", **{**SMALL, "vocab": 50}))

    with pytest.raises(InputError, match="has 40 pieces, but the input 'source' has 50 ids"):
        weft.Model.from_module(module, tokenizers=tokenizer(toy_checkpoint))


@pytest.mark.integration
def test_a_module_that_weft_did_not_build_needs_a_spec() -> None:
    """Its weights alone say nothing of what is computed."""
    with pytest.raises(InputError, match="Linear was not built from a spec"):
        weft.Model.from_module(nn.Linear(2, 2))


@pytest.mark.integration
def test_exporting_a_module_says_how_to_save_it(tmp_path: Path) -> None:
    """An export opens a folder."""
    module = weft.build(weft.load("transformer-tiny", **SMALL))

    with pytest.raises(InputError, match="is not a checkpoint folder") as error:
        weft.export(module, "huggingface", tmp_path / "out")  # type: ignore[arg-type]

    assert "from_module" in error.value.help


@pytest.mark.integration
def test_a_saved_spec_needs_no_other_file(tmp_path: Path) -> None:
    """A variant with overrides is the same graph when it is loaded again."""
    spec = weft.load("transformer-prenorm", layers=2).swap(
        "**.feed_forward/f", "gated_feed_forward@1"
    )

    path = spec.save(tmp_path / "folder" / "model.json")

    assert weft.load(path).graph().weights() == spec.graph().weights()
    assert weft.diff(path, spec).changes == ()
    assert "extends" not in path.read_text()
