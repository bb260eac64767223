"""Block types: the ports, axes, weights and costs that a block declares, without torch.

The module that computes a block is named by a string that only the registry resolves; a spec
can never name code.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from ...specs.findings import nearest
from .state_tensor import StateTensor
from .value_type import ValueType, names_of, parse_type


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How processes can divide one block's work: each computes some of its heads, or of its width.

    Each process computes its part of the outputs of the `enter` maps; the outputs of the `leave`
    maps are summed over the processes.  Any dropout of the block must be between the two.
    """

    parts: Mapping[str, int]
    """Divided dimensions and their sizes, such as `{"heads": 8}`; all sizes must be divisible."""
    counted: tuple[str, ...] = ()
    """The parts whose size the module stores as an attribute."""
    enter: tuple[str, ...]
    """Linear maps of the module whose outputs are divided."""
    leave: tuple[str, ...]
    """Linear maps of the module whose inputs are divided."""
    drops: bool = False
    """Whether its use drops values at random in training; the plan of a partition sets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prunable:
    """Which axes of a block's weights shrink when attention heads are removed.

    The block has the params `heads`, `d_k` and `d_v`, and the constructor argument `kv_heads`.
    """

    rows: Mapping[str, Literal["heads", "kv_heads"]]
    """Linear map to the heads among which its output rows are divided."""
    columns: tuple[str, ...] = ()
    """Weights whose input columns are divided among the heads."""
    last_axis: tuple[str, ...] = ()
    """Parameters whose last axis has one entry for each head."""


def merged(params: BaseModel, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default constructor arguments: inferred sizes, then params."""
    return {**sizes, **params.model_dump()}


