"""State space: a linear recurrence whose decay and whose input depend on what is read.

Axes: B sequences, T positions, C chunks of L positions each, D width of the model, I
width inside, H heads of width P, G groups of M = H / G heads, N width of the state;
R rows = N sentences x beams.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.decode_state import Capacity, State, one_by_one
from ..kernels.init import draw_linear
from ..residual.norm_module import RMSNorm


class _Read(NamedTuple):
    """What the recurrence takes at every position."""

    value: Tensor
    """What is written into the state, times dt: dt x, [B, T, G, M, P]."""
    write: Tensor
    """Where it is written: the paper's B, [B, T, G, N]."""
    read: Tensor
    """What is read: the paper's C, [B, T, G, N]."""
    decay: Tensor
    """Logarithm of what becomes of the state before it: A dt, [B, T, G, M]."""


class Mamba2(nn.Module):
    """Selective state space model whose recurrence is computed chunk by chunk.

    In each head the state H, N x P, decays and is written to at every position: H_t =
    exp(A dt_t) H_{t-1} + dt_t B_t x_t, and gives y_t = C_t H_t + D x_t.  dt is the softplus
    of a map of the input; x, B and C are maps of it that a short causal convolution and SiLU
    have passed through.  The result is norm(y * silu(z)), mapped back; z is one more map.

    Within a chunk all positions read one another by matrix products, as in attention; the
    state is only computed at the ends of chunks.  The norm spans all groups.

    Source: Dao & Gu 2024, section 6 (chunks) and section 7.1 (block).
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
        """Make the maps in and out, the convolution, and what each head has of its own."""
        super().__init__()
        inside = expand * d_model
        self.groups, self.chunk = groups, chunk
        self.widths = [inside, groups * d_state, groups * d_state]
        convolved = sum(self.widths)
        self.inner = nn.Linear(d_model, inside + convolved + heads, bias=False)
        self.kernel = nn.Parameter(torch.empty(convolved, 1, kernel))
        self.kernel_bias = nn.Parameter(torch.empty(convolved))
        self.time_bias = nn.Parameter(torch.empty(heads))
        self.decay = nn.Parameter(torch.empty(heads))
        self.skip = nn.Parameter(torch.empty(heads))
        self.norm = RMSNorm(inside, eps)
        self.outer = nn.Linear(inside, d_model, bias=False)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw decays from 1 to 16 and time steps from 0.001 to 0.1, evenly by logarithm.

        The maps are Xavier-uniform, the convolution as torch draws it.

        Source: time steps: Gu & Dao 2023, section 3.6; decays: the code of Dao & Gu 2024.
        """
        draw_linear(generator, self.inner, self.outer)
        bound = 1 / math.sqrt(self.kernel.size(2))
        nn.init.uniform_(self.kernel, -bound, bound, generator=generator)
        nn.init.zeros_(self.kernel_bias)
        nn.init.ones_(self.skip)
        self.decay.uniform_(1, 16, generator=generator).log_()
        time = self.time_bias.uniform_(math.log(1e-3), math.log(1e-1), generator=generator).exp_()
        self.time_bias.copy_(time + torch.log(-torch.expm1(-time)))  # softplus undone

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map x [B, T, D] to [B, T, D].

        Args:
            x: vectors.
            mask: [B, T]; where false the state stays as it was, and the convolution reads zeros.
        """
        gate_BTI, near, time_BTH = self._maps(x, mask)
        near = F.pad(near, (0, 0, self.kernel.size(2) - 1, 0))
        taken, x_BTHP = self._taken(near, time_BTH)
        return self._given(self._scan(taken), x_BTHP, gate_BTI)

    def begin(self, capacity: Capacity) -> State:
        """Start every row with a state of zeros, and nothing before it."""
        heads, inside = self.decay.numel(), self.widths[0]
        before = (capacity.rows, self.kernel.size(2) - 1, sum(self.widths))
        state = (capacity.rows, self.groups, heads // self.groups, self._d_state, inside // heads)
        exact = torch.promote_types(capacity.dtype, torch.float32)
        return State(
            carried={
                "before": torch.zeros(before, dtype=capacity.dtype, device=capacity.device),
                "state": torch.zeros(state, dtype=exact, device=capacity.device),
            }
        )

    def step(self, x: Tensor, mask: Tensor | None = None, *, state: State, position: int) -> Tensor:
        """Move every row by the next positions, x [R, T, D]; keep is [R, T]."""
        if x.size(1) > 1:
            return one_by_one(lambda x, mask, _: self._step(x, mask, state), x, mask, position)
        return self._step(x, mask, state)

    def _step(self, x: Tensor, mask: Tensor | None, state: State) -> Tensor:
        """Move every row by one position, x [R, 1, D]; keep is [R, 1]."""
        gate_RTI, near, time_RTH = self._maps(x, mask)
        near = torch.cat([state.carried["before"], near], 1)
        state.carried["before"].copy_(near[:, 1:])
        taken, x_RTHP = self._taken(near, time_RTH)
        value, write, read, decay = (part[:, 0] for part in taken)
        old, kind = state.carried["state"], state.carried["state"].dtype
        written = write.to(kind)[:, :, None, :, None] * value.to(kind)[:, :, :, None]
        old.copy_(old * decay.to(kind).exp()[..., None, None] + written)
        y_RGMP = (read.to(kind)[:, :, None, :, None] * old).sum(3)
        return self._given(y_RGMP[:, None].to(x_RTHP.dtype), x_RTHP, gate_RTI)

    @property
    def _d_state(self) -> int:
        return self.widths[1] // self.groups

    def _maps(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gate z, what is to be convolved, and dt, of every position.

        What is not kept is zero before the convolution, and takes no time.
        """
        inside, heads = self.widths[0], self.decay.numel()
        gate, near, time = self.inner(x).split((inside, sum(self.widths), heads), -1)
        exact = torch.promote_types(time.dtype, torch.float32)
        time = F.softplus(time.to(exact) + self.time_bias.to(exact))
        if mask is not None:
            near, time = (part.masked_fill(~mask[..., None], 0.0) for part in (near, time))
        return gate, near, time

    def _taken(self, near: Tensor, time_BTH: Tensor) -> tuple[_Read, Tensor]:
        """Convolve what stands before and at T positions; return what is taken of it, and x."""
        near_BIT = F.conv1d(
            near.transpose(1, 2), self.kernel, self.kernel_bias, groups=self.kernel.size(0)
        )
        x, write, read = F.silu(near_BIT.transpose(1, 2)).split(self.widths, -1)
        x_BTHP = x.unflatten(-1, (self.decay.numel(), -1))
        by_group = (self.groups, -1)
        value = (x_BTHP * time_BTH[..., None].to(x.dtype)).unflatten(2, by_group)
        decay = (-self.decay.to(time_BTH.dtype).exp() * time_BTH).unflatten(2, by_group)
        return (
            _Read(value, write.unflatten(2, by_group), read.unflatten(2, by_group), decay),
            x_BTHP,
        )

    def _scan(self, taken: _Read) -> Tensor:
        """Return what every position reads from the state, [B, T, G, M, P]."""
        length = taken.value.size(1)
        # Positions that fill up the last chunk write nothing and let nothing decay.
        value, write, read, decay = map(self._chunked, taken)
        heads = value.shape[-2:]
        passed_BCGML = decay.movedim(2, -1).cumsum(-1)  # decay from the chunk's start on
        write_BCGLN, read_BCGLN = write.transpose(2, 3), read.transpose(2, 3)
        value_BCGMLP = value.permute(0, 1, 3, 4, 2, 5)

        score_BCGLL = read_BCGLN @ write_BCGLN.transpose(-2, -1)
        near_BCGMLL = score_BCGLL[:, :, :, None] * _between(passed_BCGML).to(score_BCGLL.dtype)
        y_BCGMLP = near_BCGMLL @ value_BCGMLP

        rest_BCGML = (passed_BCGML[..., -1:] - passed_BCGML).exp().to(value.dtype)
        left = (value_BCGMLP * rest_BCGML[..., None]).transpose(3, 4).flatten(-2)
        written_BCGNMP = (write_BCGLN.transpose(-2, -1) @ left).unflatten(-1, heads)
        state_BCGNMP = _carried(written_BCGNMP, passed_BCGML[..., -1])
        far = (read_BCGLN @ state_BCGNMP.flatten(-2)).unflatten(-1, heads).transpose(3, 4)
        y_BCGMLP = y_BCGMLP + far * passed_BCGML.exp()[..., None].to(far.dtype)
        y: Tensor = y_BCGMLP.permute(0, 1, 4, 2, 3, 5).flatten(1, 2)
        # Not a slice, whose strides say whether the last chunk was full: a graph for each.
        return y.index_select(1, torch.arange(length, device=y.device))

    def _chunked(self, part: Tensor) -> Tensor:
        """Return [B, T, ...] as [B, C, L, ...], the last chunk filled up with zeros.

        A whole chunk is added and cut, so that one compiled graph serves every length.
        """
        chunks = (part.size(1) + self.chunk - 1) // self.chunk
        padded = F.pad(part, (0, 0) * (part.dim() - 2) + (0, self.chunk))
        cut: Tensor = padded[:, : chunks * self.chunk].unflatten(1, (chunks, self.chunk))
        return cut

    def _given(self, y: Tensor, x_BTHP: Tensor, gate_BTI: Tensor) -> Tensor:
        """Add D x to what was read, gate it, norm it and map it back."""
        y_BTHP = y.flatten(2, 3) + self.skip[:, None] * x_BTHP
        given: Tensor = self.outer(self.norm(y_BTHP.flatten(2) * F.silu(gate_BTI)))
        return given


