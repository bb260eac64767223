"""Residual sub-layers, norms and linear maps: modules."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from ..kernels.decode_state import Capacity, State
from ..kernels.dropout import Dropout
from ..kernels.linear import LinearMap, draw_linear


class LayerNorm(nn.LayerNorm):
    """Layer normalization: mean 0 and variance 1 per vector, then a learned scale and shift.

    Source: Ba et al. 2016, section 3.
    """

    def __init__(self, d_model: int, eps: float, *, weight: bool = True, bias: bool = True) -> None:
        """Create the scale, if `weight`, and with it the shift, if `bias`, [D] each."""
        super().__init__(d_model, eps=eps, elementwise_affine=weight, bias=bias)

    def initialize(self, generator: torch.Generator) -> None:  # noqa: ARG002 - the contract
        """Start with scale 1 and shift 0."""
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x [..., D]."""
        return super().forward(x)


class RMSNorm(nn.RMSNorm):
    """RMS normalization: mean square 1 per vector, then a learned scale.

    Source: Zhang and Sennrich 2019, section 4.
    """

    def __init__(self, d_model: int, eps: float, *, weight: bool = True) -> None:
        """Create the scale, [D], if `weight`."""
        super().__init__(d_model, eps=eps, elementwise_affine=weight)

    def initialize(self, generator: torch.Generator) -> None:  # noqa: ARG002 - the contract
        """Start with scale 1."""
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x [..., D] in the dtype of the weight, if there is one."""
        return super().forward(x.to(self.weight.dtype) if self.elementwise_affine else x)


class Residual(nn.Module):
    """The residual path around sub-layers: norms, dropout, and the scale of the added output."""

    def __init__(  # noqa: PLR0913 - the params of a block
        self,
        d_model: int,
        order: str,
        dropout: float = 0.0,
        eps: float = 1e-6,
        norm: str = "layer_norm",
        residual: str = "plain",
        residual_start: float = 0.1,
        drop_path: float = 0.0,
        *,
        norm_bias: bool = True,
    ) -> None:
        """Create the norms and the learned scale."""
        super().__init__()
        self.pre, self.sandwich = order != "post", order == "sandwich"
        self.norm = _norm(norm, d_model, eps, bias=norm_bias)
        if self.sandwich:
            self.after = _norm(norm, d_model, eps, bias=norm_bias)
        self.dropout, self.drop_path = Dropout(dropout), drop_path
        self.start = residual_start if residual == "layer_scale" else 0.0
        self.gain: nn.Parameter | None = None
        if residual != "plain":
            self.gain = nn.Parameter(torch.empty(1 if residual == "rezero" else d_model))

    def initialize(self, generator: torch.Generator) -> None:  # noqa: ARG002 - the contract
        """Set the learned scale to its initial value."""
        if self.gain is not None:
            nn.init.constant_(self.gain, self.start)

    def entered(self, x: Tensor) -> Tensor:
        """Return the input of a sub-layer, [..., D], for x [..., D]."""
        return self.norm(x) if self.pre else x

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x plus the output y of a sub-layer, both [..., D]; normalized in post order."""
        if self.sandwich:
            y = self.after(y)
        if self.gain is not None:
            y = y * self.gain.to(y.dtype)
        y = self.dropout(y)
        if self.training and self.drop_path > 0.0:
            y = y * _kept_rows(y, self.drop_path)
        added: Tensor = x + y
        return added if self.pre else self.norm(added)


class Sublayer(Residual):
    """Residual path, dropout and a norm around a sub-layer.

    Source: Vaswani et al. 2017, section 3.1; pre order: Xiong et al. 2020; sandwich: Ding
    et al. 2021, section 2.4; rezero: Bachlechner et al. 2020, section 3; layer_scale:
    Touvron et al. 2021, section 2; drop_path: Huang et al. 2016, section 3.
    """

    def __init__(self, d_model: int, order: str = "post", *, f: nn.Module, **path: Any) -> None:
        """Store the sub-layer `f` and create the path around it, with params of `Residual`."""
        super().__init__(d_model, order, **path)
        self.f: Any = f

    def forward(self, x: Tensor, **wires: Any) -> Tensor:
        """Return x [..., D] plus the output of `f`, which receives the other wires."""
        return self.add(x, self.f(x=self.entered(x), **wires))

    def begin(self, capacity: Capacity, **wires: Any) -> State:
        """Return the decoding state of `f`."""
        state: State = self.f.begin(capacity, **wires)
        return state

    def step(self, x: Tensor, *, state: State, position: int, **wires: Any) -> Tensor:
        """Compute `forward` for the next positions."""
        y = self.f.step(x=self.entered(x), state=state, position=position, **wires)
        return self.add(x, y)


