"""Value types, written `kind[axes]`, and how a value is matched to a port.

An axis of a value is fixed: a graph axis such as `T`, which never equals another graph axis, a
number, or a linear combination of graph axes and 1 with integer factors: a start token turns `T`
into `T+1`, and stacked frames give `2*S`.  A combination has a normal form, so that `1+T` and `T+1`
are the same text; a plain number is an `int`.  An axis of a port may also be a lower-case name,
which is bound anew at each node, or a leading `...`, which stands for any number of axes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from ...specs import expressions
from ...specs.expressions import ExpressionError, words_in

Axis = int | str
"""A number, the normal form of a combination (`T`, `T+1`, `2*S`, `S+T-1`), or a free name."""

UNKNOWN = "?"
"""An axis that a mistake elsewhere leaves unknown: it fits any axis."""

LARGEST = 10**9
"""Largest factor or constant."""
MOST_TERMS = 8
"""Maximum number of axes in one combination."""
_TERM = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<factor>\d+(?:\*\d+)*)(?P<times>\*?))?(?P<name>[A-Za-z_][A-Za-z0-9_]*)?"
)
_LONGEST = 100
_NO_NAMES = ("...", UNKNOWN)

Terms = Mapping[str, int]
"""Name to factor; `""` is the constant."""


class AxisError(ValueError):
    """A text is not a linear combination of axes, or exceeds the limits."""


def time_axes(kinds: Mapping[str, str]) -> list[str]:
    """Return the axes along which positions follow each other, from the kinds of all axes."""
    return [axis for axis, kind in kinds.items() if kind == "time"]


def terms_of(axis: Axis) -> dict[str, int]:
    """Return an axis as name to factor, the constant under `""`.

    Raises:
        AxisError: the text is not a linear combination of axes, or exceeds the limits.

    >>> terms_of("2*S+1")
    {'S': 2, '': 1}
    """
    if isinstance(axis, int):
        return {"": axis} if axis else {}
    return dict(_terms(axis))


@functools.lru_cache(maxsize=1_024)
def _terms(axis: str) -> Terms:
    """Return the terms of an axis that is a text; they are not to be changed."""
    terms: dict[str, int] = {}
    at = 0
    while at < len(axis) and len(axis) <= _LONGEST:
        match = _TERM.match(axis, at)
        if match is None or match.end() == at or not (match["factor"] or match["name"]):
            break
        if at and not match["sign"]:
            break
        if match["factor"] and bool(match["times"]) != bool(match["name"]):
            break
        name = match["name"] or ""
        factor = prod(map(int, (match["factor"] or "1").split("*")))
        factor *= -1 if match["sign"] == "-" else 1
        terms[name] = terms.get(name, 0) + factor
        at = match.end()
    if at < len(axis) or not axis or len(terms) > MOST_TERMS:
        msg = f"'{axis[:_LONGEST]}' is not an axis, such as T, T+1 or 2*S"
        raise AxisError(msg)
    if any(abs(factor) > LARGEST for factor in terms.values()):
        msg = f"'{axis}' has a factor or constant larger than {LARGEST:,}"
        raise AxisError(msg)
    return {name: factor for name, factor in terms.items() if factor}


def axis_of(terms: Terms) -> Axis:
    """Return the normal form: axes in alphabetical order, then the constant.

    >>> axis_of({"": 1, "T": 1})
    'T+1'
    """
    nonzero = {name: factor for name, factor in terms.items() if factor}
    if not nonzero.keys() - {""}:
        return nonzero.get("", 0)
    text = ""
    for name in sorted(nonzero.keys() - {""}):
        factor = nonzero[name]
        text += ("-" if factor < 0 else "+" if text else "") + (
            name if abs(factor) == 1 else f"{abs(factor)}*{name}"
        )
    constant = nonzero.get("", 0)
    return text + (f"{constant:+d}" if constant else "")


def added(axis: Axis, other: Axis, times: int = 1) -> Axis:
    """Return an axis plus a multiple of another.

    >>> added("S+1", "T", 2), added("T+1", "T", -1)
    ('S+2*T+1', 1)
    """
    terms = terms_of(axis)
    for name, factor in terms_of(other).items():
        terms[name] = terms.get(name, 0) + times * factor
    return axis_of(terms)


def is_arithmetic(axis: Axis) -> bool:
    """Return whether an axis is a combination rather than a single name or number."""
    return isinstance(axis, str) and not axis.isidentifier() and axis not in _NO_NAMES


def names_of(axis: Axis) -> frozenset[str]:
    """Return the names in an axis; `...` is not a name.

    >>> sorted(names_of("2*S+T-1"))
    ['S', 'T']
    """
    if isinstance(axis, int) or axis in _NO_NAMES:
        return frozenset()
    return frozenset(terms_of(axis).keys() - {""}) if is_arithmetic(axis) else frozenset({axis})


def replaced(axis: Axis, values: Callable[[str], Axis | None]) -> Axis:
    """Return an axis with its names substituted; where `values` returns None, the name stays.

    >>> replaced("t+1", {"t": "2*S"}.get)
    '2*S+1'
    """
    if not is_arithmetic(axis):
        value = values(axis) if isinstance(axis, str) else None
        return axis if value is None else value
    total: dict[str, int] = {}
    for name, factor in terms_of(axis).items():
        value = values(name) if name else None
        if value == UNKNOWN:
            return UNKNOWN
        inner = {name: 1} if value is None else terms_of(value)
        for key, times in inner.items():
            total[key] = total.get(key, 0) + factor * times
    return axis_of(total)


def solve(axis: Axis, value: Axis, free: str) -> Axis | None:
    """Return the value of a free name for which `axis` equals `value`; None if there is none.

    >>> solve("t+1", "T+1", "t")
    'T'
    >>> solve("2*t", "T+1", "t")
    """
    terms, remainder = terms_of(axis), dict(terms_of(value))
    factor = terms.pop(free, 0)
    for name, times in terms.items():
        remainder[name] = remainder.get(name, 0) - times
    if not factor or any(times % factor for times in remainder.values()):
        return None
    return axis_of({name: times // factor for name, times in remainder.items()})


def evaluate(axis: Axis, sizes: Mapping[str, int]) -> int:
    """Return the length of an axis.

    Args:
        axis: a number, or a combination of graph axes.
        sizes: axis name to length.

    Raises:
        KeyError: a name has no size.

    >>> evaluate("2*S+1", {"S": 5})
    11
    """
    if isinstance(axis, int):
        return axis
    return sum(factor * (sizes[name] if name else 1) for name, factor in _terms(axis).items())


KINDS: Mapping[str, str] = {
    "f": "activations; their precision is the run's policy",
    "ids": "integers below the size",
    "logits": "unnormalized scores of `size` classes",
    "logp": "log-probabilities of `size` classes",
    "mask": "bool; true may be attended",
    "bias": "additive float mask",
    "len": "lengths",
    "pos": "positions",
    "score": "scores",
    "label": "class labels below the size",
    "loss": "a term that training adds to its loss; decoding omits it",
}
"""Every kind of value, and its meaning."""
SIZED = frozenset({"ids", "logits", "logp", "label"})
"""Kinds that carry a size, written `kind:size`."""
_INTEGER = frozenset({"ids", "len", "pos", "label"})
"""Kinds whose values are integers."""

Bound = dict[str, Any]
"""Bindings of a port's names: each to an axis, `...` to a tuple of axes."""

