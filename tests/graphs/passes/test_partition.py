"""Tests of partitioned graphs: both parts equal the model, and the first needs only its inputs."""

from __future__ import annotations

import pytest
import torch
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.partition import partition
from weft.runtime.codegen.build import build, build_sharing
from weft.specs.findings import SpecError
from weft.specs.load import load

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
