"""Late weights: a model whose layers are gathered from all processes when an operation reads them.

What a predictor runs depends on its rows, so processes that answer their own rows need different
layers at different times; but to gather a layer takes all of them.  Before each gathering the
processes therefore agree on a layer, the first one in the order of the model that any of them
needs.  One that needs a later layer, or has answered all of its rows, takes part and goes on
waiting.  So a process has at most one gathered layer, besides the weights outside of layers, and
processes that run the same layers soon do so together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from ....graphs.ir.graph import Graph
from ....graphs.passes.parallel import layers_of
from ...codegen.build import build_empty
from ...compile.decoder import Passes, use_passes
from .stopping import Interrupted, StopRequest
from .world import World

_PROPERTIES = "shape device dtype layout ndim is_cpu is_cuda is_meta requires_grad is_leaf grad_fn"
_METHODS = "size dim numel element_size is_floating_point is_inference get_device"
_WITHOUT_VALUES = frozenset(
    [
        *(getattr(Tensor, name).__get__ for name in _PROPERTIES.split()),
        *(getattr(Tensor, name) for name in _METHODS.split()),
    ]
)
"""What a tensor answers without its values."""


class LateWeight(nn.Parameter):
    """A parameter of which only the shape is known until an operation reads its values."""

    fetch: Callable[[], Tensor]
    """Returns the values."""

    def __new__(cls, like: Tensor, device: torch.device, fetch: Callable[[], Tensor]) -> LateWeight:
        """Return a parameter with the shape and dtype of a tensor, which takes no memory."""
        empty = torch.zeros((), dtype=like.dtype, device=device).expand(like.shape)
        weight: LateWeight = torch.Tensor._make_subclass(cls, empty, require_grad=False)  # noqa: SLF001 - as `nn.Parameter` does
        weight.fetch = fetch
        return weight

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation with the values of the late weights among its arguments."""
        del types
        if func not in _WITHOUT_VALUES:
            args = [_with_values(argument) for argument in args]
            kwargs = {name: _with_values(value) for name, value in (kwargs or {}).items()}
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001 - as the documentation says
            return func(*args, **(kwargs or {}))


def _with_values(argument: Any) -> Any:
    """Return an argument of an operation with values instead of late weights."""
    if isinstance(argument, LateWeight):
        return argument.fetch()
    if type(argument) in (list, tuple):
        return type(argument)(map(_with_values, argument))
    return argument


class LateModel:
    """A model with the weights of another one, which are spread over processes.

    All processes make and run it together.
    """

    def __init__(self, owner: nn.Module, graph: Graph, world: World) -> None:
        """Make the model; it has no weights while it does not run.

        Args:
            owner: the model whose weights are spread; what FSDP shards outside of layers must be
                unsharded while the model runs.
            graph: its graph.
            world: the processes.
        """
        self.model = build_empty(graph, device="meta").eval()
        self._owner, self._world = owner, world
        self._layers = layers_of(graph)
        self._outside = len(self._layers)
        """Number of what is outside of layers; they have the numbers below."""
        self._paths: list[list[str]] = [[] for _ in range(self._outside + 1)]
        """Paths of the weights of each layer, without those of layers inside it."""
        self._signal: Callable[[], int] = lambda: 0
        self._values: dict[int, dict[str, Tensor]] = {}
        """Weights by path of what is outside, and of the layer that was gathered last."""
        self._share_values(graph)
        if world.device.type == "cpu":  # a decoder without padding would be another module
            deployed = self.model.get_submodule(graph.deploy) if graph.deploy else self.model
            use_passes(deployed, Passes(without=frozenset(["unpad"])))

    def _share_values(self, graph: Graph) -> None:
        """Give the model the buffers of its owner, and late weights."""
        for path, module in self.model.named_modules(remove_duplicate=False):
            attributes = vars(self._owner.get_submodule(path))
            tensors = {name: value for name, value in attributes.items() if torch.is_tensor(value)}
            vars(module).update(tensors | {"_buffers": dict(attributes["_buffers"])})
        parameters = dict(self.model.named_parameters(remove_duplicate=False))
        late = {
            id(parameters[path]): self._late(path, parameters[path]) for path in graph.weights()
        }
        for path, parameter in parameters.items():
            above, _, name = path.rpartition(".")
            setattr(self.model.get_submodule(above), name, late[id(parameter)])

    def _late(self, path: str, parameter: Tensor) -> LateWeight:
        """Return the late weight at a path, which belongs to the innermost layer around it."""
        around = [at for at, layer in enumerate(self._layers) if path.startswith(f"{layer}.")]
        layer = max(around, key=lambda at: len(self._layers[at]), default=self._outside)
        self._paths[layer].append(path)
        return LateWeight(parameter, self._world.device, lambda: self._needed(layer)[path])

    @contextmanager
    def running(self, stop: StopRequest) -> Iterator[None]:
        """Let the model run in the body; then wait for the bodies of all processes.

        Args:
            stop: a request of any process ends the bodies of all, where they need a layer.

        Raises:
            Interrupted: there was a request to stop.
        """
        self._signal = lambda: stop.signal
        self._values = {self._outside: self._gathered(self._outside)}
        try:
            yield
            while self._gather_with_others(self._outside):
                pass
        finally:
            self._values = {}

    def _needed(self, layer: int) -> Mapping[str, Tensor]:
        """Return the weights of a layer, or of what is outside of layers, by path."""
        if layer not in self._values:
            self._values = {self._outside: self._values[self._outside]}
            while layer not in self._values:
                self._gather_with_others(layer)
        return self._values[layer]

    def _gather_with_others(self, needed: int) -> bool:
        """Gather the first layer that a process needs.

        Args:
            needed: the layer that this process needs; the number of what is outside if it needs
                none any more.

        Returns:
            Whether a process needed a layer.

        Raises:
            Interrupted: a process has a request to stop.
        """
        signal, last = self._world.largest(self._signal(), -needed)
        if signal:
            raise Interrupted
        layer = int(-last)
        if layer == self._outside:
            return False
        values = self._gathered(layer)
        if layer == needed:
            self._values[layer] = values
        return True

    def _gathered(self, layer: int) -> dict[str, Tensor]:
        """Gather the weights of a layer, or of what is outside of layers; all processes take part.

        Those of a layer are copies, since FSDP frees the memory of its tensors.
        """
        module: Any = None
        if layer != self._outside:
            module = self._owner.get_submodule(self._layers[layer])
        sharded = module if isinstance(module, FSDPModule) else None
        with torch.inference_mode(mode=False), torch.no_grad():
            if sharded is not None:
                sharded.unshard()
            try:
                weights = {path: self._owner.get_parameter(path) for path in self._paths[layer]}
                return {
                    path: _complete(weight).to(torch.float32, copy=sharded is not None)
                    for path, weight in weights.items()
                }
            finally:
                if sharded is not None:
                    sharded.reshard()


def _complete(weight: Tensor) -> Tensor:
    """Return all values of a weight of which the processes may have parts."""
    return weight.full_tensor() if isinstance(weight, DTensor) else weight.detach()
