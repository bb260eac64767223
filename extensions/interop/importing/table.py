"""Import tables: JSON documents that map the weights of another library to those of a spec.

A table names a spec, derives its params from the other library's configuration, states
the requirements on that configuration, and gives the origin of each weight.  It contains
no code: expressions have the grammar of specs, and the tensor operations are a closed
list.  `docs/importing.md` describes the format.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ....plugin import Finding, SpecError, did_you_mean, pointer
from ....specs.expressions import ExpressionError
from ....specs.reader import TABLES, parse
from .inherit import inherited
from .names import holes_in, uses_in


class TableRecord(BaseModel):
    """Frozen record; unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True
    )


class Condition(TableRecord):
    """Requirement on the configuration, with exactly one of `that` and `key`."""

    that: str | None = None
    """A comparison of numbers, such as `hidden_size % num_attention_heads == 0`."""
    key: str | None = None
    """The key whose value must be one of `among`."""
    among: tuple[Any, ...] = ()
    """Supported values; may include null."""
    otherwise: Annotated[str, Field(alias="else", max_length=300)]
    """Message if the requirement is not met: the unsupported feature."""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _written_out(value: Any) -> Any:
    """Expand the short forms of a weight, a name or a list of names, to a record."""
    return {"from": value} if isinstance(value, str | list) else value


Number = int | str
"""A number, or an expression."""


class Weight(TableRecord):
    """Origin of one weight, and the operations applied to it, in the order of these keys."""

    names: Annotated[tuple[str, ...], BeforeValidator(_listed), Field(alias="from")] = ()
    """Name or names of the source tensor; at least one exists, and existing ones are equal."""
    stack: Annotated[dict[str, Number], Field(min_length=1, max_length=1)] | None = None
    """A placeholder of the names, and the number of its values from 0 on: the source tensors are
    stacked along a new first axis."""
    split: tuple[Annotated[tuple[Number, ...], Field(min_length=2)] | None, ...] = ()
    """For each axis, the sizes of the axes that it is split into, of which one may be -1; `null`
    keeps it."""
    take: tuple[Number | tuple[Number, Number | None] | None, ...] = ()
    """For each axis after splitting, an index, a range (first, and the one after the last or null)
    or null, which takes all."""
    permute: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Order of the first axes after that: `[1, 0]` transposes."""
    times: float | str | None = None
    """Factor to multiply by."""
    add: float | str | None = None
    """Number to add after multiplying."""
    fill: Annotated[float, Field(ge=-1e30, le=1e30)] | None = None
    """Constant value of the weight if no source tensor exists; `from` may then be omitted."""
    unread: Annotated[float, Field(ge=-1e30, le=1e30)] | None = None
    """Number for the elements of the source tensor that no weight reads; without it, there may be
    none."""


class ImportTable(TableRecord):
    """An import table."""

    format: Literal[1]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
    doc: str
    spec: Any
    """A shipped spec, or a file next to the table."""
    model_type: tuple[str, ...]
    """Supported values of `model_type` in the configuration."""
    architectures: tuple[str, ...] = ()
    """Supported architecture classes; a configuration without any is accepted too."""
    defaults: dict[str, Any] = {}
    """Values of keys that are missing or null in the configuration."""
    require: tuple[Condition, ...] = ()
    """Further requirements on the configuration."""
    params: dict[str, Any]
    """Params of the spec."""
    prefix: str = ""
    """Prefix of the source tensor names; files may lack it."""
    outside: tuple[str, ...] = ()
    """First parts of the names of source tensors without the prefix, such as those of a head."""
    endings: dict[str, str] = {}
    """Suffixes of source tensor names to replace."""
    weights: dict[str, Annotated[Weight, BeforeValidator(_written_out)]]
    """Origin of each weight by path; `{i}` matches one name part, the same on both sides."""
    ignore: tuple[str, ...] = ()
    """Patterns of source tensors to ignore, such as tables of sines."""
    config: dict[str, Any] = {}
    """Values of further keys, which only an exported configuration has."""
    tokens: dict[Literal["begin", "end", "pad"], Any] = {}
    """Begin, end and padding id of decoding."""
    tokenizers: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+\.model$")], ...] = ()
    """SentencePiece files whose ids the model uses; copied to the checkpoint if they exist."""


def load_table(name: str | Path) -> tuple[ImportTable, str]:
    """Read a table file or a shipped table.

    Args:
        name: a path, or the name of a shipped table with or without `hf-`, such as `bert`.

    Returns:
        The table and its file.

    Raises:
        InputError: the file does not exist.
        SpecError: the JSON, its structure or a pattern in it is invalid.
    """
    value, source = inherited(name)
    table = parse(ImportTable, value, source, TABLES)
    findings = list(_wrong(table, source))
    if findings:
        raise SpecError(findings)
    return table, source


def _wrong(table: ImportTable, source: str) -> Iterator[Finding]:
    """Yield findings that go beyond the structure of the document."""

    def finding(at: str, problem: str, help_: str) -> Finding:
        return Finding(code="I01", at=at, problem=problem, help=help_, source=source)

    for index, condition in enumerate(table.require):
        if (condition.that is None) == (condition.key is None):
            problem = "a condition needs exactly one of 'that' and 'key'"
            yield finding(pointer("require", index), problem, "write one of the two")
    places = [(pointer("weights", path), path) for path in table.weights]
    places += [(pointer("ignore", index), rule) for index, rule in enumerate(table.ignore)]
    for at, pattern in places:
        if any(piece.count("{") > 1 for piece in pattern.split(".")):
            problem = f"'{pattern}' has two placeholders between two dots"
            yield finding(at, problem, "join them into one")
    for path, weight in table.weights.items():
        for problem, help_ in _wrong_line(holes_in(path), weight):
            yield finding(pointer("weights", path), problem, help_)


def _wrong_line(holes: frozenset[str], weight: Weight) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the line of a weight, and what to do about it.

    Args:
        holes: placeholders of its left side.
        weight: its right side.
    """
    if not weight.names and weight.fill is None:
        yield "a weight needs 'from' or 'fill'", "write at least one of the two"
    if not weight.names and weight.fill is not None:
        for key in sorted(weight.model_fields_set - {"names", "fill"}):
            problem = f"'{key}' has no effect on a weight without a source tensor"
            yield problem, "remove it, or add 'from'"
    stacked = frozenset(weight.stack or {})
    for hole in sorted(holes & stacked):
        problem = f"'{{{hole}}}' is stacked, but the path on the left side has it too"
        yield problem, "give the placeholder that is stacked another name"
    for name in weight.names:
        try:
            uses = uses_in(name)
        except ExpressionError as error:
            yield f"'{name}' cannot be read: {error}", "correct what is in braces"
            continue
        for hole in sorted(uses - holes - stacked):
            problem = f"'{{{hole}}}' of '{name}' is not in the path on the left side"
            yield problem, did_you_mean(hole, holes) or "write a number"
        for hole in sorted(stacked - uses):
            problem = f"'{name}' lacks the placeholder '{{{hole}}}', which is stacked"
            yield problem, f"write '{{{hole}}}' where its number is"
