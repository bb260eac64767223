"""Signatures: what a block promises about its ports, axes, weights and memory.

A block type is a contract that needs no torch.  The module that computes it is
named by a string which only our own registry resolves, never a spec.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from ...specs.findings import nearest
from .value_type import ValueType, parse_type

Behavior = Literal["pointwise", "causal", "full"]
"""How an output position depends on input positions along one axis: on the same
one, on none later, or on any."""

Arguments = Mapping[str, Any]
"""What a module's constructor takes: sizes that were inferred, and params."""


@dataclass(frozen=True, slots=True)
class Port:
    """A named place on a block where a wire ends or begins."""

    name: str
    type: ValueType
    optional: bool = False
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Slot:
    """A place inside a block where another block stands."""

    name: str
    input: Port
    """What the block gives to the slot's block, under this name."""
    output: Port
    """What it takes back; this name must be an output of the slot's block."""
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Signature:
    """Ports of one use of a block, given its params and which ports are wired."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    slots: tuple[Slot, ...] = ()
    same: Mapping[str, str] = field(default_factory=dict)
    """Axis names that stand for another one, such as s for t when nothing else gives s."""
    behavior: Mapping[str, Behavior] = field(default_factory=dict)
    """Axis name to behaviour; names not listed are pointwise."""
    by_row: bool = False
    """Whether what happens to a position depends on the row it is in, though ports say `...`."""

    def slot(self, name: str) -> Slot:
        """Return the slot of a name.

        Raises:
            KeyError: there is no such slot.
        """
        for slot in self.slots:
            if slot.name == name:
                return slot
        raise KeyError(name)


@functools.cache
def port(name: str, text: str, doc: str = "") -> Port:
    """Return a port with its type written as in a spec: `mask[b s]?`."""
    type_, optional = parse_type(text, {})
    return Port(name, type_, optional, doc)


class NoParams(BaseModel, frozen=True, extra="forbid"):
    """The params of a block that has none."""


def merged(params: BaseModel, sizes: Arguments) -> dict[str, Any]:
    """Return the usual constructor arguments: inferred sizes, then params."""
    return {**sizes, **params.model_dump()}


def no_weights(_: Arguments) -> dict[str, tuple[int, ...]]:
    """Return the weights of a block that has none."""
    return {}


def no_flops(_: Arguments, __: Mapping[str, int]) -> int:
    """Return the work of a block that multiplies no matrices."""
    return 0


def once(_: Arguments, __: Mapping[str, int]) -> int:
    """Return the steps, or the applications, of a block that needs one."""
    return 1


def never(_: Arguments, __: Mapping[str, int]) -> int:
    """Return the applications of a block that leads from some positions to some others only."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How processes can share one block's work: each has some of its heads, or of its width.

    Each computes its part of what the entering maps give, and what the leaving maps make of
    the parts is added up over the processes.  What the block drops must lie in between.
    """

    parts: Mapping[str, int]
    """What is divided, and how many there are, such as `{"heads": 8}`; all must divide."""
    counted: tuple[str, ...] = ()
    """Those of them that the module keeps as an attribute."""
    enter: tuple[str, ...]
    """Linear maps of the module whose results are divided."""
    leave: tuple[str, ...]
    """Linear maps that read divided results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prunable:
    """Which axes of a block's weights shrink when attention heads are removed.

    The block has the params `heads`, `d_k` and `d_v`, and the constructor argument `kv_heads`.
    """

    rows: Mapping[str, Literal["heads", "kv_heads"]]
    """Linear map to the heads that its output rows are divided among."""
    columns: tuple[str, ...] = ()
    """Weights whose input columns are divided among the heads."""
    last_axis: tuple[str, ...] = ()
    """Parameters whose last axis is one entry for each head."""


Family = Literal[
    "attention",
    "feed_forward",
    "embedding",
    "position",
    "norm",
    "linear",
    "recurrent",
    "convolution",
    "other",
]
"""What a block is mostly for: it decides the color of its box in a picture."""

Role = Literal[
    "",
    "attention",
    "feed_forward",
    "gated_feed_forward",
    "embedding",
    "position_table",
    "layer_norm",
    "rms_norm",
    "dropout",
    "scale",
    "linear",
    "residual",
]
"""The part that a block plays in a standard Transformer layer; empty for any other block.

Exporters to engines with a fixed architecture recognize blocks by it.
"""


def unlimited(_: Arguments) -> int | None:
    """Return the longest sequence of a block that takes sequences of any length: None."""
    return None


