"""Complete layers of a built Transformer against torch's layers."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.cost.flops import flops, flops_by_node
from weft.runtime.codegen.build import build
from weft.specs.load import load, loaded

SIZES = {"vocab": 11, "d_model": 16, "heads": 4, "d_ff": 32, "layers": 1, "dropout": 0.0}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
BOTH_ORDERS = pytest.mark.parametrize("order", ["post", "pre"])
BOTH_KINDS = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)


def layer(stack: str, order: str, dtype: torch.dtype) -> nn.Module:
    """Return the first layer of a stack, with random weights."""
    text = load("transformer-tiny").form.model_dump_json(by_alias=True)
    spec = loaded(json.loads(text.replace('"post"', f'"{order}"'))).form
    model = build(check(spec, registry(), SIZES))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn(weight.shape))
    return getattr(model, stack)[0].to(dtype)


def torchs(kind: type[nn.Module], order: str, dtype: torch.dtype) -> Any:
    """Return torch's layer, in training mode to avoid its fast path, without dropout."""
    return kind(
        16,
        4,
        32,
        dropout=0.0,
        layer_norm_eps=1e-6,
        batch_first=True,
        norm_first=order == "pre",
        dtype=dtype,
    ).train()


def counterparts(ours: Any, attentions: dict[str, str]) -> dict[str, list[nn.Parameter]]:
    """Return which of our weights, stacked, correspond to each of torch's.

    Args:
        ours: our layer.
        attentions: maps our name of each attention, in order, to torch's name.
    """
    same: dict[str, list[nn.Parameter]] = {}
    for which in ("weight", "bias"):
        for number, name in enumerate([*attentions, "feed_forward"], start=1):
            same[f"norm{number}.{which}"] = [getattr(getattr(ours, name).norm, which)]
        for name, called in attentions.items():
            f = getattr(ours, name).f
            three = (f.query, f.key, f.value)
            same[f"{called}.in_proj_{which}"] = [getattr(linear, which) for linear in three]
            same[f"{called}.out_proj.{which}"] = [getattr(f.out, which)]
        f = ours.feed_forward.f
        same[f"linear1.{which}"] = [getattr(f.inner, which)]
        same[f"linear2.{which}"] = [getattr(f.outer, which)]
    return same


def take_weights(theirs: Any, same: dict[str, list[nn.Parameter]]) -> None:
    """Copy all of our weights to torch's layer."""
    theirs.load_state_dict({name: torch.cat(parts).detach() for name, parts in same.items()})


def assert_same_gradients(
    theirs: Any, same: dict[str, list[nn.Parameter]], tolerance: float
) -> None:
    """Compare the gradients of every weight."""
    for name, weight in theirs.named_parameters():
        gradient = torch.cat([part.grad for part in same[name]])
        torch.testing.assert_close(gradient, weight.grad, rtol=0, atol=tolerance)


@BOTH_ORDERS
@BOTH_KINDS
def test_the_encoder_layer_is_torchs(order: str, dtype: torch.dtype) -> None:
    """Same weights and padding give the same output and the same gradients."""
    ours = layer("encoder", order, dtype)
    theirs = torchs(nn.TransformerEncoderLayer, order, dtype)
    same = counterparts(ours, {"self_attention": "self_attn"})
    take_weights(theirs, same)
    x = torch.randn(3, 6, 16, dtype=dtype)
    mask = torch.arange(6) < torch.tensor([[6], [4], [1]])
    pull = torch.randn(3, 6, 16, dtype=dtype)
    x_ours, x_theirs = x.clone().requires_grad_(), x.clone().requires_grad_()

    found = ours(x=x_ours, mask=mask)
    expected = theirs(x_theirs, src_key_padding_mask=~mask)
    (found * pull).sum().backward()
    (expected * pull).sum().backward()

    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
    torch.testing.assert_close(x_ours.grad, x_theirs.grad, rtol=0, atol=20 * tolerance)
    assert_same_gradients(theirs, same, 20 * tolerance)


@BOTH_ORDERS
@BOTH_KINDS
def test_the_decoder_layer_is_torchs(order: str, dtype: torch.dtype) -> None:
    """Causal self-attention, masked memory; gradients reach the memory, too."""
    ours = layer("decoder", order, dtype)
    theirs = torchs(nn.TransformerDecoderLayer, order, dtype)
    attentions = {"self_attention": "self_attn", "cross_attention": "multihead_attn"}
    same = counterparts(ours, attentions)
    take_weights(theirs, same)
    x, pull = torch.randn(2, 3, 5, 16, dtype=dtype)
    memory = torch.randn(3, 6, 16, dtype=dtype)
    mask = torch.arange(6) < torch.tensor([[6], [4], [1]])
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    x_ours, x_theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    memory_ours, memory_theirs = memory.clone().requires_grad_(), memory.clone().requires_grad_()

    found = ours(x=x_ours, memory=memory_ours, mask=mask)
    expected = theirs(x_theirs, memory_theirs, tgt_mask=hidden, memory_key_padding_mask=~mask)
    (found * pull).sum().backward()
    (expected * pull).sum().backward()

    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
    torch.testing.assert_close(x_ours.grad, x_theirs.grad, rtol=0, atol=20 * tolerance)
    torch.testing.assert_close(memory_ours.grad, memory_theirs.grad, rtol=0, atol=20 * tolerance)
    assert_same_gradients(theirs, same, 20 * tolerance)


def test_the_cost_of_every_node_equals_the_count_of_torch() -> None:
    """Block by block, with both copies of a layer added up; fused kernels are not counted."""
    graph = check(load("transformer-tiny").form, registry(), {**SIZES, "layers": 2})
    model = build(graph).eval()
    source, target = torch.randint(11, (3, 11)), torch.randint(11, (3, 7))

    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(source=source, source_mask=torch.ones(3, 11, dtype=torch.bool), target=target)

    counts = counter.get_flop_counts()
    found = {name: sum(products.values()) for name, products in counts.items()}
    sizes, root = {"B": 3, "S": 11, "T": 7}, type(model).__name__
    for path, cost in flops_by_node(graph, sizes).items():
        copies = {path.replace("*", copy) for copy in "01"}
        assert cost == sum(found.get(f"{root}.{copy}", 0) for copy in copies), path
    assert flops(graph, sizes) == found["Global"]
