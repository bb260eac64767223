"""Pydantic records of a spec file, before its strings are interpreted.

The order of keys has no meaning: nodes are identified by name, and the execution order
follows from the wires.  These records only define which keys exist; `graphs/` interprets
the types, references and expressions in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StrictBool, Tag

MOST_COPIES = 10_000
"""Most copies of a repeat."""

PATTERN = r"^(0|-?[1-9][0-9]{0,4}|(-?[0-9]{1,5})?:(-?[0-9]{1,5})?(:([1-9][0-9]{0,4})?)?|=.{1,200})$"
"""A number of a copy, counted from the end if negative, a slice `start:stop:step`, or an expression
that is true for the copies."""


def number_of_copies(value: Any) -> int | None:
    """Return a value as a number of copies, from 1 to `MOST_COPIES`; None if it is not one.

    >>> number_of_copies(6), number_of_copies(6.0), number_of_copies(6.5), number_of_copies("=n")
    (6, 6, None, None)
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if number and 1 <= value <= MOST_COPIES and value == int(value) else None


def is_number(key: str) -> bool:
    """Return whether a key is the number of one copy, counted from the start.

    >>> is_number("4"), is_number("-1"), is_number("2::3")
    (True, False, False)
    """
    return key.isdecimal()


def selected_copies(key: str, count: int) -> range:
    """Return the copies that a key selects of `count` copies; a single one may not exist.

    >>> [*selected_copies("2::3", 7)], [*selected_copies("-1", 7)], [*selected_copies("9", 7)]
    ([2, 5], [6], [9])
    """
    if ":" not in key:
        first = int(key) if not key.startswith("-") else count + int(key)
        return range(first, first + 1)
    parts = (int(part) if part else None for part in key.split(":"))
    return range(*slice(*parts).indices(count))


def by_number(instead: Mapping[str, str], count: int) -> dict[int, str]:
    """Return the templates of the copies that numbers and slices select, by number from 0 up."""
    return {
        index: template
        for key, template in instead.items()
        if not key.startswith("=")
        for index in selected_copies(key, count)
        if index >= 0
    }


FORMAT = 1
"""The version of the spec language, and of run files, that this code writes."""

USE, REPEAT, SHARE = "(use)", "(repeat)", "(share)"
"""Tags of the node forms in pydantic's error locations; no JSON name can equal one."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")]
"""An identifier that is also valid in Python, because it becomes a module attribute."""


BUDGETS: Mapping[str, str] = {
    "parameters": "'weft show' lists the parameters",
    "flops": "'weft show' lists the FLOPs",
    "decode_state": "'weft cost' lists the bytes that decoding keeps",
}
"""Sizes of the complete graph that a requirement may read besides params, and how to see them."""
Kind = Literal["spec", "run", "study", "import table", "other"]
"""What a JSON file describes."""
_KEYS: Mapping[Kind, tuple[str, ...]] = {
    "spec": ("nodes", "axes"),
    "import table": ("model_type", "weights"),
    "run": ("objective", "data", "tokenizers"),
}
"""Keys of each kind, of which it has at least one, and which those below do not have."""
_STUDY_KEYS = frozenset(["rows", "grid", "search"])
"""Keys of a study, of which it has at least one beside `run`."""


def holds_spec(value: object) -> bool:
    """Return whether the value of a param holds the spec of a model; see `load.py`."""
    return isinstance(value, dict) and "spec" in value


def kind_of(value: object) -> Kind:
    """Return what the value of a JSON file describes, also if it lacks some of its keys."""
    if not isinstance(value, dict):
        return "other"
    if "run" in value and not _STUDY_KEYS.isdisjoint(value):
        return "study"
    kinds = (kind for kind, keys in _KEYS.items() if not value.keys().isdisjoint(keys))
    return next(kinds, "spec" if "extends" in value else "other")


def own_part(value: dict[str, Any]) -> dict[str, Any]:
    """Return an object without the parts in which names are those of a held spec, not of this one.

    >>> own_part({"spec": {"name": "inner"}, "params": {"d": "=d_model"}, "patch": []})
    {'params': {'d': '=d_model'}}
    """
    if not holds_spec(value):
        return value
    return {
        key: inner
        for key, inner in value.items()
        if key != "patch" and not (key == "spec" and isinstance(inner, dict))
    }


class FrozenRecord(BaseModel):
    """A frozen record that rejects unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True
    )


class Use(FrozenRecord):
    """One use of a block, as a node or inside a slot."""

    use: str
    """A registered block, `name@major`, a local template, or `=param` for a block choice."""
    params: dict[str, Any] = {}
    """Parameters of the block; a string that begins with `=` is an expression."""
    fill: dict[Name, Use] = {}
    """Slot name to the use of a block that fills it."""
    doc: str = ""


class UseNode(Use):
    """A node that uses one block."""

    in_: dict[Name, str] = Field(default={}, alias="in")
    """Wires: port to the value it reads, `node.port` or the name of an input."""
    frozen: StrictBool = False
    """Whether training leaves its weights as they are; it then also runs without dropout."""


class ShareNode(FrozenRecord):
    """A node that applies the module of another node again, with the same weights."""

    share: Name
    """Name of the node of the same scope whose module it applies."""
    in_: dict[Name, str] = Field(default={}, alias="in")
    doc: str = ""


