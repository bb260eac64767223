"""Import tables: JSON documents that map the weights of another library to those of a spec.

A table names a spec, derives its params from the other library's configuration, states
the requirements on that configuration, and gives the origin of each weight.  It contains
no code: expressions have the grammar of specs, and the tensor operations are a closed
list.  `docs/importing.md` describes the format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from ....plugin import Finding, SpecError, pointer
from ....runtime.checkpoint.mapping.line import (
    Parts,
    TableRecord,
    mistake_of_pattern,
    mistakes,
)
from ....specs.reader import TABLES, parse
from .inherit import inherited


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


class ImportTable(TableRecord):
    """An import table."""

    format: Literal[1]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
    doc: str
    spec: Any
    """A shipped spec, or a file next to the table."""
    model_type: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")], ...]
    """Supported values of `model_type` in the configuration."""
    architectures: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], ...] = ()
    """Supported architecture classes; a configuration without any is accepted too."""
    defaults: dict[str, Any] = Field(default={})
    """Values of keys that are missing or null in the configuration."""
    require: tuple[Condition, ...] = ()
    """Further requirements on the configuration."""
    params: dict[str, Any]
    """Params of the spec."""
    prefix: str = ""
    """Prefix of the source tensor names; files may lack it."""
    outside: tuple[str, ...] = ()
    """First parts of the names of source tensors without the prefix, such as those of a head."""
    endings: dict[str, str] = Field(default={})
    """Suffixes of source tensor names to replace."""
    weights: dict[str, Parts]
    """Lines of each weight by path; `{i}` matches one name part, the same on both sides, and
    `{*p}` several."""
    ignore: tuple[str, ...] = ()
    """Patterns of source tensors to ignore, such as tables of sines."""
    config: dict[str, Any] = Field(default={})
    """Values of further keys, which only an exported configuration has."""
    tokens: dict[Literal["begin", "end", "pad"], Any] = Field(default={})
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
    for index, pattern in enumerate(table.ignore):
        if (mistake := mistake_of_pattern(pattern)) is not None:
            yield finding(pointer("ignore", index), *mistake)
    for path, problem, help_ in mistakes(table.weights):
        yield finding(pointer("weights", path), problem, help_)


def table_name(theirs: str, prefix: str, endings: Mapping[str, str]) -> str:
    """Return the name by which a table refers to a tensor of the folder.

    >>> table_name("bert.embeddings.LayerNorm.gamma", "bert.", {".gamma": ".weight"})
    'embeddings.LayerNorm.weight'
    """
    name = theirs.removeprefix(prefix)
    for old, new in endings.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
