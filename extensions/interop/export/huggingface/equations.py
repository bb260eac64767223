"""Solving for params: the values with which a spec gives a graph."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .....plugin import Graph, Part, pointer
from .....specs.expressions import (
    LONGEST,
    WORD,
    ExpressionError,
    calls,
    evaluate,
    is_expression,
    names_in,
)
from .alignment import GraphAlignment, Location

_TYPE = re.compile(r"\s*[a-z]+(?::(?P<size>[^\[\]]+))?\[(?P<axes>[^\[\]]*)\]\??\s*")

SMALLEST, LARGEST, STEPS = 2.0**-30, 2.0**40, 200
"""Bounds of the search for a number, and its steps."""
Equation = tuple[str, Any]
"""An expression, without its `=`, and its value."""


def solved(equations: Iterable[Equation], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of names with which expressions have given values.

    An expression with one unknown name is solved if it is linear in it, or monotonic.  Equations
    that contradict one another are not noticed; compare what results.

    Args:
        equations: expressions and their values.
        values: values of other names.

    >>> solved([("d", 8), ("4*d + k", 35)], {})
    {'d': 8, 'k': 3}
    """
    pending, solution = list(equations), dict(values)
    while True:
        waiting = []
        for text, value in pending:
            names = names_in(text)
            unknown = [name for name in names if name not in solution]
            if names == (text.strip(),) and unknown:
                solution[text.strip()] = value
            elif len(unknown) == 1 and _is_number(value):
                root = root_of(text, unknown[0], value, solution)
                if root is not None:
                    solution[unknown[0]] = root
            elif unknown:
                waiting.append((text, value))
        if len(waiting) == len(pending):
            return {name: value for name, value in solution.items() if name not in values}
        pending = waiting


def root_of(text: str, name: str, value: float, values: Mapping[str, Any]) -> float | None:
    """Return the positive number for which an expression has a value; None if none is found.

    The expression is linear, or increases or decreases with the name: `size**-0.5`.

    Args:
        text: the expression.
        name: the unknown name.
        value: the value.
        values: values of the other names.
    """
    line = linear_root(text, name, value, values)
    if line is not None:
        return line

    def error(number: float) -> float:
        return float(evaluate(text, {**values, name: number})) - value

    low, high = SMALLEST, LARGEST
    try:
        rises = error(high) > error(low)
        for _ in range(STEPS):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if (error(middle) >= 0) == rises else (middle, high)
        for root in (round(high), round(low), high, low):
            if root > 0 and error(root) == 0 and not isinstance(value, bool):
                return root
    except (ExpressionError, ArithmeticError, TypeError):
        return None
    return None


def linear_root(text: str, name: str, value: float, values: Mapping[str, Any]) -> float | None:
    """Return the number for which a linear expression has a value; None if there is none.

    Args:
        text: the expression.
        name: the unknown name.
        value: the value.
        values: values of the other names.
    """
    try:
        first, second, fifth = (evaluate(text, {**values, name: number}) for number in (1, 2, 5))
        step = second - first
        if not math.isclose(fifth - first, 4 * step, rel_tol=1e-12):
            return None
        root = float(1 + (value - first) / step)
        for exact in (round(root), root):  # a whole number, unless only a fraction fits
            if evaluate(text, {**values, name: exact}) == value:
                return exact
    except (ExpressionError, ArithmeticError, TypeError):
        return None
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def params_for(graph: Graph, other: Graph, alignment: GraphAlignment) -> dict[str, Any]:
    """Return the params with which the spec of a graph may give another graph.

    Params that nothing determines are left out, and then have their defaults.

    Args:
        graph: a graph of the spec, with any params.
        other: the other graph.
        alignment: the alignment of both.
    """
    spec = graph.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    equations: list[Equation] = []
    for name, theirs in alignment.inputs.items():
        equations += _of_type(str(spec["inputs"][name]), other.inputs[theirs], spec["params"])
    for location, count in alignment.repeats:
        equations += _equal(_record(spec, location).get("repeat"), count)
    for pair in alignment.pairs:
        record = _record(spec, pair.location)
        equations += _of_params(_params_of(record, spec["params"]), pair.other)
    scalars = [
        (text, value)
        for text, value in equations
        if isinstance(value, int | float | str | None) and len(text) <= LONGEST
    ]
    parts = [*alignment.choices, *((pair.location, pair.other) for pair in alignment.pairs)]
    chosen = {
        name: _written(part)
        for location, part in parts
        if (name := _choice(_record(spec, location))) in spec["params"]
    }
    values = {name: value for name, value in solved(scalars, {}).items() if name in spec["params"]}
    return values | chosen


