"""Decoding begins without padding: the same state, from fewer positions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.kernels.decode_state import Capacity, State
from weft.runtime.compile.decoder import Passes, decoder_of, use_passes

from .test_active_rows import EVERY, assert_same, decoded, made, requests, translates


def tensors(state: Any) -> list[Tensor]:
    """Return the tensors of a decoding state, in order."""
    if isinstance(state, Tensor):
        return [state]
    if isinstance(state, State):
        parts: list[Any] = [dict(part) for part in state]
    else:
        parts = list(state.values()) if isinstance(state, dict) else list(state)
    return [one for part in parts for one in tensors(part)]


def begun(model: nn.Module, fixed: dict[str, Tensor]) -> list[Tensor]:
    """Return the state after `begin`."""
    begin: Any = model.begin
    sentences = fixed["source"].size(0)
    capacity = Capacity(sentences, 2, 4, torch.float32, torch.device("cpu"))
    with torch.no_grad():
        return tensors(begin(capacity, **fixed))


def decoding(model: nn.Module) -> nn.Module:
    """Return the module that decodes for a model."""
    with torch.no_grad():
        return decoder_of(model).module(model, torch.float32)


def rows_of(vectors: torch.Tensor) -> int:
    """Return the number of vectors in a tensor."""
    return math.prod(vectors.shape[:-1])


def test_the_encoder_computes_the_tokens_only() -> None:
    """Three sentences of 2, 9 and 3 tokens are 14 positions, not 27; a full batch stays padded."""
    model = made("transformer-tiny")
    mask = torch.arange(9) < torch.tensor([2, 9, 3])[:, None]
    source = torch.randint(4, 9, (3, 9)).where(mask, 0)
    positions: list[int] = []
    without = decoding(model)

    for module in without.modules():
        if isinstance(module, nn.ReLU) or type(module).__name__ == "FeedForward":
            module.register_forward_pre_hook(
                lambda _, args, named: positions.append(rows_of([*args, *named.values()][0])),
                with_kwargs=True,
            )
    found = begun(without, {"source": source, "source_mask": mask})
    assert positions
    assert set(positions) == {14}
    expected = begun(model, {"source": source, "source_mask": mask})
    assert [one.shape for one in found] == [one.shape for one in expected]

    positions.clear()
    begun(without, {"source": source, "source_mask": mask | True})
    assert set(positions) == {27}


@pytest.mark.integration
@EVERY
def test_outputs_do_not_change(name: str) -> None:
    """For every shipped translator, whatever its encoder."""
    if not translates(name):
        pytest.skip("it does not translate step by step")
    model, given = made(name), requests(name)

    found = decoded(model, given)
    use_passes(model, Passes(without=frozenset({"unpad"})))

    assert_same(found, decoded(model, given))
