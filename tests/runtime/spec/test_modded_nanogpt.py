"""The spec `modded-nanogpt` against the model written with functions of torch."""

from __future__ import annotations

import math

import pytest
import torch
import weft
from torch import Tensor
from torch.nn.functional import linear, relu, rms_norm

LAYERS, HEADS, WIDTH, VOCABULARY = 6, 2, 16, 30
Weights = dict[str, Tensor]


def norm(x: Tensor) -> Tensor:
    """Divide each vector by the root of its mean square."""
    return rms_norm(x, (x.size(-1),), eps=1e-7)


def heads_of(x: Tensor) -> Tensor:
    """Split vectors [B, T, D] into heads, [B, H, T, D/H]."""
    return x.unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(1, 2)


def rotated(x: Tensor) -> Tensor:
    """Rotate feature i and i + K/2 of x [B, H, T, K] by t / 10000^(2i/K)."""
    length, half = x.size(2), x.size(3) // 2
    angles = torch.outer(torch.arange(length), 10_000.0 ** (-torch.arange(half) / half)).double()
    turns = torch.polar(torch.ones_like(angles), angles)
    numbers = torch.complex(x[..., :half], x[..., half:]) * turns
    return torch.cat([numbers.real, numbers.imag], -1)


def layer(w: Weights, x: Tensor, embedding: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the output of a layer, and its values before they are mixed with the first ones."""
    x = w["entry.keep.weight"] * x + w["entry.again.weight"] * embedding
    y = norm(x)
    query, key = (
        rotated(norm(heads_of(linear(y, w[f"body.{name}.map.weight"]))))
        for name in ("query", "key")
    )
    value = linear(y, w["value.weight"])
    mixed = value
    if first is not None:
        mixed = (1 - w["share.weight"]) * value + w["share.weight"] * first
    scores = query @ key.transpose(2, 3) / math.sqrt(WIDTH // HEADS)
    later = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
    weights = scores.masked_fill(later, -math.inf).softmax(-1)
    read = (weights @ heads_of(mixed)).transpose(1, 2).flatten(2)
    x = x + linear(read, w["body.out.weight"])
    inner = relu(linear(norm(x), w["body.feed_forward.inner.weight"])) ** 2
    return x + linear(inner, w["body.feed_forward.outer.weight"]), value


def logits_of(weights: Weights, tokens: Tensor) -> Tensor:
    """Return the logits [B, T, V] of tokens [B, T]."""

    def below(path: str) -> Weights:
        return {k.removeprefix(path): v for k, v in weights.items() if k.startswith(path)}

    x = embedding = norm(weights["table.weight"][tokens])
    first, skips = None, []
    for index in range(LAYERS // 2):
        x, values = layer(below(f"down.{index}."), x, embedding, first)
        first = values if first is None else first
        skips.append(x)
    for index in range(LAYERS // 2):
        x = x + weights[f"up.{index}.weight.weight"] * skips.pop()
        x, _ = layer(below(f"up.{index}.layer."), x, embedding, first)
    return 30 * torch.tanh(linear(norm(x), weights["head.weight"]) / 30)


@pytest.fixture
def model() -> torch.nn.Module:
    """Return a small model."""
    sizes = {"d_model": WIDTH, "heads": HEADS, "layers": LAYERS, "vocab": VOCABULARY}
    return weft.build(weft.load("modded-nanogpt", **sizes)).double()


def test_it_computes_what_its_functions_do(model: torch.nn.Module) -> None:
    """With random weights, also those that begin at 0 or 1."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_()
    tokens = torch.randint(VOCABULARY, (2, 7))

    found = model(tokens=tokens)["logits"]

    expected = logits_of(dict(model.named_parameters()), tokens)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_it_begins_as_the_uniform_distribution(model: torch.nn.Module) -> None:
    """The output map and the last maps of all layers begin at 0."""
    zero = {name.split(".")[-2] for name, weight in model.named_parameters() if not weight.any()}

    assert zero == {"again", "head", "out", "outer"}
