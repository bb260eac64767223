"""Blocks with one planted fault each, for the tests of `weft prove`.

Each block is right except for what its docstring says; `sound` has no fault.
"""

# ruff: noqa: ARG002 - the faults are arguments that blocks ignore

from __future__ import annotations

from typing import Any

import torch
import weft
from torch import Tensor, nn
from weft.blocks.kernels.decode_state import Capacity, State

COUNT = 24
"""Number of experts."""


class TokenShift(nn.Module):
    """y_t = mu x_t + (1 - mu) x_{t-1}: token shift, without a fault."""

    def __init__(self, d_model: int) -> None:
        """Create the weight."""
        super().__init__()
        self.mu = nn.Parameter(torch.empty(d_model))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw the weight."""
        nn.init.uniform_(self.mu, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Mix each position with the one before."""
        return self.mu * x + (1 - self.mu) * nn.functional.pad(x, (0, 0, 1, -1))

    def begin(self, capacity: Capacity) -> State:
        """Return the vector before the first position."""
        shape = (capacity.rows, 1, len(self.mu))
        return State(carried={"last": torch.zeros(shape, dtype=capacity.dtype)})

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:
        """Mix the next positions."""
        previous = torch.cat([state.carried["last"], x[:, :-1]], 1)
        state.carried["last"].copy_(x[:, -1:])
        return self.mu * x + (1 - self.mu) * previous


class Unsaved(TokenShift):
    """The constructor draws a constant, which is no parameter, so a checkpoint lacks it."""

    def __init__(self, d_model: int) -> None:
        """Create the weight, and draw the constant."""
        super().__init__(d_model)
        self.register_buffer("constant", torch.randn(d_model))

    def forward(self, x: Tensor) -> Tensor:
        """Add the constant."""
        return super().forward(x) + self.constant

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:
        """Add the constant."""
        return super().step(x, state=state, position=position) + self.constant


class Forgetful(TokenShift):
    """The state is never updated."""

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:
        """Mix the next positions with the first state."""
        previous = torch.cat([state.carried["last"], x[:, :-1]], 1)
        return self.mu * x + (1 - self.mu) * previous


class Misplaced(TokenShift):
    """The state is declared as constant, so it is not reordered."""

    def begin(self, capacity: Capacity) -> State:
        """Return the state in the wrong place."""
        return State(fixed=super().begin(capacity).carried)

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:
        """Mix the next positions."""
        return super().step(x, state=State(carried=state.fixed), position=position)


class Single(TokenShift):
    """A step over several positions ignores all but the last one."""

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:
        """Mix the next position."""
        one = super().step(x[:, -1:], state=state, position=position)
        return one.expand(-1, x.size(1), -1)


class Raising(TokenShift):
    """The step raises an exception."""

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:
        """Raise."""
        msg = "no steps here"
        raise ValueError(msg)


class Leaking(TokenShift):
    """Each position is divided by the norm of the complete row."""

    def forward(self, x: Tensor) -> Tensor:
        """Read later positions."""
        return super().forward(x) / (1 + x.norm(dim=(1, 2), keepdim=True))


class Gated(Leaking):
    """The leak is behind a gate that is closed in the initial weights."""

    def initialize(self, generator: torch.Generator) -> None:
        """Close the gate."""
        nn.init.zeros_(self.mu)

    def forward(self, x: Tensor) -> Tensor:
        """Read later positions as far as the gate is open."""
        return x + self.mu * x.mean(1, keepdim=True)


class Noisy(TokenShift):
    """The result is random in evaluation mode."""

    def forward(self, x: Tensor) -> Tensor:
        """Add noise."""
        return super().forward(x) + 0.1 * torch.rand_like(x)


class Detached(TokenShift):
    """The weight is used without its gradient."""

    def forward(self, x: Tensor) -> Tensor:
        """Mix with constants."""
        mu = self.mu.detach()
        return mu * x + (1 - mu) * nn.functional.pad(x, (0, 0, 1, -1))