_TYPE = re.compile(
    r"\s*(?P<kind>[a-z]+)(?::(?P<size>[^\[\]]+))?\[(?P<axes>[^\[\]]*)\](?P<optional>\?)?\s*"
)


_LOOSE = re.compile(r"\s*(?P<kind>[a-z]+)(?::(?P<size>[^\[\]]*))?(?:\[(?P<axes>[^\[\]]*)\])?")
"""The beginning of a type; only the kind is required."""
_PLAIN = re.compile(r"[1-9][0-9]{0,8}")
"""A size that is a plain number."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class ValueType:
    """The type of a value or of a port."""

    kind: str
    axes: tuple[Axis, ...]
    size: Axis | None = None

    def __str__(self) -> str:
        """Write the type as a spec does.

        >>> str(ValueType("ids", ("B", "S"), 100))
        'ids:100[B S]'
        """
        size = "" if self.size is None else f":{self.size}"
        return f"{self.kind}{size}[{' '.join(map(str, self.axes))}]"


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a value does not fit a port."""

    code: str
    problem: str
    """One clause for the finding's first line."""
    detail: str
    """The type that the port takes, with the bindings of its names."""
    width: bool = False
    """Whether two widths differ, not two axes of the graph."""


class TypeTextError(ValueError):
    """A type in a spec cannot be parsed; `code` is the code of the finding."""

    def __init__(
        self, code: str, problem: str, *, word: str = "", candidates: tuple[str, ...] = ()
    ) -> None:
        """Store the code of the finding, and the unknown word with the known ones."""
        self.code, self.word, self.candidates = code, word, candidates
        super().__init__(problem)


