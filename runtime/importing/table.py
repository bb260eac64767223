"""Table: how the weights of another library become those of a spec, as a JSON document.

A table names a spec, gives its params from the other library's configuration, says
what that configuration must be for this to hold, and where each weight comes from.
It names no code: expressions have the grammar of specs, and what can be done to a
tensor is a closed list.  `docs/importing.md` describes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ...specs.findings import Finding, SpecError, did_you_mean, pointer
from ...specs.reader import find, parse, read_json, read_text
from ...specs.upgrade import TABLE_FORMATS

FOLDER = "imports"
"""Folder of `specs/` that holds shipped tables."""
LIBRARY = "hf"
"""Shipped tables of Hugging Face's library are called `hf-NAME`."""

_HOLE = re.compile(r"\{([a-z][a-z0-9_]*)\}")


class Record(BaseModel):
    """A frozen record that refuses keys it does not know."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True
    )


class Condition(Record):
    """What the configuration must be; exactly one of `that` and `key` stands."""

    that: str | None = None
    """A comparison of numbers, such as `hidden_size % num_attention_heads == 0`."""
    key: str | None = None
    """The key whose value must be one of `among`."""
    among: tuple[Any, ...] = ()
    """Values that are supported; null is one too."""
    otherwise: Annotated[str, Field(alias="else", max_length=300)]
    """What is not supported, for the reader of the finding."""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _written_out(value: Any) -> Any:
    """Return the short forms of a weight, a name or a list of names, as a record."""
    return {"from": value} if isinstance(value, str | list) else value


class Weight(Record):
    """Where one weight comes from, and what is done to it, in the order of these keys."""

    names: Annotated[tuple[str, ...], BeforeValidator(_listed), Field(alias="from")] = ()
    """Their tensor; of several names at least one exists, and those that do are equal."""
    permute: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """Order of the axes: `[1, 0]` transposes."""
    rows: tuple[int | str, int | str | None] | None = None
    """First row that is taken, and the one behind the last; numbers or expressions."""
    rotary_pairs: int | str | None = None
    """Heads; within each, row i and the one half a head on become rows 2i and 2i + 1."""
    reshape: tuple[int | str, ...] | None = None
    """Another shape of the same numbers; one of its sizes may be -1."""
    times: float | str | None = None
    """Factor."""
    add: float | str | None = None
    """Addend, after the factor."""
    fill: Annotated[float, Field(ge=-1e30, le=1e30)] | None = None
    """The number that fills the weight where they have no tensor; `from` may be left out."""


class Table(Record):
    """A table, whole."""

    format: Literal[2]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
    doc: str
    spec: Any
    """A shipped spec, or a file beside the table."""
    model_type: tuple[str, ...]
    """What the configuration may call itself."""
    architectures: tuple[str, ...] = ()
    """Classes whose weights the table knows; a configuration that names none will do."""
    defaults: dict[str, Any] = {}
    """Values of keys that a configuration may lack, or may have as null."""
    require: tuple[Condition, ...] = ()
    """What else must hold."""
    params: dict[str, Any]
    """Params of the spec."""
    prefix: str = ""
    """What their names may begin with; it is taken off before they are compared."""
    endings: dict[str, str] = {}
    """Endings of their names, and what stands for these in this table."""
    weights: dict[str, Annotated[Weight, BeforeValidator(_written_out)]]
    """Path of ours to where it comes from; `{i}` stands for any one piece, the same in both."""
    ignore: tuple[str, ...] = ()
    """Their tensors that are no weights, such as tables of sines."""
    tokens: dict[Literal["begin", "end", "pad"], Any] = {}
    """Ids with which decoding begins and ends, and which fills rows."""
    tokenizers: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+\.model$")], ...] = ()
    """SentencePiece models of the folder whose ids are the model's; taken along if there."""


def load_table(name: str | Path) -> tuple[Table, str]:
    """Read a table file or a shipped table.

    Args:
        name: a path, or a shipped name with or without `hf-`, such as `bert`.

    Returns:
        The table, and the file it came from.

    Raises:
        InputError: no such file.
        SpecError: the text, its form or a pattern in it is wrong.
    """
    text = str(name)
    plain = "/" not in text and not text.endswith(".json") and not Path(text).is_file()
    if plain and not text.startswith(f"{LIBRARY}-"):
        text = f"{LIBRARY}-{text}"
    path = find(text, FOLDER)
    table = parse(Table, read_json(read_text(path), str(path)), str(path), TABLE_FORMATS)
    findings = list(_wrong(table, str(path)))
    if findings:
        raise SpecError(findings)
    return table, str(path)


def _wrong(table: Table, source: str) -> Iterator[Finding]:
    """Yield what the form alone does not show."""

    def finding(at: str, problem: str, help_: str) -> Finding:
        return Finding(code="I01", at=at, problem=problem, help=help_, source=source)

    for index, condition in enumerate(table.require):
        if (condition.that is None) == (condition.key is None):
            problem = "a condition has either 'that' or 'key'"
            yield finding(pointer("require", index), problem, "write one of the two")
    places = [(pointer("weights", path), path) for path in table.weights]
    places += [(pointer("ignore", index), rule) for index, rule in enumerate(table.ignore)]
    for at, pattern in places:
        if any(piece.count("{") > 1 for piece in pattern.split(".")):
            yield finding(at, f"'{pattern}' has two holes between two dots", "join them into one")
    for path, weight in table.weights.items():
        at, holes = pointer("weights", path), holes_in(path)
        if not weight.names and weight.fill is None:
            yield finding(at, "a weight has 'from' or 'fill'", "write one of the two, or both")
        for name in weight.names:
            for hole in sorted(holes_in(name) - holes):
                problem = f"'{{{hole}}}' of '{name}' does not stand in the path of ours"
                yield finding(at, problem, did_you_mean(hole, holes) or "write a number")


def holes_in(pattern: str) -> frozenset[str]:
    """Return the placeholders of a pattern.

    >>> sorted(holes_in("encoder.{i}.norm.{p}"))
    ['i', 'p']
    """
    return frozenset(_HOLE.findall(pattern))


def matcher(pattern: str) -> re.Pattern[str]:
    """Return what finds the names that a pattern stands for; each hole is one piece.

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
    """Return a pattern with its placeholders filled.

    >>> filled("layer.{i}.bias", {"i": "3"})
    'layer.3.bias'
    """
    return _HOLE.sub(lambda found: holes[found[1]], pattern)
