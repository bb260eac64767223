"""Mixture of experts: a router sends each position to a few of many feed-forward networks.

Axes: B sequences, T positions, N = B * T, D model width, F hidden width of an expert,
E experts, K experts per position, M = K * N assignments of positions to experts.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..kernels.dropout import Dropout
from ..kernels.expert_matmul import expert_matmul
from ..kernels.linear import draw_linear
from ..kernels.precision import Copies, as_autocast, operand
from .feed_forward_module import ACTIVATIONS, through_gate

_TINY = 1e-20
"""Least sum of scores that others are divided by."""


class MixtureOfExperts(nn.Module):
    """Feed-forward experts of which a router selects K per position.

    With p the softmax of the router, the output of a position is the sum of p_e(x) E_e(x) over
    the K experts with the largest p; if K > 1, these p are divided by their sum.  The router may
    have other scores, and choose among the experts of some groups.  In training,
    an expert accepts at most its capacity of positions: all first choices take precedence over
    second choices, and earlier positions over later ones.

    Source: Shazeer et al. 2017, section 2, without noise; K = 1: Fedus et al. 2021, section
    2.2; K = 2: Lepikhin et al. 2020, section 2.2.
    """

    copied: ClassVar[tuple[str, ...]] = ("inner", "gate", "outer")
    """Weights that get low-precision copies."""
    copies: Copies | None = None
    """The copies, if the graph of the model has them."""

    def __init__(  # noqa: PLR0913 - the params of a block
        self,
        d_model: int,
        experts: int,
        d_ff: int,
        top_k: int = 2,
        capacity: float = 1.25,
        activation: str = "relu",
        *,
        scores: str = "softmax",
        renormalize: bool | None = None,
        scaling: float = 1.0,
        router_bias: bool = False,
        choice_bias: bool = False,
        groups: int = 1,
        top_groups: int = 1,
        group_score: str = "two",
        bias: bool = True,
        gated: bool = False,
        limit: float | None = None,
        offset: float = 0.0,
        dropout: float = 0.0,
    ) -> None:
        """Create the router, from D to E, and the maps of each expert, from D to F and back."""
        super().__init__()
        self.experts, self.top_k, self.capacity = experts, top_k, capacity
        self.scores, self.scaling = scores, scaling
        self.renormalize = top_k > 1 if renormalize is None else renormalize
        self.groups, self.top_groups = groups, top_groups
        self.best_of_group = 1 if group_score == "max" else 2
        self.router = nn.Linear(d_model, experts, bias=router_bias)
        self.choice_bias = None
        if choice_bias:
            self.choice_bias = nn.Parameter(torch.empty(experts), requires_grad=False)
        self.inner = nn.Parameter(torch.empty(experts, d_model, d_ff))
        self.outer = nn.Parameter(torch.empty(experts, d_ff, d_model))
        self.gate = nn.Parameter(torch.empty(experts, d_model, d_ff)) if gated else None
        self.inner_bias = nn.Parameter(torch.empty(experts, d_ff)) if bias else None
        self.gate_bias = nn.Parameter(torch.empty(experts, d_ff)) if bias and gated else None
        self.outer_bias = nn.Parameter(torch.empty(experts, d_model)) if bias else None
        self.activation = ACTIVATIONS[activation]
        self.limit, self.offset = limit, offset
        self.dropout = Dropout(dropout)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights for each map; biases start at zero."""
        draw_linear(generator, self.router)
        bound = math.sqrt(6 / (self.inner.size(1) + self.inner.size(2)))
        for weight in (self.inner, self.outer, self.gate):
            if weight is not None:
                nn.init.uniform_(weight, -bound, bound, generator=generator)
        for bias in (self.inner_bias, self.outer_bias, self.gate_bias, self.choice_bias):
            if bias is not None:
                nn.init.zeros_(bias)

    def forward(
        self, x: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Map x [B, T, D] to [B, T, D] and compute the load-balancing loss.

        Args:
            x: input vectors.
            mask: [B, T], true at non-padding positions; outputs are zero elsewhere, and
                padding does not count towards the balance or the capacity.

        Returns:
            The output; the load-balancing loss, a scalar in float32 or higher precision; the logits
            of the router, [B, T, E]; and the chosen experts, [B, T, E].
        """
        x_ND = x.flatten(0, 1)
        mask_N = torch.ones_like(x_ND[:, 0], dtype=torch.bool) if mask is None else mask.flatten()
        logits_NE = self.router(x_ND)
        p_NE, weight_NK, expert_NK = self._route(logits_NE)
        chosen_ME = expert_NK.T.flatten()[:, None] == torch.arange(self.experts, device=x.device)
        served_ME = chosen_ME & mask_N.repeat(self.top_k)[:, None]
        balance = self._balance(p_NE, served_ME, mask_N)
        if self.training:
            served_ME = served_ME & self._within_capacity(served_ME, mask_N)
        weight_M = weight_NK.T.flatten() * served_ME.any(1)
        y_MD = self._run_experts(x_ND, expert_NK.T.flatten(), chosen_ME.sum(0))
        y_KND = (y_MD * weight_M[:, None].to(y_MD.dtype)).unflatten(0, (self.top_k, -1))
        chosen_NE = chosen_ME.unflatten(0, (self.top_k, -1)).any(0)
        outputs = (y_KND.sum(0), logits_NE, chosen_NE)
        y, logits, chosen = (part.unflatten(0, x.shape[:2]) for part in outputs)
        return y, balance, logits, chosen

    def _route(self, logits_NE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the probabilities of all experts, and the weights and numbers of the chosen ones.

        Source: groups and `choice_bias`: DeepSeek-AI 2024, DeepSeek-V3, section 2.1.2.
        """
        exact = torch.promote_types(logits_NE.dtype, torch.float32)
        if self.scores == "softmax":
            p_NE = score_NE = logits_NE.softmax(-1, dtype=exact)
        else:
            score_NE = logits_NE.to(exact).sigmoid()
            p_NE = score_NE / score_NE.sum(-1, keepdim=True).clamp(min=_TINY)
        choice_NE = score_NE if self.choice_bias is None else score_NE + self.choice_bias.to(exact)
        if self.groups > 1:
            choice_NGE = choice_NE.unflatten(-1, (self.groups, -1))
            group_NG = choice_NGE.topk(self.best_of_group).values.sum(-1)
            group_NJ = group_NG.topk(self.top_groups).indices
            closed_NG = torch.ones_like(group_NG, dtype=torch.bool).scatter(
                1, group_NJ, value=False
            )
            choice_NE = choice_NGE.masked_fill(closed_NG[..., None], float("-inf")).flatten(1)
        expert_NK = choice_NE.topk(self.top_k).indices
        weight_NK = score_NE.gather(1, expert_NK)
        if self.renormalize:
            weight_NK = weight_NK / weight_NK.sum(-1, keepdim=True).clamp(min=_TINY)
        return p_NE, weight_NK * self.scaling, expert_NK

    def _balance(self, p_NE: Tensor, chosen_ME: Tensor, mask_N: Tensor) -> Tensor:
        """Return E * sum_e f_e P_e: f_e the share of assignments, P_e the mean probability."""
        count = mask_N.sum().clamp(min=1)
        share_E = chosen_ME.sum(0) / (count * self.top_k)
        mean_E = (p_NE * mask_N[:, None]).sum(0) / count
        return self.experts * (share_E.to(mean_E.dtype) * mean_E).sum()

    def _within_capacity(self, chosen_ME: Tensor, mask_N: Tensor) -> Tensor:
        """Return [M, E], true for assignments within the capacity of their expert."""
        fair = mask_N.sum() * (self.top_k / self.experts)
        return chosen_ME.cumsum(0) <= (fair * self.capacity).ceil()

    def _run_experts(self, x_ND: Tensor, expert_M: Tensor, count_E: Tensor) -> Tensor:
        """Return the output of the assigned expert for each of the M assignments, [M, D].

        Assignments are sorted by expert, so that each expert maps one contiguous block of rows.
        """
        order_M = expert_M.argsort(stable=True)
        sorted_M = expert_M[order_M]
        x_MD = x_ND[order_M % x_ND.size(0)]

        def mapped(x_MI: Tensor, weight_EIO: Tensor, bias_EO: Tensor | None) -> Tensor:
            x_MI, weight_EIO = as_autocast(x_MI, weight_EIO)
            y_MO = expert_matmul(x_MI, weight_EIO, count_E)
            return y_MO if bias_EO is None else y_MO + bias_EO[sorted_M]

        y = mapped(x_MD, operand(self, "inner"), self.inner_bias)
        if self.gate is None:
            y = self.activation(y)
        else:
            gate = mapped(x_MD, operand(self, "gate"), self.gate_bias)
            y = through_gate(y, gate, self.activation, self.limit, self.offset)
        return mapped(self.dropout(y), operand(self, "outer"), self.outer_bias)[order_M.argsort()]
