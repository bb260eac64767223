"""Linearization: a tree as a sequence of symbols, and back.

Three forms, named as a run file names them; `VP` over `VBZ NP` is

    vinyals      (VP XX (NP XX )NP )VP    tags are one symbol, closings are labelled
    tensor2tensor VP VBZ NP NN /NP /VP    tags stay, labels open bare
    top_down     (VP sees (NP it ) )      words are copied, closings are bare

The outer TOP is left out where it says nothing.  What a form leaves out, words and
perhaps tags, comes back from the leaves of the sentence: so each form has an exact
inverse on them.

Source: Vinyals et al. 2015, section 2.2; Vaswani et al. 2017, section 6.3, for the
form of its code; Dyer et al. 2016, section 2.1, for top-down order.

Not here: making a tree of symbols that are none (`repair.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from .trees import Leaf, Tree

TOP = "TOP"
WORD = "XX"
"""The one symbol of all tags, in the form of Vinyals et al."""
_LABEL, _TAG = "\\", "="
"""Put before a bare label, and before a tag, that would read as something else."""
_MARKS = ("/", _LABEL, _TAG)


class Action(NamedTuple):
    """What a symbol does to the tree under construction."""

    kind: Literal["open", "close", "leaf"]
    label: str = ""
    """Of the constituent; empty for a leaf and for a closing that names none."""


class SymbolError(ValueError):
    """A sequence of symbols is not the linearization of a tree over these leaves."""


@dataclass(frozen=True, slots=True)
class Linearization:
    """One way to write trees as symbols."""

    name: str
    open: Callable[[str], str]
    close: Callable[[str], str]
    leaf: Callable[[Leaf, frozenset[str]], str]
    """From a leaf and the labels of its tree."""
    actions: Callable[[Sequence[str]], list[Action | None]]
    """What each symbol does; None for one that is no symbol of this form."""
    copies: bool = False
    """Whether a leaf is written as its word."""
    tag: Callable[[str], str] | None = None
    """From the symbol of a leaf to its tag, where it tells it."""

    def write(self, tree: Tree) -> list[str]:
        """Return the symbols of a tree."""
        labels = frozenset(part.label for part in tree.constituents())
        return list(self._symbols(_inside(tree), labels))

    def read(self, symbols: Sequence[str], leaves: Sequence[Leaf]) -> Tree:
        """Return the tree that symbols and leaves make.

        Raises:
            SymbolError: they make none.
        """
        root: list[Tree | Leaf] = []
        stack: list[tuple[str, list[Tree | Leaf]]] = [(TOP, root)]
        given = iter(leaves)
        for place, action in enumerate(self.actions(symbols)):
            if action is None:
                msg = f"symbol {place}, '{symbols[place]}', is none of {self.name}"
                raise SymbolError(msg)
            _do(action, stack, given, f"symbol {place}, '{symbols[place]}'")
        if len(stack) > 1:
            msg = f"'{stack[-1][0]}' is never closed"
            raise SymbolError(msg)
        if next(given, None) is not None:
            raise SymbolError("words are left over")
        if not root:
            raise SymbolError("there are no symbols")
        return wrapped(root)

    def _symbols(self, part: Tree | Leaf, labels: frozenset[str]) -> Iterator[str]:
        if isinstance(part, Leaf):
            yield self.leaf(part, labels)
            return
        yield self.open(part.label)
        for child in part.children:
            yield from self._symbols(child, labels)
        yield self.close(part.label)


def _do(
    action: Action,
    stack: list[tuple[str, list[Tree | Leaf]]],
    leaves: Iterator[Leaf],
    place: str,
) -> None:
    """Let one symbol change the tree under construction."""
    if action.kind == "open":
        stack.append((action.label, []))
    elif action.kind == "leaf":
        leaf = next(leaves, None)
        if leaf is None:
            msg = f"{place}: there are fewer words"
            raise SymbolError(msg)
        stack[-1][1].append(leaf)
    else:
        if len(stack) == 1:
            msg = f"{place} closes what was not opened"
            raise SymbolError(msg)
        label, children = stack.pop()
        if action.label not in ("", label):
            msg = f"{place} closes '{label}'"
            raise SymbolError(msg)
        if not children:
            msg = f"{place} closes '{label}', which holds no word"
            raise SymbolError(msg)
        stack[-1][1].append(Tree(label, tuple(children)))


def _inside(tree: Tree) -> Tree:
    """Return what is written: without an outer TOP that `wrapped` puts back."""
    only = tree.children[0]
    alone = tree.label == TOP and len(tree.children) == 1
    return only if alone and isinstance(only, Tree) and only.label != TOP else tree


def wrapped(children: Sequence[Tree | Leaf]) -> Tree:
    """Return the tree over what stands outermost; a TOP alone is the tree itself."""
    only = children[0]
    if len(children) == 1 and isinstance(only, Tree) and only.label == TOP:
        return only
    return Tree(TOP, tuple(children))


def _vinyals_actions(symbols: Sequence[str]) -> list[Action | None]:
    def action(symbol: str) -> Action | None:
        if symbol == WORD:
            return Action("leaf")
        if len(symbol) > 1 and symbol[0] in "()":
            return Action("open" if symbol[0] == "(" else "close", symbol[1:])
        return None

    return [action(symbol) for symbol in symbols]


def _t2t_label(label: str) -> str:
    """Return a label, marked where it would read as a closing or as marked."""
    return _LABEL + label if label[:1] in _MARKS else label


def _t2t_leaf(leaf: Leaf, labels: frozenset[str]) -> str:
    """Return a tag, marked where it would read as a label or a closing."""
    amiss = leaf.tag in labels or leaf.tag[:1] in _MARKS
    return _TAG + leaf.tag if amiss else leaf.tag


def _t2t_actions(symbols: Sequence[str]) -> list[Action | None]:
    """Read symbols; a bare one opens a label if that is ever closed."""
    closed = {symbol[1:] for symbol in symbols if symbol[:1] == "/"} - {""}

    def action(symbol: str) -> Action | None:
        name = symbol.removeprefix("/")
        if symbol in closed or (name in closed and name != symbol):
            return Action("open" if symbol in closed else "close", name.removeprefix(_LABEL))
        return Action("leaf") if symbol and symbol[0] not in ("/", _LABEL) else None

    return [action(symbol) for symbol in symbols]


def _top_down_actions(symbols: Sequence[str]) -> list[Action | None]:
    def action(symbol: str) -> Action | None:
        if symbol == ")":
            return Action("close")
        if symbol[:1] == "(":
            return Action("open", symbol[1:]) if len(symbol) > 1 else None
        return Action("leaf") if symbol else None

    return [action(symbol) for symbol in symbols]


LINEARIZATIONS: Mapping[str, Linearization] = {
    form.name: form
    for form in (
        Linearization(
            name="vinyals",
            open=lambda label: "(" + label,
            close=lambda label: ")" + label,
            leaf=lambda _, __: WORD,
            actions=_vinyals_actions,
        ),
        Linearization(
            name="tensor2tensor",
            open=_t2t_label,
            close=lambda label: "/" + _t2t_label(label),
            leaf=_t2t_leaf,
            actions=_t2t_actions,
            tag=lambda symbol: symbol.removeprefix(_TAG) or symbol,
        ),
        Linearization(
            name="top_down",
            open=lambda label: "(" + label,
            close=lambda _: ")",
            leaf=lambda leaf, _: leaf.word,
            actions=_top_down_actions,
            copies=True,
        ),
    )
}
"""Every form, by the name that a run file gives."""
