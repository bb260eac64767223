"""Audio front end: log-mel spectrograms and strided convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Port, Signature, port
from ..params import Count, Flag, Params, only_params

MASK = "true at outputs whose first input is not padding"
"""Description of the mask of a shorter output."""


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


class DownsampleConvolutionParams(Params):
    """Params of `downsample_convolution`."""

    d_out: Count
    """Width of the output."""
    kernel: Count = 3
    """Kernel size in positions; an even kernel reads one more position after its center than before
    it, as those of torch with the padding `same`."""
    stride: Count = 2
    """Stride in input positions."""
    bias: Flag = True
    """Whether to add a bias."""


def _shorter_mask(wired: frozenset[str]) -> tuple[Port, ...]:
    """Return the port of the mask of a shorter output, which exists only if a mask is wired."""
    return (port("mask", "mask[b t]", MASK),) if "mask" in wired else ()


def _log_mel_signature(params: LogMelParams, wired: frozenset[str]) -> Signature:
    """Return the signature; frames read both sides and are relative to the loudest band."""
    samples = "t" if params.hop == 1 else f"{params.hop}*t"
    return Signature(
        inputs=(
            port("x", f"f[b {samples}]", "waveforms, in [-1, 1]"),
            port("mask", f"mask[b {samples}]?", "true at non-padding samples; others are silence"),
        ),
        outputs=(
            port("y", f"f[b t {params.mels}]", "log power of each mel band per frame"),
            *_shorter_mask(wired),
        ),
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


def _downsample_signature(params: DownsampleConvolutionParams, wired: frozenset[str]) -> Signature:
    longer = "t" if params.stride == 1 else f"{params.stride}*t"
    doc = "true at non-padding positions; the others read as zeros"
    return Signature(
        inputs=(
            port("x", f"f[b {longer} d_in]", "input vectors"),
            port("mask", f"mask[b {longer}]?", doc),
        ),
        outputs=(
            port("y", f"f[b t {params.d_out}]", "output of the convolution"),
            *_shorter_mask(wired),
        ),
        behavior={"t": "full"},
    )


def _downsample_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a = arguments
    weight = {"weight": (a["d_out"], a["d_in"], a["kernel"])}
    return weight | ({"bias": (a["d_out"],)} if a["bias"] else {})


def _downsample_flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    a = arguments
    return 2 * sizes["b"] * sizes["t"] * int(a["d_in"] * a["d_out"] * a["kernel"])


def _downsample_hops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the layers until both ends are connected; 0 if the stride shortens the sequence."""
    a = arguments
    taps = a["kernel"] // 2
    return max(1, -(-(sizes["t"] - 1) // taps)) if a["stride"] == 1 and taps else 0


DOWNSAMPLE_CONVOLUTION = BlockType(
    name="downsample_convolution",
    family="convolution",
    mixes="sound",
    doc="Strided, centered convolution over time; y_t = sum_k W_k x_{stride t + k} + b.",
    source="Radford et al. 2023, section 2.2",
    params=DownsampleConvolutionParams,
    signature=_downsample_signature,
    weights=_downsample_weights,
    flops=_downsample_flops,
    hops=_downsample_hops,
    module=".frontend.audio_module:DownsampleConvolution",
    example={"d_out": 6},
    example_inputs={"x": "f[B 2*T 8]"},
)
