"""The spec as written: frozen records with no meaning yet.

Order of keys carries nothing: names are identity, and order comes from the
wiring.  What the strings mean (types, references, expressions) is decided in
`graphs/`; here only their place is fixed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StrictBool, Tag

FORMAT = 2
"""The version of the spec language, and of run files, that this code writes."""

USE, REPEAT = "(use)", "(repeat)"
"""Marks of the two forms of a node in pydantic's locations; no key can look so."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")]
"""An identifier: it becomes an attribute of a module, so it is one in Python too."""


class Record(BaseModel):
    """A frozen record that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Use(Record):
    """One use of a block, as a node or inside a slot."""

    use: str
    """A registered block, `name@major`, a local template, or `=param` for a block choice."""
    params: dict[str, Any] = {}
    """Parameters of the block; a string that begins with `=` is an expression."""
    fill: dict[Name, Use] = {}
    """What stands in the block's slots, by slot."""
    doc: str = ""


class UseNode(Use):
    """A node that is one block."""

    in_: dict[Name, str] = Field(default={}, alias="in")
    """Wires: port to the value it reads, `node.port` or the name of an input."""


class RepeatNode(Record):
    """A node that is one local template, several times in a row."""

    repeat: Any
    """How many times: a whole number, or an expression."""
    block: str
    """The local template."""
    carry: tuple[Name, ...] = ()
    """Ports whose output is the next copy's input; the other inputs go to every copy."""
    collect: tuple[Name, ...] = ()
    """Outputs of the template of which those of all copies are stacked, along a new first axis."""
    share: StrictBool = False
    """Whether all copies have one set of weights."""
    instead: dict[Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,4})$")], str] = {}
    """Copies that are another template, by index; patches of one copy write this."""
    in_: dict[Name, str] = Field(default={}, alias="in")
    doc: str = ""


def _node_form(value: Any) -> str:
    """Tell the two forms of a node apart by the key that only one has."""
    if isinstance(value, dict):
        return REPEAT if "repeat" in value or ("block" in value and "use" not in value) else USE
    return REPEAT if isinstance(value, RepeatNode) else USE


Node = Annotated[
    Annotated[UseNode, Tag(USE)] | Annotated[RepeatNode, Tag(REPEAT)],
    Discriminator(_node_form),
]


class Template(Record):
    """A local block: declared ports around a few nodes."""

    inputs: dict[Name, str]
    """Port to its type; a trailing `?` makes it optional."""
    outputs: Annotated[dict[Name, str], Field(min_length=1)]
    """Port to the value that it gives."""
    nodes: dict[Name, Node]
    doc: str = ""


class Step(Record):
    """How the model decodes."""

    axis: str
    """The axis along which outputs are made one at a time."""


class Spec(Record):
    """A model, whole."""

    format: Literal[2]
    """Version of the spec language."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
    doc: str = ""
    params: dict[Name, Any] = {}
    """Numbers, flags, words or block choices that the rest refers to as `=name`."""
    require: tuple[str, ...] = ()
    """Comparisons of params that must hold."""
    axes: dict[Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]{0,15}$")], Literal["batch", "time"]]
    """The graph's axes, in upper case; never equal to one another."""
    inputs: dict[Name, str]
    outputs: Annotated[dict[Name, str], Field(min_length=1)]
    blocks: dict[Name, Template] = {}
    nodes: dict[Name, Node]
    tie: tuple[tuple[str, ...], ...] = ()
    """Groups of parameter paths that are one tensor."""
    step: Step | None = None
