"""Audio: from a waveform to the vectors that a model reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Count, Flag, Params


class LogMelParams(Params):
    """Params of `log_mel`."""

    mels: Count = 80
    """Bands of the mel scale."""
    rate: Count = 16_000
    """Samples of a second."""
    window: Count = 400
    """Samples of which one frame is made."""
    hop: Count = 160
    """Samples from one frame to the next."""


class DownsampleConvolutionParams(Params):
    """Params of `downsample_convolution`."""

    d_out: Count
    """Width of the result."""
    kernel: Count = 3
    """Positions that one result reads; odd, so that it has a middle."""
    stride: Count = 2
    """Positions from the middle of one result to that of the next."""
    bias: Flag = True
    """Whether a bias is added."""


def _log_mel_signature(params: LogMelParams, _: frozenset[str]) -> Signature:
    """Frames look at both sides, and all at the loudest."""
    samples = "t" if params.hop == 1 else f"{params.hop}*t"
    return Signature(
        inputs=(port("x", f"f[b {samples}]", "waveforms, from -1 to 1"),),
        outputs=(port("y", f"f[b t {params.mels}]", "loudness of each band, frame by frame"),),
        behavior={"t": "full"},
    )


def _log_mel_arguments(params: LogMelParams, _: Mapping[str, Any]) -> dict[str, Any]:
    return params.model_dump()


def _log_mel_flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the product of power spectra and filters; the Fourier transform is none."""
    a = arguments
    return 2 * sizes["b"] * sizes["t"] * int((a["window"] // 2 + 1) * a["mels"])


LOG_MEL = BlockType(
    name="log_mel",
    doc="Spectrogram on the mel scale, in powers of ten, the 8 below the loudest, as (x + 4) / 4.",
    source="Radford et al. 2023, section 2.2; mel scale: Slaney 1998",
    params=LogMelParams,
    signature=_log_mel_signature,
    arguments=_log_mel_arguments,
    flops=_log_mel_flops,
    module=".frontend.audio_module:LogMel",
    example={},
    example_inputs={"x": "f[B 160*T]"},
)


def _downsample_signature(params: DownsampleConvolutionParams, _: frozenset[str]) -> Signature:
    longer = "t" if params.stride == 1 else f"{params.stride}*t"
    return Signature(
        inputs=(port("x", f"f[b {longer} d_in]", "vectors"),),
        outputs=(port("y", f"f[b t {params.d_out}]", "what each neighbourhood gave"),),
        behavior={"t": "full"},
    )


def _downsample_arguments(
    params: DownsampleConvolutionParams, sizes: Mapping[str, Any]
) -> dict[str, Any]:
    if params.kernel % 2 == 0:
        msg = f"a kernel of {params.kernel} has no middle"
        raise ValueError(msg, f"use {params.kernel + 1}")
    return {**sizes, **params.model_dump()}


def _downsample_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a = arguments
    weight = {"weight": (a["d_out"], a["d_in"], a["kernel"])}
    return weight | ({"bias": (a["d_out"],)} if a["bias"] else {})


def _downsample_flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    a = arguments
    return 2 * sizes["b"] * sizes["t"] * int(a["d_in"] * a["d_out"] * a["kernel"])


def _downsample_hops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the kernels from one end to the other; a shorter result is no sequence for it."""
    a = arguments
    taps = a["kernel"] // 2
    return max(1, -(-(sizes["t"] - 1) // taps)) if a["stride"] == 1 and taps else 0


DOWNSAMPLE_CONVOLUTION = BlockType(
    name="downsample_convolution",
    doc="Centred convolution at every stride-th position; y_t = sum_k W_k x_{stride t + k} + b.",
    source="Radford et al. 2023, section 2.2",
    params=DownsampleConvolutionParams,
    signature=_downsample_signature,
    arguments=_downsample_arguments,
    weights=_downsample_weights,
    flops=_downsample_flops,
    hops=_downsample_hops,
    module=".frontend.audio_module:DownsampleConvolution",
    example={"d_out": 6},
    example_inputs={"x": "f[B 2*T 8]"},
)
