"""Audio: from a waveform to the vectors that a model reads.

Axes: B waveforms, T frames or positions, W samples of a window, F frequencies, M bands
of the mel scale, D width in, O width out, K positions of a kernel.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

QUIETEST = 1e-10
"""Power below which a band counts as silent."""
RANGE = 8.0
"""Powers of ten below the loudest band that are told apart."""
KNEE_HERTZ, KNEE_MELS = 1000.0, 15.0
"""Where the mel scale turns from linear to logarithmic."""
MELS_PER_E = 27 / math.log(6.4)
"""Mels of a factor of e above that."""


def mel_of(hertz: Tensor) -> Tensor:
    """Return frequencies on the mel scale: 15 mels are 1000 Hz, then 27 a factor of 6.4.

    Source: Slaney 1998, Auditory Toolbox.
    """
    high = KNEE_MELS + (hertz.clamp(min=1.0) / KNEE_HERTZ).log() * MELS_PER_E
    return torch.where(hertz < KNEE_HERTZ, hertz * (KNEE_MELS / KNEE_HERTZ), high)


def hertz_of(mels: Tensor) -> Tensor:
    """Return the frequencies of points on the mel scale; the inverse of `mel_of`."""
    high = KNEE_HERTZ * torch.exp((mels - KNEE_MELS) / MELS_PER_E)
    return torch.where(mels < KNEE_MELS, mels * (KNEE_HERTZ / KNEE_MELS), high)


def mel_filters(mels: int, rate: int, window: int, device: torch.device) -> Tensor:
    """Return triangles over the frequencies of a window, [F, M] in float64, of area 1 each.

    Their corners are M + 2 points at equal distances on the mel scale, from 0 to rate / 2.
    """
    frequency_F1 = torch.arange(window // 2 + 1, device=device).double()[:, None] * (rate / window)
    share = torch.arange(mels + 2, device=device).double() / (mels + 1)
    corners = hertz_of(share * mel_of(torch.full_like(share, rate / 2)))
    left_M, middle_M, right_M = corners[:-2], corners[1:-1], corners[2:]
    rising_FM = (frequency_F1 - left_M) / (middle_M - left_M)
    falling_FM = (right_M - frequency_F1) / (right_M - middle_M)
    return torch.minimum(rising_FM, falling_FM).clamp(min=0.0) * (2 / (right_M - left_M))


class LogMel(nn.Module):
    """The logarithm of a mel spectrogram; there is nothing to learn.

    Computed in float32 at least, whatever the waveform and the model are in.

    Source: Radford et al. 2023, section 2.2; mel scale: Slaney 1998.
    """

    def __init__(self, mels: int, rate: int, window: int, hop: int) -> None:
        """Keep the numbers; filters are made where they are used."""
        super().__init__()
        self.mels, self.rate, self.window, self.hop = mels, rate, window, hop

    def forward(self, x: Tensor) -> Tensor:
        """Turn waveforms [B, hop * T] into frames [B, T, M].

        Frame t is made of the Hann-windowed samples around hop * t; beyond the ends the
        waveform is mirrored.  Powers of ten from the loudest band of a waveform down to
        8 below it are kept, and (x + 4) / 4 brings them near -1 to 1.

        Raises:
            ValueError: the waveform is no longer than half a window.
        """
        half = self.window // 2
        if x.size(1) <= half:
            msg = f"log_mel needs more than {half} samples, not {x.size(1)}"
            raise ValueError(msg)
        wave = x.to(torch.promote_types(x.dtype, torch.float32))
        mirrored = F.pad(wave[:, None], (half, half), mode="reflect")[:, 0]
        frames_BTW = mirrored.unfold(1, self.window, self.hop)[:, : x.size(1) // self.hop]
        hann = torch.hann_window(self.window, dtype=wave.dtype, device=x.device)
        spectrum_BTF = torch.fft.rfft(frames_BTW * hann)
        # In float64, a product that autocast leaves as it is.
        power_BTF = spectrum_BTF.abs().double().square()
        filters_FM = mel_filters(self.mels, self.rate, self.window, x.device)
        loud_BTM = (power_BTF @ filters_FM).clamp(min=QUIETEST).log10()
        floor = loud_BTM.amax((1, 2), keepdim=True) - RANGE
        return ((torch.maximum(loud_BTM, floor) + 4) / 4).to(x.dtype)


class DownsampleConvolution(nn.Module):
    """Convolution over time that gives one vector for `stride` of its input.

    Source: Radford et al. 2023, section 2.2.
    """

    def __init__(
        self, d_in: int, d_out: int, kernel: int, stride: int, *, bias: bool = True
    ) -> None:
        """Make the kernel, O x D x K."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in, kernel))
        self.bias = nn.Parameter(torch.empty(d_out)) if bias else None
        self.stride = stride

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; the bias starts at zero."""
        nn.init.xavier_uniform_(self.weight, generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [B, stride * T, D] to [B, T, O]; beyond its ends stand zeros."""
        padding = self.weight.size(-1) // 2
        y_BOT = F.conv1d(
            x.transpose(1, 2), self.weight, self.bias, stride=self.stride, padding=padding
        )
        return y_BOT.transpose(1, 2)
