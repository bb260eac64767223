"""Scaling of the loss, so that gradients fit into float16."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...specs.findings import InputError
from ..checkpoint.state import RunState
from .device import RunDevice

SMALLEST = 1e-4
"""Scale below which a run stops: then an overflow has another cause than the scale."""


class LossScaling:
    """Scale of the loss, which changes nothing in float32 and bfloat16.

    Fused optimizers (adam, adamw, sgd) skip an update on the device; before an update of the
    others the host waits for the device.
    """

    def __init__(self, placement: RunDevice, state: RunState) -> None:
        """Start with torch's scale, or continue with the scale of a checkpoint."""
        self.enabled = placement.dtype == torch.float16
        self._scaler = torch.amp.GradScaler(placement.device.type, enabled=self.enabled)
        self._skipped = torch.tensor(state.skipped, device=placement.device)
        if self.enabled and state.loss_scale:
            self._scaler.load_state_dict(state.loss_scale)

    def state(self) -> dict[str, Any]:
        """Return its part of the state of a run; on an accelerator, this waits for the device."""
        if not self.enabled:
            return {}
        return {"loss_scale": self._scaler.state_dict(), "skipped": int(self._skipped)}

    def report(self) -> dict[str, Any]:
        """Return what metrics.jsonl reports: the scale, and how many updates were skipped."""
        if not self.enabled:
            return {}
        return {"loss_scale": self._scaler.get_scale(), "skipped_updates": int(self._skipped)}

    def summary(self) -> str:
        """Return a line for the log about skipped updates, or ""."""
        if not (skipped := int(self._skipped)):
            return ""
        return f"{skipped} updates were skipped because a gradient overflowed float16"

    def scaled(self, loss: Tensor) -> Tensor:
        """Return the loss times the scale, for the backward pass."""
        return self._scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients by the scale; call it before gradients are clipped."""
        if self.enabled:
            self._scaler.unscale_(optimizer)

    def counted(self, norm: Tensor) -> Tensor:
        """Count the update as skipped if a gradient overflowed.

        Args:
            norm: Euclidean norm of all gradients, which is not finite if one is not.

        Returns:
            The norm; 0 in place of one that is not finite.
        """
        if not self.enabled:
            return norm
        finite = torch.isfinite(norm)
        self._skipped += ~finite
        return torch.where(finite, norm, torch.zeros_like(norm))

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Update the weights unless a gradient overflowed, and adjust the scale."""
        self._scaler.step(optimizer)
        self._scaler.update()

    def refuse_too_small(self) -> None:
        """Stop a run whose gradients overflow at any scale.

        Raises:
            InputError: the scale is below `SMALLEST`.
        """
        if self.enabled and self._scaler.get_scale() < SMALLEST:
            raise InputError(
                "gradients overflow float16 at every scale of the loss;"
                f" {int(self._skipped)} updates were skipped",
                location="/precision",
                help="set 'precision' to 'float32', or to 'bfloat16' if the device has it",
            )