def _choice(record: Any) -> str:
    """Return the param that chooses a block; empty if the spec names the block itself."""
    use = record.get("use") if isinstance(record, Mapping) else None
    return str(use)[1:] if is_expression(use) else ""


def _written(part: Part) -> dict[str, Any]:
    """Return a block as a param holds it, with every param."""
    params = part.params.model_dump(mode="json", exclude_none=True)
    record: dict[str, Any] = {"use": part.key, **({"params": params} if params else {})}
    fill = {
        slot: _written(filling) for slot, filling in part.fill.items() if isinstance(filling, Part)
    }
    return {**record, **({"fill": fill} if fill else {})}


def _of_type(written: str, value_type: Any, params: Mapping[str, Any]) -> list[Equation]:
    """Return equations for the sizes in a type."""
    parts = _TYPE.fullmatch(written)
    if parts is None:
        return []
    pairs = [
        (parts["size"], value_type.size),
        *zip((parts["axes"] or "").split(), value_type.axes, strict=False),
    ]
    return [
        (text, value)
        for text, value in pairs
        if text and isinstance(value, int) and set(names_in(text)) & params.keys()
    ]


def _of_params(written: Mapping[str, Any], part: Part) -> list[Equation]:
    """Return equations for the params of a block: constructor arguments, or params as given."""
    values = part.params.model_dump(mode="json")
    return [*_equal(written, {name: part.arguments.get(name, values[name]) for name in values})]


def _equal(written: Any, value: Any) -> Iterator[Equation]:
    """Yield an equation for each expression in a value, such as a list of sizes."""
    if is_expression(written):
        yield written[1:], value
    elif isinstance(written, Mapping) and isinstance(value, Mapping):
        for name in written.keys() & value.keys():
            yield from _equal(written[name], value[name])
    elif isinstance(written, list) and isinstance(value, list | tuple):
        for inner, number in zip(written, value, strict=False):
            yield from _equal(inner, number)


def _params_of(record: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params of a use of a block, then those of the block that a param holds."""
    if not isinstance(record, Mapping):
        return {}
    use = record.get("use")
    chosen = use if isinstance(use, Mapping) else params.get(_choice(record))
    return {**record.get("params", {}), **(_params_of(chosen, params) if chosen else {})}


def _record(spec: Mapping[str, Any], location: Location) -> Any:
    """Return a record of a spec, whose expressions read params of the spec alone."""
    values: dict[str, Any] = {}
    for use in location.uses:
        written = _at(spec, use.at)
        if written.get("index"):
            values[written["index"]] = use.copy
        settings = {
            name: value[use.copy] if isinstance(value, list) and use.copy < len(value) else value
            for name, value in _substituted(written.get("params", {}), values).items()
        }
        values = _settled(_at(spec, pointer("blocks", use.template)).get("params", {}), settings)
    return _substituted(_at(spec, location.at), values)


def _settled(declared: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each param of a template: as set, or its default."""
    values = {name: settings[name] for name in declared if name in settings}
    defaults = {name: value for name, value in declared.items() if name not in settings}
    for _ in defaults:  # a default may read another one, but not itself
        defaults = {
            name: _substituted(value, {n: v for n, v in defaults.items() if n != name})
            for name, value in defaults.items()
        }
    return values | {name: _substituted(value, values) for name, value in defaults.items()}


def _substituted(written: Any, values: Mapping[str, Any]) -> Any:
    """Return a part of a spec whose expressions have values, or expressions, for names.

    >>> _substituted({"d_out": "=2*d", "bias": "=on"}, {"d": "=width + 1", "on": False})
    {'d_out': '=2*(width + 1)', 'bias': False}
    """
    if isinstance(written, Mapping):
        return {name: _substituted(value, values) for name, value in written.items()}
    if isinstance(written, list):
        return [_substituted(value, values) for value in written]
    if not is_expression(written):
        return written
    if written[1:].strip() in values:
        return values[written[1:].strip()]

    def value_of(match: re.Match[str]) -> str:
        value = values.get(match[1] or "")
        if value is None or calls(match):
            return match[0]
        return f"({value[1:]})" if is_expression(value) else str(value)

    return f"={WORD.sub(value_of, written[1:])}"


def _at(spec: Any, at: str) -> Any:
    """Return the part of a spec at a JSON Pointer; an empty object if there is none."""
    for key in at.split("/")[1:]:
        word = key.replace("~1", "/").replace("~0", "~")
        spec = spec.get(word, {}) if isinstance(spec, Mapping) else {}
    return spec
