"""Labels: the text and color of a block's box, and escaping of text for graphviz.

Names, params and docs may come from untrusted files, so every text passes through `quoted` or
`markup` before it reaches graphviz.
"""

from __future__ import annotations

import functools
import html
import textwrap
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_origin

import graphviz

from ..ir.graph import BlockNode, Filling, Node, Part, RepeatNode, TemplatePart, last_result
from ..ir.traverse import holds_model, model_of

LONGEST = 48
"""Maximum number of characters in a line of a picture; longer text is wrapped or cut."""
TITLE, DETAIL = 20, 26
"""Number of characters in a line of a box: of its title, and of the smaller lines below it."""
MOST_LINES = 6
"""Maximum number of lines of one text in a box; the rest is cut."""

INK = "#22262b"
"""Color of text and wires."""
FAINT = "#8a9099"
"""Color of masks and notes."""
DIM = "#565c65"
"""Color of second lines."""
EDGE = "#4a4f57"
"""Color of the line around a box."""
FRAME, FRAME_EDGE = "#f6f7f8", "#b9bec6"
"""Colors of a frame, and of the line around it."""

COLORS: dict[str, str] = {
    "attention": "#fde2ba",
    "feed_forward": "#c3e6f5",
    "embedding": "#f9dfe2",
    "position": "#dcefdc",
    "norm": "#f3f4c2",
    "linear": "#dee0f1",
    "recurrent": "#e6dbf0",
    "convolution": "#d3ebe6",
    "model": "#cfe3d4",
    "loss": "#f7c9c0",
    "noise": "#e3d9c6",
    "softmax": "#cce7cf",
    "other": "#eceef0",
}
"""Family to the color of its boxes."""

SHARES = "shares the weights of"
"""Note on a node with the weights of another one."""

_PHRASES: dict[str, str] = {
    "heads": "{} heads",
    "kv_heads": "{} key-value heads",
    "layers": "{} layers",
    "d_out": "to {}",
    "activation": "{}",
    "experts": "{} experts",
    "y": "{}",
}
"""Param to its format in a picture, where that is not `name value`."""

_MOST_DIGITS = 1e9
"""Whole numbers from here on are written with an exponent."""
_EXPECTED = frozenset({"none", "plain", "layer_norm", "keys_values", "query_value", "softmax"})
"""Choices that are shown only where they differ from the default."""
_QUIET = frozenset({"dropout", "eps", "bias", "causal", "order", "scale"})
"""Params that a picture omits or shows in another way."""


@dataclass(frozen=True, slots=True)
class BoxText:
    """The text of one box."""

    title: str
    detail: str
    """The distinguishing params, and what fills optional slots."""
    family: str
    below: tuple[str, ...] = ()
    """Bands of the wrapper below the box, before the block, in the order of computation."""
    above: tuple[str, ...] = ()
    """Bands of the wrapper above the box, after the block."""
    params: str = ""
    """The distinguishing params alone."""
    parts: tuple[tuple[str, BoxText], ...] = ()
    """Optional slots and the words of what fills them."""

    @property
    def text(self) -> str:
        """Title and detail, such as `window distance 64`."""
        return f"{self.title} {self.detail}".strip()


class Formula(str):
    """The formula in the number of the copy that a param follows, in place of its value."""

    __slots__ = ()


def quoted(text: str) -> str:
    """Return text for a quoted attribute: no markup, no escapes, no control characters."""
    escaped: str = graphviz.escape(_clean(text))
    return escaped


def markup(text: str) -> str:
    r"""Return text for the inside of an HTML-like label.

    >>> markup('a<b> \\N')
    'a&lt;b&gt; &#92;N'
    """
    return html.escape(_clean(text)).replace("\\", "&#92;")


def short(text: str) -> str:
    """Return the text, cut to the length of a line."""
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def wrapped(text: str, width: int) -> list[str]:
    """Return the text in lines, broken after commas, then at spaces, then anywhere.

    >>> wrapped("masked multi-head attention", 20)
    ['masked multi-head', 'attention']
    >>> wrapped("8 heads, 4 key-value heads, d_k 256", 26)
    ['8 heads,', '4 key-value heads, d_k 256']
    """
    return [*_wrapped(text, width)]


@functools.lru_cache(maxsize=4_096)
def _wrapped(text: str, width: int) -> tuple[str, ...]:
    lines = [""]
    for phrase in _clean(text).split(", "):
        if lines[-1]:
            lines[-1] += ","
        joined = f"{lines[-1]} {phrase}".strip()
        if len(joined) <= width:
            lines[-1] = joined
        else:
            broken = textwrap.wrap(phrase, width, break_on_hyphens=False) or [""]
            lines += broken if lines[-1] else []
            lines = lines if lines[0] else broken
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], lines[MOST_LINES - 1][: width - 1] + "…"]
    return tuple(lines)


def number(value: object) -> str:
    """Return a value of a param as text; numbers have at most four significant digits.

    >>> [number(value) for value in (0.5**0.5, 10_000.0, 0.0, 1e-06, 37000, "relu")]
    ['0.7071', '10000', '0', '1e-06', '37000', 'relu']
    """
    if not isinstance(value, float):
        return str(value)
    is_integer = value.is_integer() and abs(value) < _MOST_DIGITS
    return str(int(value)) if is_integer else f"{value:.4g}"


def _clean(text: str) -> str:
    """Replace characters that SVG does not allow: control characters and lone surrogates."""
    if text.isprintable():
        return text
    return "".join(
        " " if char.isspace() else "�" if unicodedata.category(char) in ("Cc", "Cs", "Cn") else char
        for char in text
    )


