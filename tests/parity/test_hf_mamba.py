"""Mamba-2 against Hugging Face: the block with several groups of heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import weft
from torch import Tensor
from weft.specs.load import loaded

WIDTH, HEADS, STATE = 16, 4, 5
WEIGHTS = {
    "inner.weight": "in_proj.weight",
    "kernel": "conv1d.weight",
    "kernel_bias": "conv1d.bias",
    "time_bias": "dt_bias",
    "decay": "A_log",
    "skip": "D",
    "norm.weight": "norm.weight",
    "outer.weight": "out_proj.weight",
}
"""Weight of our block to that of theirs."""


def block(groups: int) -> Any:
    """Return a spec of one block."""
    params = {"heads": HEADS, "d_state": STATE, "groups": groups, "chunk": 4}
    return {
        "format": 1,
        "name": "mixer",
        "doc": "One state space block.",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": f"f[B T {WIDTH}]"},
        "outputs": {"y": "mixer.y"},
        "nodes": {"mixer": {"use": "mamba2@1", "in": {"x": "x"}, "params": params}},
    }


@pytest.mark.parametrize("groups", [1, 2, 4])
@torch.no_grad()
def test_outputs_are_equal_for_any_number_of_groups(hf: Any, groups: int) -> None:
    """The groups share B and C, and the norm after the gate is that of each group."""
    module = hf.models.mamba2.modeling_mamba2.Mamba2Mixer
    config = hf.Mamba2Config(
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_heads=HEADS,
        head_dim=2 * WIDTH // HEADS,
        state_size=STATE,
        n_groups=groups,
        chunk_size=8,
        layer_norm_epsilon=1e-5,
    )
    theirs = module(config, layer_idx=0).eval()
    generator = torch.Generator().manual_seed(1)
    for weight in theirs.parameters():
        weight.copy_(0.5 * torch.randn(weight.shape, generator=generator))
    ours = weft.build(loaded(block(groups))).eval()
    state: dict[str, Tensor] = theirs.state_dict()
    ours.load_state_dict({f"mixer.{name}": state[other] for name, other in WEIGHTS.items()})
    x = torch.randn(2, 11, WIDTH, generator=generator)

    wanted = theirs(x)

    assert wanted.std() > 0.1
    torch.testing.assert_close(ours(x=x)["y"], wanted, rtol=1e-5, atol=1e-5)
