"""Turn any sequence of symbols into a tree over exactly the words of its sentence.

Every repair is counted, so that reports show how often a model writes malformed trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from ..trees.linearization import Action, Linearization, wrapped
from ..trees.trees import Leaf, Tree


@dataclass(slots=True)
class Repairs:
    """Number of repairs of each kind, for one sequence or summed over many."""

    unknown: int = 0
    """Symbols dropped because the linearization does not define them."""
    words_added: int = 0
    """Words attached that the sequence lacked."""
    words_dropped: int = 0
    """Leaf symbols dropped because all words were used."""
    opened_dropped: int = 0
    """Constituents dropped because they contained no word."""
    closed_dropped: int = 0
    """Closings dropped because they matched no open constituent."""
    closed_added: int = 0
    """Closings added."""

    @property
    def any(self) -> bool:
        """Whether the sequence was malformed."""
        return self.total > 0

    @property
    def total(self) -> int:
        """Total number of repairs."""
        return sum(int(getattr(self, field_.name)) for field_ in fields(self))

    def __iadd__(self, other: Repairs) -> Repairs:
        """Add the counts of another sequence."""
        for field_ in fields(self):
            setattr(self, field_.name, getattr(self, field_.name) + getattr(other, field_.name))
        return self


class _Open(NamedTuple):
    """A constituent under construction."""

    label: str
    children: list[Tree | Leaf]


def repair(
    form: Linearization,
    symbols: Sequence[str],
    leaves: Sequence[Leaf],
    vocabulary: Sequence[str] = (),
) -> tuple[Tree, Repairs]:
    """Return the tree that symbols describe, repaired if they are malformed, and the repairs.

    A well-formed sequence gives its own tree and no repairs.  Words without a symbol
    are attached to the innermost constituent that is still open at the end, or below
    the root; a closing with the label of an outer constituent closes the constituents inside it.

    Args:
        form: the linearization that the symbols use.
        symbols: any strings.
        leaves: the sentence, at least one word.
        vocabulary: further symbols of the vocabulary; they determine the meaning of bare symbols.

    Raises:
        ValueError: there are no leaves.
    """
    if not leaves:
        raise ValueError("a tree needs at least one word")
    done, stack, used = Repairs(), [_Open("", [])], 0
    for action in form.actions([*symbols, *vocabulary])[: len(symbols)]:
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
    """Close the innermost constituent with the action's label, and those inside it."""
    open_labels = [part.label for part in stack[1:]]
    if not open_labels or action.label not in ("", *open_labels):
        done.closed_dropped += 1
        return
    while action.label and stack[-1].label != action.label:
        _pop(stack, done)
        done.closed_added += 1
    _pop(stack, done)


def _pop(stack: list[_Open], done: Repairs) -> None:
    """Remove the innermost constituent, and add it to its parent unless it is empty."""
    label, children = stack.pop()
    if children:
        stack[-1].children.append(Tree(label, tuple(children)))
    else:
        done.opened_dropped += 1
