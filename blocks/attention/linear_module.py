"""Linear attention: what is read is a sum that is made once, or carried along, for all readers.

Axes: B sequences, T positions that read, S positions that are read, D width of the
model, H heads, K and V widths of one head, W = V + 1 with the weight's own sum, N chunks of
C positions; R rows = N sentences x beams.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.decode_state import Capacity, State
from ..kernels.init import draw_linear
from ..kernels.linear import LinearMap


class LinearAttention(nn.Module):
    """Attention whose weights are products of features, phi(q) phi(k), phi(z) = elu(z) + 1.

    So a head needs only the sums of phi(k) v^T and of phi(k) over what may be read: time
    and memory grow with T, not with T^2.  Causal sums are made chunk by chunk; inside one,
    positions are compared as by any attention.

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
        """Make the four projections."""
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
        """Let every position of x [B, T, D] read memory [B, S, D'], or x itself.

        Args:
            x: what reads.
            memory: what is read.
            mask: [B, S], true where it may be read.

        Returns:
            What each position read, [B, T, D]; zeros mixed where nothing may be read.
        """
        query_BHTK = self._features(self.query, x)
        key_BHSK, value_BHSW = self._offered(x if memory is None else memory, mask)
        if self.causal and memory is None:
            read_BHTW = self._past(query_BHTK, key_BHSK, value_BHSW)
        else:
            read_BHTW = query_BHTK @ (key_BHSK.transpose(-2, -1) @ value_BHSW)
        return self._merge(read_BHTW)

    def attention_weights(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Return how much each head reads of each position, [B, H, T, S]; for looking at.

        This is the one place where all pairs are compared; arguments as of `forward`.
        """
        query_BHTK = self._features(self.query, x)
        key_BHSK, _ = self._offered(x if memory is None else memory, mask)
        weight_BHTS = query_BHTK @ key_BHSK.transpose(-2, -1)
        if self.causal and memory is None:
            weight_BHTS = weight_BHTS.tril()
        return weight_BHTS / (weight_BHTS.sum(-1, keepdim=True) + self.eps)

    def begin(
        self, capacity: Capacity, memory: Tensor | None = None, mask: Tensor | None = None
    ) -> State:
        """Return the sums of the memory, made once, or those of nothing yet."""
        if memory is not None:
            key_NHSK, value_NHSW = self._offered(memory, mask)
            return State(fixed={"sum": key_NHSK.transpose(-2, -1) @ value_NHSW})
        d_k = self.key.out_features // self.heads
        d_w = self.value.out_features // self.heads + 1
        shape = (capacity.rows, self.heads, d_k, d_w)
        # Many small numbers are added: half precision would lose the later ones.
        dtype = torch.promote_types(capacity.dtype, torch.float32)
        return State(carried={"sum": torch.zeros(shape, dtype=dtype, device=capacity.device)})

    def step(self, x: Tensor, mask: Tensor | None = None, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Let the next positions of every row, x [R, T, D], read; without a memory, also them.

        Args:
            x: what reads.
            mask: [R, T], true where these may be read from now on; without a memory.
            state: what `begin` returned.
            position: where the first stands; the sums do not need to know.
        """
        query_RHTK = self._features(self.query, x)
        if state.fixed:
            sum_NHKW = state.fixed["sum"]
            by_sentence = query_RHTK.unflatten(0, (sum_NHKW.size(0), -1))
            read = by_sentence @ sum_NHKW[:, None].to(query_RHTK.dtype)
            return self._merge(read.flatten(0, 1))
        key_RHTK, value_RHTW = self._offered(x, mask)
        sum_RHKW = state.carried["sum"]
        before = sum_RHKW.to(query_RHTK.dtype, copy=True) if x.size(1) > 1 else None
        sum_RHKW += key_RHTK.transpose(-2, -1) @ value_RHTW
        if before is None:
            return self._merge(query_RHTK @ sum_RHKW.to(query_RHTK.dtype))
        return self._merge(query_RHTK @ before + self._past(query_RHTK, key_RHTK, value_RHTW))

    def _features(self, linear: nn.Linear, read: Tensor) -> Tensor:
        """Return phi of a projection, [B, H, T, K]: positive, so that weights are."""
        # Before the heads are parted: traced gradients of transposed tensors get other strides.
        return self._split(F.elu(linear(read)) + 1)

    def _offered(self, read: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return phi of keys [B, H, S, K], zero where not kept, and values with a 1 behind."""
        key_BHSK = self._features(self.key, read)
        if mask is not None:
            key_BHSK = key_BHSK.masked_fill(~mask[:, None, :, None], 0.0)
        value_BSHV = self.value(read).unflatten(-1, (self.heads, -1))
        return key_BHSK, F.pad(value_BSHV, (0, 1), value=1.0).transpose(1, 2)

    def _past(self, query_BHTK: Tensor, key_BHTK: Tensor, value_BHTW: Tensor) -> Tensor:
        """Return what each position reads of none later than itself, not yet divided."""
        length = query_BHTK.size(2)
        missing = -length % self.chunk
        query, key, value = (
            F.pad(part, (0, 0, 0, missing)).unflatten(2, (-1, self.chunk))
            for part in (query_BHTK, key_BHTK, value_BHTW)
        )
        own_BHNKW = key.transpose(-2, -1) @ value
        # Moved on by one, so that not even a rounding of later positions comes in.
        sum_dtype = torch.promote_types(own_BHNKW.dtype, torch.float32)
        sums_BHNKW = own_BHNKW.cumsum(2, dtype=sum_dtype)
        before_BHNKW = F.pad(sums_BHNKW[:, :, :-1], (0, 0, 0, 0, 1, 0)).to(query.dtype)
        weight_BHNCC = (query @ key.transpose(-2, -1)).tril()
        read_BHNCW: Tensor = query @ before_BHNKW + weight_BHNCC @ value
        return read_BHNCW.flatten(2, 3)[:, :, :length]

    def _split(self, x: Tensor) -> Tensor:
        """[B, T, H * K] to [B, H, T, K]."""
        x_BTHK: Tensor = x.unflatten(-1, (self.heads, -1))
        return x_BTHK.transpose(1, 2)

    def _merge(self, read_BHTW: Tensor) -> Tensor:
        """[B, H, T, W] to [B, T, D]: divided by the sum of weights, the heads mixed."""
        y_BHTV = read_BHTW[..., :-1] / (read_BHTW[..., -1:] + self.eps)
        out: Tensor = self.out(y_BHTV.transpose(1, 2).flatten(2))
        return out