class Rounded(TokenShift):
    """The weight is rounded, which has a gradient of zero."""

    def forward(self, x: Tensor) -> Tensor:
        """Mix with hundredths."""
        mu = (100 * self.mu).round() / 100
        return mu * x + (1 - mu) * nn.functional.pad(x, (0, 0, 1, -1))


class Unused(TokenShift):
    """One weight is never used."""

    def __init__(self, d_model: int) -> None:
        """Create a weight that nothing reads."""
        super().__init__(d_model)
        self.spare = nn.Parameter(torch.zeros(d_model))


class Infinite(TokenShift):
    """The gradient at zero is infinite, where the first position has no predecessor."""

    def forward(self, x: Tensor) -> Tensor:
        """Take the square root of the vector before."""
        before = self.mu * nn.functional.pad(x, (0, 0, 1, -1))
        return self.mu * x + before.abs().sqrt()

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:
        """Take the same square root."""
        before = torch.cat([state.carried["last"], x[:, :-1]], 1)
        state.carried["last"].copy_(x[:, -1:])
        return self.mu * x + (self.mu * before).abs().sqrt()


class InfiniteAtFirst(TokenShift):
    """Only at the initial weights, which are zero, the gradient is infinite."""

    def initialize(self, generator: torch.Generator) -> None:
        """Set the weight to zero."""
        nn.init.zeros_(self.mu)

    def forward(self, x: Tensor) -> Tensor:
        """Scale by a square root."""
        return x + self.mu.abs().sqrt() * x


class Positive(TokenShift):
    """The weight is a variance, which must stay positive, without a fault."""

    def initialize(self, generator: torch.Generator) -> None:
        """Start at a small value."""
        nn.init.constant_(self.mu, 0.01)

    def forward(self, x: Tensor) -> Tensor:
        """Scale by a logarithm."""
        return x * self.mu.log()

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:
        """Do the same."""
        return self.forward(x)


class Nothing(TokenShift):
    """Gives NaN."""

    def forward(self, x: Tensor) -> Tensor:
        """Divide zero by zero."""
        return self.mu * (x - x) / (x - x)


class Silent(TokenShift):
    """A constant is added to scores before a softmax over them: no fault, but a zero gradient."""

    def __init__(self, d_model: int) -> None:
        """Create the constant."""
        super().__init__(d_model)
        self.constant = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """Scale by a softmax that the constant does not change."""
        return super().forward(x) * (self.mu + self.constant).softmax(-1)

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:
        """Scale as `forward` does."""
        mixed = super().step(x, state=state, position=position)
        return mixed * (self.mu + self.constant).softmax(-1)


class Compiled(TokenShift):
    """The compiled form computes something else."""

    def forward(self, x: Tensor) -> Tensor:
        """Scale only while torch compiles."""
        return super().forward(x) * (1.5 if torch.compiler.is_compiling() else 1.0)


class Mean(nn.Module):
    """x plus the mean of its row over valid positions, without a fault."""

    def __init__(self, d_model: int) -> None:
        """Create the weight."""
        super().__init__()
        self.scale = nn.Parameter(torch.empty(d_model))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw the weight."""
        nn.init.uniform_(self.scale, generator=generator)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Add the scaled mean."""
        weight = mask[:, :, None].to(x.dtype)
        return x + self.scale * (x * weight).sum(1, keepdim=True) / weight.sum(1, keepdim=True)


class Unmasked(Mean):
    """The mean includes padding."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Ignore the mask."""
        return x + self.scale * x.mean(1, keepdim=True)


class Counting(Mean):
    """The number of all positions divides the sum: the values of padding have no effect."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Divide by the length of the batch."""
        return x + self.scale * (x * mask[:, :, None]).sum(1, keepdim=True) / x.size(1)


