"""Compiled decoding steps, which can be switched on and off between two steps.

In generated code, the `step` of a layer whose steps are compiled goes through the one object of
this class that its model has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn


class CompiledSteps:
    """Runs the steps of a model's layers, compiled while that is switched on."""

    def __init__(self) -> None:
        """Start with steps that are not compiled."""
        self.active = False
        """Whether steps are compiled."""
        self.backend = "inductor"
        """Backend of torch.compile."""
        self.failure = ""
        """Reason why steps run uncompiled after all; empty if they do not."""
        self._functions: dict[Callable[..., Any], Callable[..., Any]] = {}

    @property
    def templates(self) -> int:
        """Number of different steps that have been compiled."""
        return len(self._functions)

    def join(self, model: nn.Module) -> None:
        """Run the steps of a model: of all its modules whose classes have compiled steps."""
        joined: Any = model
        joined._compiled_steps = self  # noqa: SLF001 - generated classes have it
        modules: Iterable[Any] = model.modules()
        for module in modules:
            if hasattr(type(module), "_compiled_steps"):
                module._compiled_steps = self  # noqa: SLF001

    def run(self, step: Callable[..., Any], layer: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """Run the step of one layer, uncompiled if compiling fails (the state stays as is).

        Args:
            step: the plain step, a function of the layer's class.
            layer: the layer.
            *args: arguments of the step.
            **kwargs: keyword arguments of the step.
        """
        if not self.active or self.failure:
            return step(layer, *args, **kwargs)
        # Imported with the first compiled step, because the import takes seconds.
        from torch._dynamo.exc import TorchDynamoException  # noqa: PLC0415
        from torch._inductor.exc import InductorError  # noqa: PLC0415

        try:
            return self._compiled(step)(layer, *args, **kwargs)
        except (TorchDynamoException, InductorError) as error:
            first = str(error).strip().partition("\n")[0]
            self.failure = f"compiling failed: {type(error).__name__}: {first[:200]}"
        return step(layer, *args, **kwargs)

    def _compiled(self, step: Callable[..., Any]) -> Callable[..., Any]:
        if step not in self._functions:
            self._functions[step] = torch.compile(step, dynamic=True, backend=self.backend)
        return self._functions[step]
