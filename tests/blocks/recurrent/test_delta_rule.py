"""The delta rule against the recurrence of the paper, position by position, and by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.recurrent.delta_rule_module import DeltaRule

from ..single_node import computed, findings_of, spec_of

HEADS, K, V = 2, 4, 3
INPUTS = {"query": "f[B T 2]", "key": "f[B T 2]", "value": "f[B T 1]", "beta": "f[B T 1]"}


def drawn(length: int, dtype: torch.dtype, *, decays: bool = True) -> list[Tensor]:
    """Return queries, keys, values, betas and logarithms of alpha."""
    generator = torch.Generator().manual_seed(length)

    def normal(width: int) -> Tensor:
        return torch.randn(2, length, width, generator=generator, dtype=dtype)

    parts = [normal(HEADS * K), normal(HEADS * K), normal(HEADS * V), normal(HEADS).sigmoid()]
    return [*parts, normal(HEADS).sigmoid().log() / 4] if decays else parts


def by_loop(
    query: Tensor, key: Tensor, value: Tensor, beta: Tensor, log_alpha: Tensor | None = None
) -> Tensor:
    """Run S_t = alpha_t S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T, head by head."""
    rows = []
    for b in range(query.size(0)):
        heads = []
        for h in range(HEADS):
            keys, values = slice(h * K, (h + 1) * K), slice(h * V, (h + 1) * V)
            state, given = torch.zeros(V, K, dtype=query.dtype), []
            for t in range(query.size(1)):
                q, k, v = query[b, t, keys], key[b, t, keys], value[b, t, values]
                q, k = q / q.norm(), k / k.norm()
                forgotten = torch.eye(K, dtype=k.dtype) - beta[b, t, h] * torch.outer(k, k)
                alpha = 1.0 if log_alpha is None else log_alpha[b, t, h].exp()
                state = alpha * state @ forgotten + beta[b, t, h] * torch.outer(v, k)
                given.append(state @ q)
            heads.append(torch.stack(given))
        rows.append(torch.cat(heads, -1))
    return torch.stack(rows)


def rule(chunk: int, *, normalize: bool = True) -> DeltaRule:
    """Return a block."""
    return DeltaRule(HEADS, K, V, chunk, normalize=normalize)


def test_a_key_is_overwritten_by_hand() -> None:
    """(1, 0) stores 4, then half of the way to 8 is 6; (0, 1) has stored nothing before 2."""
    keys = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]])
    queries = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
    values = torch.tensor([4.0, 8.0, 2.0, 2.0]).view(1, 4, 1)
    betas = torch.tensor([1.0, 0.5, 1.0, 0.0]).view(1, 4, 1)

    y = computed(spec_of("delta_rule@1", INPUTS), query=queries, key=keys, value=values, beta=betas)

    assert y.flatten().tolist() == [4.0, 6.0, 6.0, 2.0]


@torch.no_grad()
@pytest.mark.parametrize("decays", [True, False])
@pytest.mark.parametrize(("length", "chunk"), [(1, 4), (4, 4), (11, 4), (40, 2), (70, 64)])
def test_chunks_are_the_recurrence_of_the_paper(length: int, chunk: int, *, decays: bool) -> None:
    """In float64 to rounding, in float32 to 1e-5; with 20 chunks of 2 in two groups."""
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        parts = drawn(length, dtype, decays=decays)

        y = rule(chunk)(*parts)

        torch.testing.assert_close(y, by_loop(*parts), rtol=tolerance, atol=tolerance)


@torch.no_grad()
def test_steps_are_the_recurrence_of_the_paper() -> None:
    """Of one position, and of several at a time."""
    parts, block = drawn(9, torch.float64), rule(4)
    state = block.begin(Capacity(2, 1, 9, torch.float64, torch.device("cpu")))

    stepped = [
        block.step(*(part[:, span] for part in parts), state=state, position=span.start)
        for span in (slice(0, 1), slice(1, 6), slice(6, 9))
    ]

    torch.testing.assert_close(torch.cat(stepped, 1), by_loop(*parts), rtol=1e-12, atol=1e-12)


def test_gradients_are_those_of_the_recurrence() -> None:
    """Of every input, over three chunks."""
    parts = [part.requires_grad_() for part in drawn(11, torch.float64)]
    weight = torch.randn(2, 11, HEADS * V, dtype=torch.float64)

    gradients = torch.autograd.grad((weight * rule(4)(*parts)).sum(), parts)

    expected = torch.autograd.grad((weight * by_loop(*parts)).sum(), parts)
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.integration
def test_gradients_are_finite_differences() -> None:
    """For two chunks."""
    parts = tuple(part[:1].clone().requires_grad_() for part in drawn(5, torch.float64))

    assert torch.autograd.gradcheck(rule(3), parts)


@torch.no_grad()
def test_equal_keys_do_not_lose_precision() -> None:
    """The triangular system of equal keys has an inverse of ones, but powers of 1e18."""
    key = torch.ones(1, 64, HEADS * K)
    value = torch.arange(64.0).view(1, 64, 1).expand(-1, -1, HEADS * V)

    y = rule(64)(key, key, value, torch.ones(1, 64, HEADS))

    torch.testing.assert_close(y, value, rtol=1e-5, atol=1e-4)


@torch.no_grad()
def test_a_state_that_decays_at_once_forgets() -> None:
    """With alpha of e^-200, every position reads what it has written, also in float32."""
    query, key, value, beta = drawn(40, torch.float32, decays=False)

    y = rule(16)(query, key, value, beta, torch.full((2, 40, HEADS), -200.0))

    alone = [rule(16)(*(p[:, t : t + 1] for p in (query, key, value, beta))) for t in range(40)]
    torch.testing.assert_close(y, torch.cat(alone, 1), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_masked_positions_are_as_if_they_were_not_there() -> None:
    """Neither written nor counted as decay."""
    parts = drawn(12, torch.float64)
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[:, :2], mask[:, 6:9] = False, False

    y = rule(4)(*parts, mask)

    joined = rule(4)(*(part[:, mask[0]] for part in parts))
    torch.testing.assert_close(y[:, mask[0]], joined)


@torch.no_grad()
def test_keys_of_length_two_are_not_normalized_if_asked() -> None:
    """A key of 2 reads 2 * 2 = 4 times the value; normalized, the value itself."""
    key, one = torch.full((1, 1, 1), 2.0), torch.ones(1, 1, 1)

    read = [
        DeltaRule(1, 1, 1, 4, normalize=normalize)(key, key, one, one).item()
        for normalize in (False, True)
    ]

    assert read == [4.0, 1.0]


WIDE = {"query": "f[B T 8]", "key": "f[B T 8]", "value": "f[B T 6]", "beta": "f[B T 2]"}


@pytest.mark.parametrize(
    ("changed", "params", "code", "text"),
    [
        ({"beta": "f[B T 3]"}, {"heads": 2}, "T03", "3"),
        ({"beta": "f[B T 8]"}, {"heads": 8}, "P02", "values, 6, is not divisible by 8"),
        ({"beta": "f[B T 3]"}, {"heads": 3}, "P02", "keys, 8, is not divisible by 3"),
        ({"key": "f[B T 6]"}, {"heads": 2}, "T03", "8"),
        ({"key": "f[B S 8]"}, {"heads": 2}, "T03", "S"),
        ({"log_alpha": "f[B T 8]"}, {"heads": 2}, "T03", "8"),
        ({"alpha": "f[B T 2]"}, {"heads": 2}, "N03", "no port 'alpha'"),
        ({"mask": "f[B T]"}, {"heads": 2}, "T02", "mask"),
        ({}, {"heads": 2, "chunk": 0}, "P01", "chunk"),
        ({}, {"heads": 2, "normalise": True}, "N04", "normalize"),
    ],
)
def test_a_wrong_delta_rule_is_found_at_its_node(
    changed: dict[str, str], params: dict[str, Any], code: str, text: str
) -> None:
    """Each mistake has its code, and names what is wrong or what to write instead."""
    findings = findings_of(spec_of("delta_rule@1", WIDE | changed, **params))

    finding = next((finding for finding in findings if finding.code == code), None)
    assert finding is not None, findings
    assert text in " ".join([finding.problem, *finding.evidence, finding.help])
    assert "/nodes/node" in finding.at