DTYPES: Mapping[str, str] = {"integer": "int64", "bool": "bool", "float": "float"}
"""Kind of dtype to the name of the dtype; `float` stands for that of the run."""


def dtype_of(kind: str) -> Literal["integer", "bool", "float"]:
    """Return the kind of dtype that values of a kind have."""
    return "integer" if kind in _INTEGER else "bool" if kind == "mask" else "float"


def parse_type(
    text: str, params: Mapping[str, Any], axes: Mapping[str, str] | None = None
) -> tuple[ValueType, bool]:
    """Parse a type such as `f[B S 4*d_model]` or `mask[b s]?`.

    Args:
        text: the type.
        params: values of the names that sizes may contain.
        axes: the graph's axes, upper case; None accepts any.

    Returns:
        The type, and whether it is optional.

    Raises:
        TypeTextError: the text is not a type.
    """
    match = _TYPE.fullmatch(text)
    if match is None:
        raise TypeTextError("T01", f"'{text}' is not a type")
    kind = match["kind"]
    if kind not in KINDS:
        raise TypeTextError("T01", f"unknown kind '{kind}'", word=kind, candidates=tuple(KINDS))
    if (kind in SIZED) != (match["size"] is not None):
        wants = "needs a size" if kind in SIZED else "takes no size"
        raise TypeTextError("T01", f"kind '{kind}' {wants}: '{text}'")
    size = None if match["size"] is None else _axis(match["size"].strip(), params, axes)
    if "..." in match["axes"].split()[1:]:
        raise TypeTextError("T01", f"'...' may only precede the other axes: '{text}'")
    words = match["axes"].split()
    by_word = {word: _axis(word, params, axes) for word in dict.fromkeys(words)}
    return (
        ValueType(kind, tuple(by_word[word] for word in words), size),
        match["optional"] is not None,
    )


def parse_known(
    text: str, params: Mapping[str, Any], axes: Mapping[str, str]
) -> tuple[ValueType, bool] | None:
    """Return what is known of a type that cannot be parsed, or None if its kind is unknown.

    A wrong axis or size is unknown, and so is the number of axes without brackets.

    Args:
        text: the type.
        params: values of the names that sizes may contain; the others are unknown.
        axes: the graph's axes.
    """
    match = _LOOSE.match(text)
    if match is None or match["kind"] not in KINDS:
        return None

    def read(word: str) -> Axis:
        try:
            return _axis(word, params, axes)
        except TypeTextError:
            return UNKNOWN

    kind, words = match["kind"], match["axes"]
    size = read((match["size"] or UNKNOWN).strip()) if kind in SIZED else None
    parts = ["..."] if words is None else words.split()
    if "..." in parts:
        parts = parts[len(parts) - 1 - parts[::-1].index("...") :]
    return ValueType(kind, tuple(map(read, parts)), size), text.rstrip().endswith("?")


def _axis(word: str, params: Mapping[str, Any], axes: Mapping[str, str] | None) -> Axis:
    if word == "...":
        return word
    if _PLAIN.fullmatch(word):
        return int(word)
    if re.fullmatch(r"[A-Z][A-Za-z0-9]*", word):
        if axes is not None and word not in axes:
            raise TypeTextError("N05", f"unknown axis '{word}'", word=word, candidates=tuple(axes))
        return word
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", word) and word not in params:
        if not _is_free(word):
            raise TypeTextError(
                "N05", f"unknown axis '{word}'", word=word, candidates=tuple(axes or ())
            )
        return word
    if any(name not in params or name in (axes or ()) for name in words_in(word)):
        return _arithmetic(word, params, axes)
    try:
        value = expressions.evaluate(word, params)
    except ExpressionError as error:
        raise TypeTextError("T01", f"size '{word}': {error}") from error
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TypeTextError("T01", f"size '{word}' is {value}, not a positive whole number")
    return value


