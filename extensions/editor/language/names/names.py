"""Where each name of a spec is defined and used."""

from __future__ import annotations

import functools

from ..document import Document
from .finder import Finder, Name
from .patches import PatchFinder


@functools.lru_cache(maxsize=8)
def names(known: Document) -> tuple[Name, ...]:
    """Return every name in the text of a spec, in the order of the text."""
    if known.kind != "spec":
        return ()
    root = known.root
    found = {*Finder(known.text, known.merged or root.json()).in_spec(root)}
    patches = root.get("patch")
    if patches is not None:
        found |= {*PatchFinder(known.text, known.unpatched).in_patches(patches)}
    return tuple(sorted(found, key=lambda one: (one.start, one.end, one.symbol)))


def name_at(known: Document, offset: int) -> Name | None:
    """Return the name at an offset; between two names, the shorter one."""
    around = [one for one in names(known) if one.start <= offset <= one.end]
    return min(around, key=lambda one: (one.end - one.start, -one.start), default=None)
