"""Late dropout: switching off everything in a model that drops values at random."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn
from torch.nn.modules.dropout import _DropoutNd


class Dropouts:
    """The probabilities in a model with which values, rows or layers are dropped.

    They are the float attributes of its modules whose names contain `drop`, such as `dropout` and
    `drop_path`, and the probability of each dropout layer of PyTorch, also in blocks of plug-ins.
    """

    def __init__(self, model: nn.Module) -> None:
        """Remember every probability of the model."""
        self._found = [
            (module, name, value) for module in model.modules() for name, value in _in(module)
        ]

    def set(self, *, active: bool) -> None:
        """Restore every probability, or set it to 0."""
        for module, name, value in self._found:
            setattr(module, name, value if active else 0.0)


def _in(module: nn.Module) -> Iterator[tuple[str, float]]:
    """Yield the name and the value of each probability of a module."""
    for name, value in vars(module).items():
        is_layer = isinstance(module, _DropoutNd) and name == "p"
        if isinstance(value, float) and (is_layer or "drop" in name):
            yield name, value