def _arithmetic(word: str, params: Mapping[str, Any], axes: Mapping[str, str] | None) -> Axis:
    """Return the normal form of a size that contains an axis or a free name, such as `T+1`."""

    def sized(match: re.Match[str]) -> str:
        name = match[0]
        if name[:1].isupper():
            return str(_axis(name, params, axes))
        value = params.get(name)
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else name

    try:
        axis = axis_of(terms_of(_NAME.sub(sized, word)))
    except AxisError as error:
        raise TypeTextError("T01", f"size '{word}': {error}") from error
    if isinstance(axis, int) and axis < 1:
        raise TypeTextError("T01", f"size '{word}' is {axis}, not a positive whole number")
    return axis


def _is_free(name: str) -> bool:
    return not name[:1].isupper()


def free_names(type_: ValueType) -> set[str]:
    """Return the names of a port's type that are bound at each node: lower-case names and `...`."""
    parts = [*type_.axes, *([] if type_.size is None else [type_.size])]
    names = {name for part in parts for name in names_of(part) if _is_free(name)}
    return names | ({"..."} & {*map(str, parts)})


def fit(
    port_type: ValueType, value_type: ValueType, bound: Bound, origin: Mapping[str, str]
) -> Bound | Misfit:
    """Match a value against a port, binding the port's free names.

    Args:
        port_type: the port's type; its lower-case names are free.
        value_type: the value's type.
        bound: bindings from earlier ports of the node; not changed.
        origin: name to the port that bound it, for the message.

    Returns:
        `bound` extended by the names that this port binds, or the misfit.
    """
    if port_type.kind != value_type.kind:
        return Misfit("T02", f"kind is {value_type.kind}, not {port_type.kind}", str(port_type))
    want_axes, give_axes = port_type.axes, value_type.axes
    bindings = dict(bound)
    if give_axes[:1] == ("...",):  # the number of axes is unknown
        want_axes, give_axes = _last(want_axes, give_axes)
    elif want_axes[:1] == ("...",):
        fixed = len(want_axes) - 1
        if len(give_axes) >= fixed:
            lead = give_axes[: len(give_axes) - fixed]
            expected = bindings.setdefault("...", lead)
            if not alike(expected, lead):
                return Misfit(
                    "T03",
                    f"leading axes are {_axes(lead)}, not {_axes(expected)}"
                    f" (from '{origin.get('...', '?')}')",
                    _explain(port_type, bindings),
                )
            want_axes, give_axes = want_axes[1:], give_axes[len(give_axes) - fixed :]
    if len(want_axes) != len(give_axes):
        problem = f"{len(value_type.axes)} axes, not {len(port_type.axes)}"
        return Misfit("T04", problem, _explain(port_type, bindings))
    pairs = [(want, give, "axis") for want, give in zip(want_axes, give_axes, strict=True)]
    if port_type.size is not None and value_type.size is not None:
        pairs.append((port_type.size, value_type.size, "size"))
    for want, give, what in pairs:
        expected = _matched(want, give, bindings)
        if expected != give and UNKNOWN not in (expected, give):
            free = any(map(_is_free, names_of(want)))
            name = f"{what} '{want}' is {expected}" if free else f"{what} is {expected}"
            if free and expected == want:
                name = f"{what} is '{want}'"
            source = f" (from '{origin[str(want)]}')" if free and str(want) in origin else ""
            width = isinstance(give, int) and isinstance(expected, int)
            return Misfit("T03", f"{name}{source} but {give}", _explain(port_type, bound), width)
    return bindings


def _last(want: tuple[Axis, ...], give: tuple[Axis, ...]) -> tuple[tuple[Axis, ...], ...]:
    """Return the last axes of a port and of a value whose first axes are unknown."""
    length = min(len(want) - (want[:1] == ("...",)), len(give) - 1)
    return want[len(want) - length :], give[len(give) - length :]


def alike(first: tuple[Axis, ...], other: tuple[Axis, ...]) -> bool:
    """Return whether two sequences of axes are equal, as far as both are known."""
    if "..." in (*first[:1], *other[:1]):
        first, other = first[::-1], other[::-1]  # the last axes are known
        pairs = [pair for pair in zip(first, other, strict=False) if "..." not in pair]
    elif len(first) != len(other):
        return False
    else:
        pairs = list(zip(first, other, strict=True))
    return all(a == b or UNKNOWN in (a, b) for a, b in pairs)