class Rowwise(nn.Module):
    """Declares any leading axes, but depends on their number: its unpadded form differs."""

    def __init__(self, d_model: int) -> None:
        """Create the weight."""
        super().__init__()
        self.scale = nn.Parameter(torch.empty(d_model))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw the weight."""
        nn.init.uniform_(self.scale, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Scale by the number of axes."""
        return self.scale * x * x.dim()


class Experts(Rowwise):
    """Each position is scaled by one of 24 experts, each a parameter of its own; no fault."""

    def __init__(self, d_model: int) -> None:
        """Create the router and the experts."""
        super().__init__(d_model)
        self.router = nn.Parameter(torch.empty(COUNT, d_model))
        self.experts = nn.ParameterList(nn.Parameter(torch.ones(d_model)) for _ in range(COUNT))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw the weights."""
        super().initialize(generator)
        nn.init.normal_(self.router, generator=generator)
        for expert in self.experts:
            nn.init.uniform_(expert, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Run only the experts that a position chooses."""
        gate, chosen = (x @ self.router.T).softmax(-1).max(-1)
        y = torch.zeros_like(x)
        for number in chosen.unique().tolist():
            here = (chosen == number)[..., None]
            y = torch.where(here, self.experts[number] * x * gate[..., None], y)
        return self.scale * y


class RowwiseGradient(Rowwise):
    """Only the gradient depends on the number of axes."""

    def forward(self, x: Tensor) -> Tensor:
        """Scale, with a larger gradient for more axes."""
        y = self.scale * x
        return y + x.dim() * (y - y.detach())


def block(module: type[nn.Module]) -> weft.BlockType:
    """Return the declaration of one of the blocks above; its name is that of the class."""
    masked, free = issubclass(module, Mean), issubclass(module, Rowwise)
    vectors = "f[... d_model]" if free else "f[b t d_model]"
    inputs = [weft.port("x", vectors), *([weft.port("mask", "mask[b t]")] if masked else [])]
    behavior: Any = {} if free else {"t": "full" if masked else "causal"}

    def weights(arguments: Any) -> dict[str, tuple[int, ...]]:
        model = module(arguments["d_model"])
        return {name: tuple(weight.shape) for name, weight in model.named_parameters()}

    return weft.BlockType(
        name=module.__name__.lower(),
        doc=(module.__doc__ or "").rstrip("."),
        source="this test",
        signature=lambda _, __: weft.Signature(
            inputs=tuple(inputs), outputs=(weft.port("y", vectors),), behavior=behavior
        ),
        weights=weights,
        module=module,
        steps=not masked and not free,
    )


def spec(module: type[nn.Module], **changes: Any) -> dict[str, Any]:
    """Return a small spec with two layers, in which the block follows a linear map."""
    masked = issubclass(module, Mean)
    wires = {"x": "linear.y"} | ({"mask": "mask"} if masked else {})
    layer_inputs = {"x": "f[B T 4]"} | ({"mask": "mask[B T]"} if masked else {})
    value = {
        "format": 1,
        "name": "faulty",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"tokens": "ids:9[B T]"} | ({"mask": "mask[B T]"} if masked else {}),
        "outputs": {"logits": "head.y"},
        "blocks": {
            "layer": {
                "inputs": layer_inputs,
                "outputs": {"x": "planted.y"},
                "nodes": {
                    "linear": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 4}},
                    "planted": {"use": f"{module.__name__.lower()}@1", "in": wires},
                },
            }
        },
        "nodes": {
            "embedding": {"use": "embedding@1", "params": {"d_model": 4}, "in": {"ids": "tokens"}},
            "layers": {
                "repeat": 2,
                "block": "layer",
                "carry": ["x"],
                "in": {"x": "embedding.y"} | ({"mask": "mask"} if masked else {}),
            },
            "head": {"use": "linear@1", "params": {"d_out": 9}, "in": {"x": "layers.x"}},
        },
        **({} if masked else {"step": {"axis": "T"}}),
    }
    return value | changes
