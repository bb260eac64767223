"""Linearization: conversion between trees and sequences of symbols.

There are three forms, named as in a run file; `VP` over `VBZ NP` is written as

    vinyals      (VP XX (NP XX )NP )VP    one symbol for all tags, labeled closings
    tensor2tensor VP VBZ NP NN /NP /VP    tags as leaves, unmarked openings
    top_down     (VP sees (NP it ) )      words as leaves, unlabeled closings

An outer TOP is omitted where it is redundant.  Words, and tags in some forms, are
restored from the leaves of the sentence, so given the leaves each form is invertible.

Source: Vinyals et al. 2015, section 2.2; Vaswani et al. 2017, section 6.3, for the
form of its code; Dyer et al. 2016, section 2.1, for top-down order.

`decode/parsing/tree_repair.py` repairs malformed sequences of symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from .trees import Leaf, Tree

TOP = "TOP"
WORD = "XX"
"""The symbol of all tags, in the form of Vinyals et al."""
_LABEL, _TAG = "\\", "="
"""Escape prefixes of an ambiguous unmarked label and an ambiguous tag."""
_MARKS = ("/", _LABEL, _TAG)


class Action(NamedTuple):
    """Effect of a symbol on the tree under construction."""

    kind: Literal["open", "close", "leaf"]
    label: str = ""
    """Label of the constituent; empty for a leaf and for an unlabeled closing."""


class SymbolError(ValueError):
    """A sequence of symbols is not the linearization of a tree over these leaves."""


@dataclass(frozen=True, slots=True)
class Linearization:
    """One form of writing trees as symbols."""

    name: str
    open: Callable[[str], str]
    close: Callable[[str], str]
    leaf: Callable[[Leaf, frozenset[str]], str]
    """Maps a leaf and the labels of its tree to a symbol."""
    actions: Callable[[Sequence[str]], list[Action | None]]
    """Maps symbols to their actions; None for a symbol that is not part of this form."""
    copies: bool = False
    """Whether a leaf is written as its word."""
    tag: Callable[[str], str] | None = None
    """Maps the symbol of a leaf to its tag; None if symbols do not contain tags."""

    def write(self, tree: Tree) -> list[str]:
        """Return the symbols of a tree."""
        labels = frozenset(part.label for part in tree.constituents())
        return list(self._symbols(_inside(tree), labels))

    def read(self, symbols: Sequence[str], leaves: Sequence[Leaf]) -> Tree:
        """Return the tree of symbols and leaves.

        Raises:
            SymbolError: they do not form a tree.
        """
        root: list[Tree | Leaf] = []
        stack: list[tuple[str, list[Tree | Leaf]]] = [(TOP, root)]
        remaining = iter(leaves)
        for index, action in enumerate(self.actions(symbols)):
            if action is None:
                msg = f"symbol {index}, '{symbols[index]}', is not a symbol of {self.name}"
                raise SymbolError(msg)
            _do(action, stack, remaining, f"symbol {index}, '{symbols[index]}'")
        if len(stack) > 1:
            msg = f"'{stack[-1][0]}' is never closed"
            raise SymbolError(msg)
        if next(remaining, None) is not None:
            raise SymbolError("there are fewer leaf symbols than words")
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
    location: str,
) -> None:
    """Apply one symbol to the tree under construction."""
    if action.kind == "open":
        stack.append((action.label, []))
    elif action.kind == "leaf":
        leaf = next(leaves, None)
        if leaf is None:
            msg = f"{location}: there are more leaf symbols than words"
            raise SymbolError(msg)
        stack[-1][1].append(leaf)
    else:
        if len(stack) == 1:
            msg = f"{location} closes a bracket that was not opened"
            raise SymbolError(msg)
        label, children = stack.pop()
        if action.label not in ("", label):
            msg = f"{location} closes '{label}'"
            raise SymbolError(msg)
        if not children:
            msg = f"{location} closes '{label}', which contains no word"
            raise SymbolError(msg)
        stack[-1][1].append(Tree(label, tuple(children)))


def _inside(tree: Tree) -> Tree:
    """Return a tree without an outer TOP that `wrapped` can restore."""
    only = tree.children[0]
    is_wrapper = tree.label == TOP and len(tree.children) == 1
    return only if is_wrapper and isinstance(only, Tree) and only.label != TOP else tree


def wrapped(children: Sequence[Tree | Leaf]) -> Tree:
    """Return the tree over the outermost constituents; a single TOP is returned unchanged."""
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
    """Return a label, escaped if it looks like a closing or an escaped symbol."""
    return _LABEL + label if label[:1] in _MARKS else label


def _t2t_leaf(leaf: Leaf, labels: frozenset[str]) -> str:
    """Return a tag, escaped if it looks like a label or a closing."""
    is_ambiguous = leaf.tag in labels or leaf.tag[:1] in _MARKS
    return _TAG + leaf.tag if is_ambiguous else leaf.tag


def _t2t_actions(symbols: Sequence[str]) -> list[Action | None]:
    """Return the actions of symbols; an unmarked symbol is an opening if it is closed anywhere."""
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
"""Every form, by its name in a run file."""
