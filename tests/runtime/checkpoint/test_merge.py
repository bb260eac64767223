"""LoRA: weights of the parent carry over, and the merged model computes the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.graphs.diff.diff import diff
from weft.graphs.ir.canonical import fingerprint
from weft.graphs.ir.graph import Graph
from weft.graphs.ir.lora import A, B
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.checkpoint.merge import graph_without_lora, lora_factors, merged
from weft.runtime.checkpoint.saving import Contents, save, weights_of
from weft.runtime.cli.main import main
from weft.runtime.codegen.build import build
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError
from weft.specs.load import loaded


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
