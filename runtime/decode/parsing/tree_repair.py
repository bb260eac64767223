"""Repair: any sequence of symbols made into a tree over exactly the words of its sentence.

What was done is counted, so that a model cannot hide behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from ...data.treebank.linearization import Action, Linearization, wrapped
from ...data.treebank.trees import Leaf, Tree


@dataclass(slots=True)
class Repairs:
    """How often each thing was done to one sequence, or to many."""

    unknown: int = 0
    """Symbols dropped since they are none of the form."""
    words_added: int = 0
    """Words attached that the sequence had not."""
    words_dropped: int = 0
    """Symbols dropped that stood for a word too many."""
    opened_dropped: int = 0
    """Constituents dropped since they held no word."""
    closed_dropped: int = 0
    """Closings dropped that nothing had opened."""
    closed_added: int = 0
    """Closings added."""

    @property
    def any(self) -> bool:
        """Whether the sequence was malformed."""
        return self.total > 0

    @property
    def total(self) -> int:
        """How many things were done."""
        return sum(int(getattr(self, one.name)) for one in fields(self))

    def __iadd__(self, other: Repairs) -> Repairs:
        """Add the counts of another sequence."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))
        return self


class _Open(NamedTuple):
    """A constituent under construction."""

    label: str
    children: list[Tree | Leaf]


def repair(
    form: Linearization,
    symbols: Sequence[str],
    leaves: Sequence[Leaf],
    known: Sequence[str] = (),
) -> tuple[Tree, Repairs]:
    """Return the tree that symbols make, mended where they make none.

    A well-formed sequence gives its own tree and no repairs.  Words without a symbol
    are attached to the innermost constituent that is still open at the end, or below
    the root; a closing with the label of an outer constituent closes those inside it.

    Args:
        form: how the symbols are to be read.
        symbols: any strings.
        leaves: the sentence, at least one word.
        known: other symbols, from which it may be learnt what a bare one is.

    Raises:
        ValueError: there are no leaves, so there is no tree.
    """
    if not leaves:
        raise ValueError("a tree needs a word")
    done, stack, used = Repairs(), [_Open("", [])], 0
    for action in form.actions([*symbols, *known])[: len(symbols)]:
        if action is None:
            done.unknown += 1
        elif action.kind == "open":
            stack.append(_Open(action.label, []))
        elif action.kind == "leaf":
            if used == len(leaves):
                done.words_dropped += 1
                continue
            stack[-1].children.append(leaves[used])
            used += 1
        else:
            _close(action, stack, done)
    while len(stack) > 1 and not stack[-1].children and used == len(leaves):
        stack.pop()
        done.opened_dropped += 1
    done.words_added += len(leaves) - used
    stack[-1].children.extend(leaves[used:])
    while len(stack) > 1:
        _pop(stack, done)
        done.closed_added += 1
    return wrapped(stack[0].children), done


def _close(action: Action, stack: list[_Open], done: Repairs) -> None:
    """Close the innermost constituent of a label, and those inside it."""
    open_labels = [one.label for one in stack[1:]]
    if not open_labels or action.label not in ("", *open_labels):
        done.closed_dropped += 1
        return
    while action.label and stack[-1].label != action.label:
        _pop(stack, done)
        done.closed_added += 1
    _pop(stack, done)


def _pop(stack: list[_Open], done: Repairs) -> None:
    """Take the innermost constituent off, into the one around it unless it is empty."""
    label, children = stack.pop()
    if children:
        stack[-1].children.append(Tree(label, tuple(children)))
    else:
        done.opened_dropped += 1
