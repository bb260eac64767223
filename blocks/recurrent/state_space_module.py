"""Selective state space model (Mamba-2).

Axes: B sequences, T positions, C chunks of L positions each, D model width, I inner width,
H heads of width P, G groups of M = H / G heads, N state size, E channels of the convolution;
R rows = sentences x beams.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.chunks import decay_between
from ..kernels.decode_state import Capacity, State, one_by_one
from ..kernels.linear import draw_linear
from ..residual.sublayer_module import RMSNorm


class _Inputs(NamedTuple):
    """Inputs of the recurrence at every position."""

    value: Tensor
    """Values to write into the state: dt x, [B, T, G, M, P]."""
    write: Tensor
    """The paper's B, which maps values into the state, [B, T, G, N]."""
    read: Tensor
    """The paper's C, which maps the state to outputs, [B, T, G, N]."""
    decay: Tensor
    """Logarithm of the decay of the previous state: A dt, [B, T, G, M]."""


class Mamba2(nn.Module):
    """Selective state space model whose recurrence is computed chunk by chunk.

    The recurrence of the state H [N, P] of each head is H_t = exp(A dt_t) H_{t-1} +
    dt_t B_t x_t, and its output is y_t = C_t H_t + D x_t.  dt is the softplus of a linear map
    of the input; x, B and C are linear maps of the input, followed by a short causal
    convolution and SiLU.  The block returns a linear map of norm(y * silu(z)), where z is
    another linear map of the input, and the norm is computed for each group of heads.

    Within a chunk, outputs are computed by matrix products over all pairs of positions, as in
    attention; the state is computed only at the ends of chunks.

    Source: Dao & Gu 2024, section 6 (chunks), section 7.1 (block) and section 8.1 (norm of groups).
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_state: int,
        expand: int,
        groups: int,
        kernel: int,
        chunk: int,
        eps: float,
    ) -> None:
        """Create the input and output maps, the convolution and the parameters of the heads."""
        super().__init__()
        inner = expand * d_model
        self.groups, self.chunk = groups, chunk
        self.widths = [inner, groups * d_state, groups * d_state]
        convolved = sum(self.widths)
        self.inner = nn.Linear(d_model, inner + convolved + heads, bias=False)
        self.kernel = nn.Parameter(torch.empty(convolved, 1, kernel))
        self.kernel_bias = nn.Parameter(torch.empty(convolved))
        self.time_bias = nn.Parameter(torch.empty(heads))
        self.decay = nn.Parameter(torch.empty(heads))
        self.skip = nn.Parameter(torch.empty(heads))
        self.norm = RMSNorm(inner, eps)
        self.outer = nn.Linear(inner, d_model, bias=False)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw decays uniformly from [1, 16] and time steps log-uniformly from [0.001, 0.1].

        The linear maps are Xavier-uniform, and the convolution is drawn as in `torch.nn.Conv1d`.

        Source: time steps: Gu & Dao 2023, section 3.6; decays: the code of Dao & Gu 2024.
        """
        draw_linear(generator, self.inner, self.outer)
        bound = 1 / math.sqrt(self.kernel.size(2))
        nn.init.uniform_(self.kernel, -bound, bound, generator=generator)
        nn.init.zeros_(self.kernel_bias)
        nn.init.ones_(self.skip)
        self.decay.uniform_(1, 16, generator=generator).log_()
        time = self.time_bias.uniform_(math.log(1e-3), math.log(1e-1), generator=generator).exp_()
        self.time_bias.copy_(time + torch.log(-torch.expm1(-time)))  # inverse of softplus

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map x [B, T, D] to [B, T, D].

        Args:
            x: input vectors.
            mask: [B, T]; where false, the state does not change and the convolution reads zeros.
        """
        gate_BTI, channels_BTE, time_BTH = self._maps(x, mask)
        channels_BTE = F.pad(channels_BTE, (0, 0, self.kernel.size(2) - 1, 0))
        inputs, x_BTHP = self._convolve(channels_BTE, time_BTH)
        return self._output(self._scan(inputs), x_BTHP, gate_BTI)

    def begin(self, capacity: Capacity) -> State:
        """Return the decoding state: zero state and zero convolution history for every row."""
        heads, inner = self.decay.numel(), self.widths[0]
        before = (capacity.rows, self.kernel.size(2) - 1, sum(self.widths))
        state = (capacity.rows, self.groups, heads // self.groups, self._d_state, inner // heads)
        exact = torch.promote_types(capacity.dtype, torch.float32)
        return State(
            carried={
                "before": torch.zeros(before, dtype=capacity.dtype, device=capacity.device),
                "state": torch.zeros(state, dtype=exact, device=capacity.device),
            }
        )

    def step(self, x: Tensor, mask: Tensor | None = None, *, state: State, position: int) -> Tensor:
        """Process the next positions of every row, x [R, T, D], with a mask [R, T]."""
        if x.size(1) > 1:
            return one_by_one(lambda x, mask, _: self._step(x, mask, state), x, mask, position)
        return self._step(x, mask, state)

    def _step(self, x: Tensor, mask: Tensor | None, state: State) -> Tensor:
        """Process one position of every row, x [R, 1, D], with a mask [R, 1]."""
        gate_RTI, channels_BTE, time_RTH = self._maps(x, mask)
        channels_BTE = torch.cat([state.carried["before"], channels_BTE], 1)
        state.carried["before"].copy_(channels_BTE[:, 1:])
        inputs, x_RTHP = self._convolve(channels_BTE, time_RTH)
        value, write, read, decay = (part[:, 0] for part in inputs)
        old, kind = state.carried["state"], state.carried["state"].dtype
        written = write.to(kind)[:, :, None, :, None] * value.to(kind)[:, :, :, None]
        old.copy_(old * decay.to(kind).exp()[..., None, None] + written)
        y_RGMP = (read.to(kind)[:, :, None, :, None] * old).sum(3)
        return self._output(y_RGMP[:, None].to(x_RTHP.dtype), x_RTHP, gate_RTI)

    @property
    def _d_state(self) -> int:
        return self.widths[1] // self.groups

    def _maps(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gate z, the input of the convolution, and dt at every position.

        At masked positions, the input of the convolution and dt are zero.
        """
        inner, heads = self.widths[0], self.decay.numel()
        gate, channels_BTE, time = self.inner(x).split((inner, sum(self.widths), heads), -1)
        exact = torch.promote_types(time.dtype, torch.float32)
        time = F.softplus(time.to(exact) + self.time_bias.to(exact))
        if mask is not None:
            channels_BTE, time = (
                part.masked_fill(~mask[..., None], 0.0) for part in (channels_BTE, time)
            )
        return gate, channels_BTE, time

    def _convolve(self, channels_BTE: Tensor, time_BTH: Tensor) -> tuple[_Inputs, Tensor]:
        """Apply the convolution; return the inputs of the recurrence, and x."""
        convolved_BET = F.conv1d(
            channels_BTE.transpose(1, 2), self.kernel, self.kernel_bias, groups=self.kernel.size(0)
        )
        x, write, read = F.silu(convolved_BET.transpose(1, 2)).split(self.widths, -1)
        x_BTHP = x.unflatten(-1, (self.decay.numel(), -1))
        by_group = (self.groups, -1)
        value = (x_BTHP * time_BTH[..., None].to(x.dtype)).unflatten(2, by_group)
        decay = (-self.decay.to(time_BTH.dtype).exp() * time_BTH).unflatten(2, by_group)
        return (
            _Inputs(value, write.unflatten(2, by_group), read.unflatten(2, by_group), decay),
            x_BTHP,
        )

    def _scan(self, inputs: _Inputs) -> Tensor:
        """Return C_t H_t at every position, [B, T, G, M, P]."""
        length = inputs.value.size(1)
        # The padding of the last chunk writes zeros to the state and has no decay.
        value, write, read, decay = map(self._chunked, inputs)
        heads = value.shape[-2:]
        passed_BCGML = decay.movedim(2, -1).cumsum(-1)  # log decay since the start of the chunk
        write_BCGLN, read_BCGLN = write.transpose(2, 3), read.transpose(2, 3)
        value_BCGMLP = value.permute(0, 1, 3, 4, 2, 5)

        score_BCGLL = read_BCGLN @ write_BCGLN.transpose(-2, -1)
        near_BCGMLL = score_BCGLL[:, :, :, None] * decay_between(passed_BCGML).to(score_BCGLL.dtype)
        y_BCGMLP = near_BCGMLL @ value_BCGMLP

        rest_BCGML = (passed_BCGML[..., -1:] - passed_BCGML).exp().to(value.dtype)
        weighted = (value_BCGMLP * rest_BCGML[..., None]).transpose(3, 4).flatten(-2)
        written_BCGNMP = (write_BCGLN.transpose(-2, -1) @ weighted).unflatten(-1, heads)
        state_BCGNMP = _carried(written_BCGNMP, passed_BCGML[..., -1])
        far = (read_BCGLN @ state_BCGNMP.flatten(-2)).unflatten(-1, heads).transpose(3, 4)
        y_BCGMLP = y_BCGMLP + far * passed_BCGML.exp()[..., None].to(far.dtype)
        y: Tensor = y_BCGMLP.permute(0, 1, 4, 2, 3, 5).flatten(1, 2)
        # Not a slice: its strides depend on whether the last chunk is full, which would
        # require separate compiled graphs.
        return y.index_select(1, torch.arange(length, device=y.device))

    def _chunked(self, part: Tensor) -> Tensor:
        """Reshape [B, T, ...] to [B, C, L, ...], with zeros at the end of the last chunk.

        One full chunk is appended and the excess cut, so that one compiled graph is valid for
        every length.
        """
        chunks = (part.size(1) + self.chunk - 1) // self.chunk
        padded = F.pad(part, (0, 0) * (part.dim() - 2) + (0, self.chunk))
        chunked: Tensor = padded[:, : chunks * self.chunk].unflatten(1, (chunks, self.chunk))
        return chunked

    def _output(self, y: Tensor, x_BTHP: Tensor, gate_BTI: Tensor) -> Tensor:
        """Add D x to the state read-out, then apply gate, norm and output map."""
        y_BTHP = y.flatten(2, 3) + self.skip[:, None] * x_BTHP
        gated = (y_BTHP.flatten(2) * F.silu(gate_BTI)).to(self.norm.weight.dtype)
        groups = gated.unflatten(2, (self.groups, -1))
        normed = F.rms_norm(groups, groups.shape[3:], eps=self.norm.eps).flatten(2)
        output: Tensor = self.outer(normed * self.norm.weight)
        return output


def _carried(written_BCGNMP: Tensor, decay_BCGM: Tensor) -> Tensor:
    """Return the state at the start of each chunk.

    Args:
        written_BCGNMP: contribution of each chunk to the state at its end.
        decay_BCGM: logarithm of the decay over each chunk.
    """
    passed_BGMC = decay_BCGM.movedim(1, -1).cumsum(-1)
    # The state after a chunk is the state before the next one; the first starts at zero.
    after_BGMCC = decay_between(passed_BGMC).to(written_BCGNMP.dtype)
    written_BGMCX = written_BCGNMP.permute(0, 2, 4, 1, 3, 5).flatten(-2)
    state_BGMCX = F.pad(after_BGMCC @ written_BGMCX, (0, 0, 1, -1))
    shape = written_BCGNMP.shape
    state: Tensor = state_BGMCX.unflatten(-1, (shape[3], shape[5])).permute(0, 3, 1, 4, 2, 5)
    return state
