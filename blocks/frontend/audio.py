"""Audio front end: log-mel spectrograms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Count, Params, only_params


class LogMelParams(Params):
    """Params of `log_mel`."""

    mels: Count = 80
    """Number of mel bands."""
    rate: Count = 16_000
    """Sampling rate in Hz."""
    window: Count = 400
    """Window length of a frame, in samples."""
    hop: Count = 160
    """Hop length between frames, in samples."""


def _log_mel_signature(params: LogMelParams, wired: frozenset[str]) -> Signature:
    """Return the signature; frames read both sides and are relative to the loudest band."""
    samples = "t" if params.hop == 1 else f"{params.hop}*t"
    outputs = [port("y", f"f[b t {params.mels}]", "log power of each mel band per frame")]
    if "mask" in wired:
        outputs.append(port("mask", "mask[b t]", "true at frames whose first sample counts"))
    return Signature(
        inputs=(
            port("x", f"f[b {samples}]", "waveforms, in [-1, 1]"),
            port("mask", f"mask[b {samples}]?", "true at non-padding samples; others are silence"),
        ),
        outputs=tuple(outputs),
        behavior={"t": "full"},
    )


def _log_mel_flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the product of power spectra and filters; the FFT is not a matrix product."""
    a = arguments
    return 2 * sizes["b"] * sizes["t"] * int((a["window"] // 2 + 1) * a["mels"])


LOG_MEL = BlockType(
    name="log_mel",
    mixes="sound",
    doc="Log-mel spectrogram: log10 power, clipped to 8 below the maximum, then scaled; "
    "y = (max(log10 p, max(log10 p) - 8) + 4) / 4. With a mask, silence surrounds the waveforms, "
    "which are reflected at their ends otherwise.",
    source="Radford et al. 2023, section 2.2; mel scale: Slaney 1998",
    params=LogMelParams,
    signature=_log_mel_signature,
    arguments=only_params,
    flops=_log_mel_flops,
    module=".frontend.audio_module:LogMel",
    example={},
    example_inputs={"x": "f[B 160*T]"},
)
