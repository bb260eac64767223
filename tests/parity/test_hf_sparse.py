"""Block-sparse attention against Longformer attention of Hugging Face."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from weft.blocks.attention.block_sparse_module import BlockSparseAttention

from .conftest import scatter


@pytest.mark.parametrize(("width", "block"), [(4, 2), (8, 4), (8, 3)])
def test_longformer_attention_is_equal(hf: Any, width: int, block: int) -> None:
    """A window of `width` / 2 on each side, a global first position, one row with padding."""
    config = hf.LongformerConfig(
        hidden_size=16,
        num_attention_heads=2,
        num_hidden_layers=1,
        intermediate_size=8,
        attention_window=[width],
        vocab_size=20,
        max_position_embeddings=64,
        attention_probs_dropout_prob=0.0,
        hidden_dropout_prob=0.0,
    )
    model = scatter(hf.LongformerModel(config, add_pooling_layer=False), 0.3).double()
    theirs = model.encoder.layer[0].attention.self
    near = width // 2
    ours = BlockSparseAttention(
        16,
        2,
        8,
        8,
        block=block,
        window_blocks=-(-near // block),
        window=near,
        global_tokens=1,
        global_maps=True,
    ).double()
    assert ours.global_maps is not None
    for name in ("query", "key", "value"):
        getattr(ours, name).load_state_dict(getattr(theirs, name).state_dict())
        weights = getattr(theirs, f"{name}_global").state_dict()
        getattr(ours.global_maps, name).load_state_dict(weights)
    with torch.no_grad():
        ours.out.weight.copy_(torch.eye(16))
        ours.out.bias.zero_()
    seen: dict[str, torch.Tensor] = {}
    theirs.register_forward_hook(
        lambda _, values, wires, given: seen.update(
            x=values[0] if values else wires["hidden_states"], y=given[0]
        ),
        with_kwargs=True,
    )
    mask = torch.ones(2, 24, dtype=torch.bool)
    mask[1, 19:] = False
    first = torch.zeros(2, 24, dtype=torch.long)
    first[:, 0] = 1

    with torch.no_grad():
        ids = torch.randint(2, 20, (2, 24), generator=torch.Generator().manual_seed(1))
        model(ids, attention_mask=mask.long(), global_attention_mask=first)
        found = ours(seen["x"], mask)

    # The softmax of Hugging Face is in single precision.
    torch.testing.assert_close(found[mask], seen["y"][mask], rtol=0, atol=1e-6)
