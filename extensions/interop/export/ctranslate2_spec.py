"""Build CTranslate2's model spec from a model's weights, with its public classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ....plugin import Graph
from .ctranslate2_layers import (
    ACTIVATIONS,
    Features,
    Refusals,
    Stack,
    Stacks,
    SubLayers,
    Vertex,
    epsilon_of,
    features_of,
    read_stacks,
)

POSITIONS = 2048
"""Positions in a sinusoidal table; CTranslate2 refuses longer sentences."""


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """A graph that CTranslate2 can express, with the options to set."""

    stacks: Stacks
    encoder: Features | None
    decoder: Features
    epsilon: float
    """Epsilon of all norms."""


def ct2_plan(graph: Graph, model: Callable[[], nn.Module]) -> ExportPlan:
    """Return the plan for expressing a graph in CTranslate2.

    Args:
        graph: a checked graph.
        model: builds the model, called only where weights decide; its weights may be on torch's
            meta device, in which case only tied weights count as equal.

    Raises:
        InputError: CTranslate2 has no counterpart for a node; every such node is named.
    """
    refusals = Refusals(graph, "CTranslate2")
    stacks = read_stacks(graph, refusals)
    encoder = None
    if stacks.encoder is not None:
        encoder = features_of(stacks.encoder, refusals, decoder=False)
    decoder = features_of(stacks.decoder, refusals, decoder=True)
    pairs = [(stacks.decoder, decoder)]
    if stacks.encoder is not None and encoder is not None:
        pairs.insert(0, (stacks.encoder, encoder))
    epsilon = epsilon_of(pairs, refusals)
    for stack, features in pairs:
        _tables_alike(stack, features, model, refusals)
    refusals.check()
    return ExportPlan(stacks, encoder, decoder, epsilon)


def ct2_spec(plan: ExportPlan, model: nn.Module) -> Any:
    """Return the model as a CTranslate2 spec, without vocabularies.

    Args:
        plan: plan of the graph.
        model: built from the same graph.
    """
    from ctranslate2 import specs  # noqa: PLC0415 - an extra

    stacks, decoder = plan.stacks, plan.decoder
    options = {
        **_given(decoder),
        "alibi": decoder.position == "alibi",
        "with_encoder_attention": stacks.encoder is not None,
    }
    inner_spec = specs.TransformerDecoderSpec(len(stacks.decoder.layers), **options)
    _fill(inner_spec, stacks.decoder, decoder, model)
    _linear(inner_spec.projection, _module(model, stacks.head))
    if decoder.scale != 1.0:
        inner_spec.scale_outputs = np.float32(decoder.scale)
    if stacks.encoder is None or plan.encoder is None:
        spec = specs.TransformerDecoderModelSpec(inner_spec)
    else:
        source = specs.TransformerEncoderSpec(len(stacks.encoder.layers), **_given(plan.encoder))
        _fill(source, stacks.encoder, plan.encoder, model)
        spec = specs.TransformerSpec(source, inner_spec)
    spec.config.layer_norm_epsilon = plan.epsilon
    return spec


def _given(features: Features) -> dict[str, Any]:
    """Return the constructor arguments common to encoder and decoder."""
    from ctranslate2.specs import Activation  # noqa: PLC0415 - an extra

    f = features
    grouped = f.kv_heads < f.heads
    rotary = {"rotary_dim": f.d_head, "rotary_base": f.rotary_base, "rotary_interleave": True}
    return {
        "num_heads": f.heads,
        # CTranslate2 makes a final norm only with `pre_norm`; `_fill` sets the actual order.
        "pre_norm": f.pre_norm or f.final_norm is not None,
        "no_final_norm": f.final_norm is None,
        "activation": Activation[ACTIVATIONS[f.activation]],
        "layernorm_embedding": f.embedding_norm is not None,
        "relative_position": f.position == "relative_keys",
        "relative_attention_bias": f.position == "relative_bias",
        "ffn_glu": f.gated,
        "rms_norm": f.rms,
        "num_heads_kv": f.kv_heads if grouped else None,
        "head_dim": f.d_head if f.d_head * f.heads != f.d_model or grouped else None,
        **(rotary if f.position == "rotary" else {}),
    }


def _module(model: nn.Module, site: Vertex) -> Any:
    return model.get_submodule(site.module)


def _fill(spec: Any, stack: Stack, features: Features, model: nn.Module) -> None:
    """Set the weights of a stack."""
    embedding = _module(model, stack.embedding).weight
    (spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings).weight = _array(
        embedding
    )
    spec.scale_embeddings, spec.pre_norm = features.scale_embedding, features.pre_norm
    if features.position == "table":
        spec.position_encodings.encodings = _array(_table(features, model))
    if features.embedding_norm is not None:
        _norm(spec.layernorm_embedding, _module(model, features.embedding_norm))
    if features.final_norm is not None:
        _norm(spec.layer_norm, _module(model, features.final_norm))
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        _layer(layer_spec, layer, features, model)


def _table(features: Features, model: nn.Module) -> Tensor:
    """Return the vectors of positions, [positions, D]; zeros if none are added."""
    site = features.table
    if site is None:
        return torch.zeros(POSITIONS, features.d_model)
    module = _module(model, site)
    length = site.part.block.max_length(site.part.arguments) or POSITIONS
    zeros = next(model.parameters()).new_zeros(1, length, features.d_model)
    added: Tensor = module.eval()(zeros)  # the block adds its table to its input
    return added[0]


def _layer(spec: Any, layer: SubLayers, features: Features, model: nn.Module) -> None:
    pairs = [(spec.self_attention, layer.attention), (spec.ffn, layer.feed_forward)]
    if layer.cross is not None:
        pairs.append((spec.attention, layer.cross))
    for sublayer_spec, ours in pairs:
        sublayer = _module(model, ours)
        _norm(sublayer_spec.layer_norm, sublayer.norm)
        gain = sublayer.gain
        if sublayer_spec is spec.ffn:
            _feed_forward(sublayer_spec, sublayer.f, gain)
        else:
            _attention(
                sublayer_spec,
                sublayer.f,
                features,
                gain,
                self_attention=sublayer_spec is spec.self_attention,
            )


def _feed_forward(spec: Any, ours: Any, gain: Tensor | None) -> None:
    if hasattr(spec, "linear_0_noact"):
        _linear(spec.linear_0, ours.gate)
        _linear(spec.linear_0_noact, ours.inner)
    else:
        _linear(spec.linear_0, ours.inner)
    _linear(spec.linear_1, ours.outer, rows=gain)


def _attention(
    spec: Any, ours: Any, features: Features, gain: Tensor | None, *, self_attention: bool
) -> None:
    """Set an attention; CTranslate2 fuses keys and values, or all three, in one linear map."""
    times = features.heads // ours.kv_heads if ours.kv_heads != features.kv_heads else 1
    query = _parts(ours.query)
    key, value = (
        _repeated(_parts(linear), ours.kv_heads, times) for linear in (ours.key, ours.value)
    )
    first = [[query, key, value]] if self_attention else [[query], [key, value]]
    for linear_spec, maps in zip(spec.linear, first, strict=False):
        _fused(linear_spec, maps)
    columns = None
    if ours.output is not None:
        columns = ours.output.weight.repeat_interleave(features.d_head)
    _linear(spec.linear[-1], ours.out, rows=gain, columns=columns)
    if ours.scale is not None:
        spec.queries_scale = float(ours.scale)
    position = ours.position
    if features.position == "relative_bias" and self_attention:
        spec.relative_attention_bias = _array(position.weight)
        spec.relative_attention_max_distance = np.dtype("int32").type(position.longest)
    if features.position == "relative_keys" and self_attention:
        keys = position.weight
        later = keys.new_zeros(position.reach - position.after, keys.size(1))
        spec.relative_position_keys = _array(torch.cat((keys, later)))
        spec.relative_position_values = np.zeros_like(spec.relative_position_keys)


_Map = tuple[Tensor, Tensor | None]
"""Weight and bias of a linear map."""


def _parts(linear: Any) -> _Map:
    return linear.weight, linear.bias


def _repeated(linear: _Map, heads: int, times: int) -> _Map:
    """Return a linear map with each head repeated `times` times."""
    weight, bias = linear
    if times == 1:
        return linear
    again = weight.unflatten(0, (heads, -1)).repeat_interleave(times, 0).flatten(0, 1)
    if bias is not None:
        bias = bias.unflatten(0, (heads, -1)).repeat_interleave(times, 0).flatten()
    return again, bias


def _fused(spec: Any, maps: Sequence[_Map]) -> None:
    """Set a linear map to several stacked maps; missing biases become zero if any has one."""
    spec.weight = _array(torch.cat([weight for weight, _ in maps]))
    if any(bias is not None for _, bias in maps):
        biases = [w.new_zeros(w.size(0)) if bias is None else bias for w, bias in maps]
        spec.bias = _array(torch.cat(biases))


def _linear(
    spec: Any, ours: nn.Linear, rows: Tensor | None = None, columns: Tensor | None = None
) -> None:
    """Set a linear map, with rows scaled by a gain and columns by head gates."""
    weight, bias = _parts(ours)
    if columns is not None:
        weight = weight * columns
    if rows is not None:
        weight = weight * rows[:, None]
        bias = bias * rows if bias is not None else None
    spec.weight = _array(weight)
    if bias is not None:
        spec.bias = _array(bias)


def _norm(spec: Any, ours: Any) -> None:
    weight = torch.ones(ours.normalized_shape) if ours.weight is None else ours.weight
    spec.gamma = _array(weight)
    if hasattr(spec, "beta"):
        spec.beta = _array(torch.zeros_like(weight) if ours.bias is None else ours.bias)


def _array(tensor: Tensor) -> Any:
    """Return a weight as a copied float32 array; CTranslate2's classes quantize in place."""
    return tensor.detach().float().cpu().numpy().copy()


def _tables_alike(
    stack: Stack, features: Features, build: Callable[[], nn.Module], refusals: Refusals
) -> None:
    """Refuse learned distances that differ by layer: CTranslate2 uses the first layer's."""
    if features.position != "relative_bias":
        return
    model, places = build(), [layer.attention for layer in stack.layers]
    first = _module(model, places[0]).f.position.weight
    for site in places[1:]:
        other = _module(model, site).f.position.weight
        if other is not first and (other.is_meta or not torch.equal(first, other)):
            path = f"{stack.layers[0].attention.path}".replace(".0.", ".*.")
            problem = f"its learned distances differ from '{places[0].path}'"
            refusals.add(site.obstacle(f'{problem}: tie ["{path}.f.position.weight"]', slot="/f"))
