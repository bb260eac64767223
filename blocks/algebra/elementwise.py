"""Elementwise arithmetic: a formula over the values of the wired ports."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from ...graphs.ir.block_type import BlockType, MismatchError, Port, Signature, port
from ...graphs.ir.graph import Part
from ...graphs.ir.python_names import argument
from ...graphs.ir.value_type import SIZED, Axis, ValueType, dtype_of, free_axes
from ...specs.expressions import (
    CONSTANTS,
    FUNCTIONS,
    LARGEST,
    Call,
    ExpressionError,
    names_in,
    parsed,
)
from ...specs.findings import did_you_mean
from ..params import Activation, Count, Number, Params
from .broadcast import Broadcast, broadcast
from .formula_source import python_of
from .ranges import INTEGER_KINDS, REAL, Range, factors_of, range_of, range_of_number, range_of_tree


class ElementwiseParams(Params):
    """Params of `elementwise`."""

    y: str
    """The formula, such as `sigmoid(g) * x + (1 - sigmoid(g)) * z`: its names are ports, or those
    of `values`."""
    values: dict[str, int | Number] = Field(default_factory=dict)
    """Numbers that the formula reads by name, such as `{"by": "=d_model ** 0.5"}`."""
    functions: dict[str, Activation] = Field(default_factory=dict)
    """Functions that a param chooses, such as `{"f": "=activation"}` for the formula `f(x)`."""
    axes: dict[str, str] = Field(default_factory=dict)
    """Names for the axes of each port, such as `{"x": "b t s", "z": "b s"}`, by which the axes
    are matched instead of by themselves; needed where a value has an axis twice."""
    kind: Literal["f", "bias", "score", "loss", "label", "len", "pos"] | None = None
    """Kind of the result; by default, `mask` of a condition, `ids` of integers, and otherwise the
    kind that the numbers of the ports share, or `f`."""

    size: Count | None = None
    """Number of different ids or labels; by default, one more than the largest result."""

    @model_validator(mode="before")
    @classmethod
    def _with_functions(cls, params: Any) -> Any:
        """Write the functions that params choose into the formula."""
        formula, functions = params.get("y"), params.get("functions")
        if not isinstance(formula, str) or not isinstance(functions, dict):
            return params
        for name, function in functions.items():
            call = re.compile(rf"(?<![\w.]){re.escape(name)}\s*\(")
            if name in FUNCTIONS or not call.search(formula):
                msg = f"'functions' has '{name}', which '{formula}' does not call"
                msg = f"'{name}' is a function already" if name in FUNCTIONS else msg
                raise ValueError(msg)
            if function not in get_args(Activation):
                return params  # which the type of the param refuses
            formula = call.sub("(" if function == "identity" else f"{function}(", formula)
        return {**params, "y": formula, "functions": {}}

    @field_validator("y")
    @classmethod
    def _parses(cls, text: str) -> str:
        """Refuse a text that is not an expression."""
        try:
            parsed(text)
        except ExpressionError as error:
            msg = str(error)
            raise ValueError(msg) from error
        return text

    @model_validator(mode="after")
    def _reads_all(self) -> Self:
        """Refuse numbers and axes of names that the formula does not read, and no ports at all."""
        read = names_in(self.y)
        for what, names in (("values", self.values), ("axes", self.axes)):
            for name in names:
                if name not in read or (what == "axes" and name in self.values):
                    help_ = did_you_mean(name, read)
                    msg = f"'{what}' has '{name}', which the formula '{self.y}' does not read"
                    raise ValueError(f"{msg}; {help_}" if help_ else msg)
        try:
            python_of(parsed(self.y), self.values)
        except ExpressionError as error:
            msg = f"'{self.y}': {error}"
            raise ValueError(msg) from error
        if not self.ports:
            msg = f"'{self.y}' reads no port"
            raise ValueError(msg)
        if self.axes and (missing := [name for name in self.ports if name not in self.axes]):
            msg = f"'axes' lacks '{missing[0]}': name the axes of every port, or of none"
            raise ValueError(msg)
        return self

    @property
    def ports(self) -> list[str]:
        """The ports, in the order in which the formula reads them."""
        names = names_in(self.y)
        return [name for name in names if name not in self.values and name not in CONSTANTS]


def _signature(params: ElementwiseParams, _: frozenset[str]) -> Signature:
    """Return the ports before the types of the wires are known."""
    return Signature(
        inputs=tuple(port(name, "f[...]", "a value of any kind") for name in params.ports),
        outputs=(port("y", "f[...]", "the result"),),
    )


def _typed(params: ElementwiseParams, types: Mapping[str, ValueType]) -> Signature:
    """Return the ports for the types of the wires."""
    kind, size = _result(params, types)
    _refuse_size(params, kind)
    matched = _matched(params, types)
    letters: dict[str, Axis] = dict(zip(matched.result, free_axes(matched.result), strict=True))
    letters |= {name: 1 for name, axis in matched.axes.items() if axis == 1}
    trailing = [letters[name] for name in matched.result[matched.lead :]]
    lead: tuple[Axis, ...] = ("...",) if matched.lead else ()
    inputs = []
    for name in params.ports:
        skipped = matched.lead if matched.has_lead(name) else 0
        axes = tuple(
            1 if axis == 1 else letters[label]
            for label, axis in zip(matched.names[name], types[name].axes, strict=True)
        )[skipped:]
        type_ = ValueType(types[name].kind, (*(lead if skipped else ()), *axes), types[name].size)
        inputs.append(Port(name, type_))
    output = ValueType(kind, (*lead, *trailing), size)
    return Signature(
        inputs=tuple(inputs),
        outputs=(Port("y", output),),
        factors=tuple(sorted(factors_of(parsed(params.y), frozenset(params.ports)))),
    )


def _matched(params: ElementwiseParams, types: Mapping[str, ValueType]) -> Broadcast:
    return broadcast({name: types[name] for name in params.ports}, params.axes)


def _range(params: ElementwiseParams, types: Mapping[str, ValueType]) -> Range:
    """Return the range of the result."""
    ranges = {name: range_of(types[name]) for name in params.ports}
    ranges |= {name: range_of_number(value) for name, value in params.values.items()}
    ranges |= {name: REAL for name in CONSTANTS if name not in ranges}
    return range_of_tree(parsed(params.y), ranges)


def _result(params: ElementwiseParams, types: Mapping[str, ValueType]) -> tuple[str, Axis | None]:
    """Return the kind of the result, and its size.

    Raises:
        MismatchError: the formula computes with a mask, or the result may be negative or unbounded.
    """
    ports = {name: types[name] for name in params.ports}
    result = _range(params, types)
    if result.kind == "condition":
        if params.kind is not None:
            msg = f"'{params.y}' is a condition, which is of kind mask, not {params.kind}"
            raise MismatchError("T02", msg, help="write where(CONDITION, 1, 0) for a number")
        return "mask", None
    kinds = {type_.kind for type_ in ports.values()}
    numbers = kinds - {"mask"}
    if result.kind == "real":
        if params.kind in INTEGER_KINDS:
            msg = f"'{params.y}' is not an integer, so it cannot be of kind {params.kind}"
            raise MismatchError("T02", msg, help="use + - * // % min max on integers alone")
        shared = numbers.pop() if len(numbers) == 1 else "f"
        real = shared not in INTEGER_KINDS and shared not in ("logits", "logp", "loss")
        return params.kind or (shared if real else "f"), None
    shared = numbers.pop() if len(numbers) == 1 else "ids"
    kind = params.kind or shared
    if kind not in SIZED:
        return kind, None
    if result.least < 0 or result.most > LARGEST:
        below = result.least < 0
        problem = "may be negative" if below else "has no largest value that is known"
        msg = f"'{params.y}' {problem}, but {kind} are integers from 0 below a size"
        example = f"max({params.y}, 0)" if below else f"({params.y}) % 1000"
        raise MismatchError("T03", msg, help=f"write such as {example}")
    least = int(result.most) + 1
    if params.size is not None and params.size < least:
        msg = f"'{params.y}' may be {least - 1}, but 'size' is {params.size}"
        raise MismatchError("T03", msg, help=f"set 'size' to {least} or more, or leave it out")
    return kind, params.size or least


def _refuse_size(params: ElementwiseParams, kind: str) -> None:
    """Refuse a size of a kind without one."""
    if params.size is not None and kind not in SIZED:
        msg = f"'size' has no effect: '{params.y}' is of kind {kind}, not ids or label"
        raise MismatchError("T02", msg, help="remove 'size'")


def _arguments(params: ElementwiseParams, _: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constant by which the formula multiplies its only port, if it does just that."""
    match parsed(params.y):
        case Call("*", (first, second)) if len(params.ports) == 1:
            factor = first if second == params.ports[0] else second
            number = params.values.get(factor) if isinstance(factor, str) else factor
            return {"factor": number} if isinstance(number, int | float) else {}
    return {}


