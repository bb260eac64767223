"""Multi-scale retention (RetNet).

Axes: B sequences, T positions, N chunks of C positions each, D model width, H heads, K and V key
and value widths of one head; R rows = sentences x beams.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.chunks import chunked, decay_between, unchunked
from ..kernels.decode_state import Capacity, State, one_by_one
from ..kernels.linear import LinearMap, draw_linear
from ..position.rotary_module import rotated


class Retention(nn.Module):
    """Attention without a softmax, whose scores decay with the distance.

    The state S [K, V] of each head is S_n = gamma S_{n-1} + k_n v_n^T, and its output is
    o_n = q_n S_n; gamma = 1 - 2^(-4-h) for head h from 1.  Rotary positions are the phase of the
    paper.  The block returns a linear map of norm(o) * silu(gate), where the norm is that of each
    head without learned parameters.

    A sequence is computed chunk by chunk: within a chunk, by matrix products over all pairs of
    positions, as in attention; earlier chunks enter as one state.

    Source: Sun et al. 2023, sections 2.1 (the three forms) and 2.2 (heads, norm and gate).
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_k: int,
        d_v: int,
        position: str,
        rotary_base: float,
        chunk: int,
        eps: float,
    ) -> None:
        """Create the maps of queries, keys, values, gates and outputs."""
        super().__init__()
        self.heads, self.chunk, self.eps = heads, chunk, eps
        self.base = rotary_base if position == "rotary" else None
        self.query = LinearMap(d_model, heads * d_k, bias=False)
        self.key = LinearMap(d_model, heads * d_k, bias=False)
        self.value = LinearMap(d_model, heads * d_v, bias=False)
        self.gate = LinearMap(d_model, heads * d_v, bias=False)
        self.outer = LinearMap(heads * d_v, d_model, bias=False)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights."""
        draw_linear(generator, self.query, self.key, self.value, self.gate, self.outer)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map x [B, T, D] to [B, T, D].

        Args:
            x: input vectors.
            mask: [B, T]; where false, nothing is added to the state.
        """
        query, key, value = self._maps(x, mask, 0)
        return self._output(self._scan(query, key, value), x)

    def begin(self, capacity: Capacity) -> State:
        """Return the decoding state: zero for every row, in float32 at least."""
        widths = (linear.out_features // self.heads for linear in (self.key, self.value))
        kind = torch.promote_types(capacity.dtype, torch.float32)
        state = torch.zeros(capacity.rows, self.heads, *widths, dtype=kind, device=capacity.device)
        return State(carried={"state": state})

    def step(self, x: Tensor, mask: Tensor | None = None, *, state: State, position: int) -> Tensor:
        """Process the next positions of every row, x [R, T, D], with a mask [R, T]."""

        def step(x: Tensor, mask: Tensor | None, position: int) -> Tensor:
            return self._step(x, mask, state, position)

        return one_by_one(step, x, mask, position)

    def _step(self, x: Tensor, mask: Tensor | None, state: State, position: int) -> Tensor:
        """Process one position of every row, x [R, 1, D], with a mask [R, 1]."""
        query, key, value = self._maps(x, mask, position)
        old = state.carried["state"]
        decay_H11 = self._log_decay(old).exp()[:, None, None]
        old.copy_(old * decay_H11 + key.to(old.dtype).transpose(-2, -1) * value.to(old.dtype))
        y_RHV = (query.to(old.dtype).transpose(-2, -1) * old).sum(2)
        return self._output(y_RHV[:, :, None].to(value.dtype), x)

    def _maps(self, x: Tensor, mask: Tensor | None, position: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries and keys [B, H, T, K] and values [B, H, T, V]; keys are 0 if masked."""
        query, key, value = (
            linear(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        key = key * key.size(-1) ** -0.5
        if mask is not None:
            key = key.masked_fill(~mask[:, None, :, None], 0.0)
        if self.base is not None:
            positions_T = torch.arange(x.size(1), device=x.device) + position
            query, key = (rotated(part, positions_T, self.base) for part in (query, key))
        return query, key, value

    def _log_decay(self, like: Tensor) -> Tensor:
        """Return the logarithm of the decay of each head, [H], in float32 at least."""
        kind = torch.promote_types(like.dtype, torch.float32)
        index_H = torch.arange(self.heads, device=like.device, dtype=kind)
        return torch.log1p(-torch.exp2(-5.0 - index_H))

    def _scan(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return q_n S_n at every position, [B, H, T, V]."""
        length = query.size(2)
        query_BHNCK, key_BHNCK, value_BHNCV = (
            chunked(part, self.chunk) for part in (query, key, value)
        )
        decay_H = self._log_decay(query)
        index_C = torch.arange(1, self.chunk + 1, device=query.device)
        passed_HC = decay_H[:, None] * index_C  # log decay since the start of the chunk
        score_BHNCC = query_BHNCK @ key_BHNCK.transpose(-2, -1)
        score_BHNCC = score_BHNCC * decay_between(passed_HC)[:, None].to(score_BHNCC.dtype)
        near_BHNCV = score_BHNCC @ value_BHNCV

        rest_HC = (passed_HC[:, -1:] - passed_HC).exp().to(key.dtype)
        written_BHNKV = (key_BHNCK * rest_HC[:, None, :, None]).transpose(-2, -1) @ value_BHNCV
        # The state after a chunk is the state before the next one; the first starts at zero.
        index_N = torch.arange(1, query_BHNCK.size(2) + 1, device=query.device)
        after_HNN = decay_between(decay_H[:, None] * self.chunk * index_N).to(key.dtype)
        after_HNN = F.pad(after_HNN, (0, 0, 1, -1))
        state_BHNKV = (after_HNN @ written_BHNKV.flatten(-2)).unflatten(-1, written_BHNKV.shape[3:])
        read_BHNCK = query_BHNCK * passed_HC.exp().to(query.dtype)[:, None, :, None]
        return unchunked(near_BHNCV + read_BHNCK @ state_BHNKV, length)

    def _output(self, y_BHTV: Tensor, x: Tensor) -> Tensor:
        """Apply the norm of each head, the gate and the output map."""
        y_BTHV = F.layer_norm(y_BHTV.transpose(1, 2), y_BHTV.shape[-1:], eps=self.eps)
        output: Tensor = self.outer(y_BTHV.flatten(2) * F.silu(self.gate(x)))
        return output