def _between(passed: Tensor) -> Tensor:
    """Return [..., i, j], what is left at i of what was written at j; 0 where j is later.

    Args:
        passed: [..., L], the logarithm of the decay up to each place.
    """
    size = passed.size(-1)
    later = torch.ones(size, size, dtype=torch.bool, device=passed.device).triu(1)
    return (passed[..., :, None] - passed[..., None, :]).masked_fill(later, float("-inf")).exp()


def _carried(written_BCGNMP: Tensor, whole_BCGM: Tensor) -> Tensor:
    """Return the state before each chunk.

    Args:
        written_BCGNMP: what each chunk leaves in the state at its end.
        whole_BCGM: the logarithm of the decay over each chunk.
    """
    passed_BGMC = whole_BCGM.movedim(1, -1).cumsum(-1)
    # What stands after a chunk stands before the next one; before the first is nothing.
    after_BGMCC = _between(passed_BGMC).to(written_BCGNMP.dtype)
    written_BGMCX = written_BCGNMP.permute(0, 2, 4, 1, 3, 5).flatten(-2)
    state_BGMCX = F.pad(after_BGMCC @ written_BGMCX, (0, 0, 1, -1))
    shape = written_BCGNMP.shape
    state: Tensor = state_BGMCX.unflatten(-1, (shape[3], shape[5])).permute(0, 3, 1, 4, 2, 5)
    return state
