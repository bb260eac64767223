"""The delta rule: a state that maps keys to values, corrected at each position.

Axes: B sequences, T positions, N chunks of C positions each, H heads, M = B * H * N chunks of all
heads, K and V key and value widths of one head; R rows = sentences x beams.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.affine_scan import affine_scan
from ..kernels.chunks import chunked, decay_between, unchunked
from ..kernels.decode_state import Capacity, State
from ..kernels.precision import without_autocast


class _Inputs(NamedTuple):
    """Inputs of the recurrence at every position, in float32 at least."""

    query: Tensor
    """[B, H, T, K]."""
    key: Tensor
    """[B, H, T, K]."""
    value: Tensor
    """[B, H, T, V]."""
    beta: Tensor
    """[B, H, T, 1]; zero at masked positions."""
    decay: Tensor
    """Logarithm of alpha, [B, H, T, 1]; zero at masked positions."""


class DeltaRule(nn.Module):
    """A linear memory that corrects what it has stored for a key.

    The state S [K, V] of each head, transposed, is S_t = alpha_t (I - beta_t k_t k_t^T) S_{t-1} +
    beta_t k_t v_t^T, and its output is q_t S_t.

    A sequence is computed chunk by chunk.  Each position writes k_t u_t^T, where u_t is beta_t
    times the difference between v_t and what the state has for k_t; within a chunk, all u are the
    solution of a triangular system, linear in the state before the chunk.  So a chunk maps its
    state by a matrix and a term (`affine_scan`).

    Source: Schlag et al. 2021, section 4.2 (recurrence); Yang et al. 2024b, section 3 (chunks);
    Yang et al. 2025, section 3 (alpha).
    """

    def __init__(self, heads: int, d_k: int, d_v: int, chunk: int, *, normalize: bool) -> None:
        """Store the number of heads, their widths, and the size of chunks."""
        super().__init__()
        self.heads, self.chunk, self.normalize = heads, chunk, normalize
        self.d_k, self.d_v = d_k, d_v

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        beta: Tensor,
        log_alpha: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Return the value that the state has for each query, [B, T, H * V].

        Args:
            query: queries of all heads, [B, T, H * K].
            key: keys of all heads, [B, T, H * K].
            value: values of all heads, [B, T, H * V].
            beta: how far each head corrects, [B, T, H].
            log_alpha: logarithm of the decay of each head's state, [B, T, H]; no decay if None.
            mask: [B, T]; where false, the state does not change.
        """
        inputs = self._inputs(query, key, value, beta, log_alpha, mask)
        # Products of states have float32 at least, also under autocast.
        with without_autocast(value):
            y_BHTV = self._chunks(inputs)
        return y_BHTV.transpose(1, 2).flatten(2).to(value.dtype)

    def begin(self, capacity: Capacity) -> State:
        """Return the decoding state: zero for every row, in float32 at least."""
        kind = torch.promote_types(capacity.dtype, torch.float32)
        shape = (capacity.rows, self.heads, self.d_k, self.d_v)
        return State(carried={"state": torch.zeros(shape, dtype=kind, device=capacity.device)})

    def step(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        beta: Tensor,
        log_alpha: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        state: State,
        position: int,
    ) -> Tensor:
        """Process the next positions of every row; arguments as in `forward`, of R rows."""
        del position
        old = state.carried["state"]
        outputs: list[Tensor] = []
        inputs = self._inputs(query, key, value, beta, log_alpha, mask)
        for parts in zip(*(part.split(1, 2) for part in inputs), strict=True):
            query_RH1K, key_RH1K, value_RH1V, beta_RH11, decay_RH11 = parts
            old.mul_(decay_RH11.exp())
            stored_RH1V = (key_RH1K.transpose(-2, -1) * old).sum(-2, keepdim=True)
            change_RH1V = beta_RH11 * (value_RH1V - stored_RH1V)
            old.add_(key_RH1K.transpose(-2, -1) * change_RH1V)
            outputs.append((query_RH1K.transpose(-2, -1) * old).sum(-2, keepdim=True))
        return torch.cat(outputs, 2).transpose(1, 2).flatten(2).to(value.dtype)

    def _inputs(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        beta: Tensor,
        log_alpha: Tensor | None,
        mask: Tensor | None,
    ) -> _Inputs:
        """Return the inputs of the recurrence by head."""
        kind = torch.promote_types(value.dtype, torch.float32)
        query, key, value, beta = (
            part.to(kind).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (query, key, value, beta)
        )
        if self.normalize:
            query, key = F.normalize(query, dim=-1), F.normalize(key, dim=-1)
        decay = torch.zeros_like(beta)
        if log_alpha is not None:
            decay = log_alpha.to(kind).transpose(1, 2)[..., None]
        if mask is not None:
            ignored = ~mask[:, None, :, None]
            beta, decay = beta.masked_fill(ignored, 0.0), decay.masked_fill(ignored, 0.0)
        return _Inputs(query, key, value, beta, decay)

    def _chunks(self, inputs: _Inputs) -> Tensor:
        """Return q_t S_t at every position, [B, H, T, V]."""
        length = inputs.query.size(2)
        # The padding of the last chunk writes nothing and has no decay.
        chunks = [chunked(part, self.chunk) for part in inputs]
        sizes = chunks[0].shape[:3]
        # A compiler reasons about each size that is a quotient, so there is one of them.
        query, key, value, beta, decay = (part.flatten(0, 2) for part in chunks)
        passed_MC1 = decay.cumsum(1)  # log decay since the start of the chunk
        between_MCC = decay_between(passed_MC1.squeeze(-1))
        stored_MCC = beta * between_MCC.tril(-1) * (key @ key.mT)
        right = torch.cat([beta * value, beta * passed_MC1.exp() * key], -1)
        u_MCV, w_MCK = self._solved(stored_MCC, right).split((self.d_v, self.d_k), -1)

        whole_M11 = passed_MC1[:, -1:]
        rest_MKC = (key * (whole_M11 - passed_MC1).exp()).mT
        same_KK = torch.eye(self.d_k, dtype=key.dtype, device=key.device)
        transition_MKK = whole_M11.exp() * same_KK - rest_MKC @ w_MCK
        rows = (sizes[0] * sizes[1], sizes[2])
        parts = (part.unflatten(0, rows) for part in (transition_MKK, rest_MKC @ u_MCV))
        after = affine_scan(*parts, matrices=True)
        # The state after a chunk is the state before the next one; the first starts at zero.
        before_MKV = F.pad(after, (0, 0, 0, 0, 1, -1)).flatten(0, 1)
        written_MCV = u_MCV - w_MCK @ before_MKV
        near_MCC = between_MCC * (query @ key.mT)
        far_MCV = (query * passed_MC1.exp()) @ before_MKV
        return unchunked((far_MCV + near_MCC @ written_MCV).unflatten(0, sizes), length)

    def _solved(self, lower: Tensor, right: Tensor) -> Tensor:
        """Return the solution of (I + lower) u = right, where `lower` is strictly triangular."""
        solution: Tensor = torch.linalg.solve_triangular(
            lower, right, upper=False, unitriangular=True
        )
        return solution
