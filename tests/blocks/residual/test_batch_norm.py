"""Batch norm against torch's, and its running statistics."""

from __future__ import annotations

import torch
from torch import nn
from weft.blocks.residual.batch_norm_module import BatchNorm
from weft.runtime.codegen.build import build
from weft.specs.load import loaded


def fresh(d_model: int = 3) -> BatchNorm:
    """Return a block with initial weights."""
    block = BatchNorm(d_model, 1e-5, 0.1)
    with torch.no_grad():
        block.initialize(torch.Generator())
    return block


def test_it_is_torchs_in_training_and_in_evaluation() -> None:
    """Outputs, gradients and running statistics after three batches."""
    ours, theirs = fresh(), nn.BatchNorm1d(3)
    for seed in range(3):
        x = 2 * torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(seed)) + 1
        mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        found = ours(mine)
        wanted = theirs(other.transpose(1, 2)).transpose(1, 2)
        torch.testing.assert_close(found, wanted)
        found.square().sum().backward()
        wanted.square().sum().backward()
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-3, atol=1e-4)

    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_variance, theirs.running_var)
    x = torch.randn(2, 4, 3)
    wanted = theirs.eval()(x.transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(ours.eval()(x), wanted)


def test_padding_does_not_count() -> None:
    """A padded batch has the statistics, and the outputs, of its positions in one row."""
    x = torch.randn(2, 6, 3)
    mask = torch.tensor([[True] * 4 + [False] * 2, [True] * 6])
    padded = torch.where(mask[..., None], x, torch.tensor(99.0))
    ours, flat = fresh(), fresh()

    found, wanted = ours(padded, mask)[mask], flat(x[mask][None])[0]

    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(ours.running_mean, flat.running_mean)
    torch.testing.assert_close(ours.running_variance, flat.running_variance)


def test_a_batch_of_padding_alone_leaves_the_statistics() -> None:
    """No division by zero, and nothing moves towards the statistics of nothing."""
    block = fresh()

    assert block(torch.ones(1, 2, 3), torch.zeros(1, 2, dtype=torch.bool)).isfinite().all()

    assert block.running_mean.tolist() == [0.0] * 3
    assert block.running_variance.tolist() == [1.0] * 3


def test_running_statistics_are_saved_but_not_trained() -> None:
    """They are in the state_dict and in the graph's weights, and require no gradient."""
    spec = {
        "format": 1,
        "name": "normed",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 3]"},
        "outputs": {"y": "norm.y"},
        "nodes": {"norm": {"use": "batch_norm@1", "in": {"x": "x"}}},
    }
    model = build(loaded(spec))
    model.train()(x=torch.randn(2, 5, 3) + 4)

    kept = model.state_dict()

    assert kept["norm.running_mean"].min() > 0.1
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == {"norm.weight", "norm.bias"}
    assert kept.keys() - trained == {"norm.running_mean", "norm.running_variance"}