def no_weights(_: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return no weights, for a block without parameters."""
    return {}


def no_state(
    _: Mapping[str, Any], __: Mapping[str, int], ___: frozenset[str]
) -> dict[str, StateTensor]:
    """Return no tensors, for a block whose `step` needs only the position."""
    return {}


def no_flops(_: Mapping[str, Any], __: Mapping[str, int]) -> int:
    """Return 0, the FLOPs of a block without matrix products."""
    return 0


def no_sizes(_: Any, __: Mapping[str, Any]) -> dict[str, int]:
    """Return no sizes, for a block whose slots name only those of its ports."""
    return {}


def once(_: Mapping[str, Any], __: Mapping[str, int]) -> int:
    """Return 1, for a block that needs one sequential operation or one application."""
    return 1


def unmultiplied(_: Mapping[str, Any]) -> float:
    """Return 1, the multiplier of a block that uses its weights as they are."""
    return 1.0


def unlimited(_: Mapping[str, Any]) -> int | None:
    """Return None, the maximum sequence length of a block that takes any length."""
    return None


def undivided(_: Mapping[str, Any]) -> Division | None:
    """Return None, for a block whose work cannot be divided."""
    return None


@dataclass(frozen=True, slots=True)
class Needs:
    """Marks a param that has an effect only with some values of another param.

    `Annotated[Base, Needs("position", ("rotary",))]` marks a param that only `rotary` positions
    read.  The checker reports such a param (P08) if a spec sets it to another value than its
    default where nothing reads it.
    """

    param: str
    """The other param."""
    values: tuple[Any, ...] = ()
    """Its values with which the marked param has an effect."""
    least: int = 0
    """Instead of `values`: the smallest number with which the marked param has an effect."""


@dataclass(frozen=True, slots=True)
class Unwired:
    """Marks a param that has an effect only if a port of the block is not wired."""

    port: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operation inside a block."""

    name: str
    reads: tuple[str, ...]
    """What it reads: earlier steps, or wired ports of the block."""
    title: str = ""
    """Its name in a drawing; empty for the name of the block in `slot`."""
    detail: str = ""
    """Its params, on a smaller line; those of the block in `slot` follow."""
    family: str = "other"
    """Decides its color, as the family of a block."""
    slot: str = ""
    """The slot whose block computes it, or part of it."""
    letter: str = ""
    """The letter of its input in a figure, such as Q."""
    frame: str = ""
    """Name of the frame that contains it; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """The operations of one use of a block, in order of computation."""

    steps: tuple[Step, ...]
    outputs: Mapping[str, str]
    """Output of the block to the step that computes it."""
    frames: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Name of a frame to its title, and how often its steps run side by side."""
    rows: tuple[tuple[str, ...], ...] = ()
    """Steps that are drawn side by side, from left to right."""


Behavior = Literal["pointwise", "causal", "full"]
"""How an output position depends on the input positions along an axis.

`pointwise`: on the same position.  `causal`: on the same and earlier positions.  `full`: on any.
"""

Arguments = Mapping[str, Any]
"""Arguments of a module's constructor: inferred sizes and params."""

StateFormula = Callable[[Arguments, Mapping[str, int], frozenset[str]], Mapping[str, StateTensor]]
"""Maps constructor arguments, sizes and the names of the wired ports to tensors by name."""


@dataclass(frozen=True, slots=True)
class Port:
    """A named input or output of a block, where a wire ends or begins."""

    name: str
    type: ValueType
    optional: bool = False
    """Whether an input needs no wire; an output is then computed only where a wire reads it, and
    the constructor gets the names of those in the argument `returns`."""
    doc: str = ""


class MismatchError(ValueError):
    """The types of the wires do not fit each other, or the params of the block."""

    def __init__(self, code: str, problem: str, *, port: str = "", help: str = "") -> None:  # noqa: A002 - as in findings
        """Store what the finding shows.

        Args:
            code: code of the finding.
            problem: one clause.
            port: the port where it shows; empty for the params.
            help: a way out.
        """
        super().__init__(problem)
        self.code, self.problem, self.port, self.help = code, problem, port, help


@dataclass(frozen=True, slots=True)
class Slot:
    """A place inside a block that another block fills."""

    name: str
    input: Port
    """The value that the block passes to the slot's block, under this name."""
    output: Port
    """The value that it receives back; the slot's block must have an output of this name."""
    doc: str = ""
    optional: bool = False
    """Whether the slot may stay empty."""
    takes: str = ""
    """Kind of part that fits: blocks whose `fills` is the same; empty for any with the ports."""
    others: tuple[Port, ...] = ()
    """Further values that the slot's block receives, if it has ports of these names."""
    more: tuple[Port, ...] = ()
    """Further values that the block receives back; only a template has several outputs."""
    steps_over: str = ""
    """Axis name over whose positions the slot's block is applied, one after another: in the values
    that it receives, the axis has the size 1.  The module gets `along`, the ports that have the
    axis, each with its index, and `reads`, those of `others` that the slot's block has."""
    earlier: bool = False
    """Whether `input` is 0 where the key is later than the query, and `output` must be, too."""
    pairs: bool = False
    """Whether the last axis of `input` is that of keys, of which decoding reads those so far.  The
    module gets `keyed`, the wires of the slot's block that have this axis last."""

    @property
    def returns(self) -> tuple[Port, ...]:
        """All values that the block receives back."""
        return (self.output, *self.more)

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the ports by which the values of the slot enter its block."""
        return (self.input.name, *(port.name for port in self.others))


@dataclass(frozen=True, slots=True)
class Signature:
    """Ports of one use of a block, given its params and the names of its wired ports."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    slots: tuple[Slot, ...] = ()
    same: Mapping[str, str] = field(default_factory=dict)
    """Axis names that default to another, such as `s` to `t` if no port determines `s`."""
    behavior: Mapping[str, Behavior] = field(default_factory=dict)
    """Axis name to behavior; names not listed are pointwise."""
    by_row: bool = False
    """Whether the result at a position depends on its row of the batch, though ports use `...`."""
    ordered: bool = True
    """Whether the result depends on the order of the positions that it reads; if not, permuting
    them together with their masks changes nothing."""
    sized: tuple[str, ...] = ()
    """Further axis names that stand for sizes on which weights may depend, such as `heads`."""
    passes_on: Mapping[str, str] = field(default_factory=dict)
    """Output to the port whose positions it has, if the block changes only what comes before the
    first position of a sequence: after the first step, decoding returns the value of the port."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Constructor arguments from the types of the wires, beside those of `BlockType.arguments`."""
    factors: tuple[str, ...] = ()
    """Ports whose zeros are zeros of the first output, as those of a product."""
    earlier: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Output to its axis names of queries and keys, if it is 0 where the key is later."""
    measured: tuple[str, ...] = ()
    """Ports of whose values only the rows, the precision and the device matter, so that they are
    not read at every step of decoding."""
    pairs: tuple[str, ...] = ()
    """Ports with pairs of positions, of which a step has the next queries with all keys so far."""
    scale: Literal["", "normalized", "accumulated"] = ""
    """What is known of the magnitude of the first output: a norm sets it, or it is the sum of a
    residual path that no norm follows, and grows with depth."""

    def slot(self, name: str) -> Slot:
        """Return the slot with a name.

        Raises:
            KeyError: there is no such slot.
        """
        for slot in self.slots:
            if slot.name == name:
                return slot
        raise KeyError(name)


def width_names(signature: Signature) -> set[str]:
    """Return the names of the sizes that weights may depend on, as `widths` gives them."""
    names = set(signature.sized)
    for port_ in signature.inputs:
        last = port_.type.axes[-1:] if port_.type.kind == "f" else ()
        for part in (*last, port_.type.size):
            names |= names_of(part) if part is not None else frozenset()
    return names


def widths(signature: Signature, bound: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes that weights may depend on: widths of vectors, and sizes of kinds.

    The number of vectors is not such a size, even if it is constant, as for patches.

    Args:
        signature: the ports of one use of a block.
        bound: what the names of the ports stand for.
    """
    names = width_names(signature)
    return {name: size for name, size in bound.items() if name in names and isinstance(size, int)}


@functools.cache
def port(name: str, text: str, doc: str = "") -> Port:
    """Return a port with its type written as in a spec: `mask[b s]?`."""
    type_, optional = parse_type(text, {})
    return Port(name, type_, optional, doc)


class NoParams(BaseModel, frozen=True, extra="forbid"):
    """The params of a block without params."""


def never(_: Arguments, __: Mapping[str, int]) -> int:
    """Return 0, for a block that never connects all positions, however often it is applied."""
    return 0


Family = Literal[
    "attention",
    "feed_forward",
    "embedding",
    "position",
    "norm",
    "linear",
    "recurrent",
    "convolution",
    "loss",
    "noise",
    "other",
]
"""The main purpose of a block; it decides the color of its box in diagrams."""

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
    "linear",
    "residual",
]
"""The part that a block plays in a standard Transformer layer; empty for any other block.

Exporters to engines with a fixed architecture recognize blocks by it.
"""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BlockType:
    """A kind of block: everything about it except its computation."""

    name: str
    major: int = 1
    """Version; raised when the meaning of existing specs would change.  A template has 0."""
    doc: str
    """One sentence, then the formula."""
    source: str
    """Paper and section."""
    title: str = ""
    """Name in diagrams, where `{param}` stands for its value; by default, the name with spaces."""
    family: Family = "other"
    """Its main purpose."""
    mixes: str | None = None
    """How the catalogue lists it among the parts of a system, such as `sound`; None to derive that
    from its title, empty to omit it."""
    bands: Callable[[Any], tuple[tuple[str, ...], tuple[str, ...]]] | None = None
    """For a block with a residual path around its slots: from its params to the bands that a
    diagram draws around the block in its slot, below it (before) and above it (after).  The last
    band above adds the first input."""
    inside: Callable[[Any], Inside] | None = None
    """For a drawing of its inside: from its use, a `Part`, to its operations; None to show none."""
    adapts: tuple[str, str] | None = None
    """Kinds of value that it converts from and to, such as `("mask", "bias")`: findings suggest
    it for a wire that does not fit.  `("f", "f")` changes a width."""
    role: Role = ""
    """The part that it plays in a standard Transformer layer."""
    stands_in: str = ""
    """Replacement where only standard layers are supported, as `weft swap --use` takes it;
    `{name}` is replaced by a constructor argument."""
    params: type[BaseModel] = NoParams
    signature: Callable[[Any, frozenset[str]], Signature]
    """Ports, from the params and the names of the wired ports; a filled optional slot is among
    the names as `/SLOT`, such as `/mask`."""
    typed: Callable[[Any, Mapping[str, ValueType]], Signature] | None = None
    """Ports from the params and the types of the wired values, for a block whose ports depend on
    them; raises `MismatchError`.  `signature` then gives the names of the ports alone."""
    elementwise: bool = False
    """Whether each element of its output depends on one element of each port, so that attention may
    call it with single scores; the module then has the attribute `elementwise`."""
    fills: str = ""
    """Kind of part, such as `mask`: it fits slots whose `takes` is the same, and is a node only if
    it `steps`.  Its module follows the protocol of these slots (docs/write-an-extension.md)."""
    slot_sizes: Callable[[Any, Arguments], Mapping[str, int]] = no_sizes
    """Sizes that only the types of its slots name, from the params and the sizes of its ports."""
    arguments: Callable[[Any, Arguments], dict[str, Any]] = merged
    """Constructor arguments, from params and inferred sizes; raises ValueError if they conflict.

    The sizes are those of the last axes of `f` ports and of kinds with a size, such as `ids`."""
    weights: Callable[[Arguments], Mapping[str, tuple[int, ...]]] = no_weights
    """Shape of every parameter, by its name in the module."""
    flops: Callable[[Arguments, Mapping[str, int]], int] = no_flops
    """Floating-point operations of one `forward`, without its slots, from the constructor
    arguments and the sizes of the signature's axis names (`...`: the product of its axes).

    Only matrix products count, as in torch's own counter: a multiplication and the addition
    after it are 2; biases, norms, activations, softmax and look-ups are 0; a masked score
    (causal, window, padding) counts like any other."""
    sequential: Callable[[Arguments, Mapping[str, int]], int] = once
    """Operations of one `forward`, without its slots, that must run one after another; arguments
    as for `flops`.  A recurrence has one per position."""
    hops: Callable[[Arguments, Mapping[str, int]], int] = once
    """How often the block must be applied, each time to its own output, until every position
    has reached all positions, or all on one side of it; 0 if that never happens.  A window needs
    many applications; a dilated kernel leaves gaps.  Arguments as for `flops`."""
    fewest_hops: bool = False
    """For a block with slots that take parts: whether the fewest hops of these parts count, as
    for a union of masks, and not the most."""
    division: Callable[[Arguments], Division | None] = undivided
    """How processes can divide its work, from the constructor arguments; None if they cannot."""
    module: str | type[Any] = ""
    """The module that computes it: `file:Class`, which is imported when a model is built, or the
    class itself, defined at the top level of a module or a notebook; empty if it is `written`."""
    written: Callable[[Any], list[str]] | None = None
    """For a block without a module, from its use, a `Part`, to the lines of the `forward` of its
    class in the generated code: they read the ports by their names, and `torch` and `nn`."""
    helpers: Callable[[Any], tuple[str, ...]] | None = None
    """From a use of a block that is written out to the functions that its lines call, as
    `file:function`."""
    merges: Callable[[Any, Any, str | None], Any] | None = None
    """From a node of the block, a `BlockNode`, its scope and the step axis to the `Merged` nodes
    that compute it together with the nodes before it; None if there are none."""
    steps: bool = False
    """Whether the module has its own `begin` and `step` for decoding."""
    state: StateFormula | None = None
    """Tensors that decoding keeps from step to step, by name, for one hypothesis: from the
    constructor arguments, the sizes as for `flops` (of the step axis: the decoded positions), and
    the wired ports.  None without steps, or if its state is unknown."""
    keeps: tuple[str, ...] = ()
    """Ports that alone determine its state: nodes with the same values there share one state."""
    carries: Callable[[Any], str] | None = None
    """From its use, a `Part`: why training cannot carry its state, without its oldest positions,
    from one segment to the next; empty if it can, None if it never can."""
    prunable: Prunable | None = None
    """Which axes of its weights shrink when heads are removed; None if heads cannot be removed."""
    max_length: Callable[[Arguments], int | None] = unlimited
    """Maximum sequence length, from the constructor arguments; None for any length."""
    loops: bool = False
    """Whether its `forward` loops over positions in Python, which exporters cannot represent."""
    onnx_form: str = ""
    """`method=file:function`: the ONNX export replaces the method of its module by the function,
    which takes the module and the method's arguments and can be traced; `file` as in `module`."""
    is_linear_map: bool = False
    """Whether it computes x W^T + b of its only port, from `weight` and `bias` (or None)."""
    takes_linear_output: bool = False
    """For a loss: whether its port `logits` also takes the linear map that would compute them."""
    logits_ports: tuple[str, ...] = ()
    """For a loss that is a sum over positions: its ports with logits.  The positions that count are
    those where its other inputs are true, or not negative."""
    weighs: tuple[str, ...] = ()
    """For a loss, whose first output is a sum over items: the ports that `weight`, a method of its
    module, takes.  It returns the number of items, by which training divides, so these ports must
    not need the model's outputs.  `weight` is given the wired ones; if written out, one mask."""
    counts: Literal["", "same", "shifted"] = ""
    """Non-padding positions of its output: the `same` as of the ids that it reads, or those of
    these ids `shifted` to the right by 1."""
    unpads: bool = False
    """Whether its module takes unpadded values, with `batched` and `places` as of `Attention`."""
    maps: Mapping[str, str] = field(default_factory=dict)
    """Linear maps of its module, instances of `LinearMap`, to the axis names over which each is
    applied, such as `{"query": "b t"}`; "" stands for the module itself.  LoRA may be added to
    them, if the params derive from `Adaptable`."""
    fans: Mapping[str, str] = field(default_factory=dict)
    """Weight to what each of its axes counts, such as `in out` of a table: `in` inputs and `out`
    outputs of a map, `each` copies of it, `?` if it is unknown.  By default, the first axis counts
    outputs, the second inputs, and further ones inputs, as the taps of a convolution."""
    multiplier: Callable[[Arguments], float] = unmultiplied
    """Number by which the module multiplies its weights, which may depend on its width."""
    dropout: tuple[str, ...] = ()
    """Params that are probabilities of dropping values in training.  The module keeps each as an
    attribute of the same name: a float, or a dropout layer."""
    draws: bool = False
    """Whether it draws random numbers in evaluation too, which depend on the shape of its batch."""
    example: Mapping[str, Any] = field(default_factory=dict)
    """Smallest useful params."""
    example_inputs: Mapping[str, str] = field(default_factory=dict)
    """Types of values that fit the ports with those params."""
    example_fill: Mapping[str, Any] = field(default_factory=dict)
    """Blocks in the slots of the example."""

    @property
    def key(self) -> str:
        """The name by which a spec uses the block: `name@major`, or the name of a template."""
        return f"{self.name}@{self.major}" if self.major else self.name

    def __repr__(self) -> str:
        """Return the key and the module."""
        return f"<BlockType {self.key}, computed by {self.module!r}>"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        """Pickle the block by its global name, as functions are: its formulas are functions."""
        from pickle import PicklingError  # noqa: PLC0415 - checking a spec does not load it

        homes = [getattr(member, "__module__", "") for member in (self.signature, self.params)]
        for home in dict.fromkeys([*homes, *sys.modules]):
            names = getattr(sys.modules.get(home), "__dict__", {})
            global_name = next((name for name, value in [*names.items()] if value is self), None)
            if global_name is not None:
                return _global, (home, global_name)
        msg = f"block '{self.key}' has no global name in a module, so it cannot be pickled"
        raise PicklingError(msg)

    def __deepcopy__(self, memo: dict[int, Any]) -> BlockType:
        """Return the block itself, which never changes."""
        return self


