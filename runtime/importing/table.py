"""Import tables: JSON documents that map the weights of another library to those of a spec.

A table names a spec, derives its params from the other library's configuration, states
the requirements on that configuration, and gives the origin of each weight.  It contains
no code: expressions have the grammar of specs, and the tensor operations are a closed
list.  `docs/importing.md` describes the format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ...specs.findings import Finding, SpecError, did_you_mean, pointer
from ...specs.reader import find, parse, read_file
from ...specs.upgrade import TABLE_FORMATS

FOLDER = "imports"
"""Folder of `specs/` with the shipped tables."""
LIBRARY = "hf"
"""Prefix of the shipped tables for Hugging Face's library: `hf-NAME`."""

_HOLE = re.compile(r"\{([a-z][a-z0-9_]*)\}")


class Record(BaseModel):
    """Frozen record; unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True
    )


class Condition(Record):
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


class Weight(Record):
    """Origin of one weight, and the operations applied to it, in the order of these keys."""

    names: Annotated[tuple[str, ...], BeforeValidator(_listed), Field(alias="from")] = ()
    """Name or names of the source tensor; at least one exists, and existing ones are equal."""
    permute: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """Order of the axes: `[1, 0]` transposes."""
    rows: tuple[int | str, int | str | None] | None = None
    """First row, and the row after the last; numbers or expressions."""
    rotary_pairs: int | str | None = None
    """Number of heads; in each head of K rows, rows i and i + K/2 become rows 2i and 2i + 1."""
    reshape: tuple[int | str, ...] | None = None
    """New shape; one of its sizes may be -1."""
    times: float | str | None = None
    """Factor to multiply by."""
    add: float | str | None = None
    """Number to add after multiplying."""
    fill: Annotated[float, Field(ge=-1e30, le=1e30)] | None = None
    """Constant value of the weight if no source tensor exists; `from` may then be omitted."""


class Table(Record):
    """An import table."""

    format: Literal[2]
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
    """Prefix to remove from the source tensor names."""
    endings: dict[str, str] = {}
    """Suffixes of source tensor names to replace."""
    weights: dict[str, Annotated[Weight, BeforeValidator(_written_out)]]
    """Origin of each weight by path; `{i}` matches one name part, the same on both sides."""
    ignore: tuple[str, ...] = ()
    """Patterns of source tensors to ignore, such as tables of sines."""
    tokens: dict[Literal["begin", "end", "pad"], Any] = {}
    """Begin, end and padding id of decoding."""
    tokenizers: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+\.model$")], ...] = ()
    """SentencePiece files whose ids the model uses; copied to the checkpoint if they exist."""


def load_table(name: str | Path) -> tuple[Table, str]:
    """Read a table file or a shipped table.

    Args:
        name: a path, or the name of a shipped table with or without `hf-`, such as `bert`.

    Returns:
        The table and its file.

    Raises:
        InputError: the file does not exist.
        SpecError: the JSON, its structure or a pattern in it is invalid.
    """
    text = str(name)
    plain = "/" not in text and not text.endswith(".json") and not Path(text).is_file()
    if plain and not text.startswith(f"{LIBRARY}-"):
        text = f"{LIBRARY}-{text}"
    path = find(text, FOLDER)
    value, source = read_file(path)
    table = parse(Table, value, source, TABLE_FORMATS)
    findings = list(_wrong(table, source))
    if findings:
        raise SpecError(findings)
    return table, source


def _wrong(table: Table, source: str) -> Iterator[Finding]:
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
        at, holes = pointer("weights", path), holes_in(path)
        if not weight.names and weight.fill is None:
            yield finding(at, "a weight needs 'from' or 'fill'", "write at least one of the two")
        for name in weight.names:
            for hole in sorted(holes_in(name) - holes):
                problem = f"'{{{hole}}}' of '{name}' is not in the path on the left side"
                yield finding(at, problem, did_you_mean(hole, holes) or "write a number")


def holes_in(pattern: str) -> frozenset[str]:
    """Return the placeholders of a pattern.

    >>> sorted(holes_in("encoder.{i}.norm.{p}"))
    ['i', 'p']
    """
    return frozenset(_HOLE.findall(pattern))


def matcher(pattern: str) -> re.Pattern[str]:
    """Compile a pattern to a regular expression; each placeholder matches one name part.

    >>> matcher("encoder.{i}.norm.{p}").fullmatch("encoder.3.norm.bias").groupdict()
    {'i': '3', 'p': 'bias'}
    """
    parts: list[str] = []
    seen: set[str] = set()
    for at, part in enumerate(_HOLE.split(pattern)):
        if at % 2 == 0:
            parts.append(re.escape(part))
        else:
            parts.append(f"(?P={part})" if part in seen else f"(?P<{part}>[^.]+)")
            seen.add(part)
    return re.compile("".join(parts))


def filled(pattern: str, holes: Mapping[str, str]) -> str:
    """Return a pattern with its placeholders replaced.

    >>> filled("layer.{i}.bias", {"i": "3"})
    'layer.3.bias'
    """
    return _HOLE.sub(lambda found: holes[found[1]], pattern)
