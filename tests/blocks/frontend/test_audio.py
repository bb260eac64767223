"""Log-mel frames against their definition in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from weft.blocks.frontend.audio_module import LogMel, hertz_of, mel_of


def mel(hertz: float) -> float:
    """Slaney's scale, from its description: 200/3 Hz per mel below 1000 Hz, then logarithmic."""
    return hertz * 3 / 200 if hertz < 1000 else 15 + 27 * math.log(hertz / 1000) / math.log(6.4)


def hertz(mels: float) -> float:
    """The inverse of `mel`."""
    return mels * 200 / 3 if mels < 15 else 1000 * 6.4 ** ((mels - 15) / 27)


def by_definition(wave: np.ndarray, mels: int, rate: int, window: int, hop: int) -> np.ndarray:
    """Return the frames of one waveform, [T, M], by sums over samples and frequencies."""
    half = window // 2
    mirrored = np.pad(wave, half, mode="reflect")
    samples = np.arange(window)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * samples / window)
    bins = np.arange(window // 2 + 1)
    waves = np.exp(-2j * np.pi * np.outer(bins, samples) / window)
    corners = [hertz(mel(rate / 2) * point / (mels + 1)) for point in range(mels + 2)]
    frames = []
    for start in range(0, len(wave), hop):
        power = np.abs(waves @ (mirrored[start : start + window] * hann)) ** 2
        row = []
        for left, middle, right in zip(corners, corners[1:], corners[2:], strict=False):
            total = 0.0
            for number, strength in enumerate(power):
                at = number * rate / window
                height = min((at - left) / (middle - left), (right - at) / (right - middle))
                total += max(0.0, height) * 2 / (right - left) * strength
            row.append(math.log10(max(total, 1e-10)))
        frames.append(row)
    loud = np.array(frames)
    return (np.maximum(loud, loud.max() - 8) + 4) / 4


@pytest.mark.parametrize(
    ("mels", "rate", "window", "hop"), [(80, 16_000, 400, 160), (20, 8_000, 255, 100)]
)
def test_frames_equal_the_definition(mels: int, rate: int, window: int, hop: int) -> None:
    """A tone with noise, and silence with a click, whose quiet bands are clipped."""
    generator = np.random.default_rng(0)
    time = np.arange(6 * hop) / rate
    tone = 0.5 * np.sin(2 * np.pi * 440 * time) + 0.01 * generator.standard_normal(len(time))
    click = np.where(np.arange(len(time)) == 2 * hop + 7, 0.9, 0.0)

    found = LogMel(mels, rate, window, hop)(torch.tensor(np.stack([tone, click])))

    assert found.dtype == torch.float64
    for ours, wave in zip(found.numpy(), (tone, click), strict=True):
        np.testing.assert_allclose(ours, by_definition(wave, mels, rate, window, hop), atol=1e-9)


def test_single_precision_is_near_double() -> None:
    """The computation uses the dtype of the waveform; float32 gives five digits."""
    wave = torch.randn(1, 1600, dtype=torch.float64) * 0.1
    block = LogMel(80, 16_000, 400, 160)

    torch.testing.assert_close(block(wave.float()).double(), block(wave), rtol=0, atol=1e-5)


def test_the_scale_has_its_landmarks_and_its_inverse() -> None:
    """1000 Hz are 15 mels, and 6400 Hz are 27 more."""
    landmarks = torch.tensor([0.0, 200.0, 1000.0, 6400.0], dtype=torch.float64)

    wanted = torch.tensor([0.0, 3.0, 15.0, 42.0], dtype=torch.float64)
    torch.testing.assert_close(mel_of(landmarks), wanted)
    torch.testing.assert_close(hertz_of(wanted), landmarks)


def test_too_short_a_waveform_is_refused() -> None:
    """Reflection padding needs more than half a window."""
    with pytest.raises(ValueError, match="log_mel got 160 samples, but it needs more than 200"):
        LogMel(80, 16_000, 400, 160)(torch.zeros(1, 160))


def test_masked_frames_equal_those_of_the_waveform_alone() -> None:
    """Of any length: silence fills the last frame, and frames of padding are zeros."""
    block, lengths = LogMel(20, 8_000, 200, 80), [800, 430, 90]
    wave = torch.randn(3, 800, dtype=torch.float64)
    mask = torch.arange(800) < torch.tensor(lengths)[:, None]

    frames, kept = block(wave, mask)

    assert frames.shape == (3, 10, 20)
    assert kept.sum(1).tolist() == [10, 6, 2]
    for row, length in enumerate(lengths):
        alone, _ = block(wave[row : row + 1, :length], mask[row : row + 1, :length])
        torch.testing.assert_close(frames[row, : alone.size(1)], alone[0])
        assert not frames[row, alone.size(1) :].any()


def test_a_mask_only_changes_the_frames_at_the_ends() -> None:
    """They see silence, not a reflection; the loudest frame is elsewhere."""
    wave = 0.01 * torch.randn(1, 1600, dtype=torch.float64)
    wave[:, 700:900] *= 50
    block = LogMel(20, 16_000, 400, 160)

    plain, (masked, _) = block(wave), block(wave, torch.ones(1, 1600, dtype=torch.bool))

    torch.testing.assert_close(masked[:, 2:8], plain[:, 2:8])
