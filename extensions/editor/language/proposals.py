"""Proposals: values for the params that a block needs, with which it may fit a place."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ....plugin import BlockType, ValueType

_SIZE = re.compile(r"(?<=[ :\[])\d+(?=[ \[\]])")
MOST = 12
"""Maximum number of proposals for one block."""


def needs(block: BlockType, params: Mapping[str, Any]) -> list[str]:
    """Return the params that a block needs and that are not set."""
    fields = block.params.model_fields.items()
    return [name for name, field in fields if field.is_required() and name not in params]


def widths_in(types: Iterable[ValueType | str]) -> list[int]:
    """Return the sizes in some types, each once: of ids, and of axes with a fixed length."""
    sizes = (size for type_ in types for size in _SIZE.findall(str(type_)))
    return list(dict.fromkeys(map(int, sizes)))


def named_sizes(spec: Mapping[str, Any], values: Mapping[str, Any]) -> dict[int, str]:
    """Return the params that are sizes of a spec, by their values.

    Args:
        spec: a spec as JSON data; a param in the type of an input is a size.
        values: params with their values.
    """
    scopes = [spec, *spec.get("blocks", {}).values()]
    types = " ".join(str(type_) for scope in scopes for type_ in scope.get("inputs", {}).values())
    words = {*re.findall(r"\w+", types)}
    names: dict[int, str] = {}
    for name, value in values.items():
        if type(value) is int and (name in words or name.startswith("d_")):
            names.setdefault(value, name)
    return names


def proposals(
    block: BlockType,
    params: Mapping[str, Any],
    values: Mapping[str, Any],
    sizes: Mapping[int, str],
    widths: Iterable[int],
) -> Iterator[dict[str, Any]]:
    """Yield values for the params that a block needs, the likeliest first.

    Args:
        block: the block.
        params: the params that are set.
        values: params that an expression can read at the place, with their values.
        sizes: those of them that are sizes, as of `named_sizes`.
        widths: sizes of the values that the place gives and takes, the likeliest first.
    """
    names = needs(block, params)
    of_place = by_name(widths, sizes)
    lists = [candidates(block, name, values, of_place) for name in names]
    for chosen in itertools.islice(itertools.product(*lists), MOST):
        yield dict(zip(names, chosen, strict=True))


def by_name(widths: Iterable[int], sizes: Mapping[int, str]) -> list[int | str]:
    """Return sizes, as expressions where a param has the value."""
    return [f"={sizes[width]}" if width in sizes else width for width in widths]


def candidates(
    block: BlockType, name: str, values: Mapping[str, Any], of_place: Iterable[Any]
) -> list[Any]:
    """Return values of one param: the param of its name, sizes of the place, and the example.

    A name that begins with `d_` is that of a width; other sizes, such as that of a kernel, are no
    width of the place, and 1 divides everything.
    """
    same = [f"={name}"] if isinstance(values.get(name), bool | int | float | str) else []
    if name.startswith("d_"):
        return [*dict.fromkeys([*same, *of_place, block.example[name]])]
    example = block.example[name]
    return [*same, example, *([1] if type(example) is int and example != 1 else [])]
