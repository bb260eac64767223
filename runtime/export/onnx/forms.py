"""ONNX forms: what some blocks compute, said so that one graph serves every length.

torch's exporter follows Python: it writes a loop over positions out, as often as its example
has some, and keeps the numbers of rows that its example's data gave.  What it would get wrong
is computed here in another way, as long as a graph is written.

Axes: B sequences, T positions, F boundaries (T + 1), D width in, H width of a state or a
hidden layer, G vectors that a cell computes, L labels; N positions that experts may map, M
choices of an expert, P those of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ....blocks.feed_forward.mixture_of_experts_module import MixtureOfExperts
from ....blocks.pooling.span_module import SpanScore
from ....blocks.recurrent.recurrent_module import GRU, LSTM, RNN

_RECURRENT: dict[type[nn.Module], tuple[str, tuple[int, ...], dict[str, int]]] = {
    RNN: ("RNN", (0,), {}),
    GRU: ("GRU", (1, 0, 2), {"linear_before_reset": 1}),
    LSTM: ("LSTM", (0, 3, 1, 2), {}),
}
"""A recurrence's operator in ONNX, where its gates stand among torch's, and what it is told."""


@contextmanager
def onnx_forms(module: nn.Module) -> Iterator[None]:
    """Let the blocks of a module compute in a form that torch's exporter can follow.

    Args:
        module: is as before afterwards.
    """
    changed: list[tuple[nn.Module, str]] = []
    try:
        for inner in module.modules():
            if type(inner) in _FORMS:
                name, form = _FORMS[type(inner)]
                # An attribute of the object, which hides the method of its class.
                setattr(inner, name, partial(form, inner))
                changed.append((inner, name))
        yield
    finally:
        for inner, name in changed:
            delattr(inner, name)


def _scan(module: Any, x_BTD: Tensor, weights: list[Tensor]) -> Tensor:
    """Run a recurrence over x from a state of zeros, as one operator; gives [B, T, H].

    Source: https://onnx.ai/onnx/operators/onnx__LSTM.html, and GRU and RNN there.
    """
    operator, order, attributes = _RECURRENT[type(module)]

    def arranged(weight: Tensor) -> Tensor:
        """Return [G * H, ...] as [1, G * H, ...], the gates in ONNX's order."""
        gates = weight.unflatten(0, (len(order), -1))
        return torch.cat([gates[place] for place in order])[None]

    given = [x_BTD.transpose(0, 1), arranged(weights[0]), arranged(weights[1])]
    if module.bias:
        given.append(torch.cat([arranged(bias) for bias in weights[2:]], 1))
    batch, length = x_BTD.shape[:2]
    y_T1BH = torch.onnx.ops.symbolic(
        operator,
        given,
        {"hidden_size": module.d_hidden, **attributes},
        dtype=x_BTD.dtype,
        shape=(length, 1, batch, module.d_hidden),
    )
    return y_T1BH[:, 0].transpose(0, 1)


def _passed(module: Any, x_ND: Tensor, expert_M: Tensor, count_E: Tensor) -> Tensor:  # noqa: ARG001
    """Return what each position's expert makes of it, [M, D]: each expert maps rows of its own."""
    x_MD = x_ND.repeat(module.top_k, 1)
    y_MD = torch.zeros_like(x_MD)
    for expert in range(module.experts):
        place_P = (expert_M == expert).nonzero()[:, 0]
        y = x_MD[place_P] @ module.inner[expert]
        if module.inner_bias is not None:
            y = y + module.inner_bias[expert]
        y = module.activation(y) @ module.outer[expert]
        if module.outer_bias is not None:
            y = y + module.outer_bias[expert]
        y_MD = y_MD.index_copy(0, place_P, y)
    return y_MD


def _spans(module: Any, u_BFH: Tensor) -> Tensor:
    """Return the scores [B, T, T, L] of all spans: every pair is scored, some to no purpose."""
    v_BTTH = u_BFH[:, None, 1:] - u_BFH[:, :-1, None] + module.hidden.bias
    y_BTTL: Tensor = module.out(torch.relu(module.norm(v_BTTH)))
    place_T = torch.arange(u_BFH.size(1) - 1, device=u_BFH.device)
    return y_BTTL.masked_fill((place_T[:, None] > place_T)[..., None], 0.0)


_FORMS: dict[type[nn.Module], tuple[str, Callable[..., Tensor]]] = {
    **dict.fromkeys(_RECURRENT, ("_scan", _scan)),
    MixtureOfExperts: ("_passed", _passed),
    SpanScore: ("_spans", _spans),
}
"""A block's module, the method that takes another form, and that form."""