def same_type(first: ValueType, other: ValueType) -> bool:
    """Return whether two types are equal, as far as both are known."""
    sizes = first.size, other.size
    return (
        first.kind == other.kind
        and alike(first.axes, other.axes)
        and (sizes[0] == sizes[1] or UNKNOWN in sizes)
    )


def settled(type_: ValueType) -> ValueType:
    """Return a type whose free names, which nothing has bound, are unknown axes.

    >>> str(settled(ValueType("f", ("B", "t", 512))))
    'f[B ? 512]'
    """

    def bound(axis: Axis) -> Axis:
        return UNKNOWN if any(map(_is_free, names_of(axis))) else axis

    size = None if type_.size is None else bound(type_.size)
    return ValueType(type_.kind, tuple(map(bound, type_.axes)), size)


def free_axes(axes: Iterable[Axis]) -> tuple[str, ...]:
    """Return free names for the axes of a port that takes a value with some axes.

    >>> free_axes(("B", "T", "2*S", 8))
    ('b', 't', 'n_2', 'n_3')
    """
    names: list[str] = []
    for index, axis in enumerate(axes):
        name = str(axis).lower()
        simple = str(axis).isidentifier() and name not in names
        names.append(name if simple else f"n_{index}")
    return tuple(names)


def is_known(type_: ValueType) -> bool:
    """Return whether all axes of a type are known."""
    return UNKNOWN not in type_.axes and "..." not in type_.axes


def _matched(want: Axis, give: Axis, bindings: Bound) -> Axis:
    """Return a port's axis at this node, binding its free name if only one is unbound."""
    if isinstance(want, int):
        return want
    if give == UNKNOWN:
        return UNKNOWN
    expected = replaced(want, bindings.get)
    open_ = (
        [name for name in names_of(expected) if _is_free(name)] if isinstance(expected, str) else []
    )
    if len(open_) != 1:
        return expected
    value = solve(expected, give, open_[0]) if is_arithmetic(expected) else give
    if value is None or (isinstance(value, int) and value < 1 and is_arithmetic(expected)):
        return expected
    bindings[open_[0]] = value
    return give


def substitute(type_: ValueType, bound: Bound) -> ValueType:
    """Return a port's type with its names replaced by their bindings."""
    axes: list[Axis] = []
    for axis in type_.axes:
        value = bound.get("...", axis) if axis == "..." else replaced(axis, bound.get)
        axes.extend(value if isinstance(value, tuple) else (value,))
    size = None if type_.size is None else replaced(type_.size, bound.get)
    return ValueType(type_.kind, tuple(axes), size)


def _axes(axes: tuple[Axis, ...]) -> str:
    return f"[{' '.join(map(str, axes))}]"


def _explain(port_type: ValueType, bound: Bound) -> str:
    """Describe a port's type with the bindings of its names."""
    bindings = [
        f"{name} is {_axes(bound[name]) if isinstance(bound[name], tuple) else bound[name]}"
        for name in dict.fromkeys(_words(port_type))
        if name in bound
    ]
    return f"{port_type} where {', '.join(bindings)} here" if bindings else str(port_type)


def _words(type_: ValueType) -> list[str]:
    """Return the names in a type in order, `...` included."""
    parts = [*type_.axes, *([] if type_.size is None else [type_.size])]
    return [name for part in parts for name in (sorted(names_of(part)) or [str(part)])]


def sizes_of_inputs(
    inputs: Mapping[str, str], params: Collection[str], types: Mapping[str, ValueType]
) -> dict[str, int]:
    """Return the params of a spec that are sizes of its inputs, from the values that fill them.

    A param that is the size of several inputs has the largest of their sizes.

    Args:
        inputs: input to its type, as the spec writes it.
        params: params that follow the inputs.
        types: input to the type of the value that fills it; other inputs give no sizes.
    """
    sizes: dict[str, int] = {}
    for name, text in inputs.items():
        parts = _TYPE.match(text)
        if name not in types or parts is None:
            continue
        pairs = [(parts["size"], types[name].size)]
        pairs += zip(parts["axes"].split()[::-1], types[name].axes[::-1], strict=False)
        for word, size in pairs:
            if word in params and isinstance(size, int):
                sizes[word] = max(size, sizes.get(word, 0))
    return sizes