def count_words(count: int) -> str:
    """Return a number of parameters in short form.

    >>> [count_words(n) for n in (63_082_496, 2_605_056, 512, 1_500_000_000)]
    ['63.1M', '2.6M', '512', '1.5B']
    """
    for unit, sign in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= unit:
            return f"{count / unit:.1f}{sign}"
    return str(count)


@last_result
def salient(part: Part) -> tuple[tuple[str, Any], ...]:
    """Return the params that distinguish this use of a block from others, by name.

    These are required params, choices, and params that differ from their defaults; the width of
    a head only if it is not the model's width divided by the number of heads.
    """
    return tuple(_salient(part))


def _salient(part: Part) -> Iterator[tuple[str, Any]]:
    width = part.arguments.get("d_model")
    heads = part.arguments.get("heads")
    for name, info in type(part.params).model_fields.items():
        value = getattr(part.params, name)
        if name == "values" and isinstance(value, dict):
            yield from value.items()
        if not isinstance(value, bool | int | float | str):
            continue
        choice = get_origin(info.annotation) is Literal and value not in _EXPECTED
        if value == "none" or not (choice or value != info.default):
            continue
        if name in ("d_k", "d_v") and isinstance(heads, int) and value * heads == width:
            continue
        yield name, value


@last_result
def words_of(part: Filling) -> BoxText:
    """Return the text of a block's box.

    A block with a slot is drawn as the block in its slot, with bands around it: readers look for
    attention, not for the residual path around it.
    """
    if isinstance(part, TemplatePart):
        return BoxText(part.key.replace("_", " "), "", "other")
    if all(slot.optional for slot in part.signature.slots):
        params_text = _detail(part)
        parts = tuple((slot, words_of(inner)) for slot, inner in part.fill.items())
        texts = dict.fromkeys([params_text, *(words.text for _, words in parts)])
        detail = ", ".join(filter(None, texts))
        return BoxText(_title(part), detail, part.block.family, params=params_text, parts=parts)
    inner = [words_of(filling) for filling in part.fill.values()]
    below, above = bands_of(part)
    return BoxText(
        " + ".join(words.title for words in inner),
        ", ".join(words.detail for words in inner if words.detail),
        inner[0].family,
        (*below, *inner[0].below),
        (*inner[0].above, *above),
        ", ".join(words.params for words in inner if words.params),
        tuple(pair for words in inner for pair in words.parts),
    )


def is_closed(node: Node) -> bool:
    """Return whether a folded picture shows a node as one box: a model, or a shared template."""
    return holds_model(node) or (bool(node.shares) and not isinstance(node, BlockNode))


def words_of_closed(node: Node) -> BoxText:
    """Return the text of the box of a closed node."""
    title = node.name.replace("_", " ")
    if node.shares:
        return BoxText(title, f"{SHARES} {node.shares}", "model")
    model = model_of(node)
    if model is None and not isinstance(node, BlockNode):
        times = f"{node.repeat} × " if isinstance(node, RepeatNode) else ""
        inside = f"{times}{node.body.name.replace('_', ' ')}"
        return BoxText(title, f"{inside}, {count_words(node.parameters())} parameters", "model")
    spec, count = (model.name, model.parameters()) if model else ("", node.parameters())
    return BoxText(title, f"{spec}, {count_words(count)} parameters", "model")


def _title(part: Part) -> str:
    """Return the name of a block in a picture."""
    causal = getattr(part.params, "causal", False)  # the axis of the queries in softmax@1
    masked = "masked " if part.block.family != "position" and causal not in (False, "") else ""
    title = part.block.title or part.block.name.replace("_", " ")
    if "{" not in title:
        return masked + title
    values = {
        name: str(value).replace("_", " ") if f"{value}".isidentifier() else value
        for name, value in part.params
    }
    return masked + title.format_map(values)


def _detail(part: Part) -> str:
    """Return the second line: the distinguishing params."""
    texts: list[str] = []
    fields = type(part.params).model_fields
    for name, value in salient(part):
        default = fields[name].default if name in fields else None
        is_title = f"{{{name}}}" in part.block.title
        if name in _QUIET or is_title or (value == default and name not in _PHRASES):
            continue
        if isinstance(value, Formula):
            texts.append(f"{name.replace('_', ' ')} = {value}")
        elif isinstance(value, bool):
            texts.append(name.replace("_", " ") if value else f"no {name.replace('_', ' ')}")
        else:
            in_title = name not in _PHRASES and _title(part).endswith(
                f" {name}"
            )  # no `cap 50` after a title that ends in it
            phrase = "{}" if in_title else _PHRASES.get(name, name + " {}")
            if value == 1 and name in _PHRASES:
                phrase = phrase.removesuffix("s")  # 1 head
            texts.append(phrase.replace("{}", number(value)))
    return ", ".join(texts)


def bands_of(part: Part) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the bands below and above the block in the slot of a wrapper."""
    if part.block.bands is not None:
        return part.block.bands(part.params)
    order = getattr(part.params, "order", None)
    texts = [_title(part), *([f"{order} order"] if isinstance(order, str) else [])]
    return (), (", ".join([*texts, *([_detail(part)] if _detail(part) else [])]),)


def heads_of(part: Filling, port: str, wired: Collection[str]) -> int:
    """Return how many arrows lead to a port: queries, keys and values are drawn apart.

    Args:
        part: the block; only attention has several arrows.
        port: the port.
        wired: all ports with a wire.
    """
    if not isinstance(part, Part) or part.block.family != "attention":
        return 1
    return {"memory": 2, "x": 1 if "memory" in wired else 3}.get(port, 1)
