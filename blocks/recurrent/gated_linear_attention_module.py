"""Gated linear attention.

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


class GatedLinearAttention(nn.Module):
    """Linear attention whose state decays, feature by feature, at rates given by the input.

    The state S [K, V] of each head is S_t = diag(a_t) S_{t-1} + k_t v_t^T, and its output is
    o_t = q_t S_t, with a_t = sigmoid(W2 W1 x_t + b)^(1/temperature).  The block returns a linear
    map of norm(o) * silu(gate), with a norm of each head.

    A sequence is computed chunk by chunk.  The scores of pairs within a chunk are sums of
    q k exp(p_i - p_j) with the logarithms p of the decay in float32; no exponent is positive, so
    they are stable for any decay.  Earlier chunks enter as one state.

    Source: Yang et al. 2024, sections 4.1 (recurrence), 4.2 (chunks), 4.3 (stability) and 4.4.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_k: int,
        d_v: int,
        rank: int,
        temperature: float,
        chunk: int,
        eps: float,
    ) -> None:
        """Create the maps of queries, keys, values, decays, gates and outputs, and the norm."""
        super().__init__()
        self.heads, self.temperature, self.chunk = heads, temperature, chunk
        self.query = LinearMap(d_model, heads * d_k, bias=False)
        self.key = LinearMap(d_model, heads * d_k, bias=False)
        self.value = LinearMap(d_model, heads * d_v, bias=False)
        self.decay_inner = LinearMap(d_model, rank, bias=False)
        self.decay_outer = LinearMap(rank, heads * d_k)
        self.gate = LinearMap(d_model, heads * d_v)
        self.norm = nn.LayerNorm(d_v, eps)
        self.outer = LinearMap(heads * d_v, d_model, bias=False)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; biases start at zero, the norm at scale 1 and shift 0."""
        maps = (self.query, self.key, self.value, self.decay_inner, self.decay_outer, self.gate)
        draw_linear(generator, *maps, self.outer)
        self.norm.reset_parameters()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map x [B, T, D] to [B, T, D].

        Args:
            x: input vectors.
            mask: [B, T]; where false, the state does not change.
        """
        return self._output(self._scan(*self._maps(x, mask)), x)

    def begin(self, capacity: Capacity) -> State:
        """Return the decoding state: zero for every row, in float32 at least."""
        widths = (linear.out_features // self.heads for linear in (self.key, self.value))
        kind = torch.promote_types(capacity.dtype, torch.float32)
        state = torch.zeros(capacity.rows, self.heads, *widths, dtype=kind, device=capacity.device)
        return State(carried={"state": state})

    def step(self, x: Tensor, mask: Tensor | None = None, *, state: State, position: int) -> Tensor:
        """Process the next positions of every row, x [R, T, D], with a mask [R, T]."""
        return one_by_one(lambda x, mask, _: self._step(x, mask, state), x, mask, position)

    def _step(self, x: Tensor, mask: Tensor | None, state: State) -> Tensor:
        """Process one position of every row, x [R, 1, D], with a mask [R, 1]."""
        old = state.carried["state"]
        parts = self._maps(x, mask)
        query, key, value, decay = (part[:, :, 0].to(old.dtype) for part in parts)
        written = key[..., None] * value[..., None, :]
        old.copy_(old * decay.exp()[..., None] + written)
        y_RHV = (query[..., None] * old).sum(2)
        return self._output(y_RHV[:, :, None].to(parts[2].dtype), x)

    def _maps(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return queries, keys, values and logarithms of the decay, [B, H, T, K or V].

        The logarithms have float32 at least.  Keys and logarithms are zero at masked positions.
        """
        query, key, value, decay = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (
                self.query(x),
                self.key(x),
                self.value(x),
                self.decay_outer(self.decay_inner(x)),
            )
        )
        query = query * query.size(-1) ** -0.5
        decay = decay.to(torch.promote_types(decay.dtype, torch.float32))
        decay = F.logsigmoid(decay) / self.temperature
        if mask is not None:
            key, decay = (part.masked_fill(~mask[:, None, :, None], 0.0) for part in (key, decay))
        return query, key, value, decay

    def _scan(self, query: Tensor, key: Tensor, value: Tensor, decay: Tensor) -> Tensor:
        """Return q_t S_t at every position, [B, H, T, V]."""
        length, kind = query.size(2), value.dtype
        # The padding of the last chunk has keys of zero and no decay.
        query_BHNCK, key_BHNCK, value_BHNCV, decay_BHNCK = (
            chunked(part, self.chunk) for part in (query, key, value, decay)
        )
        passed_BHNCK = decay_BHNCK.cumsum(3)  # log decay since the start of the chunk
        between_BHNKCC = decay_between(passed_BHNCK.transpose(-2, -1))
        pairs_BHNKCC = (
            query_BHNCK.transpose(-2, -1)[..., :, None] * key_BHNCK.transpose(-2, -1)[..., None, :]
        )
        score_BHNCC = (pairs_BHNKCC * between_BHNKCC).sum(3).to(kind)
        near_BHNCV = score_BHNCC @ value_BHNCV

        whole_BHNK = passed_BHNCK[:, :, :, -1]
        left_BHNCK = (key_BHNCK * (whole_BHNK[..., None, :] - passed_BHNCK).exp()).to(kind)
        written_BHNKV = left_BHNCK.transpose(-2, -1) @ value_BHNCV
        # The state after a chunk is the state before the next one; the first starts at zero.
        after_BHKNN = decay_between(whole_BHNK.cumsum(2).transpose(-2, -1)).to(kind)
        after_BHKNN = F.pad(after_BHKNN, (0, 0, 1, -1))
        state_BHNKV = (after_BHKNN @ written_BHNKV.transpose(2, 3)).transpose(2, 3)
        read_BHNCK = (query_BHNCK * passed_BHNCK.exp()).to(kind)
        return unchunked(near_BHNCV + read_BHNCK @ state_BHNKV, length)

    def _output(self, y_BHTV: Tensor, x: Tensor) -> Tensor:
        """Apply the norm of each head, the gate and the output map."""
        y_BTHV = self.norm(y_BHTV.transpose(1, 2).to(self.norm.weight.dtype))
        output: Tensor = self.outer(y_BTHV.flatten(2) * F.silu(self.gate(x)))
        return output
