"""Execution: how a graph is computed, where that differs from running its nodes one by one.

The passes of `graphs/passes/` set it, and code generation writes it out.  It never changes the
names of a graph's weights, and its results only by rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .block_type import Division

Prepacked = Literal["float32", "bfloat16"]
"""Dtype of products with prepacked matrices."""
Precision = Literal["float32", "bfloat16", "float16"]
"""Dtype of the products of a training."""
LowPrecision = Literal["bfloat16", "float16"]
"""Dtype of the products of a training in mixed precision."""


@dataclass(frozen=True, slots=True)
class BatchAxes:
    """The position of the batch axis and the time axis in the padded form of a value."""

    axis: str
    """The time axis that is unpadded, merged with the batch axis."""
    dim: int
    """Number of axes before the batch axis."""
    rank: int
    """Number of axes of the padded value; the unpadded value has one less."""


@dataclass(frozen=True, slots=True)
class Around:
    """The unpadded values among the inputs and outputs of a block, or of the complete graph."""

    block: str
    """Key of the block, or name of the graph."""
    inputs: Mapping[str, BatchAxes]
    outputs: Mapping[str, BatchAxes | None]
    """All outputs, in order; None for an output that is not unpadded."""
    inside: bool = False
    """Whether the module of the block takes unpadded values and pads what it needs itself."""


@dataclass(frozen=True, slots=True)
class UnpadPlan:
    """How a graph is unpadded."""

    axes: tuple[str, ...]
    """The time axes that are unpadded; empty if there are none."""
    boundary: Around = field(repr=False)
    """The graph's inputs to unpad before it runs, and its outputs to pad afterwards."""
    masks: Mapping[str, str]
    """Time axis to the input that masks its padding, for the axes that have such an input."""
    blocks: Mapping[str, Around] = field(repr=False)
    """Path of a module to the inputs that are padded for it and the outputs to unpad after it."""
    padded: Mapping[str, str]
    """Each axis that stays padded to the reason."""
    cached: Mapping[str, BatchAxes] = field(default_factory=dict, repr=False)
    """The unpadded values of the root that decoding steps read, which are computed once."""

    @property
    def why(self) -> str:
        """Why nothing is unpadded."""
        reasons = "; ".join(dict.fromkeys(self.padded.values()))
        return reasons or "no input begins with a batch axis and a time axis"


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """The kernels that a model uses; None where a measurement will choose them."""

    product: str | None
    """Kernel of matrix products in float32 on the CPU."""
    attention: Mapping[str, str] | None
    """Attention backend by the maximum length it is used for, as text; `*` for longer ones, and
    `unpadded` for rows without padding."""
    loss: str | None = "torch"
    """Kernel of the softmax of losses that compute a linear map."""

    def __str__(self) -> str:
        """Return a line such as `products by torch, attention plain to 32, fused beyond`."""
        parts, pending = [], ["products"] if self.product is None else []
        if self.product is not None:
            parts.append(f"products by {self.product}")
        if self.attention is None:
            pending.append("attention")
        else:
            padded = {key: backend for key, backend in self.attention.items() if key != "unpadded"}
            names = set(padded.values())
            limits = [f"{backend} to {limit}" for limit, backend in padded.items()]
            how = names.pop() if len(names) == 1 else ", ".join(limits).replace("to *", "beyond")
            parts.append(f"attention {how}")
            if "unpadded" in self.attention:
                parts.append(f"{self.attention['unpadded']} without padding")
        if self.loss not in (None, "torch"):
            parts.append(f"losses by {self.loss}")
        if pending:
            parts.append(f"{' and '.join(pending)} measured when training begins")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Fused:
    """A linear map that losses compute themselves."""

    node: str
    """Node of the objective: a model that ends in the map, or the map."""
    module: str
    """Node whose weights it uses: itself, or the node that it shares."""
    head: str | None
    """Node of the map in the model; None if the objective itself has the map."""
    output: str
    """Output of the node that the map computes."""

    def path(self, start: str) -> str:
        """Return the path of the map, from the node or from the module of the objective."""
        return start if self.head is None else f"{start}.{self.head}"


@dataclass(frozen=True, slots=True)
class FusedGroup:
    """Losses that read the same linear maps, and compute them together."""

    maps: tuple[Fused, ...]
    """The maps, each of one call of a model."""
    losses: Mapping[str, Mapping[str, int]]
    """Node of each loss to the ports that read a map, and the number of the map."""


@dataclass(frozen=True, slots=True)
class ParallelPlan:
    """How several processes train a graph together."""

    data: Literal["ddp", "fsdp"] | None
    """How groups of processes that read different batches share the weights; None if there is
    only one group."""
    sharded: tuple[str, ...] = ()
    """Paths of the modules that `fsdp` shards separately; the rest is sharded together."""
    blocks: Mapping[str, Division] = field(default_factory=dict)
    """Path of each block that the processes of a group partition, and how."""


@dataclass(frozen=True, slots=True)
class WeightCasts:
    """How the weights of products become low-precision numbers in mixed precision."""

    dtype: LowPrecision
    """Dtype of the products."""
    by: Literal["copies", "fsdp"] = "copies"
    """`copies`: modules read copies, which are written once an update; `fsdp`: FSDP casts its
    shards before it gathers them, and sums gradients in float32."""


@dataclass(frozen=True, slots=True)
class Execution:
    """How a graph is computed in training, in decoding, or in an export."""

    merges: bool = True
    """Whether nodes that one kernel can compute together are merged."""
    unpad: UnpadPlan | None = None
    """How padding is left out; None if the graph computes padding."""
    decoding: bool = False
    """Whether padding is left out where decoding begins, and not in training."""
    pad: int = 0
    """The padding id at the ends of rows, for axes without an input of kind `mask`."""
    checkpointed: frozenset[str] = frozenset()
    """Paths of the modules whose activations the backward pass computes again."""
    deferred: tuple[str, ...] = ()
    """Nodes of linear maps that a caller may leave to a loss: `forward` takes `projected`."""
    fused: Mapping[str, Fused] = field(default_factory=dict)
    """Node of a loss to the linear map that it alone computes in training."""
    groups: tuple[FusedGroup, ...] = ()
    """Losses that compute linear maps together in training."""
    kernels: KernelChoice | None = None
    """The kernels of all modules, those of models inside included; None for the default ones."""
    parallel: ParallelPlan | None = None
    """How several processes train it; the training reads it.  None for a single process."""
    casts: WeightCasts | None = None
    """How weights are cast in training; None where every product casts them itself, if at all."""
    prepacked: Prepacked | None = None
    """Dtype of the products of linear maps if their matrices are prepacked."""
    quantized: Prepacked | None = None
    """Dtype of the outputs of linear maps if the large ones multiply in int8."""
    shortlisted: str = ""
    """Node of the linear map of which decoding steps compute only the outputs that a batch may
    need; empty if they compute all."""
    compiled: frozenset[str] = frozenset()
    """Paths of the modules whose `step` is compiled; an empty path is the complete model."""
    forms: Mapping[str, str] = field(default_factory=dict)
    """Path of a module to its form for an exporter, as `method=file:function`."""
    models: Mapping[str, Execution] = field(default_factory=dict)
    """Node of an objective to the execution of its model."""

    def leaves_map(self, node: str) -> bool:
        """Return whether a node leaves a linear map to losses in training."""
        maps = (*self.fused.values(), *(linear for group in self.groups for linear in group.maps))
        return any(linear.node == node for linear in maps)


PLAIN = Execution()
"""The execution of a graph as it was checked."""