def undivided(_: Arguments) -> Division | None:
    """Return how a block is divided that stays whole."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockType:
    """A kind of block: everything about it but the arithmetic."""

    name: str
    major: int = 1
    """Version; it rises when an old spec would mean something else.  A template has 0."""
    doc: str
    """One sentence, then the formula."""
    source: str
    """Paper and section."""
    title: str = ""
    """What pictures call it; its name with spaces when empty."""
    family: Family = "other"
    """What it is mostly for."""
    mixes: str | None = None
    """What it brings to a system in the catalogue, such as `sound`; None where that follows from
    its title, empty where it is not worth a mention."""
    bands: Callable[[Any], tuple[tuple[str, ...], tuple[str, ...]]] | None = None
    """For a block with slots: from its params to the bands that a picture draws around the block
    in its slot, below it (before) and above it (after)."""
    adapts: tuple[str, str] | None = None
    """Kinds of a value that it turns into another, such as `("mask", "bias")`: findings suggest
    it for a wire that does not fit.  `("f", "f")` changes a width."""
    role: Role = ""
    """The part that it plays in a standard Transformer layer."""
    stands_in: str = ""
    """A block to swap it for where only standard layers are known, as `weft swap --use` takes
    it; `{name}` is a constructor argument."""
    params: type[BaseModel] = NoParams
    signature: Callable[[Any, frozenset[str]], Signature]
    """From params and the names of the wired ports to the ports."""
    arguments: Callable[[Any, Arguments], dict[str, Any]] = merged
    """From params and inferred sizes to constructor arguments; ValueError if they clash.

    Sizes are those of the last axes of `f` ports and of kinds that count something."""
    weights: Callable[[Arguments], Mapping[str, tuple[int, ...]]] = no_weights
    """Shape of every parameter, by its name in the module."""
    flops: Callable[[Arguments, Mapping[str, int]], int] = no_flops
    """Floating-point operations of one `forward`, slots aside, from the constructor
    arguments and the sizes of the signature's axis names, `...` being their product.

    Matrix products alone, as torch's own counter counts them: a multiplication and the
    addition after it are 2; biases, norms, activations, softmax and look-ups are 0; a
    masked score (causal, window, padding) counts like any other.
    """
    sequential: Callable[[Arguments, Mapping[str, int]], int] = once
    """Operations of one `forward`, slots aside, that must happen one after another however
    much could run at once; arguments as of `flops`.  A recurrence has one a position.
    """
    hops: Callable[[Arguments, Mapping[str, int]], int] = once
    """How often the block must be applied, each time to what it gave, until a signal has come
    from every position to all on one side of it at least, or to all; 0 if that never comes.
    A window needs many; a dilated kernel leaves gaps.  Arguments as of `flops`.
    """
    division: Callable[[Arguments], Division | None] = undivided
    """How processes can share its work, from the constructor arguments; None if they cannot."""
    module: str
    """`file:Class` of the module that computes it."""
    steps: bool = False
    """Whether the module has `begin` and `step` of its own for decoding."""
    prunable: Prunable | None = None
    """Which axes of its weights shrink when heads are removed; None if heads cannot be removed."""
    max_length: Callable[[Arguments], int | None] = unlimited
    """From constructor arguments to the longest sequence that it takes; None for any length."""
    loops: bool = False
    """Whether its `forward` loops over positions in Python, which exporters cannot keep."""
    onnx_form: str = ""
    """`method=file:function` where the ONNX export replaces a method of its module by a function of
    the module and the method's arguments that torch's exporter can follow; `file` as of `module`.
    """
    is_linear_map: bool = False
    """Whether it gives x W^T + b of its only port, from `weight` and `bias` or None: the loss of
    a graph that ends so may take the map into itself."""
    example: Mapping[str, Any] = field(default_factory=dict)
    """Smallest useful params."""
    example_inputs: Mapping[str, str] = field(default_factory=dict)
    """Types of values that fit the ports with those params."""
    example_fill: Mapping[str, Any] = field(default_factory=dict)
    """What stands in the slots of the example."""
    upgrade: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """From a use record of the previous major to one of this; `specs/upgrade.py` calls it."""

    @property
    def key(self) -> str:
        """The name by which a spec uses the block: `name@major`, or that of a template."""
        return f"{self.name}@{self.major}" if self.major else self.name


class Registry:
    """The block types that a spec may name."""

    def __init__(self, blocks: Iterable[BlockType]) -> None:
        """Index the blocks by key.

        Raises:
            ValueError: two blocks have one key.
        """
        self._blocks: dict[str, BlockType] = {}
        for block in blocks:
            if block.key in self._blocks:
                msg = f"two blocks are called '{block.key}'"
                raise ValueError(msg)
            self._blocks[block.key] = block

    def get(self, key: str) -> BlockType | None:
        """Return the block type of a key, or None."""
        return self._blocks.get(key)

    def keys(self) -> list[str]:
        """Return every key in the order of registration."""
        return list(self._blocks)

    def __iter__(self) -> Any:
        """Walk the block types in the order of registration."""
        return iter(self._blocks.values())

    def suggest(self, key: str) -> str:
        """Return the key most likely meant by an unknown one, or ``""``."""
        versions = [
            known for known in self._blocks if known.partition("@")[0] == key.partition("@")[0]
        ]
        return versions[-1] if versions else nearest(key, self._blocks)
