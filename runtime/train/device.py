"""Choice of the device and the precision of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ...specs.findings import InputError

if TYPE_CHECKING:
    from .run import Run


@dataclass(frozen=True, slots=True)
class Place:
    """Device and precision of a run."""

    device: torch.device
    half: bool
    """Whether matrix products run in bfloat16 autocast."""
    reason: str
    """Why the precision was chosen, for the log."""

    @property
    def waits_for_values(self) -> bool:
        """Whether reading a value of a tensor waits for the device."""
        return self.device.type != "cpu"

    def autocast(self) -> torch.autocast:
        """Return the autocast context in which the model runs."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.half)


def choose(run: Run) -> Place:
    """Return the device and the precision of a run; set its number of threads.

    Raises:
        InputError: the run requests a device that is not available.
    """
    found = torch.cuda.is_available()
    if run.device == "cuda" and not found:
        raise InputError(
            "no CUDA device is available",
            place="/device",
            help="set device to 'cpu' or 'auto'",
        )
    device = torch.device("cuda" if found and run.device != "cpu" else "cpu")
    if run.threads is not None:
        torch.set_num_threads(run.threads)
    if run.precision == "auto":
        half = prefers_bfloat16(device)
        why = "fast" if half else "not fast"
        reason = f"bfloat16 is {why} on this {device.type}"
    else:
        half, reason = run.precision == "bfloat16", "requested"
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = half
    return Place(device, half, reason)


def prefers_bfloat16(device: torch.device) -> bool:
    """Return whether bfloat16 matrix products are much faster than float32 on a device."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    tests = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in tests)
