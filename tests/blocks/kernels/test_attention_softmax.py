"""The softmax over the keys of attention, where torch's kernel is slow and where it is not."""

from __future__ import annotations

import pytest
import torch
from weft.blocks.kernels import attention_backends as backends
from weft.blocks.kernels.attention_backends import softmax_of_keys

DTYPES = (torch.float32, torch.bfloat16, torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("keys", [1, 7, 15, 16, 31, 32, 33, 63, 65])
def test_values_and_gradients_follow_the_definition(keys: int, dtype: torch.dtype) -> None:
    """exp(x) / sum exp(x), and its Jacobian times a vector, both computed in float64."""
    generator = torch.Generator().manual_seed(keys)
    score, grad = (torch.randn(3, 2, 700, keys, generator=generator).to(dtype) for _ in range(2))
    score[0, 0, :, 0] = -torch.inf if keys > 1 else 0.0
    score.requires_grad_()
    exact = score.detach().double().exp()
    exact = exact / exact.sum(-1, keepdim=True)
    inner = (exact * grad.double()).sum(-1, keepdim=True)

    found = softmax_of_keys(score)
    (gradient,) = torch.autograd.grad(found, score, grad)

    assert (found.dtype, found.shape) == (dtype, score.shape)
    close = (
        {"rtol": 1e-2, "atol": 4e-3} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-6}
    )
    torch.testing.assert_close(found.double(), exact, **close)
    torch.testing.assert_close(gradient.double(), exact * (grad.double() - inner), **close)


def test_rows_without_a_key_are_not_numbers_as_in_torch() -> None:
    """Attention replaces them by zeros, in both passes."""
    score = torch.zeros(600, 14)
    score[1] = -torch.inf

    found = softmax_of_keys(score)

    assert score.numel() > backends.FEW
    assert found[1].isnan().all()
    torch.testing.assert_close(found[0], torch.full((14,), 1 / 14))


def test_few_scores_and_other_devices_use_torch() -> None:
    """A copy would cost more than it saves; on other devices there is nothing to save."""
    few, many = torch.zeros(4, 14), torch.zeros(600, 14)

    assert backends._is_slow(many)
    assert not backends._is_slow(few)
    assert not backends._is_slow(many.to("meta"))
