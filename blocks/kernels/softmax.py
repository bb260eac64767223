"""Functions that turn scores into weights along an axis.

Sources: softmax: Bridle 1990; softmax1: Miller 2023, Attention is off by one; squared ReLU: Hua et
al. 2022, section 3; sparsemax: Martins and Astudillo 2016, section 2; sigmoid: Ramapuram et al.
2024, section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F


def softmax1(x: Tensor, dim: int) -> Tensor:
    """Return exp(x) / (1 + sum exp(x)), where log(1 + sum exp(x)) = softplus(log sum exp(x))."""
    return torch.exp(x - F.softplus(torch.logsumexp(x, dim, keepdim=True)))


def squared_relu(x: Tensor, dim: int) -> Tensor:
    """Return max(0, x)^2, which is not normalized."""
    del dim
    return torch.relu(x).square()


def sigmoid(x: Tensor, dim: int) -> Tensor:
    """Return 1 / (1 + exp(-x)), which is not normalized."""
    del dim
    return torch.sigmoid(x)


def sparsemax(x: Tensor, dim: int) -> Tensor:
    """Return max(0, x - tau), where tau is the largest (sum of the k largest - 1) / k."""
    largest = x.sort(dim, descending=True).values
    ranks = torch.arange(1, x.size(dim) + 1, device=x.device, dtype=x.dtype)
    threshold = (largest.cumsum(dim) - 1) / ranks.view(-1, *(1,) * (x.dim() - 1 - dim % x.dim()))
    return torch.relu(x - threshold.amax(dim, keepdim=True))


def unchanged(x: Tensor, dim: int) -> Tensor:
    """Return the scores themselves as weights."""
    del dim
    return x


WEIGHTS: Mapping[str, Callable[[Tensor, int], Tensor]] = {
    "softmax": torch.softmax,
    "softmax1": softmax1,
    "squared_relu": squared_relu,
    "sparsemax": sparsemax,
    "sigmoid": sigmoid,
    "none": unchanged,
}
"""Name of each function."""


def masked_weights(x: Tensor, allowed: Tensor | None, kind: str) -> Tensor:
    """Return the weights of scores along the last axis; 0 where nothing is allowed.

    Args:
        x: scores.
        allowed: true at the scores that count, if not all do; broadcastable to them.
        kind: name of the function, one of `WEIGHTS`.
    """
    if allowed is None:
        return WEIGHTS[kind](x, -1)
    excluded = ~allowed
    weights = WEIGHTS[kind](x.masked_fill(excluded, torch.finfo(x.dtype).min), -1)
    return weights.masked_fill(excluded, 0.0)
