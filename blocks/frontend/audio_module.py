"""Audio front end: log-mel spectrograms.

Axes: B waveforms, T frames, W samples per window, F frequencies, M mel bands.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

QUIETEST = 1e-10
"""Lower bound of the power of a band."""
RANGE = 8.0
"""Dynamic range below the loudest band, in powers of ten."""
KNEE_HERTZ, KNEE_MELS = 1000.0, 15.0
"""Point where the mel scale changes from linear to logarithmic."""
MELS_PER_E = 27 / math.log(6.4)
"""Mels per factor of e in frequency above that point."""


def mel_of(hertz: Tensor) -> Tensor:
    """Convert Hz to mels: linear to 15 mels at 1000 Hz, then 27 mels per factor of 6.4.

    Source: Slaney 1998, Auditory Toolbox.
    """
    high = KNEE_MELS + (hertz.clamp(min=1.0) / KNEE_HERTZ).log() * MELS_PER_E
    return torch.where(hertz < KNEE_HERTZ, hertz * (KNEE_MELS / KNEE_HERTZ), high)


def hertz_of(mels: Tensor) -> Tensor:
    """Convert mels to Hz; the inverse of `mel_of`."""
    high = KNEE_HERTZ * torch.exp((mels - KNEE_MELS) / MELS_PER_E)
    return torch.where(mels < KNEE_MELS, mels * (KNEE_HERTZ / KNEE_MELS), high)


def mel_filters(mels: int, rate: int, window: int, device: torch.device) -> Tensor:
    """Return triangular mel filters of area 1 each, [F, M] in float64.

    The corners are M + 2 points equally spaced on the mel scale, from 0 to rate / 2.
    """
    frequency_F1 = torch.arange(window // 2 + 1, device=device).double()[:, None] * (rate / window)
    share = torch.arange(mels + 2, device=device).double() / (mels + 1)
    corners = hertz_of(share * mel_of(torch.full_like(share, rate / 2)))
    left_M, middle_M, right_M = corners[:-2], corners[1:-1], corners[2:]
    rising_FM = (frequency_F1 - left_M) / (middle_M - left_M)
    falling_FM = (right_M - frequency_F1) / (right_M - middle_M)
    return torch.minimum(rising_FM, falling_FM).clamp(min=0.0) * (2 / (right_M - left_M))


class LogMel(nn.Module):
    """Log-mel spectrogram, without parameters.

    Computed in float32 or higher precision, whatever the dtype of the waveform and the model.

    Source: Radford et al. 2023, section 2.2; mel scale: Slaney 1998.
    """

    def __init__(self, mels: int, rate: int, window: int, hop: int) -> None:
        """Set the numbers of bands and samples; filters are computed in `forward`."""
        super().__init__()
        self.mels, self.rate, self.window, self.hop = mels, rate, window, hop

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
        """Convert waveforms [B, hop * T] to frames [B, T, M].

        Frame t covers the Hann-windowed samples around hop * t, with reflection padding at
        the ends.  The log10 power x is clipped to 8 below the loudest band of its waveform,
        then scaled to about [-1, 1] by (x + 4) / 4.

        Args:
            x: waveforms.
            mask: [B, hop * T], true at samples that are not padding.  Silence surrounds the
                waveforms then, so that their frames do not depend on the padding, and fills the
                last frame if it is incomplete.

        Returns:
            The frames; with a mask, also the mask [B, T] of those that begin before the padding.
            The other frames are zeros.

        Raises:
            ValueError: there is no mask, and the waveform is not longer than half a window.
        """
        half, count = self.window // 2, -(-x.size(1) // self.hop)
        if x.size(1) <= half and mask is None:
            msg = f"log_mel got {x.size(1)} samples, but it needs more than {half}"
            raise ValueError(msg)
        wave = x.to(torch.promote_types(x.dtype, torch.float32))
        if mask is None:
            count = x.size(1) // self.hop
            longer = F.pad(wave[:, None], (half, half), mode="reflect")[:, 0]
        else:
            silence = count * self.hop - x.size(1)
            longer = F.pad(wave.masked_fill(~mask, 0.0), (half, half + silence))
        frames_BTW = longer.unfold(1, self.window, self.hop)[:, :count]
        hann = torch.hann_window(self.window, dtype=wave.dtype, device=x.device)
        spectrum_BTF = torch.fft.rfft(frames_BTW * hann)
        # In float64: autocast does not lower the precision of such a product.
        power_BTF = spectrum_BTF.abs().double().square()
        filters_FM = mel_filters(self.mels, self.rate, self.window, x.device)
        loud_BTM = (power_BTF @ filters_FM).clamp(min=QUIETEST).log10()
        if mask is None:
            return self._scaled(loud_BTM).to(x.dtype)
        mask_BT = mask[:, :: self.hop][:, :count]
        padding_BT1 = ~mask_BT[..., None]
        heard_BTM = loud_BTM.masked_fill(padding_BT1, math.log10(QUIETEST))
        return self._scaled(heard_BTM).masked_fill(padding_BT1, 0.0).to(x.dtype), mask_BT

    @staticmethod
    def _scaled(loud_BTM: Tensor) -> Tensor:
        """Clip log powers to the dynamic range below the loudest, and scale them."""
        floor = loud_BTM.amax((1, 2), keepdim=True) - RANGE
        return (torch.maximum(loud_BTM, floor) + 4) / 4
