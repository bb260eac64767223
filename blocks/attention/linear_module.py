"""Linear attention: cost grows linearly with the length of the sequence.

Axes: B sequences, T query positions, S key positions, D model width, H heads, K and V key
and value widths of one head, W = V + 1 (values and a column of ones, for the sum of the
weights), N chunks of C positions; R rows = N sentences x beams.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.decode_state import Capacity, State
from ..kernels.linear import LinearMap, draw_linear


class LinearAttention(nn.Module):
    """Attention whose weights are products of feature maps, phi(q) phi(k), phi(z) = elu(z) + 1.

    A head needs only the sums of phi(k) v^T and of phi(k) over the unmasked positions, so
    time and memory grow with T instead of T^2.  Causal sums are computed chunk by chunk;
    within a chunk, all pairs of positions are compared.

    Source: Katharopoulos et al. 2020, section 3.2 (the kernel), 3.3 (causal) and 3.4 (the
    state of a decoder).
    """

    def __init__(  # noqa: PLR0913 - the params of a block
        self,
        d_model: int,
        d_memory: int,
        heads: int,
        d_k: int,
        d_v: int,
        *,
        causal: bool = False,
        bias: bool = True,
        chunk: int = 64,
        eps: float = 1e-6,
    ) -> None:
        """Create the four projections."""
        super().__init__()
        self.heads, self.causal, self.chunk, self.eps = heads, causal, chunk, eps
        self.query = LinearMap(d_model, heads * d_k, bias)
        self.key = LinearMap(d_memory, heads * d_k, bias)
        self.value = LinearMap(d_memory, heads * d_v, bias)
        self.out = LinearMap(heads * d_v, d_model, bias)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; biases start at zero."""
        draw_linear(generator, self.query, self.key, self.value, self.out)

    def forward(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Attend from every position of x [B, T, D] to memory [B, S, D'], or to x itself.

        Args:
            x: queries.
            memory: the sequence that is attended to; x if None.
            mask: [B, S], true at positions that may be attended to.

        Returns:
            The attention output, [B, T, D]; where nothing may be attended to, the output
            projection of zeros.
        """
        query_BHTK = self._features(self.query, x)
        key_BHSK, value_BHSW = self._keys_values(x if memory is None else memory, mask)
        if self.causal and memory is None:
            sum_BHTW = self._causal_sums(query_BHTK, key_BHSK, value_BHSW)
        else:
            sum_BHTW = query_BHTK @ (key_BHSK.transpose(-2, -1) @ value_BHSW)
        return self._merge(sum_BHTW)

    def attention_weights(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Return the attention weights, [B, H, T, S], for inspection.

        Only this method computes the weights of all pairs; arguments as of `forward`.
        """
        query_BHTK = self._features(self.query, x)
        key_BHSK, _ = self._keys_values(x if memory is None else memory, mask)
        weight_BHTS = query_BHTK @ key_BHSK.transpose(-2, -1)
        if self.causal and memory is None:
            weight_BHTS = weight_BHTS.tril()
        return weight_BHTS / (weight_BHTS.sum(-1, keepdim=True) + self.eps)

    def begin(
        self, capacity: Capacity, memory: Tensor | None = None, mask: Tensor | None = None
    ) -> State:
        """Return the decoding state: the sums over the memory, or sums of zero to start with."""
        if memory is not None:
            key_NHSK, value_NHSW = self._keys_values(memory, mask)
            return State(fixed={"sum": key_NHSK.transpose(-2, -1) @ value_NHSW})
        d_k = self.key.out_features // self.heads
        d_w = self.value.out_features // self.heads + 1
        shape = (capacity.rows, self.heads, d_k, d_w)
        # float32 at least: in half precision, small terms are lost in a growing sum.
        dtype = torch.promote_types(capacity.dtype, torch.float32)
        return State(carried={"sum": torch.zeros(shape, dtype=dtype, device=capacity.device)})

    def step(self, x: Tensor, mask: Tensor | None = None, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Attend from the next positions of every row, x [R, T, D].

        Args:
            x: queries; without a memory, also added to the sums.
            mask: [R, T], true where later queries may attend to these; only without a memory.
            state: the state returned by `begin`; updated in place.
            position: index of the first of these positions; not used.
        """
        query_RHTK = self._features(self.query, x)
        if state.fixed:
            sum_NHKW = state.fixed["sum"]
            by_sentence = query_RHTK.unflatten(0, (sum_NHKW.size(0), -1))
            product = by_sentence @ sum_NHKW[:, None].to(query_RHTK.dtype)
            return self._merge(product.flatten(0, 1))
        key_RHTK, value_RHTW = self._keys_values(x, mask)
        sum_RHKW = state.carried["sum"]
        before = sum_RHKW.to(query_RHTK.dtype, copy=True) if x.size(1) > 1 else None
        sum_RHKW += key_RHTK.transpose(-2, -1) @ value_RHTW
        if before is None:
            return self._merge(query_RHTK @ sum_RHKW.to(query_RHTK.dtype))
        return self._merge(
            query_RHTK @ before + self._causal_sums(query_RHTK, key_RHTK, value_RHTW)
        )

    def _features(self, linear: nn.Linear, x: Tensor) -> Tensor:
        """Return phi of a projection, [B, H, T, K]; positive, so that the weights are."""
        # phi before the split: traced gradients of transposed tensors get other strides.
        return self._split(F.elu(linear(x)) + 1)

    def _keys_values(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return phi of keys [B, H, S, K], zero where masked, and values with a column of ones."""
        key_BHSK = self._features(self.key, x)
        if mask is not None:
            key_BHSK = key_BHSK.masked_fill(~mask[:, None, :, None], 0.0)
        value_BSHV = self.value(x).unflatten(-1, (self.heads, -1))
        return key_BHSK, F.pad(value_BSHV, (0, 1), value=1.0).transpose(1, 2)

    def _causal_sums(self, query_BHTK: Tensor, key_BHTK: Tensor, value_BHTW: Tensor) -> Tensor:
        """Return the causal weighted sums of values, [B, H, T, W], before normalization."""
        length = query_BHTK.size(2)
        missing = -length % self.chunk
        query, key, value = (
            F.pad(part, (0, 0, 0, missing)).unflatten(2, (-1, self.chunk))
            for part in (query_BHTK, key_BHTK, value_BHTW)
        )
        own_BHNKW = key.transpose(-2, -1) @ value
        # Shifted by one chunk instead of subtracting the chunk's own sum, so that later
        # positions cannot affect a result even by rounding.
        sum_dtype = torch.promote_types(own_BHNKW.dtype, torch.float32)
        sums_BHNKW = own_BHNKW.cumsum(2, dtype=sum_dtype)
        before_BHNKW = F.pad(sums_BHNKW[:, :, :-1], (0, 0, 0, 0, 1, 0)).to(query.dtype)
        weight_BHNCC = (query @ key.transpose(-2, -1)).tril()
        sum_BHNCW: Tensor = query @ before_BHNKW + weight_BHNCC @ value
        return sum_BHNCW.flatten(2, 3)[:, :, :length]

    def _split(self, x: Tensor) -> Tensor:
        """Reshape [B, T, H * K] to [B, H, T, K]."""
        x_BTHK: Tensor = x.unflatten(-1, (self.heads, -1))
        return x_BTHK.transpose(1, 2)

    def _merge(self, sum_BHTW: Tensor) -> Tensor:
        """Normalize [B, H, T, W] by the sum of the weights and project it to [B, T, D]."""
        y_BHTV = sum_BHTW[..., :-1] / (sum_BHTW[..., -1:] + self.eps)
        out: Tensor = self.out(y_BHTV.transpose(1, 2).flatten(2))
        return out