def _written(part: Part) -> list[str]:
    """Return the lines of `forward`: values are aligned by an index, then the formula follows."""
    params: Any = part.params
    matched = _matched(params, part.inputs)
    indices = {name: matched.index(name) for name in params.ports}
    lines = [f"{argument(n)} = {argument(n)}{index}" for n, index in indices.items() if index]
    result = ast.unparse(python_of(parsed(params.y), params.values))
    kinds = {name: dtype_of(type_.kind) for name, type_ in part.inputs.items()}
    integer = _range(params, part.inputs).kind == "integer"
    if integer and dtype_of(part.outputs["y"].kind) == "float":
        real = next((name for name, dtype in kinds.items() if dtype == "float"), "")
        result = f"({result}).to({argument(real)}.dtype)" if real else f"({result}).float()"
    return [*lines, f"return {result}"]


ELEMENTWISE = BlockType(
    name="elementwise",
    title="{y}",
    doc="Compute a formula element by element; axes match by their names.",
    source="numpy: broadcasting; named axes: Chiang, Rush and Barak 2021",
    params=ElementwiseParams,
    signature=_signature,
    typed=_typed,
    arguments=_arguments,
    written=_written,
    elementwise=True,
    example={"y": "sigmoid(g) * x + (1 - sigmoid(g)) * z"},
    example_inputs={"g": "f[B T]", "x": "f[B T 8]", "z": "f[B T 8]"},
)
