"""Graphs read as stacks of sub-layers, and the nodes that prevent it."""

from __future__ import annotations

from typing import Any

import pytest
import weft
from weft.extensions.interop.export.ctranslate2_layers import (
    Refusals,
    epsilon_of,
    features_of,
    read_stacks,
)
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError
from weft.specs.load import LoadedSpec, load, load_child


def read(spec: LoadedSpec | str) -> None:
    """Read a spec as stacks, features included."""
    graph = graph_of(spec)
    refusals = Refusals(graph, "the engine")
    stacks = read_stacks(graph, refusals)
    pairs = [(stacks.decoder, features_of(stacks.decoder, refusals, decoder=True))]
    if stacks.encoder is not None:
        pairs.append((stacks.encoder, features_of(stacks.encoder, refusals, decoder=False)))
    epsilon_of(pairs, refusals)
    refusals.check()


def refused(spec: LoadedSpec | str) -> str:
    """Return the message with which a spec is refused."""
    with pytest.raises(InputError) as caught:
        read(spec)
    return str(caught.value)


def test_layers_are_found_whatever_templates_they_came_from() -> None:
    """transformer-base has 6 + 6 layers; layers that share weights have one module."""
    graph = graph_of("transformer-shared")

    stacks = read_stacks(graph, Refusals(graph, "the engine"))

    assert stacks.encoder is not None
    assert [stacks.encoder.ids, stacks.decoder.ids] == ["source", "target"]
    assert len(stacks.encoder.layers) == len(stacks.decoder.layers) == 6
    last = stacks.decoder.layers[5]
    assert last.cross is not None
    assert last.cross.path == "decoder.5.cross_attention"
    assert last.cross.module == "decoder.cross_attention"
    assert [one.role for one in stacks.decoder.before] == ["position_table"]
    assert stacks.head.path == "head"


def test_a_decoder_only_model_has_no_memory() -> None:
    """GPT-2 has twelve layers of two sub-layers and a final norm."""
    graph = graph_of("gpt2")

    stacks = read_stacks(graph, Refusals(graph, "the engine"))

    assert stacks.encoder is None
    assert all(layer.cross is None for layer in stacks.decoder.layers)
    assert [one.path for one in stacks.decoder.after] == ["norm"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mamba", "'layers.*.mixer/f': mamba2@1 has no counterpart"),
        ("gnmt-small", "lstm@1 has no counterpart"),
        ("conv-s2s", "'encoder.*.convolution': gated_convolution@1 has no counterpart"),
        ("moe-transformer", "'encoder.*.mixture': mixture_of_experts@1 has no counterpart"),
        ("universal-transformer", "'encoder.time': step_position@1 has no counterpart"),
        ("linear-transformer", "'decoder.*.self_attention/f': linear_attention@1"),
        ("transformer-parallel", "'encoder.*.self_attention': parallel_sublayer@1"),
        ("transformer-alibi", "'encoder.*.self_attention/f': alibi is not supported in an encoder"),
        ("transformer-local", "'encoder.*.self_attention/f': window@1 in the slot 'mask'"),
        ("transformer-sandwich", "'decoder.*.feed_forward': a norm before it and another after it"),
        ("transformer-rezero", "'encoder.*.feed_forward': a sub-layer without a norm"),
        ("bert", "it needs 'logits' and 'step'"),
    ],
)
def test_a_refusal_names_the_node(name: str, message: str) -> None:
    """The message has the path with which `weft swap` selects the node."""
    assert message in refused(name)


def test_a_refusal_suggests_a_swap() -> None:
    """The suggested command makes a spec without this obstacle."""
    message = refused("linear-transformer")

    assert (
        "weft swap SPEC '**/f[use=linear_attention@1]' --use attention@1 --set heads=8" in message
    )
    spec = weft.load("linear-transformer")
    swapped = spec.swap("**/f[use=linear_attention@1]", "attention@1", heads=8)
    graph = graph_of(swapped)
    stacks = read_stacks(graph, Refusals(graph, "the engine"))
    assert len(stacks.decoder.layers) == 6


@pytest.mark.parametrize(
    ("select", "changes", "message"),
    [
        ("decoder.3.cross_attention/f", {"params.heads": 4}, "its number of heads is 4, 8 in"),
        ("encoder.2.feed_forward/f", {"params.activation": "gelu"}, "its activation is gelu, relu"),
        ("encoder.4.feed_forward", {"params.eps": 1e-3}, "its norm's eps is 0.001, 1e-06 in"),
        ("encoder.*.self_attention/f", {"params.causal": True}, "it is causal in an encoder"),
        ("encoder.0.self_attention/f", {"params.d_v": 32}, "keys are 64 wide and values 32"),
        ("encoder.*.self_attention/f", {"params.sinks": True}, "its param 'sinks' is not"),
        (
            "decoder.*.self_attention/f",
            {"params.softmax": "sigmoid"},
            "its param 'softmax' is not supported",
        ),
    ],
)
def test_layers_of_a_stack_are_alike(select: str, changes: dict[str, Any], message: str) -> None:
    """Options that CTranslate2 sets once per stack must be equal in all layers."""
    child = {"name": "other", "patch": [{"select": select, "set": changes}]}
    spec = load_child(load("transformer-base"), child, "other.json")

    assert message in refused(spec)


@pytest.mark.parametrize(("name", "value"), [("limit", 7.0), ("offset", 1.0)])
def test_bounded_gates_are_refused(name: str, value: float) -> None:
    """CTranslate2 multiplies the hidden layer as it is."""
    patch = [{"select": "decoder.*.feed_forward/f", "set": {f"params.{name}": value}}]
    spec = load_child(load("llama"), {"name": "other", "patch": patch}, "other.json")

    assert f"a gated feed-forward network with '{name}' is not supported" in refused(spec)
