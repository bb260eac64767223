"""Pointer-generator head against the definition, word by word."""

from __future__ import annotations

import math

import numpy as np
import torch
from weft.blocks.attention.pointer_generator_module import PointerHead


def test_a_word_gets_its_generation_and_copy_probability() -> None:
    """In numpy, with a source word that occurs twice, one that does not occur, and padding."""
    block = PointerHead(4, 3, 5).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in block.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    x = torch.randn(1, 2, 4, dtype=torch.float64, generator=generator)
    memory = torch.randn(1, 4, 3, dtype=torch.float64, generator=generator)
    ids, mask = torch.tensor([[2, 1, 2, 4]]), torch.tensor([[True, True, True, False]])

    y = block(x, memory, ids, mask)[0].detach().numpy()

    weights = {name: value.detach().numpy() for name, value in block.named_parameters()}
    for t in range(2):
        state = x[0, t].numpy()
        gate = 1 / (1 + math.exp(-(weights["gate.weight"] @ state + weights["gate.bias"]).item()))
        words = np.exp(weights["out.weight"] @ state)
        seen = memory[0, :3].numpy() @ (weights["query.weight"] @ state) / math.sqrt(3)
        p = gate * words / words.sum()
        for place, share in enumerate(np.exp(seen) / np.exp(seen).sum()):
            p[ids[0, place]] += (1 - gate) * share
        np.testing.assert_allclose(np.exp(y[t]), p, rtol=1e-5)
        np.testing.assert_allclose(np.exp(y[t]).sum(), 1.0, rtol=1e-6)