def _global(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


class Registry:
    """The block types that a spec may name."""

    def __init__(
        self,
        blocks: Iterable[BlockType],
        known_blocks: Mapping[str, BlockType | Callable[[], BlockType]] | None = None,
    ) -> None:
        """Index the blocks by key.

        Args:
            blocks: block types.
            known_blocks: key to a block type or to a function that loads it; these come
                before `blocks`.

        Raises:
            ValueError: two blocks have the same key.
        """
        self._blocks: dict[str, BlockType | Callable[[], BlockType]] = dict(known_blocks or {})
        self.added: tuple[BlockType, ...] = ()
        """Blocks that `extended` added; a graph keeps them, so that it can be checked again."""
        for block in blocks:
            if block.key in self._blocks:
                msg = f"two blocks have the key '{block.key}'"
                raise ValueError(msg)
            self._blocks[block.key] = block

    def extended(self, blocks: Iterable[BlockType]) -> Registry:
        """Return a registry with more block types; this one does not change.

        Raises:
            ValueError: two blocks have the same key.
        """
        added = tuple(blocks)
        registry = Registry(added, self._blocks)
        registry.added = (*self.added, *added)
        return registry

    def get(self, key: str) -> BlockType | None:
        """Return the block type of a key, or None."""
        entry = self._blocks.get(key)
        if entry is None or isinstance(entry, BlockType):
            return entry
        self._blocks[key] = block = entry()
        return block

    def keys(self) -> list[str]:
        """Return every key, in the order of registration."""
        return list(self._blocks)

    def __iter__(self) -> Iterator[BlockType]:
        """Yield the block types in the order of registration."""
        return (block for key in self.keys() if (block := self.get(key)) is not None)

    def suggest(self, key: str) -> str:
        """Return the key most likely meant by an unknown one, or ``""``."""
        versions = [
            candidate
            for candidate in self._blocks
            if candidate.partition("@")[0] == key.partition("@")[0]
        ]
        return versions[-1] if versions else nearest(key, self._blocks)
