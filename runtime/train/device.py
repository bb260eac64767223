"""Choice of the device and the precision of a run, and deterministic algorithms."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.deterministic

from ...blocks.kernels import processor
from ...graphs.ir.execution import Precision
from ...specs.findings import InputError

if TYPE_CHECKING:
    from .run import Run

DTYPES: dict[Precision, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
"""Dtype of each precision."""
TENSOR_CORES = (7, 0)
"""First compute capability with fast float16 products."""
CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
"""Variable that cuBLAS reads at its first product."""
WORKSPACE = ":4096:8"
"""Its value for products that are bitwise the same in every run: eight buffers of 4 MiB.

Source: https://docs.nvidia.com/cuda/cublas/#results-reproducibility"""


@dataclass(frozen=True, slots=True)
class RunDevice:
    """Device and precision of a run."""

    device: torch.device
    dtype: torch.dtype
    """Dtype of matrix products; below float32, the model runs in autocast."""
    reason: str
    """Why the precision was chosen, for the log."""

    @property
    def precision(self) -> Precision:
        """Name of the precision."""
        return next(name for name, dtype in DTYPES.items() if dtype == self.dtype)

    @property
    def half(self) -> bool:
        """Whether matrix products of predictions run in bfloat16; never in float16."""
        return self.dtype == torch.bfloat16

    @property
    def waits_for_values(self) -> bool:
        """Whether reading a value of a tensor waits for the device."""
        return self.device.type != "cpu"

    def autocast(self) -> torch.autocast:
        """Return the autocast context in which the model runs."""
        enabled = self.dtype != torch.float32
        dtype = self.dtype if enabled else torch.bfloat16
        return torch.autocast(self.device.type, dtype, enabled=enabled)


def choose(run: Run) -> RunDevice:
    """Return the device and the precision of a run.

    Raises:
        InputError: the run requests a device that is not available.
    """
    has_cuda = torch.cuda.is_available()
    if run.device == "cuda" and not has_cuda:
        raise InputError(
            "no CUDA device is available",
            location="/device",
            help="set device to 'cpu' or 'auto'",
        )
    device = torch.device("cuda" if has_cuda and run.device != "cpu" else "cpu")
    precision, reason = (
        _fastest(device) if run.precision == "auto" else (run.precision, "requested")
    )
    if device.type == "cpu" and precision == "bfloat16" and not prefers_bfloat16(device):
        reason += f"; float32 is faster, since {processor.lack_of(*processor.FAST_BFLOAT16)[0]}"
    return RunDevice(device, DTYPES[precision], reason)


def _fastest(device: torch.device) -> tuple[Precision, str]:
    """Return the precision that `auto` chooses for a device, and the reason."""
    if prefers_bfloat16(device):
        return "bfloat16", f"bfloat16 is fast on this {device.type}"
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= TENSOR_CORES:
        return "float16", "this cuda has no bfloat16; float16 with loss scaling is fast"
    if device.type == "cuda":
        return "float32", "this cuda has neither fast bfloat16 nor fast float16"
    return "float32", processor.lack_of(*processor.FAST_BFLOAT16)[0]


def prefers_bfloat16(device: torch.device) -> bool:
    """Return whether bfloat16 matrix products are much faster than float32 on a device."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return processor.has(*processor.FAST_BFLOAT16)


@contextmanager
def settings_of_process(run: Run, placement: RunDevice) -> Iterator[None]:
    """Set the threads of a run, and its products in TF32, within a context; restore both.

    Torch has these settings for the process only, and programs go on after a training.

    Args:
        run: the run.
        placement: its device and precision.
    """
    products = torch.backends.cuda.matmul
    threads, tf32 = torch.get_num_threads(), products.allow_tf32
    if run.threads is not None:
        torch.set_num_threads(run.threads)
    if placement.device.type == "cuda":
        products.allow_tf32 = placement.dtype == torch.bfloat16
    try:
        yield
    finally:
        if run.threads is not None:
            torch.set_num_threads(threads)
        products.allow_tf32 = tf32


@contextmanager
def deterministic(device: torch.device, *, enabled: bool) -> Iterator[None]:
    """Use only deterministic algorithms of torch within a context, and restore the choice.

    The choice is one of the process: torch has none for a model.

    Args:
        device: device of the training.
        enabled: whether to change anything.

    Raises:
        InputError: cuBLAS was started without the workspace that this needs, or an operator of
            the model has no deterministic algorithm on the device.
    """
    if not enabled:
        yield
        return
    _give_workspace(device)
    filling: Any = torch.utils.deterministic
    mode, fill = torch.get_deterministic_debug_mode(), filling.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)  # noqa: FBT003 - a positional parameter of torch
    filling.fill_uninitialized_memory = False  # it finds mistakes, and costs a pass over memory
    try:
        yield
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        raise InputError(
            f"an operator has no deterministic algorithm: {str(error).partition('.')[0]}",
            location="/deterministic",
            help="set it to false, or replace the block that uses this operator",
        ) from error
    finally:
        torch.set_deterministic_debug_mode(mode)
        filling.fill_uninitialized_memory = fill


def _give_workspace(device: torch.device) -> None:
    """Configure cuBLAS for deterministic products, for the entire process: it reads this once.

    Raises:
        InputError: it is too late, because CUDA is in use.
    """
    if device.type != "cuda" or os.environ.get(CUBLAS) in {WORKSPACE, ":16:8"}:
        return
    if torch.cuda.is_initialized():
        raise InputError(
            f"CUDA was in use before {CUBLAS} was set, so its products may not be deterministic",
            location="/deterministic",
            help=f"start the process with {CUBLAS}={WORKSPACE}, or set it to false",
        )
    os.environ[CUBLAS] = WORKSPACE