class ParallelSublayer(Residual):
    """Two sub-layers side by side on one residual path.

    Source: Chowdhery et al. 2022, section 2; Wang and Komatsuzaki 2021 (GPT-J).
    """

    def __init__(
        self,
        d_model: int,
        *,
        f: nn.Module,
        g: nn.Module,
        ports: Mapping[str, Collection[str]] = MappingProxyType({}),
        stepping: Collection[str] = (),
        **path: Any,
    ) -> None:
        """Store both sub-layers and create the path around them.

        Args:
            d_model: width of the vectors.
            f: one sub-layer.
            g: the other sub-layer.
            ports: slot (`f`, `g`) to the wires that are passed on to its sub-layer, if any.
            stepping: slots whose sub-layers have `begin` and `step`.
            **path: params of `Residual`.
        """
        super().__init__(d_model, "pre", **path)
        self.f: Any = f
        self.g: Any = g
        self.ports = {slot: tuple(names) for slot, names in ports.items()}
        self.stepping = tuple(stepping)

    def forward(self, x: Tensor, **wires: Any) -> Tensor:
        """Return x [..., D] plus the outputs of both sub-layers."""
        read = self.entered(x)
        first = self.f(x=read, **self._own("f", wires))
        return self.add(x, first + self.g(x=read, **self._own("g", wires)))

    def begin(self, capacity: Capacity, **wires: Any) -> dict[str, State]:
        """Return the state of each sub-layer: its wires, if it has no `begin`."""
        states = {}
        for slot, inner in (("f", self.f), ("g", self.g)):
            slot_wires = self._own(slot, wires)
            stepping = slot in self.stepping
            states[slot] = (
                inner.begin(capacity, **slot_wires) if stepping else State(fixed=slot_wires)
            )
        return states

    def step(self, x: Tensor, *, state: dict[str, State], position: int, **wires: Any) -> Tensor:
        """Compute `forward` for the next positions."""
        read, outputs = self.entered(x), []
        for slot, inner in (("f", self.f), ("g", self.g)):
            slot_wires, before = self._own(slot, wires), state[slot]
            if slot in self.stepping:
                outputs.append(inner.step(x=read, state=before, position=position, **slot_wires))
                continue
            rows = {
                name: value.repeat_interleave(x.size(0) // value.size(0), 0)
                for name, value in before.fixed.items()
            }
            outputs.append(inner(x=read, **rows, **slot_wires))
        return self.add(x, outputs[0] + outputs[1])

    def _own(self, slot: str, wires: dict[str, Any]) -> dict[str, Any]:
        """Return the wires that are passed on to a slot."""
        return {name: value for name, value in wires.items() if name in self.ports.get(slot, ())}


def _norm(norm: str, d_model: int, eps: float, *, bias: bool) -> nn.Module:
    if norm == "none":
        return nn.Identity()
    return RMSNorm(d_model, eps) if norm == "rms_norm" else LayerNorm(d_model, eps, bias=bias)


def _kept_rows(like: Tensor, drop_path: float) -> Tensor:
    """Return a factor for each row: 0 with probability p = `drop_path`, otherwise 1 / (1 - p)."""
    shape = (like.size(0), *[1] * (like.dim() - 1))
    mask = like.new_empty(shape).bernoulli_(1.0 - drop_path)
    return mask / (1.0 - drop_path)


class Linear(LinearMap):
    """A linear map.

    Source: Vaswani et al. 2017, section 3.4.
    """

    def __init__(self, d_in: int, d_out: int, *, bias: bool = True) -> None:
        """Create the map from d_in to d_out features."""
        super().__init__(d_in, d_out, bias)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; the bias starts at zero."""
        draw_linear(generator, self)