class RepeatedTemplate(FrozenRecord):
    """A node that applies one local template several times in a row."""

    repeat: Any
    """Number of copies: an integer or an expression."""
    block: str
    """Name of the local template."""
    carry: tuple[Name, ...] = ()
    """Ports whose output becomes the next copy's input; every copy receives the other inputs."""
    collect: tuple[Name, ...] = ()
    """Outputs of the template that are stacked over all copies, along a new first axis."""
    share: StrictBool = False
    """Whether all copies share one set of weights."""
    instead: dict[Annotated[str, Field(pattern=PATTERN)], str] = {}
    """Copies that use another template, by index, by slice, such as `2::3` for every third copy and
    `-1` for the last, or by an expression as in `params`; a patch of one copy writes this key."""
    params: dict[Name, Any] = {}
    """Params of the template; a list has an entry for each copy, and expressions may read its
    number."""
    index: Name | None = None
    """Name under which expressions in `params` read the number of the copy, from 0 on."""
    in_: dict[Name, str] = Field(default={}, alias="in")
    doc: str = ""


def _node_form(value: Any) -> str:
    """Distinguish the node forms by the keys that only one of them has."""
    if isinstance(value, dict):
        if "repeat" in value or ("block" in value and "use" not in value):
            return REPEAT
        return SHARE if "share" in value and "use" not in value else USE
    if isinstance(value, ShareNode):
        return SHARE
    return REPEAT if isinstance(value, RepeatedTemplate) else USE


AnyNode = UseNode | RepeatedTemplate | ShareNode
"""A node in any form."""
Node = Annotated[
    Annotated[UseNode, Tag(USE)]
    | Annotated[RepeatedTemplate, Tag(REPEAT)]
    | Annotated[ShareNode, Tag(SHARE)],
    Discriminator(_node_form),
]


class Init(FrozenRecord):
    """A rule that changes the initial weights of some parameters; it has exactly one action."""

    select: str
    """The nodes or blocks, in the notation of patches, such as `decoder.*.feed_forward/f`."""
    weights: str = "*"
    """Only their parameters of this name, such as `weight`; `*` stands for any text."""
    scale: Any = None
    """Action: multiplies the weights that the block or an earlier rule has set."""
    normal: Any = None
    """Action: a normal distribution with mean 0 and this standard deviation."""
    uniform: Any = None
    """Action: a uniform distribution from minus this number to this number."""
    constant: Any = None
    """Action: this number everywhere."""
    zeros: Any = None
    """Action, if true: 0 everywhere."""
    frozen: StrictBool = False
    """Whether the weights never train; a rule that freezes needs no action."""


INIT_ACTIONS = ("scale", "normal", "uniform", "constant", "zeros")
"""The keys of a rule that say what it does."""
Rules = Annotated[tuple[Init, ...], Field(max_length=64)]
"""Rules for initial weights, applied in order; those of a template before those around it."""


class Template(FrozenRecord):
    """A local block: nodes with declared input and output ports."""

    params: dict[Name, Any] = {}
    """Params that a use may set, with their defaults; null if each use must set it.  Inside the
    template they replace params of the spec with the same names."""
    inputs: dict[Name, str]
    """Port to its type; a trailing `?` makes it optional."""
    outputs: Annotated[dict[Name, str], Field(min_length=1)]
    """Port to the value that it outputs."""
    nodes: dict[Name, Node]
    tie: tuple[tuple[str, ...], ...] = ()
    """Groups of parameter paths below the template that share one tensor in each of its copies."""
    init: Rules = ()
    """Initial weights of parameters below the template, in each of its copies."""
    doc: str = ""


class DecodeStep(FrozenRecord):
    """How the model decodes."""

    axis: str
    """The axis along which the model generates one position at a time."""


class Segments(FrozenRecord):
    """How training computes an objective on documents that are longer than a row."""

    axis: str
    """The time axis along which a document is divided into rows, its segments."""
    memory: Any
    """How many positions before a segment can be read from it, at most: an integer or an
    expression.  No gradient flows into them."""


class SpecForm(FrozenRecord):
    """A complete model spec."""

    format: Literal[1]
    """Version of the spec language."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
    doc: str = ""
    params: dict[Name, Any] = {}
    """Numbers, booleans, strings, block choices or specs, `{"spec": NAME, "params": {}}`; the rest
    of the spec reads them as `=name`."""
    require: tuple[str, ...] = ()
    """Comparisons of params that must hold."""
    axes: dict[Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]{0,15}$")], Literal["batch", "time"]]
    """The graph's axes, in upper case; the checker never treats two of them as equal."""
    inputs: dict[Name, str]
    outputs: Annotated[dict[Name, str], Field(min_length=1)]
    output_types: dict[Name, str] = {}
    """Output to the type that it must have; others may have any type."""
    blocks: dict[Name, Template] = {}
    nodes: dict[Name, Node]
    tie: tuple[tuple[str, ...], ...] = ()
    """Groups of parameter paths that share one tensor."""
    init: Rules = ()
    """Initial weights of selected parameters, instead of those of their blocks."""
    allow: tuple[str, ...] = ()
    """Codes of warnings that do not apply, because what they report is meant."""
    step: DecodeStep | None = None
    deploy: Name | None = None
    """In an objective: the node whose model a finished training leaves behind."""
    losses: dict[Name, Any] = {}
    """In an objective: output of kind `loss` to its weight in the sum; 1 if it is not listed."""
    segments: Segments | None = None
    """In an objective: the state of decoding is carried from one row of a document to the next."""


def in_order(value: Any) -> Any:
    """Return a spec, or a part of one, with the keys of all objects in alphabetical order.

    What is computed from it, such as a drawing or generated code, then does not depend on the order
    in which the keys were written.
    """
    if isinstance(value, FrozenRecord):
        changed = {name: in_order(getattr(value, name)) for name in value.model_fields_set}
        return value.model_copy(update=changed)
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return type(value)(map(in_order, value))
    return value
